/*-------------------------------------------------------------------------
 *
 * am.h
 *	  The callbacks of the access method, and what little its files share
 *	  beside them.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_AM_H
#define PMHASH_AM_H

#include "access/amapi.h"
#include "access/attnum.h"
#include "access/genam.h"
#include "access/xact.h"
#include "storage/lmgr.h"
#include "utils/snapshot.h"

#include "cluster/cluster.h"
#include "cluster/replay/replay.h"

/* ---- callbacks, and what their files share ---- */

extern IndexBuildResult *pmhash_build(Relation heap, Relation index,
									  struct IndexInfo *indexInfo);
extern void pmhash_build_beside_writers(Relation heap, Relation index,
										struct IndexInfo *indexInfo,
										PmhashFile *file);
extern char *pmhash_buildphasename(int64 phase);
extern bool pmhash_insert(Relation index, Datum *values, bool *isnull,
						  ItemPointer tid, Relation heap,
						  IndexUniqueCheck checkUnique, bool indexUnchanged,
						  struct IndexInfo *indexInfo);
extern IndexScanDesc pmhash_beginscan(Relation index, int nkeys, int norderbys);
extern void pmhash_rescan(IndexScanDesc scan, ScanKey keys, int nkeys,
						  ScanKey orderbys, int norderbys);
extern bool pmhash_gettuple(IndexScanDesc scan, ScanDirection dir);
extern int64 pmhash_getbitmap(IndexScanDesc scan, TIDBitmap *tbm);
extern void pmhash_endscan(IndexScanDesc scan);
extern IndexBulkDeleteResult *pmhash_bulkdelete(IndexVacuumInfo *info,
												IndexBulkDeleteResult *stats,
												IndexBulkDeleteCallback callback,
												void *callback_state);
extern IndexBulkDeleteResult *pmhash_vacuumcleanup(IndexVacuumInfo *info,
												   IndexBulkDeleteResult *stats);
extern void pmhash_costestimate(struct PlannerInfo *root, struct IndexPath *path,
								double loop_count, Cost *startup, Cost *total,
								Selectivity *selectivity, double *correlation,
								double *pages);
struct IndexOptInfo;
struct RelOptInfo;
extern double pmhash_unread_part(struct PlannerInfo *root, struct IndexOptInfo *index);
extern double pmhash_index_correlation(struct PlannerInfo *root, struct IndexOptInfo *index);
extern double pmhash_residence(struct PlannerInfo *root, const struct RelOptInfo *rel);
extern bool pmhash_validate(Oid opclassoid);
extern void pmhash_adjustmembers(Oid opfamilyoid, Oid opclassoid,
								 List *operators, List *functions);
extern void pmhash_warn_of_equality(Relation index);
extern char *pmhash_opfamily_name(Oid family);

/* ---- transaction.c ---- */
extern void pmhash_transaction_init(void);

/* ---- functions.c, explain.c ---- */
extern void pmhash_require_index(Relation index);
extern void pmhash_explain_init(void);

/* ---- insert.c ---- */

/* Another one whenever queues may have gone: see insert_queue. */
extern uint32 pmhash_queue_generation;

extern void pmhash_apply_inserts(const PmhashFile *file);
extern void pmhash_queues_apply(int level);
extern void pmhash_queues_level_ends(int level, bool committed);
extern void pmhash_queues_forget(void);
extern PmhashFile *pmhash_open_for_scan(Relation index, Snapshot snapshot);
extern PmhashFile *pmhash_open_for_reading(Relation index, Snapshot snapshot);

/* ---- key_types.c ---- */
extern AttrNumber pmhash_lock_row_types(Relation index);
extern List *pmhash_add_indexes(List *indexes, Oid opclass);
extern bool pmhash_core_hash_misleads(Oid type, Oid collation, bool *by_order);
extern void pmhash_row_types_note(Oid relid, AttrNumber attno);
extern void pmhash_row_types_check(void);
extern void pmhash_row_types_level_ends(int level, bool committed);

/* ---- spool.c: sorting, with a look at interrupts ---- */
extern int	pmhash_compare_entries(const void *a, const void *b);
extern void pmhash_sort_entries(PmhEntry *entry, size_t n);
extern void pmhash_sort_numbers(uint64 *number, size_t n);

/* ---- standby_fill.c ---- */
extern const PmhashFiller pmhash_standby_filler;

/*
 * Make an array large enough for n elements of so many bytes; what was in it is lost.
 * *capacity: for how many it is, 0 if it is NULL.
 */
static inline void *
pmhash_reserve(MemoryContext context, void *array, size_t *capacity, size_t n, size_t size)
{
	if (n <= *capacity)
		return array;
	if (array != NULL)
		pfree(array);
	*capacity = 0;
	array = MemoryContextAllocHuge(context, n * size);
	*capacity = n;
	return array;
}

/* ERROR unless the engine has done what it was asked for. */
static inline void
pmhash_check_result(Relation index, PmhashFile *file, PmhResult result)
{
	if (unlikely(result != PMH_OK))
		pmhash_engine_error(index, file, result);
}

/* ---- handler.c ---- */
extern int	pmhash_fillfactor(Relation index);

/* ---- hooks.c ---- */

struct PlannedStmt;
struct PlanState;

typedef struct PmhashStatement
{
	struct PmhashStatement *next;
	MemoryContext context;		/* its indexes are opened, its scans are made in it;
								 * NULL: a utility statement that may build indexes */
	const struct PlannedStmt *planned;	/* NULL: a utility statement */
	struct PlanState *plan;		/* the same */
	bool		inserts;		/* it may insert rows */
	bool		skips_locked;	/* it passes over locked ones somewhere */
	bool		builds;			/* it may build indexes in parallel */
	MemoryContextCallback callback;
} PmhashStatement;

extern bool pmhash_index_builder_runs(void);
extern const PmhashStatement *pmhash_statement_in(MemoryContext context);
extern bool pmhash_skips_locked(const struct PlannedStmt *planned, Index rti);
extern void pmhash_hooks_init(void);

#endif							/* PMHASH_AM_H */
