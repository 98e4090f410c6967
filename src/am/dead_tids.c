/*-------------------------------------------------------------------------
 *
 * dead_tids.c
 *	  Which TIDs of an index are dead, found out in the order of the heap.
 *
 * VACUUM's callback searches a sorted array of dead TIDs (vacuum.c,
 * vac_tid_reaped).  Called in the order of hashes it misses the cache at every
 * step of every search, and that is most of what a bulk delete costs.  So the
 * TIDs of the whole index are collected first, in a bitmap of all TIDs of the
 * table; then each of them is judged, in the order of the bitmap, and only the
 * dead keep their bits.  Removal then needs only the bitmap.
 *
 * If it is VACUUM that calls, its callback need not be called at all: what it
 * searches is an array of dead TIDs (PostgreSQL 15 and 16) or a TidStore (17 and
 * later), which we can read (pmhash_dead_tids_from_vacuum).  validate_index,
 * which lists all TIDs, has a callback of its own.
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
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

#include "cluster/heap_table.h"

#include "am.h"
#include "dead_tids.h"
#include "keys.h"

/* Bytes of the bitmap for one heap block; offsets start at 1. */
#define BLOCK_BYTES		((MaxHeapTuplesPerPage + 8) / 8)

StaticAssertDecl(MaxHeapTuplesPerPage < 8 * BLOCK_BYTES,
				 "the last offset of a block has a bit");

/* TIDs judged between two looks at vacuum_cost_delay and interrupts */
#define JUDGED_AT_ONCE	8192

struct PmhashDeadTids
{
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	BlockNumber nblocks;		/* of the table when bulk delete began */
	uint8	   *tids;			/* BLOCK_BYTES for each block: what is in the
								 * index, and in a complete set: what is dead */
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

	if (pmhash_is_heap_table(heap))
		nblocks = RelationGetNumberOfBlocks(heap);
	relation_close(heap, NoLock);
	return nblocks;
}

/*
 * pmhash_dead_tids_make
 *		An empty set, to find out by callback which TIDs of index are dead.
 *
 * Returns NULL if there can't be one: the table is not a heap, or the bitmap
 * would take more than half of maintenance_work_mem.  Memory comes from the
 * current context.
 */
PmhashDeadTids *
pmhash_dead_tids_make(Relation index, IndexBulkDeleteCallback callback,
					  void *callback_state)
{
	PmhashDeadTids *set;
	BlockNumber nblocks = heap_blocks(index);
	Size		bitmap = (Size) nblocks * BLOCK_BYTES;

	if (nblocks == InvalidBlockNumber ||
		bitmap > (Size) maintenance_work_mem * 1024 / 2)
		return NULL;

	set = palloc0(sizeof(PmhashDeadTids));
	set->callback = callback;
	set->callback_state = callback_state;
	set->nblocks = nblocks;
	set->tids = MemoryContextAllocExtended(CurrentMemoryContext, Max(bitmap, 1),
										   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	return set;
}

/* Give the memory of a set back. */
void
pmhash_dead_tids_free(PmhashDeadTids *set)
{
	pfree(set->tids);
	pfree(set);
}

/* Does the bitmap have a bit for a TID? */
static inline bool
has_bit(const PmhashDeadTids *set, BlockNumber block, OffsetNumber offset)
{
	return block < set->nblocks && offset <= MaxHeapTuplesPerPage;
}

/* Which byte of the bitmap it is in; bits are in the order of offsets. */
static inline Size
byte_of(BlockNumber block, OffsetNumber offset)
{
	return (Size) block * BLOCK_BYTES + offset / 8;
}

/* Judge a TID that the bitmap has no bit for: the table did not have it. */
static void
judge_new(const PmhashDeadTids *set, uint64 value)
{
	ItemPointerData tid;

	pmhash_value_to_tid(value, &tid);
	if (set->callback(&tid, set->callback_state))
		elog(ERROR, "TID (%u,%u) is dead for the caller of bulk delete, but was not in the table",
			 ItemPointerGetBlockNumber(&tid), ItemPointerGetOffsetNumber(&tid));
}

/* Have the values of n entries judged, now or by pmhash_dead_tids_judge. */
void
pmhash_dead_tids_collect(PmhashDeadTids *set, const PmhEntry *entries, size_t n)
{
	for (size_t i = 0; i < n; i++)
	{
		uint64		value = entries[i].value;
		BlockNumber block = pmhash_value_to_block(value);
		OffsetNumber offset = pmhash_value_to_offset(value);

		if (has_bit(set, block, offset))
			set->tids[byte_of(block, offset)] |= 1 << (offset % 8);
		else
			judge_new(set, value);
	}
}

/* ---- what VACUUM has found ---- */

/*
 * The dead TIDs, none, of a call of bulk delete that we have made only to see
 * which callback comes with it: the probe.  It is known by their address.
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
 * pmhash_dead_tids_is_probe
 *		Is this call of bulk delete only our own probe?  Notes its callback then.
 */
bool
pmhash_dead_tids_is_probe(IndexBulkDeleteCallback callback, void *callback_state)
{
	if (callback_state != &nothing_dead)
		return false;
	vacuum_callback = callback;
	return true;
}

/*
 * Find out VACUUM's callback.  It has no name outside of vacuum.c; but
 * vac_bulkdel_one_index, by which VACUUM calls bulk delete, is exported, and
 * calls us back with it.  Besides that it only makes a message of the number of
 * dead TIDs (vacuum.c).
 */
static void
find_callback(const IndexVacuumInfo *info)
{
	IndexVacuumInfo probe = *info;

	probe.message_level = DEBUG5;
	(void) bulkdel_of_vacuum(&probe);
	Assert(vacuum_callback != NULL);
}

/* Note that VACUUM has found a TID dead. */
static inline void
add_dead_tid(PmhashDeadTids *set, BlockNumber block, OffsetNumber offset)
{
	if (!has_bit(set, block, offset))
		elog(ERROR, "TID (%u,%u) is dead for VACUUM, but was not in the table",
			 block, offset);
	set->tids[byte_of(block, offset)] |= 1 << (offset % 8);
	set->ndead++;
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
 * are vacuumed, by however many processes, nothing is added to it.
 */
static void
add_dead_of_vacuum(PmhashDeadTids *set)
{
	OffsetNumber buffer[MaxOffsetNumber];
	TidStoreIter *iter = TidStoreBeginIterate(set->callback_state);
	TidStoreIterResult *found;
	uint64		next_pause = 0;

	while ((found = TidStoreIterateNext(iter)) != NULL)
	{
		OffsetNumber *offsets = buffer;
		int			n = offsets_of_block(found, &offsets);

		if (set->ndead >= next_pause)
		{
			pmhash_vacuum_delay_point();
			next_pause = set->ndead + JUDGED_AT_ONCE;
		}
		for (int i = 0; i < n; i++)
			add_dead_tid(set, found->blkno, offsets[i]);
	}
	TidStoreEndIterate(iter);
}

#else							/* its dead TIDs are in an array */

static void
add_dead_of_vacuum(PmhashDeadTids *set)
{
	const VacDeadItems *dead = set->callback_state;

	for (int i = 0; i < dead->num_items; i++)
	{
		if (i % JUDGED_AT_ONCE == 0)
			pmhash_vacuum_delay_point();
		add_dead_tid(set, ItemPointerGetBlockNumber(&dead->items[i]),
					 ItemPointerGetOffsetNumber(&dead->items[i]));
	}
}

#endif

/*
 * pmhash_dead_tids_from_vacuum
 *		If it is VACUUM that wants entries deleted, take over its dead TIDs:
 *		the set is complete then.  Else false.
 */
bool
pmhash_dead_tids_from_vacuum(PmhashDeadTids *set, const IndexVacuumInfo *info)
{
	if (vacuum_callback == NULL)
		find_callback(info);
	if (set->callback != vacuum_callback)
		return false;
	add_dead_of_vacuum(set);
	elog(DEBUG1, "index \"%s\": took over " UINT64_FORMAT " dead TIDs from VACUUM",
		 RelationGetRelationName(info->index), set->ndead);
	return true;
}

/* ---- judging by callback ---- */

/* Judge the TIDs that a byte of the bitmap has.  Returns those that are dead. */
static uint8
judge_byte(const PmhashDeadTids *set, BlockNumber block, int byte, uint8 tids)
{
	uint8		dead = 0;

	for (; tids != 0; tids &= tids - 1)
	{
		int			bit = pg_rightmost_one_pos32(tids);
		ItemPointerData tid;

		ItemPointerSet(&tid, block, (OffsetNumber) (byte * 8 + bit));
		if (set->callback(&tid, set->callback_state))
			dead |= 1 << bit;
	}
	return dead;
}

/*
 * Judge all that has been collected: the set is complete then.  Returns how many
 * TIDs are dead.
 */
uint64
pmhash_dead_tids_judge(PmhashDeadTids *set)
{
	int			judged = JUDGED_AT_ONCE;

	for (BlockNumber block = 0; block < set->nblocks; block++)
	{
		uint8	   *tids = set->tids + (Size) block * BLOCK_BYTES;

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
			tids[byte] = judge_byte(set, block, byte, tids[byte]);
			set->ndead += pg_number_of_ones[tids[byte]];
		}
	}
	return set->ndead;
}

/* Does a value name a dead TID?  Only of a complete set. */
bool
pmhash_tid_is_dead(const PmhashDeadTids *set, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);
	OffsetNumber offset = pmhash_value_to_offset(value);

	return has_bit(set, block, offset) &&
		(set->tids[byte_of(block, offset)] & (1 << (offset % 8))) != 0;
}
