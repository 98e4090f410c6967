/*-------------------------------------------------------------------------
 *
 * scan_array.c
 *	  Scans for = ANY: many hashes, looked up in groups.
 *
 * The TIDs of a group are handed out in heap order.  Groups and batches begin
 * small and double, so the first rows come soon, and many rows in the order of
 * the heap.  Keys with long value lists, and values for which there is no room,
 * are read by cursor into the next batches.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/sort.h"
#include "scan.h"

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

/* ---- memory ---- */

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
	PmhashScanArray *array = &so->array;

	if (n <= array->big_capacity)
		return;
	if (array->big != NULL)
		pfree(array->big);
	array->big_capacity = 0;
	array->big = MemoryContextAlloc(so->context, n * sizeof(size_t));
	array->big_capacity = n;
}

/* ---- groups ---- */

/* Begin with the first of the scan's hashes; so->kind becomes SCAN_ARRAY. */
void
pmhash_scan_array_start(PmhashScan *so)
{
	PmhashScanArray *array = &so->array;

	array->nbig = array->next_big = 0;
	array->group = array->no_hurry ? LEAST_ROOM / VALUES_PER_KEY : FIRST_GROUP;
	array->room = array->no_hurry ? LEAST_ROOM : FIRST_ROOM;
	so->streaming = false;
	so->kind = SCAN_ARRAY;
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
	while (so->next_hash == so->nhashes)
	{
		if (!pmhash_scan_next_hashes(so))
			return false;
	}
	n = Min(array->group, so->nhashes - so->next_hash);
	array->group_hashes = so->hashes + so->next_hash;
	pmhash_lock_keys(scan->indexRelation, so->file, so->keys, array->group_hashes, n,
					 scan->xs_snapshot);

	if (array->room >= LEAST_ROOM)
		array->room = Max(n * VALUES_PER_KEY, LEAST_ROOM);
	pmhash_scan_reserve_values(so, array->room);
	reserve_big(so, n);
	array->nbig = array->next_big = 0;
	array->collecting = SIZE_MAX;
	array->overflowed = false;
	result = pmh_lookup_group_short(so->file->table, array->group_hashes, n,
									collect_value, so);
	if (result != PMH_OK)
	{
		pmhash_scan_leave_file(scan, so, result);
		return false;
	}
	pmhash_count(so->file, PMHASH_GROUP_LOOKUPS, 1);
	pmhash_count(so->file, PMHASH_GROUP_KEYS, n);
	so->next_hash += n;
	array->group = array->overflowed ? Max(array->group / 2, 1) :
		Min(array->group * 2, LAST_GROUP);
	return true;
}

/*
 * Values of the key being streamed, as many as there is room for, into values[].
 * Bounded work, since it can't be cancelled meanwhile.  False if the scan has left the
 * file.
 */
static bool
collect_from_cursor(IndexScanDesc scan, PmhashScan *so)
{
	PmhashScanArray *array = &so->array;
	uint64		key = array->big[array->next_big - 1];
	size_t		want = Min(array->room - so->values_n, PMHASH_CURSOR_VALUES);
	PmhValues  *batch = &so->cursor.batch;
	PmhResult	result;

	PMH_STOP_POINT("array_before_list");
	result = pmh_cursor_next(so->file->table, &so->cursor, want);
	if (result == PMH_DONE)
	{
		so->streaming = false;
		return true;
	}
	if (result != PMH_OK)
	{
		pmhash_scan_leave_file(scan, so, result);
		return false;
	}
	extend_values(so, batch->n);
	for (size_t i = 0; i < batch->n; i++)
		so->values[so->values_n++] = batch->value[i] << GROUP_BITS | key;
	return true;
}

/*
 * The next batch of = ANY: what is left of the keys of this group, if there are
 * any, or the next group, in TID order as far as there is room.  So the first
 * rows come soon, and many rows in the order of the heap.  False at their end, or if the
 * scan has left the file.
 */
bool
pmhash_scan_array_fill(IndexScanDesc scan, PmhashScan *so)
{
	PmhashScanArray *array = &so->array;

	so->values_n = 0;
	if (!so->streaming && array->next_big == array->nbig && !look_group_up(scan, so))
		return false;
	while (so->values_n < array->room && (so->streaming || array->next_big < array->nbig))
	{
		CHECK_FOR_INTERRUPTS();
		if (!so->streaming)
		{
			pmh_cursor_open(so->file->table, &so->cursor,
							array->group_hashes[array->big[array->next_big++]]);
			so->cursor.memory = pmhash_cursor_memory();
			so->cursor.repeats = so->repeats;
			so->streaming = true;
		}
		if (!collect_from_cursor(scan, so))
			return false;
	}
	array->room = Max(array->room, Min(array->room * 2, LEAST_ROOM));
	pmh_sort_numbers(so->values, so->values_n);
	return pmhash_scan_set_batch(so, so->values, so->values_n, GROUP_BITS,
								 array->group_hashes);
}
