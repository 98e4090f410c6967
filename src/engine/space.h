/*-------------------------------------------------------------------------
 *
 * space.h
 *	  Space in the file: blocks and units, value blocks, its length.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_SPACE_H
#define PMH_SPACE_H

#include "handle.h"

/*
 * Take the space lock, for what frees space further on (and takes none), if it is
 * free; false if it is not.  Release it, if it was taken.
 */
extern bool pmh_space_trylock(PmhTable *t);
extern void pmh_space_release(PmhTable *t);

/* The end of the file, as live.blocks tells it; 0 if that is damaged. */
extern uint64_t pmh_file_end(const PmhTable *t);

/*
 * May [offset, offset + len) be touched?  PMH_OK; PMH_NEED if it lies in the file, but
 * that has outgrown our mapping; PMH_ERR_CORRUPT (with the error set) if it
 * is outside of the file.  Before a reader believes PMH_ERR_CORRUPT it validates what it
 * got the offset from: it may have been freed, and be anything by then.
 */
extern PmhResult pmh_check_span(PmhTable *t, uint64_t offset, uint64_t len);

/*
 * Take space from the map: offsets.  PMH_OK, or PMH_NEED.  No I/O; may be
 * called under stripe and directory lock.  What is handed out lies inside our
 * mapping.  Contents are undefined.  Each call takes the space lock anew: readers
 * that are still in that space rely on it (src/README, "Locks"), so no process may keep
 * free space to itself.
 *
 *	units	1..7 adjacent units within a block (an extension that bulk load
 *			has placed may reach from one block into the next)
 *	extent	nblocks adjacent blocks
 */
extern PmhResult pmh_space_alloc_units(PmhTable *t, uint32_t units,
									   uint64_t *offset);
extern PmhResult pmh_space_alloc_extent(PmhTable *t, uint64_t nblocks,
									 uint64_t *offset);
extern void pmh_space_free_units(PmhTable *t, uint64_t offset, uint32_t units);
extern void pmh_space_free_extent(PmhTable *t, uint64_t offset, uint64_t nblocks);

/* Blocks that exist and are mapped here: only these are given out. */
extern uint64_t pmh_space_allocatable(PmhTable *t);

/*
 * For one that holds the space lock: take an extent, as pmh_space_alloc_extent; give a
 * block back.
 */
extern PmhResult pmh_space_take_extent(PmhTable *t, uint64_t nblocks, uint64_t *block);
extern void pmh_space_put_block(PmhTable *t, uint64_t block);

/*
 * Blocks of the file but for those that were punched.  (These are loaded first: so they are
 * never more than there are.)
 */
static inline uint64_t
pmh_blocks_with_space(const PmhTable *t)
{
	uint64_t	punched = pm_load_acquire(&pmh_run(t)->punched_blocks);

	return pmh_blocks(t) - punched;
}

/*
 * How many these are, and how many units of them are free.  Waits for no process: while
 * one is between the two stores by which both change, the units are no more than the
 * blocks have, and else of the same moment.
 */
extern void pmh_space_figures(PmhTable *t, uint64_t *blocks, uint64_t *free_units);

/* The map byte of a block that is in use as a whole. */
#define PMH_BLOCK_USED	0xff

/*
 * The byte of the space map for a block (bit i: unit i in use).  The block
 * must be within the bound.  Racing access: use pm_load.
 */
extern uint8_t *pmh_space_map(const PmhTable *t, uint64_t block);

/* Where the bytes of the space map for a block and its neighbours end. */
static inline uint64_t
pmh_space_zone_end(uint64_t block)
{
	return block < PMH_HEADER_MAP_BLOCKS ? PMH_HEADER_MAP_BLOCKS :
		(block | (PMH_ZONE_BLOCKS - 1)) + 1;
}

/* The kind of a block, as pmh_space_map. */
static inline uint8_t *
pmh_space_kind(const PmhTable *t, uint64_t block)
{
	return pmh_space_map(t, block) +
		(block < PMH_HEADER_MAP_BLOCKS ? PMH_HEADER_MAP_BLOCKS : PMH_ZONE_BLOCKS);
}

/* Is this block a map block?  (In block 0 the header has one.) */
static inline bool
pmh_space_is_map_block(uint64_t block)
{
	return (block & (PMH_ZONE_BLOCKS - 1)) == 0 || block == PMH_HEADER_MAP_BLOCKS;
}

/* Units of a block that are never given out: of block 0 those of the header. */
static inline uint8_t
pmh_space_reserved(uint64_t block)
{
	if (block == 0)
		return (1 << PMH_HEADER_UNITS) - 1;
	return pmh_space_is_map_block(block) ? PMH_BLOCK_USED : 0;
}

static inline void
pmh_space_lock(PmhTable *t)
{
	PMH_ASSERT(!t->space_held || pmh_is_locked(&t->file_lock->space));
	if (!t->space_held)
		pmh_lock(&t->file_lock->space);
}

/*
 * The same for one that gives space out: never under a hold that frees some, so that
 * readers that are still in there see the versions (src/README, "Locks").
 */
static inline void
pmh_space_lock_to_give(PmhTable *t)
{
	PMH_ASSERT(!t->space_held);
	pmh_lock(&t->file_lock->space);
}

static inline void
pmh_space_unlock(PmhTable *t)
{
	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	if (!t->space_held)
		pmh_unlock(&t->file_lock->space);
}

/* ---- value_space.c: space for value buffers ---- */

/*
 * Value buffers of pmh_class_bytes(class), where such may be (pmh_buffer_may_be_at).
 * Contents of a new one are undefined.  PMH_OK or PMH_NEED.  Freeing counts the version
 * of the buffer up first; whatever pointed to it must have been changed, durably, and its
 * version counted up after that change.
 */
extern PmhResult pmh_value_alloc(PmhTable *t, uint32_t class, uint64_t *offset);
extern void pmh_value_free(PmhTable *t, uint64_t offset, uint32_t class);

/*
 * What is free in value blocks of an earlier life a walk along all lists finds out, which
 * marks each buffer that it meets in one (0: there is none), and settles when it has met all
 * of them: the rest is free.  That waits for the holder of each stripe of the file, with no
 * lock held.  A walk may be given up at any point.  PMH_OK; PMH_CANCELLED: the wait was given
 * up, nothing is freed, and it may be done once more; or a real error.
 */
extern void pmh_value_mark(PmhTable *t, uint64_t payload);
extern PmhResult pmh_value_settle(PmhTable *t);

/* ---- file_size.c: the space of the file, its length and that of its mapping ---- */

/*
 * Do what t->need says.  No lock may be held.  PMH_OK tells no more than that
 * another look is due: others may have taken it.
 */
extern PmhResult pmh_provide(PmhTable *t);

/* The same for what can be left undone: that there is no file space is no error, but is noted. */
extern PmhResult pmh_provide_if_possible(PmhTable *t, bool *no_space);

/*
 * See to it that all of the file, as it is now, can be touched; PMH_ERR_CORRUPT if its length
 * is a damaged one.  No lock may be held but the grow lock.
 */
extern PmhResult pmh_map_all(PmhTable *t);

/*
 * Give the space of free blocks back to the file system, if that can be done: of the first
 * run of some from *block on, but for the first *spare ones; *block is where to go on.
 * PMH_OK; PMH_DONE: there are no more blocks.  No lock may be held.
 */
extern PmhResult pmh_space_punch(PmhTable *t, uint64_t *block, uint64_t *spare);

/* An extent of blocks, for which the file gets space if it has to.  No lock may be held. */
extern PmhResult pmh_provide_extent(PmhTable *t, uint64_t nblocks, uint64_t *offset);

#endif							/* PMH_SPACE_H */
