/*-------------------------------------------------------------------------
 *
 * verdicts.c
 *	  VACUUM's verdicts on TIDs, asked for in the order of the heap.
 *
 * VACUUM's callback searches a sorted array of dead TIDs (vacuum.c,
 * vac_tid_reaped).  Asked in the order of hashes it misses the cache at every
 * step of every search, and that is most of what a bulk delete costs.  So the
 * TIDs of the whole index are collected first, in lots; each lot is dealt out
 * to ranges of blocks before its TIDs are judged, and the verdicts are kept in
 * a bitmap of all TIDs of the table.  Removal then needs only the bitmap.
 *
 * Each TID is judged exactly once, which validate_index relies on.  A TID
 * judged dead stays so until VACUUM gives it away, which it does after bulk
 * delete only; and TIDs that come into the index after having been collected
 * are not dead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

#include "am.h"

/* Bytes of the bitmap for one heap block; offsets start at 1. */
#define BLOCK_BYTES		((MaxHeapTuplesPerPage + 8) / 8)

/* TIDs of a lot, and ranges of blocks it is dealt out to. */
#define LOT_TIDS		(1 << 20)
#define RANGE_BITS		10
#define RANGES			(1 << RANGE_BITS)

/* TIDs judged between two looks at vacuum_cost_delay and interrupts */
#define JUDGED_AT_ONCE	8192

struct PmhashVerdicts
{
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	BlockNumber nblocks;		/* of the table when bulk delete began */
	int			range_shift;	/* block number to range */
	uint8	   *dead;			/* BLOCK_BYTES for each block */
	uint64		ndead;
	uint64	   *lot;			/* values not judged yet */
	uint64	   *dealt;			/* room for them in the order of ranges */
	uint32		n;				/* values in lot */
	uint32		capacity;		/* of both */
};

/*
 * Blocks of the table, or InvalidBlockNumber if it is not a heap and nothing
 * is known of its TIDs.  The caller of bulk delete holds a lock on the table.
 */
static BlockNumber
heap_blocks(Relation index)
{
	Relation	heap = relation_open(IndexGetRelation(RelationGetRelid(index), false),
									 NoLock);
	BlockNumber nblocks = InvalidBlockNumber;

	if (heap->rd_rel->relam == HEAP_TABLE_AM_OID)
		nblocks = RelationGetNumberOfBlocks(heap);
	relation_close(heap, NoLock);
	return nblocks;
}

/*
 * pmhash_verdicts_make
 *		Get ready to judge all TIDs of index by callback.
 *
 * tids is about how many there are.  Returns NULL if verdicts cannot be kept:
 * the table is not a heap, or they would take more than half of
 * maintenance_work_mem.  Memory comes from the current context.
 */
PmhashVerdicts *
pmhash_verdicts_make(Relation index, double tids,
					 IndexBulkDeleteCallback callback, void *callback_state)
{
	PmhashVerdicts *v;
	BlockNumber nblocks = heap_blocks(index);
	Size		bitmap = (Size) nblocks * BLOCK_BYTES;

	if (nblocks == InvalidBlockNumber ||
		bitmap + 2 * LOT_TIDS * sizeof(uint64) > (Size) maintenance_work_mem * 1024 / 2)
		return NULL;

	v = palloc0(sizeof(PmhashVerdicts));
	v->callback = callback;
	v->callback_state = callback_state;
	v->nblocks = nblocks;
	while ((nblocks >> v->range_shift) >= RANGES)
		v->range_shift++;
	v->dead = MemoryContextAllocExtended(CurrentMemoryContext, Max(bitmap, 1),
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	v->capacity = (uint32) Min(Max(tids, RANGES), LOT_TIDS);
	v->lot = palloc(v->capacity * sizeof(uint64));
	v->dealt = palloc(v->capacity * sizeof(uint64));
	return v;
}

void
pmhash_verdicts_free(PmhashVerdicts *v)
{
	pfree(v->lot);
	pfree(v->dealt);
	pfree(v->dead);
	pfree(v);
}

/* Range of blocks that a value belongs to; new blocks count to the last. */
static inline uint32
range_of(const PmhashVerdicts *v, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);

	return block < v->nblocks ? (uint32) (block >> v->range_shift) : RANGES - 1;
}

/* Bring the lot into the order of ranges: a counting sort. */
static void
deal_lot(PmhashVerdicts *v)
{
	uint32		next[RANGES + 1] = {0};

	for (uint32 i = 0; i < v->n; i++)
		next[range_of(v, v->lot[i]) + 1]++;
	for (uint32 r = 1; r < RANGES; r++)
		next[r] += next[r - 1];
	for (uint32 i = 0; i < v->n; i++)
		v->dealt[next[range_of(v, v->lot[i])]++] = v->lot[i];
}

static void
judge(PmhashVerdicts *v, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);
	ItemPointerData tid;
	OffsetNumber offset;

	pmhash_value_to_tid(value, &tid);
	if (!v->callback(&tid, v->callback_state))
		return;

	offset = ItemPointerGetOffsetNumber(&tid);
	if (block >= v->nblocks || offset > MaxHeapTuplesPerPage)
		elog(ERROR, "bulk delete was told that TID (%u,%u) is dead, which the table did not have",
			 block, offset);
	v->dead[(Size) block * BLOCK_BYTES + offset / 8] |= 1 << (offset % 8);
	v->ndead++;
}

/* Judge what has been collected. */
static void
judge_lot(PmhashVerdicts *v)
{
	deal_lot(v);
	for (uint32 i = 0; i < v->n; i++)
	{
		if (i % JUDGED_AT_ONCE == 0)
			pmhash_vacuum_delay_point();
		judge(v, v->dealt[i]);
	}
	v->n = 0;
}

/* Have the values of n entries judged, now or with later ones. */
void
pmhash_verdicts_collect(PmhashVerdicts *v, const PmhEntry *entries, size_t n)
{
	for (size_t i = 0; i < n; i++)
	{
		if (v->n == v->capacity)
			judge_lot(v);
		v->lot[v->n++] = entries[i].value;
	}
}

/* Judge the rest.  Returns how many TIDs are dead. */
uint64
pmhash_verdicts_complete(PmhashVerdicts *v)
{
	judge_lot(v);
	return v->ndead;
}

/* The verdict on a value: is it dead? */
bool
pmhash_verdict(const PmhashVerdicts *v, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);
	OffsetNumber offset = value & PMHASH_OFFSET_MASK;

	return block < v->nblocks && offset <= MaxHeapTuplesPerPage &&
		(v->dead[(Size) block * BLOCK_BYTES + offset / 8] & (1 << (offset % 8))) != 0;
}
