/*-------------------------------------------------------------------------
 *
 * reclaim.c
 *	  Which value buffers does nothing point to?
 *
 * After a crash all space of the value regions counts as used, and a shrink wants to know
 * which regions hold nothing.  A walk over the whole table that begins then marks each buffer
 * it finds in a map (a bit per grain, in blocks of the file that it returns at the end).
 * Processes that allocate or free a buffer meanwhile mark it as well (pmh_reclaim_account): a
 * new one may be published where the walk has been already, and a freed one is in a free list;
 * or, where the process that frees it has not mapped the map, nowhere, until this walk or the
 * next one finds it.  Once each process that had taken a buffer off its list has freed it
 * (await_owners), what is not marked is unused: a region without a mark goes back to the
 * space map, other gaps to the free lists.
 *
 * run.reclaim_mark, under the space lock, tells all where the map is.  A later
 * walk takes over from one that was never ended, but not from one that is
 * freeing what it has found.
 *
 *-------------------------------------------------------------------------
 */
#include "buffer.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "live.h"
#include "lock.h"
#include "pm.h"
#include "reclaim.h"
#include "recover.h"
#include "region.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"
#include "value_space.h"

/* run.reclaim_mark: map offset, "the map is closed" */
#define MARK_CLOSED		UINT64_C(0x2000)
#define MARK_LOW_BITS	UINT64_C(0x3fff)

/*
 * A mark map: how much of the file it covers, and a bit per grain of that.  It is
 * in several extents, none longer than MARK_EXTENT_BLOCKS and a block: an extent
 * cannot be longer than what lies between two blocks of the space map.
 */
#define MARK_EXTENT_BLOCKS	UINT64_C(8192)

typedef struct MarkMap
{
	uint64_t	covered;		/* bytes from the start of the file */
	uint64_t	more[PMH_MARK_EXTENTS - 1];	/* offsets of the second extent and so on */
	uint64_t	word[];			/* of the first extent */
} MarkMap;

_Static_assert(sizeof(MarkMap) <= PMH_BLOCK_SIZE,
			   "the first extent has a block more at most");
_Static_assert(MARK_EXTENT_BLOCKS + 1 <= PMH_LONGEST_EXTENT,
			   "an extent of marks cannot exist");
_Static_assert(PMH_MAX_BLOCKS / (8 * PMH_GRAIN) <= PMH_MARK_EXTENTS * MARK_EXTENT_BLOCKS,
			   "there are not enough extents for the marks of the largest file");
_Static_assert(MARK_LOW_BITS == PMH_BLOCK_SIZE - 1, "flags are not apart from offsets");

static MarkMap *
mark_map(const PmhTable *t, uint64_t mark)
{
	return (MarkMap *) pmh_at(t, mark & ~MARK_LOW_BITS);
}

/* Words of an extent that is not the last one. */
static uint64_t
words_of_extent(void)
{
	return MARK_EXTENT_BLOCKS << (PMH_BLOCK_SHIFT - 3);
}

static uint64_t
words_for(uint64_t covered)
{
	return (covered / PMH_GRAIN + 63) / 64;
}

static unsigned
mark_extents(uint64_t covered)
{
	return (unsigned) ((words_for(covered) + words_of_extent() - 1) /
					   words_of_extent());
}

/* Blocks of an extent, which are fewer for the last one. */
static uint64_t
mark_extent_blocks(uint64_t covered, unsigned extent)
{
	uint64_t	words = words_for(covered) - extent * words_of_extent();
	uint64_t	bytes;

	if (words > words_of_extent())
		words = words_of_extent();
	bytes = words * sizeof(uint64_t) + (extent == 0 ? sizeof(MarkMap) : 0);
	return (bytes + PMH_BLOCK_SIZE - 1) >> PMH_BLOCK_SHIFT;
}

/* The word with the bit of a grain, of a map whose extents r knows. */
static uint64_t *
mark_word(const PmhTable *t, const PmhReclaim *r, uint64_t grain)
{
	uint64_t	word = grain / 64;
	uint64_t	extent = word / words_of_extent();

	if (extent == 0)
		return &mark_map(t, r->extent[0])->word[word];
	return (uint64_t *) pmh_at(t, r->extent[extent]) + word % words_of_extent();
}

static void
set_mark_bits(const PmhTable *t, const PmhReclaim *r, uint64_t offset, uint64_t len,
			  bool mark)
{
	uint64_t	grain = offset / PMH_GRAIN;
	uint64_t	end = (offset + len) / PMH_GRAIN;

	if (offset + len > r->covered)
		return;
	while (grain < end)
	{
		uint64_t   *word = mark_word(t, r, grain);
		uint64_t	in_word = 64 - grain % 64;
		uint64_t	n = end - grain < in_word ? end - grain : in_word;
		uint64_t	bits =
			(n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << (grain % 64);

		if (mark)
			bits |= pm_load(word);
		else
			bits = pm_load(word) & ~bits;
		pm_store64(word, bits);
		grain += n;
	}
}

/* Is nothing to be marked (any more)? */
static bool
is_idle(uint64_t mark)
{
	return mark == 0 || (mark & MARK_CLOSED) != 0;
}

/* Does an extent lie within the bound? */
static bool
extent_is_within(PmhTable *t, uint64_t offset, uint64_t nblocks)
{
	return offset % PMH_BLOCK_SIZE == 0 &&
		pmh_reaches(t, offset, nblocks << PMH_BLOCK_SHIFT);
}

/*
 * Where the map is that 'mark' tells of; false if it is not one, or not all of
 * it is within the bound.
 */
static bool
find_mark_map(PmhTable *t, uint64_t mark, PmhReclaim *map)
{
	map->extent[0] = mark & ~MARK_LOW_BITS;
	if (!extent_is_within(t, map->extent[0], 1))
		return false;
	map->covered = pm_load(&mark_map(t, mark)->covered);
	if (map->covered == 0 || map->covered > PMH_MAX_BLOCKS << PMH_BLOCK_SHIFT)
		return false;
	map->nextents = mark_extents(map->covered);
	for (unsigned extent = 0; extent < map->nextents; extent++)
	{
		if (extent > 0)
			map->extent[extent] = pm_load(&mark_map(t, mark)->more[extent - 1]);
		if (!extent_is_within(t, map->extent[extent],
							  mark_extent_blocks(map->covered, extent)))
			return false;
	}
	return true;
}

/* Can an extent of marks be here?  As pmh_check_span. */
static PmhResult
check_mark_extent(PmhTable *t, uint64_t offset, uint64_t nblocks)
{
	if (offset % PMH_BLOCK_SIZE != 0)
		return PMH_ERR_CORRUPT;
	return pmh_check_span(t, offset, nblocks << PMH_BLOCK_SHIFT);
}

/*
 * The space lock keeps the map, as long as it is recorded, from being freed, and
 * the file from being cut: so what lies beyond its end is damage.
 */
PmhResult
pmh_reclaim_account_check(PmhTable *t)
{
	uint64_t	mark = pm_load(&pmh_run(t)->reclaim_mark);
	PmhReclaim	map;
	PmhResult	result;

	if (is_idle(mark) || find_mark_map(t, mark, &map))
		return PMH_OK;
	result = check_mark_extent(t, mark & ~MARK_LOW_BITS, 1);
	if (result == PMH_OK)
	{
		uint64_t	covered = pm_load(&mark_map(t, mark)->covered);
		unsigned	extents = 0;

		if (covered != 0 && covered <= PMH_MAX_BLOCKS << PMH_BLOCK_SHIFT)
			extents = mark_extents(covered);
		for (unsigned extent = 0; extent < extents && result == PMH_OK; extent++)
			result = check_mark_extent(t, extent == 0 ? mark & ~MARK_LOW_BITS :
									pm_load(&mark_map(t, mark)->more[extent - 1]),
									mark_extent_blocks(covered, extent));
	}
	if (result == PMH_NEED)
		return result;
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_RUN_OFFSET,
					"The mark map of a sweep is in an impossible place.");
}

bool
pmh_reclaim_account(PmhTable *t, uint64_t offset, uint64_t len)
{
	uint64_t	mark = pm_load(&pmh_run(t)->reclaim_mark);
	PmhReclaim	map;

	if (is_idle(mark))
		return true;
	if (!find_mark_map(t, mark, &map))
		return false;
	set_mark_bits(t, &map, offset, len, true);
	return true;
}

void
pmh_reclaim_discard(PmhTable *t, uint64_t offset, uint64_t len)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	mark = pm_load(&run->reclaim_mark);
	PmhReclaim	map;

	if (!is_idle(mark) && pm_load(&run->mark_shrinks) != 0 &&
		find_mark_map(t, mark, &map))
	{
		set_mark_bits(t, &map, offset, len, false);
		return;
	}
	pmh_reclaim_lose(t);
}

void
pmh_reclaim_lose(PmhTable *t)
{
	pm_store64(&pmh_run(t)->value_space_known, 0);
	pm_store64(&pmh_run(t)->values_lost, 1);
}

bool
pmh_reclaim_map_extent(PmhTable *t, unsigned extent, uint64_t *block,
					   uint64_t *nblocks)
{
	uint64_t	mark = pm_load(&pmh_run(t)->reclaim_mark);
	PmhReclaim	map;

	if (mark == 0)
		return false;
	*block = (mark & ~MARK_LOW_BITS) >> PMH_BLOCK_SHIFT;
	*nblocks = 0;
	if (!find_mark_map(t, mark, &map))
		return extent == 0;
	if (extent >= map.nextents)
		return false;
	*block = map.extent[extent] >> PMH_BLOCK_SHIFT;
	*nblocks = mark_extent_blocks(map.covered, extent);
	return true;
}

/* ---- beginning ---- */

/* Space that was never used is zero already: it need not be written. */
static void
clear_words(uint64_t *word, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
	{
		if (pm_load(&word[i]) != 0)
			pm_store64(&word[i], 0);
	}
}

static void
clear_mark_map(PmhTable *t, const PmhReclaim *r)
{
	MarkMap    *map = mark_map(t, r->extent[0]);
	uint64_t	words = words_for(r->covered);

	for (unsigned extent = 0; extent < r->nextents; extent++)
	{
		uint64_t	n = words < words_of_extent() ? words : words_of_extent();

		if (extent > 0)
			pm_store64(&map->more[extent - 1], r->extent[extent]);
		clear_words(extent == 0 ? map->word : pmh_at(t, r->extent[extent]), n);
		words -= n;
	}
	pm_store64(&map->covered, r->covered);
}

/* Return the blocks of a map that is recorded nowhere. */
static void
free_mark_map(PmhTable *t, const PmhReclaim *r)
{
	for (unsigned extent = 0; extent < r->nextents; extent++)
		pmh_space_free_extent(t, r->extent[extent],
							  mark_extent_blocks(r->covered, extent));
}

/*
 * Return the map of a walk that was never ended.  All that the file had when ours was
 * recorded is mapped, so that nothing but damage keeps us from it.
 */
static PmhResult
free_old_map(PmhTable *t, uint64_t mark)
{
	PmhReclaim	old;

	if (mark == 0)
		return PMH_OK;
	if (!find_mark_map(t, mark, &old))
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_RUN_OFFSET,
						"The mark map of a sweep is in an impossible place.");
	free_mark_map(t, &old);
	return PMH_OK;
}

/* Allocate and clear a map for a file of r->covered bytes. */
static PmhResult
make_mark_map(PmhTable *t, PmhReclaim *r)
{
	unsigned	extents = mark_extents(r->covered);

	for (r->nextents = 0; r->nextents < extents; r->nextents++)
	{
		PmhResult	result =
			pmh_provide_extent(t, mark_extent_blocks(r->covered, r->nextents),
							   &r->extent[r->nextents]);

		if (result != PMH_OK)
		{
			free_mark_map(t, r);
			return result;
		}
	}
	clear_mark_map(t, r);
	return PMH_OK;
}

/* Record the map of r.  Grow lock and space lock are held. */
static void
record_mark_map(PmhTable *t, PmhReclaim *r)
{
	PmhRun	   *run = pmh_run(t);

	PMH_ASSERT(pmh_is_locked(&t->file_lock->grow) && pmh_is_locked(&t->file_lock->space));
	PMH_ASSERT(r->nextents == mark_extents(r->covered));
	r->mark = r->extent[0];
	r->serial = pm_load(&run->mark_serial) + 1;
	pm_store64(&run->mark_serial, r->serial);
	r->first_region = pmh_newest_region(t);
	pm_store64(&run->reclaim_mark, r->mark);
	pm_store64(&run->mark_shrinks, r->shrinks);
	pm_store64(&run->value_space_known, 0);
	pm_store64(&run->values_lost, 0);
	pm_store64(&run->shrink_limit, r->limit);
	pm_store64(&run->region_blocks, r->region_blocks);
	PMH_STOP_POINT("mark_map_before_forget");
	pmh_value_forget_free(t);
}

/*
 * Let the map of r be the one.  PMH_OK; PMH_RETRY if the length of the
 * file has changed meanwhile; PMH_NEED if there is another map, and not all of the file
 * is mapped: once it is not recorded any more nothing may keep us from freeing it;
 * PMH_DONE if another process is about to free what it has found.  The grow lock keeps
 * new value regions away: of those that exist now, all that is in no list of buffers is
 * forgotten here, and found again.
 */
static PmhResult
install_mark_map(PmhTable *t, PmhReclaim *r, uint64_t *old_mark)
{
	PmhResult	result = PMH_RETRY;

	if (!pmh_lock_or_cancel(&t->file_lock->grow))
		return pmh_fail_cancelled(t);
	if (pmh_blocks(t) << PMH_BLOCK_SHIFT == r->covered)
	{
		pmh_lock(&t->file_lock->space);
		*old_mark = pm_load(&pmh_run(t)->reclaim_mark);
		result = (*old_mark & MARK_CLOSED) != 0 ? PMH_DONE : PMH_OK;
		if (result == PMH_OK && *old_mark != 0)
			result = pmh_check_span(t, 0, r->covered);
		if (result == PMH_OK)
			record_mark_map(t, r);
		pmh_unlock(&t->file_lock->space);
	}
	pmh_unlock(&t->file_lock->grow);
	return result;
}

PmhResult
pmh_reclaim_begin(PmhTable *t, PmhReclaim *r)
{
	uint64_t	old_mark = 0;

	if (!r->shrinks && pm_load(&pmh_run(t)->value_space_known) != 0)
		return PMH_OK;
	for (;;)
	{
		PmhResult	result;

		r->covered = pmh_blocks(t) << PMH_BLOCK_SHIFT;
		result = make_mark_map(t, r);
		if (result != PMH_OK)
			return result;
		result = install_mark_map(t, r, &old_mark);
		if (result == PMH_OK)
			return free_old_map(t, old_mark);
		free_mark_map(t, r);
		if (result == PMH_DONE)
			return PMH_OK;
		if (result == PMH_NEED)
			result = pmh_provide(t);
		if (result != PMH_OK && result != PMH_RETRY)
			return result;
	}
}

/* ---- marking ---- */

/*
 * Is run.reclaim_mark still ours?  The space lock is held.  (The offset of the map
 * does not tell: a later walk may have got the same.)
 */
static bool
mark_is_ours(const PmhTable *t, const PmhReclaim *r)
{
	const PmhRun *run = pmh_run(t);

	return r->mark != 0 && pm_load(&run->reclaim_mark) != 0 &&
		pm_load(&run->mark_serial) == r->serial;
}

void
pmh_reclaim_mark(PmhTable *t, const PmhReclaim *r, uint64_t payload)
{
	if (r->mark == 0)
		return;
	pmh_lock(&t->file_lock->space);
	if (mark_is_ours(t, r))
		set_mark_bits(t, r, pmh_pointer_offset(payload),
					  pmh_class_bytes(pmh_pointer_class(payload)), true);
	pmh_unlock(&t->file_lock->space);
}

/* ---- the end ---- */

/*
 * Wait for all that have taken a buffer off its list and not freed it yet: the walk
 * has not met it, and they would free it once more after us.  They hold the stripe of
 * its segment meanwhile; so once each stripe that segments of this file have has been
 * ours, it is freed, and marked for that.  What is taken off after that was in its
 * list when the walk came by.  (The locks are taken, not looked at: a holder that
 * comes after us sees that we have been there, and no store of it was seen by the
 * walk.)  PMH_OK or PMH_CANCELLED.
 */
static PmhResult
await_owners(PmhTable *t)
{
	uint64_t	block = 0;

	/* A segment that moves to a block past those looked at has not been there before. */
	while (block < t->locks->nstripes &&
		   block < pmh_blocks(t))
	{
		PmhStripe  *stripe = pmh_segment_stripe(t->locks, t->file_id, block++);

		if (!pmh_lock_or_cancel(&stripe->lock))
			return pmh_fail_cancelled(t);
		pmh_unlock(&stripe->lock);
	}
	return PMH_OK;
}

/*
 * Close our map: no process marks any more, and none takes over.  True if it is
 * still ours.
 */
static bool
close_map(PmhTable *t, const PmhReclaim *r)
{
	uint64_t   *mark = &pmh_run(t)->reclaim_mark;
	bool		ours;

	pmh_lock(&t->file_lock->space);
	ours = mark_is_ours(t, r);
	if (ours)
		pm_store64(mark, pm_load(mark) | MARK_CLOSED);
	pmh_unlock(&t->file_lock->space);
	return ours;
}

/* There is no map any more, and all free value space is known if 'known'. */
static void
drop_map(PmhTable *t, PmhReclaim *r, bool known)
{
	PmhRun	   *run = pmh_run(t);

	pmh_lock(&t->file_lock->space);
	pm_store64(&run->reclaim_mark, 0);
	if (known && pm_load(&run->values_lost) == 0)
		pm_store64(&run->value_space_known, 1);
	pmh_unlock(&t->file_lock->space);
	free_mark_map(t, r);
}

void
pmh_reclaim_abandon(PmhTable *t, PmhReclaim *r)
{
	if (r->mark == 0)
		return;
	if (close_map(t, r))
		drop_map(t, r, false);
	r->mark = 0;
}

/* The first grain from 'grain' on that is marked (or is not), or 'end'. */
static uint64_t
next_grain(const PmhTable *t, const PmhReclaim *r, uint64_t grain, uint64_t end,
		  bool marked)
{
	while (grain < end)
	{
		uint64_t	word = pm_load(mark_word(t, r, grain));
		uint64_t	left = (marked ? word : ~word) >> (grain % 64);

		if (left != 0)
		{
			grain += (uint64_t) __builtin_ctzll(left);
			return grain < end ? grain : end;
		}
		grain += 64 - grain % 64;
	}
	return end;
}

/* Give what is not marked in a region to the free lists. */
static void
free_unmarked(PmhTable *t, const PmhReclaim *r, uint64_t from, uint64_t to)
{
	uint64_t	grain = from / PMH_GRAIN;
	uint64_t	end = to / PMH_GRAIN;

	while (grain < end)
	{
		uint64_t	start = grain;

		grain = next_grain(t, r, grain, end, true);
		if (grain > start)
			pmh_value_free_span(t, start * PMH_GRAIN, (grain - start) * PMH_GRAIN);
		grain = next_grain(t, r, grain, end, false);
	}
}

/* Free what is not marked in one region, or all of it; *next: the one after it. */
static PmhResult
settle_region(PmhTable *t, const PmhReclaim *r, uint64_t block, uint64_t *next)
{
	PmhResult	result = pmh_region_check(t, block, r->covered >> PMH_BLOCK_SHIFT);
	const PmhRegion *region;
	uint64_t	from;
	uint64_t	to;

	if (result != PMH_OK)
		return result;
	region = pmh_at(t, block << PMH_BLOCK_SHIFT);
	*next = region->next;
	from = (block << PMH_BLOCK_SHIFT) + PMH_LINE;
	to = (block + region->blocks) << PMH_BLOCK_SHIFT;
	if (next_grain(t, r, from / PMH_GRAIN, to / PMH_GRAIN, true) == to / PMH_GRAIN)
		return pmh_region_return(t, block);
	free_unmarked(t, r, from, to);
	return PMH_OK;
}

bool
pmh_reclaim_is_ours(const PmhTable *t, const PmhReclaim *r)
{
	return mark_is_ours(t, r) && !is_idle(pm_load(&pmh_run(t)->reclaim_mark));
}

PmhResult
pmh_reclaim_finish(PmhTable *t, PmhReclaim *r)
{
	uint64_t	left = pmh_blocks(t);
	bool		ours;
	PmhResult	result;

	if (r->mark == 0)
		return PMH_OK;
	result = await_owners(t);
	if (result != PMH_OK)
		return result;
	ours = close_map(t, r);
	PMH_STOP_POINT("reclaim_closed");
	if (ours)
		result = pmh_map_all(t);
	for (uint64_t block = r->first_region; ours && result == PMH_OK && block != 0;)
	{
		if (left-- == 0)
			result = pmh_fail(t, PMH_ERR_CORRUPT, 0, block << PMH_BLOCK_SHIFT,
							  "The list of value regions runs in a circle.");
		else
			result = settle_region(t, r, block, &block);
	}
	if (ours)
		drop_map(t, r, result == PMH_OK);
	r->mark = 0;
	return result;
}
