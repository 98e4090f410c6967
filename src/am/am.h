/*-------------------------------------------------------------------------
 *
 * am.h
 *	  Private to the access method: the callbacks and the key functions.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_AM_H
#define PMHASH_AM_H

#include "access/amapi.h"
#include "access/genam.h"
#include "storage/buf.h"
#include "storage/itemptr.h"

#include "cluster/cluster.h"

/* strategy and support function numbers of operator classes */
#define PMHASH_EQUAL_STRATEGY	1
#define PMHASH_NSTRATEGIES		1
#define PMHASH_HASH_PROC		1	/* hash(type, int8) -> int8, as core's extended
									 * hash functions; used unless the key is
									 * "bitwise" (see keys.c) */
#define PMHASH_NPROCS			1

/* ---- TIDs as engine values: 32 bits of block, 15 of offset, heap order ---- */

static inline uint64
pmhash_tid_to_value(ItemPointer tid)
{
	return ((uint64) ItemPointerGetBlockNumberNoCheck(tid) << 15) |
		(uint64) ItemPointerGetOffsetNumberNoCheck(tid);
}

#define PMHASH_OFFSET_MASK		0x7fff

static inline BlockNumber
pmhash_value_to_block(uint64 value)
{
	return (BlockNumber) (value >> 15);
}

static inline void
pmhash_value_to_tid(uint64 value, ItemPointer tid)
{
	ItemPointerSet(tid, pmhash_value_to_block(value),
				   (OffsetNumber) (value & PMHASH_OFFSET_MASK));
}

/* ---- keys.c ---- */

typedef enum PmhashKeyKind
{
	PMHASH_KEY_EXACT,			/* equality of at most 8 bytes: the hash is a
								 * permutation of them */
	PMHASH_KEY_BYTES,			/* equality is equality of bytes: XXH3 over them */
	PMHASH_KEY_FUNCTION			/* the opclass's hash function, then mixed */
} PmhashKeyKind;

/* How a datum becomes the word or the bytes that are hashed (see keys.c). */
typedef enum PmhashShape
{
	/* words: kind EXACT, and the datum can be made from the word */
	PMHASH_SHAPE_BOOL,
	PMHASH_SHAPE_CHAR,
	PMHASH_SHAPE_INT16,
	PMHASH_SHAPE_INT32,
	PMHASH_SHAPE_INT64,
	PMHASH_SHAPE_UINT32,
	PMHASH_SHAPE_MACADDR,
	PMHASH_SHAPE_MACADDR8,
	PMHASH_SHAPE_TID,
	/* words: kind EXACT, but values that differ (-0.0, 0.0) share one */
	PMHASH_SHAPE_FLOAT4,
	PMHASH_SHAPE_FLOAT8,
	/* bytes: kind BYTES */
	PMHASH_SHAPE_VARLENA,
	PMHASH_SHAPE_BPCHAR,
	PMHASH_SHAPE_NAME,
	PMHASH_SHAPE_UUID,
	PMHASH_SHAPE_TIMETZ,
	/* kind FUNCTION; the last two by the function of text */
	PMHASH_SHAPE_FUNCTION,
	PMHASH_SHAPE_NAME_AS_TEXT,
	PMHASH_SHAPE_BPCHAR_AS_TEXT
} PmhashShape;

/* How values of one type are hashed. */
typedef struct PmhashOperand
{
	Oid			type;			/* a member of the operator family */
	PmhashShape shape;
	FmgrInfo	proc;			/* for the shapes of kind FUNCTION */
} PmhashOperand;

/* How one column is hashed. */
typedef struct PmhashKeyColumn
{
	PmhashKeyKind kind;
	Oid			family;
	Oid			collation;
	PmhashOperand own;			/* values of the opclass's input type */
	PmhashOperand other;		/* the last other type a scan argument had */
} PmhashKeyColumn;

/* How the keys of an index are hashed; lives in the context it was made in. */
typedef struct PmhashKeys
{
	int			ncolumns;
	uint64		seed;
	uint64		flip;			/* what the seed is to the inverse */
	bool		exact;			/* one column of kind EXACT: no recheck */
	bool		can_return;		/* exact, and pmhash_keys_unhash may be called */
	MemoryContext context;		/* where this stands */
	MemoryContext scratch;		/* for hash functions to leak into, or NULL */
	PmhashKeyColumn column[FLEXIBLE_ARRAY_MEMBER];
} PmhashKeys;

extern PmhashKeys *pmhash_keys_make(Relation index, uint64 seed);

/* Can the column be computed back from the hash (amcanreturn)? */
extern bool pmhash_keys_can_return(Relation index, int attno);

/*
 * Hash of an index tuple's values.  False if the tuple is not indexed (NULL
 * in the first column).
 */
extern bool pmhash_keys_hash(PmhashKeys *keys, const Datum *values,
							 const bool *isnull, uint64 *hash);

/*
 * Hash of scan arguments, none NULL: one datum per column, each of the type
 * 'subtype[i]' (a member of the column's operator family; InvalidOid: the
 * opclass's own).
 */
extern uint64 pmhash_keys_hash_args(PmhashKeys *keys, const Datum *values,
									const Oid *subtype);

/* The same in two steps: a word per column, and the hash of the words. */
extern uint64 pmhash_keys_word(PmhashKeys *keys, int column_no, Datum value,
							   Oid subtype);
extern uint64 pmhash_keys_hash_words(PmhashKeys *keys, const uint64 *words);

/* The key of a one-column index that can_return, back from its hash. */
extern Datum pmhash_keys_unhash(PmhashKeys *keys, uint64 hash);

/*
 * For validate.c: types of one operator family have to be hashed in the same
 * way.  Tells which way that is for keys of 'type' with hash function 'proc'
 * (types with the same answer agree), InvalidOid if by calling proc.
 */
extern Oid	pmhash_keys_bitwise_group(Oid type, Oid proc);

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
extern bytea *pmhash_options(Datum reloptions, bool validate);
extern bool pmhash_validate(Oid opclassoid);
extern void pmhash_adjustmembers(Oid opfamilyoid, Oid opclassoid,
								 List *operators, List *functions);

/* ---- insert_queue.c ---- */
typedef struct PmhashInsertQueue PmhashInsertQueue;

/* Another one whenever queues may have gone: see pmhash_insert_queue. */
extern uint32 pmhash_queue_generation;

extern void pmhash_insert_queue_init(void);
extern bool pmhash_may_queue(Relation heap, Relation index,
							 struct IndexInfo *indexInfo);
extern PmhashInsertQueue *pmhash_insert_queue(Relation heap, PmhashFile *file);
extern void pmhash_enqueue_insert(PmhashInsertQueue *queue,
								  const PmhEntry *entry);
extern void pmhash_apply_inserts(const PmhashFile *file);

/* ---- insert_source.c ---- */
struct QueryDesc;

extern void pmhash_insert_source_init(void);
extern void pmhash_statement_started(struct QueryDesc *queryDesc);
extern bool pmhash_rows_stay(Relation heap, const struct IndexInfo *indexInfo);

/* ---- scan_history.c ---- */
typedef struct PmhashScanHistory PmhashScanHistory;

extern bool pmhash_scan_may_turn_back(IndexScanDesc scan);
extern PmhashScanHistory *pmhash_history_make(MemoryContext context);
extern void pmhash_history_clear(PmhashScanHistory *history);
extern uint64 pmhash_history_length(const PmhashScanHistory *history);
extern void pmhash_history_add(PmhashScanHistory *history, PmhEntry entry);
extern PmhEntry pmhash_history_get(PmhashScanHistory *history, uint64 at);

/* ---- table_walk.c ---- */
typedef struct PmhashTableWalk PmhashTableWalk;

extern void pmhash_test_heap_page(Snapshot snapshot, Relation heap,
								  Buffer buffer);

extern PmhashTableWalk *pmhash_table_walk(IndexScanDesc scan,
										  PmhashTableWalk *walk,
										  MemoryContext context);
extern int	pmhash_table_walk_next(PmhashTableWalk *walk, uint64 *values);
extern void pmhash_table_walk_end(PmhashTableWalk *walk);

/* ---- validate.c ---- */
extern char *pmhash_opfamily_name(Oid family);

/* ---- stats.c ---- */
extern void pmhash_require_index(Relation index);

/* ---- vacuum.c ---- */
extern void pmhash_vacuum_delay_point(void);

/* ---- verdicts.c ---- */
typedef struct PmhashVerdicts PmhashVerdicts;

extern PmhashVerdicts *pmhash_verdicts_make(Relation index,
											IndexBulkDeleteCallback callback,
											void *callback_state);
extern bool pmhash_verdicts_is_question(IndexBulkDeleteCallback callback,
										void *callback_state);
extern bool pmhash_verdicts_of_vacuum(PmhashVerdicts *verdicts,
									  const IndexVacuumInfo *info);
extern void pmhash_verdicts_collect(PmhashVerdicts *verdicts,
									const PmhEntry *entries, size_t n);
extern uint64 pmhash_verdicts_complete(PmhashVerdicts *verdicts);
extern bool pmhash_verdict(const PmhashVerdicts *verdicts, uint64 value);
extern void pmhash_verdicts_free(PmhashVerdicts *verdicts);

/* ---- options.c ---- */
extern int	pmhash_fillfactor(Relation index);

/*
 * ---- predicate locks (keys.c): a pseudo-page per key hash, never block 0 ----
 *
 * 31 bits, since pg_locks shows page numbers as signed integers.  Since it shows
 * them to everybody, they are no bits of the hash, but of what a function makes
 * of it whose key nobody sees.
 */
extern BlockNumber pmhash_predicate_block(const PmhashFile *file, uint64 hash);

#endif							/* PMHASH_AM_H */
