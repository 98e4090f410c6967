/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Plain, index-only and bitmap index scans.
 *
 * A scan is one of five kinds, found out when its first tuple is asked for:
 *
 *	nothing	 some argument is NULL
 *	one		 one hash: a cursor streams its values in growing batches
 *	many	 = ANY: the hashes, sorted, none twice, are looked up in groups;
 *			 if several arrays multiply to more hashes than work_mem holds, one
 *			 range of hashes after the other
 *	all		 not every column is bound, or there are so many hashes that it is
 *			 quicker to sweep the whole table, every tuple to be rechecked
 *	table	 the index has become invalid since the plan was made: every row of
 *			 its table, to be rechecked (table_walk.c)
 *
 * Whatever the kind, fill_batch() puts values (TIDs as numbers) into the
 * batch, in heap order, and gettuple and getbitmap hand them out.  No value
 * comes twice: a cursor and a sweep promise it, and one TID is under one hash
 * only.
 *
 * Everything is allocated in a context of the scan's own and used again by
 * rescans; a probe of a nested loop allocates nothing.
 *
 * A TID may be removed and used again by VACUUM between our reading of it and
 * the visit to the heap, since no pin or lock holds VACUUM back.  The removal
 * epoch tells whether that can have happened.  See src/README, "Scans and
 * VACUUM", for what it is needed for: index-only scans, and the removal of
 * entries that the executor has found dead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/heapam.h"
#include "access/itup.h"
#include "access/relscan.h"
#include "access/skey.h"
#include "access/tableam.h"
#include "access/tupmacs.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "am.h"
#include "engine/sort.h"

/* Values asked of a cursor at first, and at most after doubling. */
#define FIRST_WANT		32
#define LAST_WANT		8192

/*
 * Hashes looked up in one group at first, and at most.  The TIDs of a group are
 * handed out in heap order; so the larger the group, the more of its rows are
 * found on the page of the row before, or the next one.
 */
#define FIRST_GROUP		16
#define LAST_GROUP		65536
#define GROUP_BITS		16

/*
 * What is found in a group carries, below the value, the position of its hash
 * in the group; the sum fits in 64 bits and sorts by value.
 */
StaticAssertDecl(LAST_GROUP == 1 << GROUP_BITS, "positions fill their bits");
StaticAssertDecl(PMH_VALUE_BITS + GROUP_BITS <= 64,
				 "a value and a position fit in a word");

/*
 * Room for the values of a batch of SCAN_MANY: at first, so that LIMIT and EXISTS
 * are not kept waiting; after doubling at least; and per key of a group.  Values
 * that do not fit are read by cursor into the next batches.
 */
#define FIRST_ROOM		64
#define LEAST_VALUES	16384
#define VALUES_PER_KEY	4

typedef enum ScanKind
{
	SCAN_UNBOUND,				/* not started since the last rescan */
	SCAN_NOTHING,
	SCAN_ONE,
	SCAN_MANY,
	SCAN_ALL,
	SCAN_TABLE
} ScanKind;

/*
 * What it takes to look a hash up, to compute one, and to visit a row of the
 * table and recheck it, all in nanoseconds and roughly.
 */
#define PROBE_TIME		50.0
#define HASH_TIME		5.0
#define ROW_TIME		500.0

/*
 * The combinations of the arguments of all columns, as words of keys.c.  Their
 * hashes are computed one range of hashes after the other, so that equal ones
 * come together, whatever combinations they are of, and no TID comes twice.
 */
typedef struct Product
{
	uint64	   *word[INDEX_MAX_KEYS];
	int			n[INDEX_MAX_KEYS];
	double		count;
	uint64		ranges;
	uint64		next_range;
} Product;

typedef struct PmhashScan
{
	MemoryContext context;		/* everything of this scan */
	MemoryContextCallback cleanup;	/* frees what the engine has malloc'd */
	PmhashFile *file;			/* NULL before the first use, and as long as */
	PmhashKeys *keys;			/* the index is invalid */
	ScanKind	kind;
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

	/* a key's values being streamed: SCAN_ONE, and big keys of SCAN_MANY */
	PmhCursor	cursor;
	size_t		want;
	bool		streaming;

	/* SCAN_MANY */
	Product		product;
	MemoryContext product_context;	/* of its words; NULL until needed */
	uint64	   *hashes;
	size_t		nhashes;
	size_t		hashes_capacity;
	size_t		next_hash;
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

	/* SCAN_MANY, SCAN_ALL: memory of the batch */
	uint64	   *values;
	size_t		values_n;
	size_t		values_capacity;

	/* SCAN_ALL */
	PmhSweep	sweep;
	bool		sweeping;

	/* SCAN_TABLE */
	PmhashTableWalk *walk;		/* NULL until needed */

	/* index-only scans */
	uint64		key_hash;		/* whose key stands in xs_itup */
	Buffer		visibility_map;
	TupleTableSlot *slot;		/* for looking at rows; NULL until needed */

	/*
	 * Entries found dead, not handed over yet; NULL until needed.  Those whose
	 * heap pages need no flush of WAL are in front of the others.
	 */
	PmhEntry   *dead;
	int			ndead;
	int			nready;
	int			dead_capacity;
	uint64		dead_epoch;		/* before the first of them was read */
	XLogRecPtr	flushed;		/* WAL, when the first of them was found */
	XLogRecPtr	dead_lsn;		/* the latest of the others' heap pages */
	bool		dead_enough;	/* since the last rescan */

	/* scans that may turn back: the batches before the present one */
	bool		may_turn_back;
	PmhashScanHistory *history; /* NULL until needed */
	bool		in_history;		/* the current element is there */
	int64		history_at;		/* where; -1: the scan is before its first */
} PmhashScan;

/* The scan key that binds each column, or NULL. */
typedef struct BoundColumns
{
	ScanKey		key[INDEX_MAX_KEYS];
	bool		complete;		/* every column has one */
	int			arrays;			/* how many are arrays */
} BoundColumns;

/* One column's arguments: the elements of an array, or a single datum. */
typedef struct ColumnArgs
{
	Datum	   *value;
	int			n;
	Datum		single;
} ColumnArgs;

/* ---- memory ---- */

/* End a sweep if there is one; table NULL as in pmh_sweep_end. */
static void
end_sweep(PmhashScan *so, PmhTable *table)
{
	if (so->sweeping)
	{
		so->sweeping = false;
		pmh_sweep_end(table, &so->sweep);
	}
}

/*
 * Called when the scan's context goes: by endscan, or at some point of the
 * clean-up after an error, when the file may be closed already.
 */
static void
free_engine_memory(void *arg)
{
	PmhashScan *so = arg;

	end_sweep(so, NULL);
	pmh_cursor_free(&so->cursor);
}

/* Make values[] large enough for n; what was in it is lost. */
static void
reserve_values(PmhashScan *so, size_t n)
{
	if (n <= so->values_capacity)
		return;
	if (so->values != NULL)
		pfree(so->values);
	so->values_capacity = 0;
	so->values = MemoryContextAllocHuge(so->context, n * sizeof(uint64));
	so->values_capacity = n;
}

/* Make room in values[] for n more; what is in it stays. */
static void
extend_values(PmhashScan *so, size_t n)
{
	if (so->values_n + n <= so->values_capacity)
		return;
	so->values = repalloc_huge(so->values, (so->values_n + n) * sizeof(uint64));
	so->values_capacity = so->values_n + n;
}

/* Make big[] large enough for n; what was in it is lost. */
static void
reserve_big(PmhashScan *so, size_t n)
{
	if (n <= so->big_capacity)
		return;
	if (so->big != NULL)
		pfree(so->big);
	so->big_capacity = 0;
	so->big = MemoryContextAlloc(so->context, n * sizeof(size_t));
	so->big_capacity = n;
}

/* Make hashes[] large enough for n; what was in it is lost. */
static void
reserve_hashes(PmhashScan *so, size_t n)
{
	if (n <= so->hashes_capacity)
		return;
	if (so->hashes != NULL)
		pfree(so->hashes);
	so->hashes_capacity = 0;
	so->hashes = MemoryContextAllocHuge(so->context, n * sizeof(uint64));
	so->hashes_capacity = n;
}

/* Make room for more hashes; what is in it stays. */
static void
extend_hashes(PmhashScan *so)
{
	so->hashes_capacity += so->hashes_capacity / 2 + 1024;
	so->hashes = repalloc_huge(so->hashes, so->hashes_capacity * sizeof(uint64));
}

/*
 * Open the file and prepare the key functions, once per scan.  False if the
 * index is invalid.
 */
static bool
open_file(IndexScanDesc scan, PmhashScan *so)
{
	MemoryContext old;

	if (likely(so->keys != NULL))
		return true;
	so->file = pmhash_file_open_for_scan(scan->indexRelation);
	if (so->file == NULL)
		return false;
	old = MemoryContextSwitchTo(so->context);
	so->keys = pmhash_keys_make(scan->indexRelation, so->file->seed);
	MemoryContextSwitchTo(old);
	return true;
}

/* ---- binding: from scan keys to hashes ---- */

/*
 * Find a key for each column.  False if some argument is NULL: = is strict,
 * so nothing can match.  Sets so->recheck if there are keys that the hash
 * does not cover; of two keys on a column a single value beats an array.
 */
static bool
bind_columns(IndexScanDesc scan, PmhashScan *so, BoundColumns *bound)
{
	int			ncolumns = so->keys->ncolumns;

	memset(bound->key, 0, ncolumns * sizeof(ScanKey));
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		ScanKey		key = &scan->keyData[i];
		ScanKey    *column = &bound->key[key->sk_attno - 1];

		if (key->sk_flags & SK_ISNULL)
			return false;
		if (*column != NULL)
			so->recheck = true;
		if (*column == NULL || ((*column)->sk_flags & SK_SEARCHARRAY))
			*column = key;
	}

	bound->complete = true;
	bound->arrays = 0;
	for (int i = 0; i < ncolumns; i++)
	{
		if (bound->key[i] == NULL)
			bound->complete = false;
		else if (bound->key[i]->sk_flags & SK_SEARCHARRAY)
			bound->arrays++;
	}
	return true;
}

/* The hash of arguments that are no arrays. */
static uint64
hash_of_bound(PmhashScan *so, const BoundColumns *bound)
{
	Datum		value[INDEX_MAX_KEYS];
	Oid			subtype[INDEX_MAX_KEYS];

	for (int i = 0; i < so->keys->ncolumns; i++)
	{
		value[i] = bound->key[i]->sk_argument;
		subtype[i] = bound->key[i]->sk_subtype;
	}
	return pmhash_keys_hash_args(so->keys, value, subtype);
}

/* Take a key's argument apart, into the current context; NULLs left out. */
static void
take_apart(ScanKey key, ColumnArgs *args)
{
	ArrayType  *array;
	int16		typlen;
	bool		typbyval;
	char		typalign;
	bool	   *isnull;
	int			n;

	if (!(key->sk_flags & SK_SEARCHARRAY))
	{
		args->single = key->sk_argument;
		args->value = &args->single;
		args->n = 1;
		return;
	}

	array = DatumGetArrayTypeP(key->sk_argument);
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &typlen, &typbyval, &typalign);
	deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign,
					  &args->value, &isnull, &n);
	args->n = 0;
	for (int i = 0; i < n; i++)
	{
		if (!isnull[i])
			args->value[args->n++] = args->value[i];
	}
}

/* Sort numbers and drop repeats; returns how many are left. */
static size_t
sort_unique(uint64 *number, size_t n)
{
	size_t		kept = 0;

	pmh_sort_numbers(number, n);
	for (size_t i = 0; i < n; i++)
	{
		if (kept == 0 || number[i] != number[kept - 1])
			number[kept++] = number[i];
	}
	return kept;
}

/*
 * The words of one column's arguments.  'unique': no word twice, which is worth
 * its while where they are multiplied.  Leaks into the current context.
 */
static void
make_words(PmhashScan *so, int column, const ScanKey key, const ColumnArgs *args,
		   bool unique)
{
	Product    *product = &so->product;
	uint64	   *word = MemoryContextAllocHuge(so->product_context,
											  args->n * sizeof(uint64));

	for (int i = 0; i < args->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		word[i] = pmhash_keys_word(so->keys, column, args->value[i], key->sk_subtype);
	}
	product->word[column] = word;
	product->n[column] = unique ? (int) sort_unique(word, args->n) : args->n;
}

/* Go on to the next combination; false behind the last. */
static bool
next_combination(const Product *product, int ncolumns, int *at, uint64 *words)
{
	for (int i = ncolumns - 1; i >= 0; i--)
	{
		if (++at[i] == product->n[i])
			at[i] = 0;
		words[i] = product->word[i][at[i]];
		if (at[i] > 0)
			return true;
	}
	return false;
}

/*
 * Compute the hashes of the next range, sorted, none twice, into so->hashes.
 * False if there is none left.
 */
static bool
hash_next_range(PmhashScan *so)
{
	Product    *product = &so->product;
	int			ncolumns = so->keys->ncolumns;
	int			at[INDEX_MAX_KEYS] = {0};
	uint64		words[INDEX_MAX_KEYS];
	size_t		n = 0;

	if (product->next_range == product->ranges)
		return false;
	for (int i = 0; i < ncolumns; i++)
		words[i] = product->word[i][0];
	do
	{
		uint64		hash = pmhash_keys_hash_words(so->keys, words);

		CHECK_FOR_INTERRUPTS();
		if (((hash >> 32) * product->ranges) >> 32 != product->next_range)
			continue;
		if (n == so->hashes_capacity)
			extend_hashes(so);
		so->hashes[n++] = hash;
	} while (next_combination(product, ncolumns, at, words));
	so->nhashes = sort_unique(so->hashes, n);
	so->next_hash = 0;
	product->next_range++;
	return true;
}

/*
 * Into how many ranges is the product to be divided so that the hashes of each
 * fit in work_mem?  One array alone is never too many: its hashes are about as
 * large as itself.  0 if to read all of the index takes less time.
 */
static uint64
count_ranges(IndexScanDesc scan, PmhashScan *so, int arrays)
{
	double		count = so->product.count;
	double		fit = work_mem * 1024.0 / sizeof(uint64) * 7 / 8;	/* they vary */
	double		ranges = ceil(count / fit);
	uint64_t	entries;
	uint64_t	bytes;
	PmhResult	result;

	if (arrays <= 1 || ranges <= 1)
		return 1;
	result = pmh_estimate(so->file->table, &entries, &bytes);
	if (result != PMH_OK)
		pmhash_engine_error(scan->indexRelation, so->file, result);
	if (count * (PROBE_TIME + ranges * HASH_TIME) > entries * ROW_TIME)
		ranges = 0;
	elog(DEBUG1, "index \"%s\": %.0f combinations of keys, ranges of hashes: %.0f",
		 RelationGetRelationName(scan->indexRelation), count, ranges);
	return (uint64) ranges;
}

/*
 * Turn array arguments into so->product, and its first hashes into so->hashes.
 * False if there are too many: the caller sweeps the table instead.
 */
static bool
hash_arrays(IndexScanDesc scan, PmhashScan *so, const BoundColumns *bound)
{
	Product    *product = &so->product;
	int			ncolumns = so->keys->ncolumns;
	MemoryContext scratch = AllocSetContextCreate(so->context,
												  "pmhash scan arrays",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(scratch);
	ColumnArgs	args;

	if (so->product_context == NULL)
		so->product_context = AllocSetContextCreate(so->context,
													"pmhash scan product",
													ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(so->product_context);
	product->count = 1;
	for (int i = 0; i < ncolumns; i++)
	{
		take_apart(bound->key[i], &args);
		make_words(so, i, bound->key[i], &args, bound->arrays > 1);
		product->count *= product->n[i];
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scratch);

	so->nhashes = so->next_hash = 0;
	product->next_range = product->ranges = 0;
	if (product->count == 0)
		return true;
	product->ranges = count_ranges(scan, so, bound->arrays);
	if (product->ranges == 0)
		return false;
	reserve_hashes(so, (size_t) Min(product->count,
									Max(work_mem * 1024.0 / sizeof(uint64), product->count / product->ranges)));
	return hash_next_range(so);
}

/* ---- starting ---- */

/*
 * Called after locks for serializable transactions are taken, and before what
 * they guard is read.  If the index has been marked as invalid by then, writers may
 * have left rows out already, without having met our locks, and we would not find
 * those rows in the file.  If it is marked later, our locks are moved to the table
 * (invalid.c, pmhash_mark_invalid).
 */
static void
check_locked_in_time(IndexScanDesc scan, PmhashScan *so)
{
	if (likely(!IsolationIsSerializable()) || (XactReadOnly && XactDeferrable) ||
		pmhash_file_open_for_scan(scan->indexRelation) == so->file)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access because index \"%s\" has become invalid",
					RelationGetRelationName(scan->indexRelation)),
			 errhint("The transaction might succeed if retried.")));
}

static void
start_one(IndexScanDesc scan, PmhashScan *so, uint64 hash)
{
	PredicateLockPage(scan->indexRelation, pmhash_predicate_block(so->file, hash),
					  scan->xs_snapshot);
	check_locked_in_time(scan, so);
	pmh_cursor_open(so->file->table, &so->cursor, hash);
	so->want = FIRST_WANT;
	so->streaming = true;
	so->kind = SCAN_ONE;
}

static void
start_many(PmhashScan *so)
{
	so->nbig = so->next_big = 0;
	so->group = so->no_hurry ? LEAST_VALUES / VALUES_PER_KEY : FIRST_GROUP;
	so->room = so->no_hurry ? LEAST_VALUES : FIRST_ROOM;
	so->streaming = false;
	so->kind = SCAN_MANY;
}

static void
start_all(IndexScanDesc scan, PmhashScan *so)
{
	PmhResult	result;

	PredicateLockRelation(scan->indexRelation, scan->xs_snapshot);
	check_locked_in_time(scan, so);
	result = pmh_sweep_begin_reading(so->file->table, &so->sweep);
	if (result != PMH_OK)
		pmhash_engine_error(scan->indexRelation, so->file, result);
	so->sweeping = true;
	so->recheck = true;
	so->kind = SCAN_ALL;
}

/* Without the index: the executor finds out which rows match. */
static void
start_table(IndexScanDesc scan, PmhashScan *so)
{
	so->walk = pmhash_table_walk(scan, so->walk, so->context);
	reserve_values(so, MaxHeapTuplesPerPage);
	so->recheck = true;
	so->kind = SCAN_TABLE;
}

/*
 * Decide what kind of scan this is and begin it.
 *
 * A scan without a key on the first column is an error: rows with a NULL
 * there are not in the index.  (amoptionalkey is false, so the planner makes
 * none.)
 */
static void
start_scan(IndexScanDesc scan, PmhashScan *so)
{
	BoundColumns bound;

	so->may_turn_back = pmhash_scan_may_turn_back(scan);
	if (unlikely(!open_file(scan, so)))
	{
		start_table(scan, so);
		return;
	}
	pmhash_apply_inserts(so->file);
	pgstat_count_index_scan(scan->indexRelation);
#if PG_VERSION_NUM >= 180000
	if (scan->instrument)
		scan->instrument->nsearches++;
#endif

	pmhash_dead_entries_settle(scan->indexRelation, so->file);
	so->recheck = !so->keys->exact || !IsMVCCSnapshot(scan->xs_snapshot);
	if (!bind_columns(scan, so, &bound))
	{
		so->kind = SCAN_NOTHING;
		return;
	}
	if (bound.key[0] == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" cannot be scanned without a condition on its first column",
						RelationGetRelationName(scan->indexRelation))));

	if (!bound.complete)
		start_all(scan, so);
	else if (bound.arrays == 0)
		start_one(scan, so, hash_of_bound(so, &bound));
	else if (hash_arrays(scan, so, &bound))
		start_many(so);
	else
		start_all(scan, so);
}

/* ---- filling the batch ---- */

/* Hand out n elements that stand at v; shift and hashes as in PmhashScan. */
static bool
set_batch(PmhashScan *so, const uint64 *v, size_t n, int shift,
		  const uint64 *hashes)
{
	so->batch = v;
	so->batch_n = n;
	so->batch_next = 0;
	so->batch_shift = shift;
	so->batch_hashes = hashes;
	return true;
}

/* The next values of the key being streamed; false at its end. */
static bool
fill_from_cursor(IndexScanDesc scan, PmhashScan *so)
{
	PmhResult	result;

	result = pmh_cursor_next(so->file->table, &so->cursor, so->want);
	if (result == PMH_DONE)
	{
		so->streaming = false;
		return false;
	}
	if (result != PMH_OK)
		pmhash_engine_error(scan->indexRelation, so->file, result);
	so->want = Min(so->want * 2, LAST_WANT);
	return set_batch(so, so->cursor.batch.value, so->cursor.batch.n, 0,
					 &so->cursor.hash);
}

/*
 * PmhFound for a group: put the value, and which key it belongs to, into
 * values[].  A key that has a long list, or whose values do not all fit, is taken
 * out again and noted in big[].
 */
static void
collect_value(void *arg, size_t key, uint64_t value)
{
	PmhashScan *so = arg;

	if (key != so->collecting)
	{
		so->collecting = key;
		so->collecting_from = so->values_n;
	}
	else if (so->nbig > 0 && so->big[so->nbig - 1] == key)
		return;

	if (value != PMH_VALUE_MANY && so->values_n < so->room)
	{
		so->values[so->values_n++] = value << GROUP_BITS | key;
		return;
	}
	so->overflowed |= value != PMH_VALUE_MANY;
	so->values_n = so->collecting_from;
	so->big[so->nbig++] = key;
}

/*
 * Look the next group of hashes up, as far as their lists are short.  False if
 * there are none left.
 */
static bool
look_group_up(IndexScanDesc scan, PmhashScan *so)
{
	size_t		n;
	PmhResult	result;

	/* nothing of the batch before is needed any more */
	while (so->next_hash == so->nhashes)
	{
		if (!hash_next_range(so))
			return false;
	}
	n = Min(so->group, so->nhashes - so->next_hash);
	so->group_hashes = so->hashes + so->next_hash;
	for (size_t i = 0; i < n; i++)
		PredicateLockPage(scan->indexRelation,
						  pmhash_predicate_block(so->file, so->group_hashes[i]),
						  scan->xs_snapshot);
	check_locked_in_time(scan, so);

	if (so->room >= LEAST_VALUES)
		so->room = Max(n * VALUES_PER_KEY, LEAST_VALUES);
	reserve_values(so, so->room);
	reserve_big(so, n);
	so->nbig = so->next_big = 0;
	so->collecting = SIZE_MAX;
	so->overflowed = false;
	result = pmh_lookup_group_short(so->file->table, so->group_hashes, n,
									collect_value, so);
	if (result != PMH_OK)
		pmhash_engine_error(scan->indexRelation, so->file, result);
	so->next_hash += n;
	so->group = so->overflowed ? Max(so->group / 2, 1) : Min(so->group * 2, LAST_GROUP);
	return true;
}

/*
 * Values of the key being streamed, as many as there is room for, into values[].
 * Bounded work, since nobody can cancel it meanwhile.
 */
static void
collect_from_cursor(IndexScanDesc scan, PmhashScan *so)
{
	uint64		key = so->big[so->next_big - 1];
	size_t		want = Min(so->room - so->values_n, LAST_WANT);
	PmhValues  *batch = &so->cursor.batch;
	PmhResult	result = pmh_cursor_next(so->file->table, &so->cursor, want);

	if (result == PMH_DONE)
	{
		so->streaming = false;
		return;
	}
	if (result != PMH_OK)
		pmhash_engine_error(scan->indexRelation, so->file, result);
	extend_values(so, batch->n);
	for (size_t i = 0; i < batch->n; i++)
		so->values[so->values_n++] = batch->value[i] << GROUP_BITS | key;
}

/*
 * The next batch of = ANY: what is left of the keys of this group, if there are
 * any, or the next group, in TID order as far as there is room.  So the first
 * rows come soon, and many rows in the order of the heap.
 */
static bool
fill_from_many(IndexScanDesc scan, PmhashScan *so)
{
	so->values_n = 0;
	if (!so->streaming && so->next_big == so->nbig && !look_group_up(scan, so))
		return false;
	while (so->values_n < so->room && (so->streaming || so->next_big < so->nbig))
	{
		CHECK_FOR_INTERRUPTS();
		if (!so->streaming)
		{
			pmh_cursor_open(so->file->table, &so->cursor,
							so->group_hashes[so->big[so->next_big++]]);
			so->streaming = true;
		}
		collect_from_cursor(scan, so);
	}
	so->room = Max(so->room, Min(so->room * 2, LEAST_VALUES));
	pmh_sort_numbers(so->values, so->values_n);
	return set_batch(so, so->values, so->values_n, GROUP_BITS, so->group_hashes);
}

/* The next step of a sweep; false at its end. */
static bool
fill_from_sweep(IndexScanDesc scan, PmhashScan *so)
{
	PmhResult	result;

	if (!so->sweeping)
		return false;
	result = pmh_sweep_next(so->file->table, &so->sweep);
	if (result == PMH_DONE)
	{
		end_sweep(so, so->file->table);
		return false;
	}
	if (result != PMH_OK)
		pmhash_engine_error(scan->indexRelation, so->file, result);

	reserve_values(so, so->sweep.n);
	for (size_t i = 0; i < so->sweep.n; i++)
		so->values[i] = so->sweep.entries[i].value;
	pmh_sort_numbers(so->values, so->sweep.n);
	return set_batch(so, so->values, so->sweep.n, 0, NULL);
}

/* The roots of the next page of the table; false at its end. */
static bool
fill_from_table(PmhashScan *so)
{
	int			n = pmhash_table_walk_next(so->walk, so->values);

	return n >= 0 && set_batch(so, so->values, n, 0, NULL);
}

/* Get more values, or begin with it; see fill_batch. */
static bool
read_batch(IndexScanDesc scan, PmhashScan *so)
{
	CHECK_FOR_INTERRUPTS();
	if (so->kind == SCAN_UNBOUND)
		start_scan(scan, so);
	else
		PMH_STOP_POINT("scan_between_batches");

	if (so->kind == SCAN_TABLE)
		return fill_from_table(so);
	so->epoch = pmhash_removal_epoch(so->file);
	switch (so->kind)
	{
		case SCAN_ONE:
			return so->streaming && fill_from_cursor(scan, so);
		case SCAN_MANY:
			return fill_from_many(scan, so);
		case SCAN_ALL:
			return fill_from_sweep(scan, so);
		case SCAN_UNBOUND:
		case SCAN_NOTHING:
		case SCAN_TABLE:
			break;
	}
	return false;
}

/*
 * Get more values.  False if the scan is through; else there is a new batch,
 * which may be empty.
 */
static bool
fill_batch(IndexScanDesc scan, PmhashScan *so)
{
	bool		more = read_batch(scan, so);

	if (so->kind != SCAN_TABLE)
		pmhash_test_for_old_snapshot(scan->indexRelation, so->file,
									 scan->xs_snapshot);
	return more;
}

/* ---- the element being handed out ---- */

static inline uint64
value_in_batch(const PmhashScan *so, size_t at)
{
	return so->batch[at] >> so->batch_shift;
}

/* Its hash; only if the batch knows its hashes. */
static inline uint64
hash_in_batch(const PmhashScan *so, size_t at)
{
	return so->batch_hashes[so->batch[at] & ((UINT64CONST(1) << so->batch_shift) - 1)];
}

static inline uint64
current_value(const PmhashScan *so)
{
	if (unlikely(so->in_history))
		return pmhash_history_get(so->history, so->history_at).value;
	return value_in_batch(so, so->batch_next - 1);
}

/* Only if the batches know their hashes. */
static inline uint64
current_hash(const PmhashScan *so)
{
	if (unlikely(so->in_history))
		return pmhash_history_get(so->history, so->history_at).hash;
	return hash_in_batch(so, so->batch_next - 1);
}

/* ---- entries found dead ---- */

/* Have the entries collected so far removed. */
static void
hand_over_dead(IndexScanDesc scan, PmhashScan *so)
{
	int			ready = so->nready;
	int			others = so->ndead - ready;

	so->ndead = so->nready = 0;
	if (ready > 0)
		pmhash_dead_entries(scan->indexRelation, so->file, so->dead_epoch,
							so->flushed, so->dead, ready);
	if (others > 0)
		pmhash_dead_entries(scan->indexRelation, so->file, so->dead_epoch,
							so->dead_lsn, so->dead + ready, others);
}

/* The heap page that was visited last, still pinned, or InvalidBuffer. */
static Buffer
visited_heap_page(IndexScanDesc scan)
{
	if (scan->xs_heapfetch == NULL ||
		scan->heapRelation->rd_tableam != GetHeapamTableAmRoutine())
		return InvalidBuffer;
	return ((IndexFetchHeapData *) scan->xs_heapfetch)->xs_cbuf;
}

/*
 * The LSN of the heap page on which the current element's tuple has just been
 * judged, or InvalidXLogRecPtr if that is not at hand.  It is read with the page
 * locked: who changes it stores it in two halves.
 */
static XLogRecPtr
judged_page_lsn(IndexScanDesc scan, PmhashScan *so)
{
	Buffer		buffer = visited_heap_page(scan);
	XLogRecPtr	lsn;

	if (!BufferIsValid(buffer) ||
		BufferGetBlockNumber(buffer) != pmhash_value_to_block(current_value(so)))
		return InvalidXLogRecPtr;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	lsn = BufferGetLSNAtomic(buffer);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return lsn;
}

/* Make room for another dead entry, up to PMHASH_DEAD_MAX. */
static void
reserve_dead(PmhashScan *so)
{
	if (so->ndead < so->dead_capacity)
		return;
	so->dead_capacity = Min(Max(so->dead_capacity * 2, 64), PMHASH_DEAD_MAX);
	if (so->dead == NULL)
		so->dead = MemoryContextAlloc(so->context,
									  so->dead_capacity * sizeof(PmhEntry));
	else
		so->dead = repalloc(so->dead, so->dead_capacity * sizeof(PmhEntry));
}

/* Add a dead entry whose heap page has this LSN; InvalidXLogRecPtr: unknown. */
static void
add_dead(PmhashScan *so, PmhEntry entry, XLogRecPtr lsn)
{
	bool		unknown = lsn == InvalidXLogRecPtr;

	if (so->ndead == 0)
		so->flushed = GetFlushRecPtr(NULL);
	if (!unknown && lsn <= so->flushed)
	{
		so->dead[so->ndead++] = so->dead[so->nready];
		so->dead[so->nready++] = entry;
		return;
	}
	if (so->ndead == so->nready)	/* the first of these */
		so->dead_lsn = lsn;
	else if (unknown || so->dead_lsn == InvalidXLogRecPtr)
		so->dead_lsn = InvalidXLogRecPtr;
	else
		so->dead_lsn = Max(so->dead_lsn, lsn);
	so->dead[so->ndead++] = entry;
}

/*
 * The current element's tuple is dead to everyone.  Collect entries until
 * there are enough, the epoch changes or the scan ends.
 *
 * What is gone through again, backward, has been noted when it was read.
 */
static void
note_dead(IndexScanDesc scan, PmhashScan *so)
{
	PmhEntry	entry;

	if (so->batch_hashes == NULL || so->dead_enough || so->in_history)
		return;
	if (so->ndead > 0 && so->dead_epoch != so->epoch)
		hand_over_dead(scan, so);
	reserve_dead(so);
	so->dead_epoch = so->epoch;
	entry.hash = current_hash(so);
	entry.value = current_value(so);
	add_dead(so, entry, judged_page_lsn(scan, so));
	if (so->ndead == PMHASH_DEAD_MAX)
	{
		hand_over_dead(scan, so);
		so->dead_enough = true;
	}
}

/* ---- index-only scans ---- */

/*
 * Does the current element's TID, in scan->xs_heaptid, lead to a row that the
 * snapshot sees?  Notes it if it is dead to everyone.
 */
static bool
row_is_visible(IndexScanDesc scan, PmhashScan *so)
{
	ItemPointerData tid = scan->xs_heaptid; /* changed by the look-up */
	bool		call_again = false;
	bool		all_dead = false;
	bool		found;

	if (so->slot == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(so->context);

		so->slot = table_slot_create(scan->heapRelation, NULL);
		MemoryContextSwitchTo(old);
	}
	found = table_index_fetch_tuple(scan->xs_heapfetch, &tid,
									scan->xs_snapshot, so->slot,
									&call_again, &all_dead);
	ExecClearTuple(so->slot);
	if (visited_heap_page(scan) != InvalidBuffer)
		pmhash_test_heap_page(scan->xs_snapshot, scan->heapRelation,
							  visited_heap_page(scan));
	if (all_dead && !scan->xactStartedInRecovery)
		note_dead(scan, so);
	return found;
}

/*
 * May the executor take the current element for a row if it finds its page
 * all-visible a moment later?  Its look at the visibility map comes after
 * VACUUM may have given the TID away, so we have to know it here: either the
 * page is all-visible and the TID was not given away until after we looked, or
 * the row itself is visible.  (Of elements gone through again the epoch is not
 * known any more.)
 */
static bool
may_be_returned(IndexScanDesc scan, PmhashScan *so)
{
	BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);

	PMH_STOP_POINT("scan_before_visibility");
	if (!so->in_history &&
		VM_ALL_VISIBLE(scan->heapRelation, block, &so->visibility_map) &&
		pmhash_removal_epoch(so->file) == so->epoch)
		return true;
	return row_is_visible(scan, so);
}

/*
 * Put the key that the current element was found by into xs_itup.  An index
 * tuple of one column of fixed length is its header and the datum; it is
 * allocated once per scan and filled again whenever the key changes.
 */
static void
return_key(IndexScanDesc scan, PmhashScan *so)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(scan->indexRelation), 0);
	uint64		hash = current_hash(so);
	Datum		key;
	char	   *data;

	Assert(so->keys->can_return && column->attlen > 0);
	if (scan->xs_itup == NULL)
	{
		Size		size = MAXALIGN(IndexInfoFindDataOffset(0) + column->attlen);

		scan->xs_itup = MemoryContextAllocZero(so->context, size);
		scan->xs_itup->t_info = size;
		scan->xs_itupdesc = RelationGetDescr(scan->indexRelation);
	}
	else if (hash == so->key_hash)
		return;

	key = pmhash_keys_unhash(so->keys, hash);
	data = (char *) scan->xs_itup + IndexInfoFindDataOffset(0);
	if (column->attbyval)
		store_att_byval(data, key, column->attlen);
	else
	{
		memcpy(data, DatumGetPointer(key), column->attlen);
		pfree(DatumGetPointer(key));
	}
	so->key_hash = hash;
}

/* ---- callbacks ---- */

/*
 * ambeginscan.  Touches no file yet: a plan may open more scans than it runs.
 */
IndexScanDesc
pmhash_beginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	MemoryContext context;
	PmhashScan *so;

	context = AllocSetContextCreate(CurrentMemoryContext, "pmhash scan",
									ALLOCSET_SMALL_SIZES);
	so = MemoryContextAllocZero(context, sizeof(PmhashScan));
	so->context = context;
	so->cleanup.func = free_engine_memory;
	so->cleanup.arg = so;
	MemoryContextRegisterResetCallback(context, &so->cleanup);
	scan->opaque = so;
	return scan;
}

/* amrescan: new arguments (or the same ones again if keys is NULL). */
void
pmhash_rescan(IndexScanDesc scan, ScanKey keys, int nkeys,
			  ScanKey orderbys, int norderbys)
{
	PmhashScan *so = scan->opaque;

	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys, scan->numberOfKeys * sizeof(ScanKeyData));
	if (so->file != NULL)
		end_sweep(so, so->file->table);
	so->kind = SCAN_UNBOUND;
	so->dead_enough = false;
	so->batch_n = so->batch_next = 0;
	so->in_history = false;
	if (so->history != NULL)
		pmhash_history_clear(so->history);
}

/* The batch is about to be replaced: remember it if the scan may turn back. */
static void
leave_batch(PmhashScan *so)
{
	if (so->may_turn_back && so->batch_n > 0)
	{
		if (so->history == NULL)
			so->history = pmhash_history_make(so->context);
		for (size_t i = 0; i < so->batch_n; i++)
		{
			PmhEntry	entry;

			entry.hash = so->batch_hashes != NULL ? hash_in_batch(so, i) : 0;
			entry.value = value_in_batch(so, i);
			pmhash_history_add(so->history, entry);
		}
	}
	so->batch_n = so->batch_next = 0;
}

/* Go on to the next element.  False if there is none. */
static bool
go_forward(IndexScanDesc scan, PmhashScan *so)
{
	if (unlikely(so->in_history))
	{
		so->history_at++;
		if (so->history != NULL &&
			so->history_at < (int64) pmhash_history_length(so->history))
			return true;
		so->in_history = false;
		so->batch_next = 0;
	}
	while (so->batch_next >= so->batch_n)
	{
		leave_batch(so);
		if (!fill_batch(scan, so))
			return false;
	}
	so->batch_next++;
	return true;
}

/*
 * Go back to the element before.  False if there is none; the next one is the
 * first again then.  A scan that has not begun is at its end, as in btree.
 */
static bool
go_backward(IndexScanDesc scan, PmhashScan *so)
{
	if (so->kind == SCAN_UNBOUND)
		while (go_forward(scan, so))
			;
	if (!so->may_turn_back)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("scan of index \"%s\" can only go forward",
						RelationGetRelationName(scan->indexRelation)),
				 errhint("Declare the cursor with SCROLL option.")));
	if (!so->in_history)
	{
		if (so->batch_next > 1)
		{
			so->batch_next--;
			return true;
		}
		so->in_history = true;
		so->history_at = so->history == NULL ? 0 :
			(int64) pmhash_history_length(so->history);
	}
	if (so->history_at >= 0)
		so->history_at--;
	return so->history_at >= 0;
}

/*
 * The next element in a direction, its TID into scan->xs_heaptid.  False if
 * there is none.
 */
static bool
next_tid(IndexScanDesc scan, PmhashScan *so, ScanDirection dir)
{
	bool		found = likely(ScanDirectionIsForward(dir)) ? go_forward(scan, so) :
		go_backward(scan, so);

	if (found)
		pmhash_value_to_tid(current_value(so), &scan->xs_heaptid);
	return found;
}

/*
 * amgettuple: the next TID into scan->xs_heaptid and, if wanted, its key into
 * scan->xs_itup.  False if there is none.
 */
bool
pmhash_gettuple(IndexScanDesc scan, ScanDirection dir)
{
	PmhashScan *so = scan->opaque;
	Buffer		visited = visited_heap_page(scan);

	if (BufferIsValid(visited))
		pmhash_test_heap_page(scan->xs_snapshot, scan->heapRelation, visited);
	if (scan->kill_prior_tuple)
		note_dead(scan, so);
	while (next_tid(scan, so, dir))
	{
		scan->xs_recheck = so->recheck;
		if (!scan->xs_want_itup)
			return true;
		if (may_be_returned(scan, so))
		{
			return_key(scan, so);
			return true;
		}
	}
	return false;
}

/* amgetbitmap: add all TIDs to tbm; returns how many. */
int64
pmhash_getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	PmhashScan *so = scan->opaque;
	ItemPointerData tids[256];
	int64		total = 0;

	so->no_hurry = true;
	while (fill_batch(scan, so))
	{
		while (so->batch_next < so->batch_n)
		{
			int			n = 0;

			while (n < (int) lengthof(tids) && so->batch_next < so->batch_n)
			{
				so->batch_next++;
				pmhash_value_to_tid(current_value(so), &tids[n++]);
			}
			tbm_add_tuples(tbm, tids, n, so->recheck);
			total += n;
		}
	}
	return total;
}

/* amendscan */
void
pmhash_endscan(IndexScanDesc scan)
{
	PmhashScan *so = scan->opaque;

	if (so->file != NULL)
		end_sweep(so, so->file->table);
	hand_over_dead(scan, so);
	if (BufferIsValid(so->visibility_map))
		ReleaseBuffer(so->visibility_map);
	if (so->slot != NULL)
		ExecDropSingleTupleTableSlot(so->slot);
	if (so->walk != NULL)
		pmhash_table_walk_end(so->walk);
	if (so->history != NULL)
		pmhash_history_clear(so->history);
	MemoryContextDelete(so->context);
	scan->opaque = NULL;
}
