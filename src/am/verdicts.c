/*-------------------------------------------------------------------------
 *
 * verdicts.c
 *	  VACUUM's verdicts on TIDs, asked for in the order of the heap.
 *
 * VACUUM's callback searches a sorted array of dead TIDs (vacuum.c,
 * vac_tid_reaped).  Asked in the order of hashes it misses the cache at every
 * step of every search, and that is most of what a bulk delete costs.  So the
 * TIDs of the whole index are collected first, in a bitmap of all TIDs of the
 * table; then each of them is judged, in the order of the bitmap, and only the
 * dead keep their bits.  Removal then needs only the bitmap.
 *
 * VACUUM itself need not be asked at all: what its callback searches is an array
 * of dead TIDs (PostgreSQL 15 and 16) or a TidStore (17 and later), which we can
 * read.  Only it has to be VACUUM that calls, and not validate_index, which
 * lists all TIDs by a callback of its own (pmhash_verdicts_of_vacuum).
 *
 * Otherwise each TID is judged exactly once, which validate_index relies on.  A TID
 * judged dead stays so until VACUUM gives it away, which it does after bulk
 * delete only; and TIDs that come into the index after having been collected
 * are not dead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#if PG_VERSION_NUM >= 170000
#include "access/tidstore.h"
#endif
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

#include "am.h"

/* Bytes of the bitmap for one heap block; offsets start at 1. */
#define BLOCK_BYTES		((MaxHeapTuplesPerPage + 8) / 8)

/* TIDs judged between two looks at vacuum_cost_delay and interrupts */
#define JUDGED_AT_ONCE	8192

struct PmhashVerdicts
{
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	BlockNumber nblocks;		/* of the table when bulk delete began */
	uint8	   *tids;			/* BLOCK_BYTES for each block: what is in the
								 * index, and when complete: what is dead */
	uint64		ndead;
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
 * Returns NULL if verdicts cannot be kept: the table is not a heap, or they
 * would take more than half of maintenance_work_mem.  Memory comes from the
 * current context.
 */
PmhashVerdicts *
pmhash_verdicts_make(Relation index, IndexBulkDeleteCallback callback,
					 void *callback_state)
{
	PmhashVerdicts *v;
	BlockNumber nblocks = heap_blocks(index);
	Size		bitmap = (Size) nblocks * BLOCK_BYTES;

	if (nblocks == InvalidBlockNumber ||
		bitmap > (Size) maintenance_work_mem * 1024 / 2)
		return NULL;

	v = palloc0(sizeof(PmhashVerdicts));
	v->callback = callback;
	v->callback_state = callback_state;
	v->nblocks = nblocks;
	v->tids = MemoryContextAllocExtended(CurrentMemoryContext, Max(bitmap, 1),
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	return v;
}

void
pmhash_verdicts_free(PmhashVerdicts *v)
{
	pfree(v->tids);
	pfree(v);
}

/* Does the bitmap have a place for a TID? */
static inline bool
has_place(const PmhashVerdicts *v, BlockNumber block, OffsetNumber offset)
{
	return block < v->nblocks && offset <= MaxHeapTuplesPerPage;
}

/* Judge a TID that the bitmap has no place for: the table did not have it. */
static void
judge_new(const PmhashVerdicts *v, uint64 value)
{
	ItemPointerData tid;

	pmhash_value_to_tid(value, &tid);
	if (v->callback(&tid, v->callback_state))
		elog(ERROR, "bulk delete was told that TID (%u,%u) is dead, which the table did not have",
			 ItemPointerGetBlockNumber(&tid), ItemPointerGetOffsetNumber(&tid));
}

/* Have the values of n entries judged, now or when all are known. */
void
pmhash_verdicts_collect(PmhashVerdicts *v, const PmhEntry *entries, size_t n)
{
	for (size_t i = 0; i < n; i++)
	{
		uint64		value = entries[i].value;
		BlockNumber block = pmhash_value_to_block(value);
		OffsetNumber offset = value & PMHASH_OFFSET_MASK;

		if (has_place(v, block, offset))
			v->tids[(Size) block * BLOCK_BYTES + offset / 8] |= 1 << (offset % 8);
		else
			judge_new(v, value);
	}
}

/* ---- VACUUM's verdicts ---- */

/*
 * The state that we ask for VACUUM's callback with: no dead TIDs.  Its address
 * tells our question from a call of VACUUM's.
 */
#if PG_VERSION_NUM >= 170000
static VacDeadItemsInfo nothing_dead;

#define bulkdel_of_vacuum(info) \
	vac_bulkdel_one_index(info, NULL, (TidStore *) &nothing_dead, &nothing_dead)
#else
static VacDeadItems nothing_dead;

#define bulkdel_of_vacuum(info) \
	vac_bulkdel_one_index(info, NULL, &nothing_dead)
#endif

static IndexBulkDeleteCallback vacuum_callback = NULL;	/* vac_tid_reaped */

/*
 * pmhash_verdicts_is_question
 *		Is this call of bulk delete only our own question, answered now?
 */
bool
pmhash_verdicts_is_question(IndexBulkDeleteCallback callback, void *callback_state)
{
	if (callback_state != &nothing_dead)
		return false;
	vacuum_callback = callback;
	return true;
}

/*
 * What is VACUUM's callback?  It has no name outside of vacuum.c; but
 * vac_bulkdel_one_index, by which VACUUM calls bulk delete, can be called by
 * everybody, and calls us back with it.  Besides that it only makes a message
 * of the number of dead TIDs (vacuum.c).
 */
static void
ask_for_callback(const IndexVacuumInfo *info)
{
	IndexVacuumInfo question = *info;

	question.message_level = DEBUG5;
	(void) bulkdel_of_vacuum(&question);
	Assert(vacuum_callback != NULL);
}

/* Note that VACUUM has found a TID dead. */
static inline void
take_over_tid(PmhashVerdicts *v, BlockNumber block, OffsetNumber offset)
{
	if (!has_place(v, block, offset))
		elog(ERROR, "VACUUM has found TID (%u,%u) dead, which the table did not have",
			 block, offset);
	v->tids[(Size) block * BLOCK_BYTES + offset / 8] |= 1 << (offset % 8);
	v->ndead++;
}

#if PG_VERSION_NUM >= 170000

/* What a step of an iteration has found: how many TIDs of a block, and which. */
static inline int
offsets_of_block(TidStoreIterResult *found, OffsetNumber **offsets)
{
#if PG_VERSION_NUM >= 180000
	return TidStoreGetBlockOffsets(found, *offsets, MaxOffsetNumber);
#else
	*offsets = found->offsets;
	return found->num_offsets;
#endif
}

/*
 * Take over the dead TIDs of VACUUM.  The TidStore is not locked, here as in
 * lazy_vacuum_heap_rel and vac_tid_reaped (vacuumlazy.c, vacuum.c): while indexes
 * are vacuumed, by however many processes, nobody adds to it.
 */
static void
take_over_dead(PmhashVerdicts *v)
{
	OffsetNumber buffer[MaxOffsetNumber];
	TidStoreIter *iter = TidStoreBeginIterate(v->callback_state);
	TidStoreIterResult *found;
	uint64		next_pause = 0;

	while ((found = TidStoreIterateNext(iter)) != NULL)
	{
		OffsetNumber *offsets = buffer;
		int			n = offsets_of_block(found, &offsets);

		if (v->ndead >= next_pause)
		{
			pmhash_vacuum_delay_point();
			next_pause = v->ndead + JUDGED_AT_ONCE;
		}
		for (int i = 0; i < n; i++)
			take_over_tid(v, found->blkno, offsets[i]);
	}
	TidStoreEndIterate(iter);
}

#else							/* its dead TIDs are in an array */

static void
take_over_dead(PmhashVerdicts *v)
{
	const VacDeadItems *dead = v->callback_state;

	for (int i = 0; i < dead->num_items; i++)
	{
		if (i % JUDGED_AT_ONCE == 0)
			pmhash_vacuum_delay_point();
		take_over_tid(v, ItemPointerGetBlockNumber(&dead->items[i]),
					  ItemPointerGetOffsetNumber(&dead->items[i]));
	}
}

#endif

/*
 * pmhash_verdicts_of_vacuum
 *		If it is VACUUM that wants entries deleted, take over its dead TIDs:
 *		verdicts are complete then.  Else false.
 */
bool
pmhash_verdicts_of_vacuum(PmhashVerdicts *v, const IndexVacuumInfo *info)
{
	if (vacuum_callback == NULL)
		ask_for_callback(info);
	if (v->callback != vacuum_callback)
		return false;
	take_over_dead(v);
	elog(DEBUG1, "index \"%s\": " UINT64_FORMAT " dead row pointers taken over from VACUUM",
		 RelationGetRelationName(info->index), v->ndead);
	return true;
}

/* ---- asking ---- */

/* Judge the TIDs that a byte of the bitmap has.  Returns those that are dead. */
static uint8
judge_byte(const PmhashVerdicts *v, BlockNumber block, int byte, uint8 tids)
{
	uint8		dead = 0;

	for (; tids != 0; tids &= tids - 1)
	{
		int			bit = pg_rightmost_one_pos32(tids);
		ItemPointerData tid;

		ItemPointerSet(&tid, block, (OffsetNumber) (byte * 8 + bit));
		if (v->callback(&tid, v->callback_state))
			dead |= 1 << bit;
	}
	return dead;
}

/* Judge all that has been collected.  Returns how many TIDs are dead. */
uint64
pmhash_verdicts_complete(PmhashVerdicts *v)
{
	int			judged = JUDGED_AT_ONCE;

	for (BlockNumber block = 0; block < v->nblocks; block++)
	{
		uint8	   *tids = v->tids + (Size) block * BLOCK_BYTES;

		if (judged >= JUDGED_AT_ONCE)
		{
			pmhash_vacuum_delay_point();
			judged = 0;
		}
		for (int byte = 0; byte < BLOCK_BYTES; byte++)
		{
			if (tids[byte] == 0)
				continue;
			judged += 8;
			tids[byte] = judge_byte(v, block, byte, tids[byte]);
			v->ndead += pg_number_of_ones[tids[byte]];
		}
	}
	return v->ndead;
}

/* The verdict on a value, when all are complete: is it dead? */
bool
pmhash_verdict(const PmhashVerdicts *v, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);
	OffsetNumber offset = value & PMHASH_OFFSET_MASK;

	return has_place(v, block, offset) &&
		(v->tids[(Size) block * BLOCK_BYTES + offset / 8] & (1 << (offset % 8))) != 0;
}
