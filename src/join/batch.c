/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  The outer rows of a join, kept until their keys have been looked up.
 *
 * The first batch is a single row, each later one twice as large, so that LIMIT
 * and EXISTS read hardly more of the outer plan than a nested loop does.  A
 * batch ends when it, with the join's other arrays, takes work_mem.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "join/join.h"

/* How many rows row[] would have room for if it had to grow. */
static int
next_capacity(const PmhashJoinState *js)
{
	return Min(Max(js->capacity * 2, 16), PMHASH_JOIN_MAX_ROWS);
}

/* Room in row[] for one more. */
static void
reserve_row(PmhashJoinState *js)
{
	if (js->nrows < js->capacity)
		return;
	js->capacity = next_capacity(js);
	if (js->row == NULL)
		js->row = MemoryContextAlloc(js->context, js->capacity * sizeof(PmhashJoinRow));
	else
		js->row = repalloc(js->row, js->capacity * sizeof(PmhashJoinRow));
}

/* Compute the hash of a row's key.  False if some part of it is NULL. */
static bool
hash_key(PmhashJoinState *js, TupleTableSlot *slot, uint64 *hash)
{
	ExprContext *context = js->key_context;
	MemoryContext old;
	Datum		value[INDEX_MAX_KEYS];
	bool		isnull = false;

	ResetExprContext(context);
	context->ecxt_outertuple = slot;
	old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);
	for (int i = 0; i < js->nkeys && !isnull; i++)
		value[i] = ExecEvalExpr(js->key[i], context, &isnull);
	if (!isnull)
	{
		if (unlikely(js->keys == NULL))
			pmhash_join_open_index(js);
		*hash = pmhash_keys_hash_args(js->keys, value, js->key_type);
	}
	MemoryContextSwitchTo(old);
	return !isnull;
}

/* Does a row without a match count? */
static bool
keeps_unmatched(const PmhashJoinState *js)
{
	return js->type == JOIN_LEFT || js->type == JOIN_ANTI;
}

static void
add_row(PmhashJoinState *js, TupleTableSlot *slot)
{
	MemoryContext old;
	uint64		hash = 0;
	bool		is_null = !hash_key(js, slot, &hash);
	PmhashJoinRow *row;

	if (is_null && !keeps_unmatched(js))
		return;
	reserve_row(js);
	row = &js->row[js->nrows++];
	old = MemoryContextSwitchTo(js->batch_context);
	row->tuple = ExecCopySlotMinimalTuple(slot);
	MemoryContextSwitchTo(old);
	row->hash = hash;
	row->matches = 0;
	row->is_null = is_null;
}

/* What is taken, with so many places in row[]. */
static size_t
memory_of_batch(const PmhashJoinState *js, int capacity)
{
	return MemoryContextMemAllocated(js->batch_context, false) +
		capacity * sizeof(PmhashJoinRow) + PMHASH_JOIN_ROOM * sizeof(uint64) +
		js->fetch.hints.memory;
}

/*
 * May the batch have another row?  The first one it may have in any case: row[] is
 * kept from batch to batch, and work_mem may be less by now than when it was made.
 */
static bool
has_room(const PmhashJoinState *js)
{
	int			capacity = js->nrows < js->capacity ? js->capacity : next_capacity(js);

	if (js->outer_done || js->nrows >= js->want)
		return false;
	return js->nrows == 0 ||
		memory_of_batch(js, capacity) + js->largest_block < (size_t) work_mem * 1024;
}

/*
 * pmhash_join_make_batch
 *		The memory for batches: its blocks are small against work_mem, since the last
 *		one may be hardly used.
 */
void
pmhash_join_make_batch(PmhashJoinState *js)
{
	size_t		largest = ALLOCSET_DEFAULT_MAXSIZE;

	while (largest > ALLOCSET_DEFAULT_INITSIZE && largest * 16 > (size_t) work_mem * 1024)
		largest /= 2;
	js->largest_block = largest;
	js->batch_context = AllocSetContextCreate(js->context, "pmhash join batch",
											  ALLOCSET_DEFAULT_MINSIZE,
											  ALLOCSET_DEFAULT_INITSIZE, largest);
}

/* Forget the batch. */
void
pmhash_join_reset_batch(PmhashJoinState *js)
{
	MemoryContextReset(js->batch_context);
	js->nrows = js->looked = js->current = 0;
	js->joining = js->streaming = false;
	js->left = 0;
}

/*
 * pmhash_join_note_memory
 *		For EXPLAIN: what is taken now, a cursor on a key with very many rows included.
 */
void
pmhash_join_note_memory(PmhashJoinState *js)
{
	size_t		memory = memory_of_batch(js, js->capacity) +
		pmh_cursor_bytes(&js->cursor);

	js->most_memory = Max(js->most_memory, memory);
}

/*
 * pmhash_join_fill
 *		Read the next batch of outer rows.  False if there are none left.
 */
bool
pmhash_join_fill(PmhashJoinState *js)
{
	pmhash_join_reset_batch(js);
	/* the outer plan may take its time */
	ExecClearTuple(js->inner_slot);
	pmhash_fetch_release(&js->fetch);
	while (has_room(js))
	{
		TupleTableSlot *slot = ExecProcNode(js->outer);

		CHECK_FOR_INTERRUPTS();
		if (TupIsNull(slot))
			js->outer_done = true;
		else
			add_row(js, slot);
	}
	if (js->nrows == 0)
		return false;
	js->want = Min(js->want * 2, PMHASH_JOIN_MAX_ROWS);
	js->nbatches++;
	pmhash_join_note_memory(js);
	return true;
}
