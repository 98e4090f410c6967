/*-------------------------------------------------------------------------
 *
 * scan.h
 *	  What the files that make up an index scan share: its state and steps.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_SCAN_H
#define PMHASH_SCAN_H

#include "access/relscan.h"
#include "executor/tuptable.h"
#include "utils/snapmgr.h"

#include "am/am.h"
#include "am/fetch.h"
#include "am/keys.h"

/* ---- unique.c ---- */

extern bool pmhash_insert_unique(Relation heap, Relation index, PmhashFile *file,
								 const PmhashKeys *keys, const PmhEntry *entry,
								 Datum *values, bool *isnull,
								 IndexUniqueCheck check);

/* ---- predicate.c ---- */

extern void pmhash_lock_keys(Relation index, PmhashFile *file, const PmhashKeys *keys,
							 const uint64 *hash, size_t n, Snapshot snapshot);
extern void pmhash_lock_all_keys(Relation index, PmhashFile *file, Snapshot snapshot);
extern void pmhash_check_readers(Relation index, const PmhashFile *file,
								 const PmhashKeys *keys, uint64 hash);

/* ---- scan_table.c ---- */

/* Fetches rows of a table one by one. */
typedef struct PmhashRow
{
	Relation	heap;
	Relation	index;
	MemoryContext context;		/* all memory, gone with pmhash_row_end */
	struct IndexFetchTableData *fetch;
	TupleTableSlot *slot;
	struct IndexInfo *info;		/* NULL until a key is wanted */
	struct EState *estate;
} PmhashRow;

extern void pmhash_row_begin(PmhashRow *row, Relation heap, Relation index);
extern bool pmhash_row_fetch(PmhashRow *row, uint64 value, Snapshot snapshot,
							 bool *all_dead);
extern bool pmhash_row_key(PmhashRow *row, const SnapshotData *snapshot, Datum *values,
						   bool *isnull);
extern void pmhash_row_end(PmhashRow *row);
extern bool pmhash_keys_equal(Relation index, const Datum *a, const Datum *b);

typedef struct PmhashTableWalk PmhashTableWalk;

extern PmhashTableWalk *pmhash_table_walk(IndexScanDesc scan,
										  PmhashTableWalk *walk, bool invalid,
										  bool is_taken_as_is,
										  MemoryContext context);
extern int	pmhash_table_walk_next(PmhashTableWalk *walk, uint64 *values);
extern void pmhash_table_walk_end(PmhashTableWalk *walk);

struct PmhashScan;
extern bool pmhash_scan_wants_table(IndexScanDesc scan);
extern bool pmhash_scan_is_of_decoding(IndexScanDesc scan);
extern bool pmhash_scan_is_taken_as_is(IndexScanDesc scan);
extern bool pmhash_scan_row_fits(IndexScanDesc scan, struct PmhashScan *so);

/* ---- the state of a scan ---- */

/* Values wanted of a cursor at most: bounded work between two interrupts. */
#define PMHASH_CURSOR_VALUES	8192

/* See scan.c. */
typedef enum PmhashScanKind
{
	SCAN_UNBOUND,				/* not started since the last rescan */
	SCAN_NOTHING,
	SCAN_ONE,
	SCAN_ARRAY,
	SCAN_ALL,
	SCAN_TABLE
} PmhashScanKind;

/* The combinations of the arguments of all columns, as words of keys.c (scan_keys.c). */
typedef struct PmhashProduct
{
	uint64	   *word[INDEX_MAX_KEYS];
	int			n[INDEX_MAX_KEYS];
	double		count;
	uint64		ranges;
	uint64		next_range;
} PmhashProduct;

/* Where a scan for = ANY is in its hashes (scan_keys.c). */
typedef struct PmhashScanArray
{
	bool		no_hurry;		/* all is wanted: begin with large groups */
	bool		overflowed;		/* a short list has not fit */
	size_t		group;			/* hashes in the next group */
	size_t		room;			/* values in the next batch, about */
	const uint64 *group_hashes;
	size_t	   *big;			/* keys of this group to be read by cursor: */
	size_t		big_capacity;	/* long lists, and what did not fit */
	size_t		nbig;
	size_t		next_big;
	size_t		collecting;		/* key that collect_value is at */
	size_t		collecting_from;	/* where its values start in values[] */
} PmhashScanArray;

/* Entries found dead, not handed over yet (scan.c). */
typedef struct PmhashScanDead
{
	PmhEntry   *entry;			/* NULL until needed */
	int			n;
	int			capacity;
	uint64		epoch;			/* before the first of them was read */
	bool		enough;			/* since the last rescan */
} PmhashScanDead;

typedef struct PmhashScan
{
	MemoryContext context;		/* everything of this scan */
	MemoryContextCallback cleanup;	/* frees what the engine has malloc'd */
	PmhashFile *file;			/* NULL before the first use, and as long as */
	PmhashKeys *keys;			/* the index is invalid */
	PmhashScanKind kind;
	bool		handing_out;	/* of what the last rescan has begun */
	bool		recheck;

	/*
	 * The batch being handed out.  The low batch_shift bits of an element are
	 * the position of its hash in batch_hashes; NULL if hashes are not known.
	 */
	const uint64 *batch;
	size_t		batch_n;
	size_t		batch_next;
	int			batch_shift;
	const uint64 *batch_hashes;
	uint64		epoch;			/* removal epoch before the batch was read */

	/* a key's values being streamed: SCAN_ONE, and big keys of SCAN_ARRAY */
	PmhCursor	cursor;
	size_t		want;
	bool		streaming;
	bool		repeats;		/* rows that come twice are all right */
	bool		start_chosen;	/* SCAN_ONE: kept by rescans */
	uint32		start;

	/* SCAN_ARRAY: what scan_keys.c makes */
	PmhashProduct product;
	MemoryContext product_context;	/* of its words; NULL until needed */
	uint64	   *hashes;
	size_t		nhashes;
	size_t		hashes_capacity;
	size_t		next_hash;
	PmhashScanArray array;		/* how they are looked up */

	/* SCAN_ARRAY, SCAN_ALL: memory of the batch */
	uint64	   *values;
	size_t		values_n;
	size_t		values_capacity;

	/* SCAN_ALL */
	PmhSweep	sweep;
	bool		sweeping;

	/* SCAN_TABLE (scan_table.c) */
	PmhashTableWalk *walk;		/* NULL until needed */

	/* index-only scans (scan.c) */
	uint64		key_hash;		/* of the key in xs_itup */
	Buffer		visibility_map;
	TupleTableSlot *slot;		/* for looking at rows; NULL until needed */

	/* heap pages, ahead of the rows handed out (fetch_ahead) */
	PmhashFetch *fetch;			/* NULL until needed */
	PmhashPipe	pipe;			/* in the batch; value NULL: not begun */
	uint32		rows_ahead;		/* rows handed out since the last rescan */

	/* scans whose rows are taken as they are (scan_table.c) */
	bool		is_taken_as_is;
	struct PmhashRow *row;		/* NULL until needed */

	PmhashScanDead dead;
	bool		any_known_dead; /* in the file, when the batch was read */
} PmhashScan;

/* ---- scan.c ---- */

extern void pmhash_scan_reserve_values(PmhashScan *so, size_t n);
extern void pmhash_scan_leave_file(IndexScanDesc scan, PmhashScan *so,
								   PmhResult result);
extern void pmhash_leave_out_dead(PmhCursor *cursor, PmhashFile *file, bool wanted);
extern void pmhash_note_dead(PmhashScanDead *dead, MemoryContext context,
							 Relation index, PmhashFile *file, uint64 epoch,
							 PmhEntry entry);
extern void pmhash_hand_over_dead(PmhashScanDead *dead, Relation index,
								  PmhashFile *file);
extern bool pmhash_lock_all_visible(Relation heap, BlockNumber block,
									Snapshot snapshot, Buffer *map);

/* Hand out n elements that stand at v; shift and hashes as in PmhashScan. */
static inline bool
pmhash_scan_set_batch(PmhashScan *so, const uint64 *v, size_t n, int shift,
					  const uint64 *hashes)
{
	so->batch = v;
	so->batch_n = n;
	so->batch_next = 0;
	so->batch_shift = shift;
	so->batch_hashes = hashes;
	so->pipe.value = NULL;
	return true;
}

/* The element being handed out. */
static inline uint64
pmhash_scan_value(const PmhashScan *so)
{
	Assert(so->batch_next > 0 && so->batch_next <= so->batch_n);
	return so->batch[so->batch_next - 1] >> so->batch_shift;
}

/* Its hash; only if the batches know their hashes. */
static inline uint64
pmhash_scan_hash(const PmhashScan *so)
{
	uint64		mask = (UINT64CONST(1) << so->batch_shift) - 1;

	Assert(so->batch_hashes != NULL);
	return so->batch_hashes[so->batch[so->batch_next - 1] & mask];
}

/* ---- scan_keys.c ---- */

/* The scan key that binds each column, or NULL. */
typedef struct PmhashBoundColumns
{
	ScanKey		key[INDEX_MAX_KEYS];
	bool		complete;		/* every column has one */
	int			arrays;			/* how many are arrays, or like one */
} PmhashBoundColumns;

extern bool pmhash_scan_bind(IndexScanDesc scan, PmhashScan *so,
							 PmhashBoundColumns *bound);
extern bool pmhash_scan_hash_arrays(IndexScanDesc scan, PmhashScan *so,
									const PmhashBoundColumns *bound);
extern bool pmhash_scan_array_fill(IndexScanDesc scan, PmhashScan *so);

#endif							/* PMHASH_SCAN_H */
