/*-------------------------------------------------------------------------
 *
 * dead_tids.c
 *	  Which TIDs VACUUM has found dead, as a bitmap of all TIDs of the table.
 *
 * VACUUM's callback searches a sorted array of dead TIDs (vacuum.c,
 * vac_tid_reaped).  Called in the order of hashes it misses the cache at every
 * step of every search, and that is most of what a bulk delete costs.  So it is not
 * called at all: what it searches, an array of dead TIDs (PostgreSQL 15 and 16) or a
 * TidStore (17 and later), we can read.
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

/* TIDs taken over between two looks at vacuum_cost_delay and interrupts */
#define TAKEN_AT_ONCE	8192

struct PmhashDeadTids
{
	BlockNumber nblocks;		/* of the table when bulk delete began */
	uint8	   *tids;			/* BLOCK_BYTES for each block */
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
 * An empty set.  NULL if there can't be one: the table is not a heap, or the bitmap
 * would take more than half of maintenance_work_mem.
 */
static PmhashDeadTids *
make_set(Relation index)
{
	PmhashDeadTids *set;
	BlockNumber nblocks = heap_blocks(index);
	Size		bitmap = (Size) nblocks * BLOCK_BYTES;

	if (nblocks == InvalidBlockNumber ||
		bitmap > (Size) maintenance_work_mem * 1024 / 2)
		return NULL;

	set = palloc0(sizeof(PmhashDeadTids));
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
add_dead_of_vacuum(PmhashDeadTids *set, void *callback_state)
{
	OffsetNumber buffer[MaxOffsetNumber];
	TidStoreIter *iter = TidStoreBeginIterate(callback_state);
	TidStoreIterResult *found;
	uint64		next_pause = 0;

	while ((found = TidStoreIterateNext(iter)) != NULL)
	{
		OffsetNumber *offsets = buffer;
		int			n = offsets_of_block(found, &offsets);

		if (set->ndead >= next_pause)
		{
			pmhash_vacuum_delay_point();
			next_pause = set->ndead + TAKEN_AT_ONCE;
		}
		for (int i = 0; i < n; i++)
			add_dead_tid(set, found->blkno, offsets[i]);
	}
	TidStoreEndIterate(iter);
}

#else							/* its dead TIDs are in an array */

static void
add_dead_of_vacuum(PmhashDeadTids *set, void *callback_state)
{
	const VacDeadItems *dead = callback_state;

	for (int i = 0; i < dead->num_items; i++)
	{
		if (i % TAKEN_AT_ONCE == 0)
			pmhash_vacuum_delay_point();
		add_dead_tid(set, ItemPointerGetBlockNumber(&dead->items[i]),
					 ItemPointerGetOffsetNumber(&dead->items[i]));
	}
}

#endif

/*
 * pmhash_dead_tids_of_vacuum
 *		If it is VACUUM that wants entries deleted: its dead TIDs.
 *
 * NULL if it is another caller (validate_index), or if there can't be a set.  Memory
 * comes from the current context.
 */
PmhashDeadTids *
pmhash_dead_tids_of_vacuum(const IndexVacuumInfo *info,
						   IndexBulkDeleteCallback callback, void *callback_state)
{
	PmhashDeadTids *set;

	if (vacuum_callback == NULL)
		find_callback(info);
	if (callback != vacuum_callback)
		return NULL;
	set = make_set(info->index);
	if (set == NULL)
		return NULL;
	add_dead_of_vacuum(set, callback_state);
	elog(DEBUG1, "index \"%s\": took over " UINT64_FORMAT " dead TIDs from VACUUM",
		 RelationGetRelationName(info->index), set->ndead);
	return set;
}

/* Does a value name a dead TID? */
bool
pmhash_tid_is_dead(const PmhashDeadTids *set, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);
	OffsetNumber offset = pmhash_value_to_offset(value);

	return has_bit(set, block, offset) &&
		(set->tids[byte_of(block, offset)] & (1 << (offset % 8))) != 0;
}
