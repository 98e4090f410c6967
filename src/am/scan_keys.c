/*-------------------------------------------------------------------------
 *
 * scan_keys.c
 *	  What a scan looks for: from its scan keys to hashes, and many hashes looked up.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/skey.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "am/scan.h"
#include "engine/sort.h"

/*
 * Each column needs a key; arrays (= ANY) of several columns are multiplied.
 * The hashes of such a product are made one range of hashes after the other,
 * as many as work_mem holds, so that equal ones come together whatever
 * combinations they are of, and no TID comes twice.
 */

/*
 * What it takes to look a hash up, to compute one, and to visit a row of the
 * table and recheck it, all in nanoseconds and roughly.
 */
#define PROBE_TIME		50.0
#define HASH_TIME		5.0
#define ROW_TIME		500.0

/*
 * Find a key for each column.  False if some argument is NULL: = is strict,
 * so nothing can match.  Sets so->recheck if there are keys that the hash
 * does not cover; of two keys on a column a single value beats an array.
 */
bool
pmhash_scan_bind(IndexScanDesc scan, PmhashScan *so, PmhashBoundColumns *bound)
{
	int			ncolumns = so->keys->ncolumns;

	memset(bound->key, 0, ncolumns * sizeof(ScanKey));
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		ScanKey		key = &scan->keyData[i];
		ScanKey    *column = &bound->key[key->sk_attno - 1];

		Assert(key->sk_attno >= 1 && key->sk_attno <= ncolumns);
		Assert(key->sk_strategy == PMHASH_EQUAL_STRATEGY);
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
		else if ((bound->key[i]->sk_flags & SK_SEARCHARRAY) ||
				 pmhash_keys_many_equal(so->keys->column[i].own.type,
										bound->key[i]->sk_subtype))
			bound->arrays++;
	}
	return true;
}

/* Sort numbers and drop repeats; returns how many are left. */
static size_t
sort_unique(uint64 *number, size_t n)
{
	size_t		kept = 0;

	(void) pmh_sort_numbers(number, n, NULL);
	for (size_t i = 0; i < n; i++)
	{
		if (kept == 0 || number[i] != number[kept - 1])
			number[kept++] = number[i];
	}
	return kept;
}

/*
 * The words of one column's arguments, or argument, NULLs left out.  'unique': no word twice,
 * which is worth its while where they are multiplied.  Leaks into the current context.
 */
static void
make_words(PmhashScan *so, int column, const ScanKey key, bool unique)
{
	PmhashProduct *product = &so->product;
	Datum	   *value = &key->sk_argument;
	bool	   *isnull = NULL;
	int			n = 1;
	int			nwords = 0;
	size_t		most;
	uint64	   *word;

	if (key->sk_flags & SK_SEARCHARRAY)
	{
		ArrayType  *array = DatumGetArrayTypeP(key->sk_argument);
		int16		typlen;
		bool		typbyval;
		char		typalign;

		get_typlenbyvalalign(ARR_ELEMTYPE(array), &typlen, &typbyval, &typalign);
		deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign,
						  &value, &isnull, &n);
	}
	most = pmhash_keys_many_equal(so->keys->column[column].own.type, key->sk_subtype) ?
		PMHASH_EQUAL_MAX : 1;
	word = MemoryContextAllocHuge(so->product_context, (n * most + 1) * sizeof(uint64));
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (isnull == NULL || !isnull[i])
			nwords += pmhash_keys_words(so->keys, column, value[i], key->sk_subtype,
										word + nwords);
	}
	product->word[column] = word;
	product->n[column] = unique ? (int) sort_unique(word, nwords) : nwords;
}

/* ---- the hashes of a product ---- */

/*
 * Compute the hashes of the next range, sorted, none twice, into so->hashes.
 * False if there is none left.
 */
static bool
next_hashes(PmhashScan *so)
{
	PmhashProduct    *product = &so->product;
	int			ncolumns = so->keys->ncolumns;
	int			at[INDEX_MAX_KEYS] = {0};
	uint64		words[INDEX_MAX_KEYS];
	size_t		n = 0;
	int			i;

	Assert(product->next_range <= product->ranges);
	Assert(so->next_hash == so->nhashes);
	if (product->next_range == product->ranges)
		return false;
	for (i = 0; i < ncolumns; i++)
		words[i] = product->word[i][0];
	do
	{
		uint64		hash = pmhash_keys_hash_words(so->keys, words);

		CHECK_FOR_INTERRUPTS();
		if (((hash >> 32) * product->ranges) >> 32 == product->next_range)
		{
			if (n == so->hashes_capacity)
			{
				so->hashes_capacity += so->hashes_capacity / 2 + 1024;
				so->hashes = repalloc_huge(so->hashes,
										   so->hashes_capacity * sizeof(uint64));
			}
			so->hashes[n++] = hash;
		}

		/* the next combination: the last column that has one goes on, those after it begin anew */
		for (i = ncolumns - 1; i >= 0; i--)
		{
			if (++at[i] == product->n[i])
				at[i] = 0;
			words[i] = product->word[i][at[i]];
			if (at[i] > 0)
				break;
		}
	} while (i >= 0);
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

	Assert(count > 0);
	if (arrays <= 1 || ranges <= 1)
		return 1;
	pmhash_check_result(scan->indexRelation, so->file, pmh_estimate(so->file->table, &entries));
	if (count * (PROBE_TIME + ranges * HASH_TIME) > entries * ROW_TIME)
		ranges = 0;
	elog(DEBUG1, "index \"%s\": %.0f combinations of keys, ranges of hashes: %.0f",
		 RelationGetRelationName(scan->indexRelation), count, ranges);
	return (uint64) ranges;
}

/*
 * Scans for = ANY: many hashes, looked up in groups.
 *
 * The TIDs of a group are handed out in heap order.  Groups and batches begin
 * small and double, so the first rows come soon, and many rows in the order of
 * the heap.  Keys with long value lists, and values for which there is no room,
 * are read by cursor into the next batches.
 */

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
 * Room for the values of a batch: at first, so that LIMIT and EXISTS are not kept
 * waiting; after doubling at least; and per key of a group.  Values that do not
 * fit are read by cursor into the next batches.
 */
#define FIRST_ROOM		64
#define LEAST_ROOM		16384
#define VALUES_PER_KEY	4

StaticAssertDecl(LEAST_ROOM / VALUES_PER_KEY <= LAST_GROUP,
				 "a scan in no hurry begins with a group that is allowed");

/*
 * Turn array arguments into so->product, and its first hashes into so->hashes; so->kind
 * becomes SCAN_ARRAY.  False if there are too many: the caller sweeps the index instead.
 */
bool
pmhash_scan_hash_arrays(IndexScanDesc scan, PmhashScan *so,
						const PmhashBoundColumns *bound)
{
	PmhashProduct *product = &so->product;
	PmhashScanArray *array = &so->array;
	MemoryContext scratch = AllocSetContextCreate(so->context,
												  "pmhash scan arrays",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(scratch);
	double		most;

	Assert(bound->complete && bound->arrays > 0 && !so->sweeping);
	array->nbig = array->next_big = 0;
	array->group = array->no_hurry ? LEAST_ROOM / VALUES_PER_KEY : FIRST_GROUP;
	array->room = array->no_hurry ? LEAST_ROOM : FIRST_ROOM;
	so->streaming = false;
	so->kind = SCAN_ARRAY;
	if (so->product_context == NULL)
		so->product_context = AllocSetContextCreate(so->context,
													"pmhash scan product",
													ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(so->product_context);
	product->count = 1;
	for (int i = 0; i < so->keys->ncolumns; i++)
	{
		make_words(so, i, bound->key[i], bound->arrays > 1);
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
	most = Max(work_mem * 1024.0 / sizeof(uint64), product->count / product->ranges);
	so->hashes = pmhash_reserve(so->context, so->hashes, &so->hashes_capacity,
								(size_t) Min(product->count, most), sizeof(uint64));
	return next_hashes(so);
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
	PmhashScanArray *array = &so->array;

	if (key != array->collecting)
	{
		array->collecting = key;
		array->collecting_from = so->values_n;
	}
	else if (array->nbig > 0 && array->big[array->nbig - 1] == key)
		return;

	if (value != PMH_VALUE_MANY && so->values_n < array->room)
	{
		Assert(key < LAST_GROUP && value <= PMH_VALUE_MAX && so->values_n < so->values_capacity);
		so->values[so->values_n++] = value << GROUP_BITS | key;
		return;
	}
	array->overflowed |= value != PMH_VALUE_MANY;
	so->values_n = array->collecting_from;
	array->big[array->nbig++] = key;
}

/*
 * Look the next group of hashes up, as far as their lists are short.  False if
 * there are none left, or if the scan has left the file.
 */
static bool
look_group_up(IndexScanDesc scan, PmhashScan *so)
{
	PmhashScanArray *array = &so->array;
	size_t		n;
	PmhResult	result;

	/* nothing of the batch before is needed any more */
	Assert(!so->streaming && array->next_big == array->nbig);
	while (so->next_hash == so->nhashes)
	{
		if (!next_hashes(so))
			return false;
	}
	n = Min(array->group, so->nhashes - so->next_hash);
	Assert(n > 0 && n <= LAST_GROUP);
	array->group_hashes = so->hashes + so->next_hash;
	pmhash_lock_keys(scan->indexRelation, so->file, so->keys, array->group_hashes, n,
					 scan->xs_snapshot);

	if (array->room >= LEAST_ROOM)
		array->room = Max(n * VALUES_PER_KEY, LEAST_ROOM);
	pmhash_scan_reserve_values(so, array->room);
	array->big = pmhash_reserve(so->context, array->big, &array->big_capacity, n,
								sizeof(size_t));
	array->nbig = array->next_big = 0;
	array->collecting = SIZE_MAX;
	array->overflowed = false;
	result = pmh_lookup_group(so->file->table, array->group_hashes, n,
									collect_value, so);
	if (result != PMH_OK)
	{
		pmhash_scan_leave_file(scan, so, result);
		return false;
	}
	pmhash_count(PMHASH_GROUP_LOOKUPS, 1);
	pmhash_count(PMHASH_GROUP_KEYS, n);
	so->next_hash += n;
	array->group = array->overflowed ? Max(array->group / 2, 1) :
		Min(array->group * 2, LAST_GROUP);
	return true;
}

/*
 * The next batch of = ANY: what is left of the keys of this group, if there are
 * any, or the next group, in TID order as far as there is room.  False at their end, or if
 * the scan has left the file.
 */
bool
pmhash_scan_array_fill(IndexScanDesc scan, PmhashScan *so)
{
	PmhashScanArray *array = &so->array;
	PmhValues  *batch = &so->cursor.batch;

	Assert(so->kind == SCAN_ARRAY && array->room > 0);
	so->values_n = 0;
	if (!so->streaming && array->next_big == array->nbig && !look_group_up(scan, so))
		return false;
	while (so->values_n < array->room && (so->streaming || array->next_big < array->nbig))
	{
		/* bounded work, since it can't be cancelled meanwhile */
		size_t		want = Min(array->room - so->values_n, PMHASH_CURSOR_VALUES);
		PmhResult	result;

		CHECK_FOR_INTERRUPTS();
		if (!so->streaming)
		{
			pmh_cursor_open(so->file->table, &so->cursor,
							array->group_hashes[array->big[array->next_big++]]);
			so->streaming = true;
		}
		PMH_STOP_POINT("array_before_list");
		result = pmh_cursor_next(so->file->table, &so->cursor, want);
		if (result == PMH_DONE)
		{
			so->streaming = false;
			continue;
		}
		if (result != PMH_OK)
		{
			pmhash_scan_leave_file(scan, so, result);
			return false;
		}
		if (so->values_n + batch->n > so->values_capacity)
		{
			so->values = repalloc_huge(so->values,
									   (so->values_n + batch->n) * sizeof(uint64));
			so->values_capacity = so->values_n + batch->n;
		}
		for (size_t i = 0; i < batch->n; i++)
			so->values[so->values_n++] =
				batch->value[i] << GROUP_BITS | array->big[array->next_big - 1];
	}
	array->room = Max(array->room, Min(array->room * 2, LEAST_ROOM));
	(void) pmh_sort_numbers(so->values, so->values_n, NULL);
	return pmhash_scan_set_batch(so, so->values, so->values_n, GROUP_BITS,
								 array->group_hashes);
}
