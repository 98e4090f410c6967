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
#include "access/genam.h"

#include "cluster/cluster.h"

/* ---- callbacks, a file each ---- */

extern IndexBuildResult *pmhash_build(Relation heap, Relation index,
									  struct IndexInfo *indexInfo);
extern void pmhash_build_beside_writers(Relation heap, Relation index,
										struct IndexInfo *indexInfo,
										PmhashFile *file);
extern void pmhash_buildempty(Relation index);
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
extern double pmhash_index_correlation(struct PlannerInfo *root,
									   struct IndexOptInfo *index);
extern bytea *pmhash_options(Datum reloptions, bool validate);
extern bool pmhash_validate(Oid opclassoid);
extern void pmhash_adjustmembers(Oid opfamilyoid, Oid opclassoid,
								 List *operators, List *functions);

/* ---- transaction.c ---- */
extern void pmhash_transaction_init(void);

/* ---- foreign_equality.c ---- */
extern void pmhash_warn_of_equality(Relation index);

/* ---- validate.c ---- */
extern char *pmhash_opfamily_name(Oid family);

/* ---- index_stats.c ---- */
extern void pmhash_require_index(Relation index);

/* ---- vacuum.c ---- */
extern void pmhash_vacuum_delay_point(void);

/* ---- residence.c ---- */
struct RelOptInfo;
extern double pmhash_residence(struct PlannerInfo *root, const struct RelOptInfo *rel);

/* ---- options.c ---- */
extern int	pmhash_fillfactor(Relation index);

#endif							/* PMHASH_AM_H */
