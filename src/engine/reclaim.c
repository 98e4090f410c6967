/*-------------------------------------------------------------------------
 *
 * reclaim.c
 *	  Which value buffers does nothing point to?
 *
 * After a crash all space of the value regions counts as used, and a shrink
 * wants to know which regions hold nothing.  A walk over the whole table that
 * begins then marks in a map (a bit per line, in blocks of the file that it
 * returns at the end) each buffer it comes by.  Processes that allocate or
 * free a buffer meanwhile mark it as well (pmh_sweep_account): a new one may
 * be published where the walk has been already, and a freed one is in a free
 * list.  What is not marked in the end is not in use by anything: a region
 * without a mark goes back to the space map, other gaps to the free lists.
 *
 * run.sweep_mark, under the space lock, tells all where the map is.  A later
 * walk takes over from one that was never ended, but not from one that is
 * freeing what it has found.
 *
 *-------------------------------------------------------------------------
 */
#include "values.h"

/* run.sweep_mark: map offset, "the map is closed", "given up" */
#define MARK_GIVEN_UP	UINT64_C(0x1000)
#define MARK_CLOSED		UINT64_C(0x2000)
#define MARK_LOW_BITS	UINT64_C(0x3fff)

/* A mark map: how much of the file it covers, and a bit per line of that. */
typedef struct MarkMap
{
	uint64_t	covered;		/* bytes from the start of the file */
	uint64_t	pad[7];
	uint64_t	word[];
} MarkMap;

static MarkMap *
mark_map(const PmhTable *t, uint64_t mark)
{
	return (MarkMap *) pmh_at(t, mark & ~MARK_LOW_BITS);
}

static uint64_t
mark_map_blocks(const PmhTable *t, uint64_t covered)
{
	uint64_t	bytes = sizeof(MarkMap) + covered / PMH_LINE / 8;

	return (bytes + pmh_block_size(t) - 1) / pmh_block_size(t);
}

static void
set_mark_bits(MarkMap *map, uint64_t offset, uint64_t len, bool mark)
{
	uint64_t	line = offset / PMH_LINE;
	uint64_t	end = (offset + len) / PMH_LINE;

	if (offset + len > map->covered)
		return;
	while (line < end)
	{
		uint64_t	in_word = 64 - line % 64;
		uint64_t	n = end - line < in_word ? end - line : in_word;
		uint64_t	bits = (n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << (line % 64);

		if (mark)
			bits |= pm_load(&map->word[line / 64]);
		else
			bits = pm_load(&map->word[line / 64]) & ~bits;
		pm_store64(&map->word[line / 64], bits);
		line += n;
	}
}

/* Is nobody to mark anything (any more)? */
static bool
is_idle(uint64_t mark)
{
	return mark == 0 || (mark & (MARK_GIVEN_UP | MARK_CLOSED)) != 0;
}

/* Is there a map where 'mark' says, and all of it inside our mapping? */
static bool
map_is_mapped(const PmhTable *t, uint64_t mark)
{
	uint64_t	offset = mark & ~MARK_LOW_BITS;
	uint64_t	mapped = t->file.mapped;

	return offset % pmh_block_size(t) == 0 && offset < mapped &&
		mapped - offset >= sizeof(MarkMap) &&
		mark_map_blocks(t, mark_map(t, mark)->covered) <= (mapped - offset) >> t->block_shift;
}

bool
pmh_sweep_account_ready(const PmhTable *t)
{
	uint64_t	mark = pm_load(&pmh_run(t)->sweep_mark);

	return is_idle(mark) || map_is_mapped(t, mark);
}

void
pmh_sweep_account(PmhTable *t, uint64_t offset, uint64_t len)
{
	uint64_t   *mark = &pmh_run(t)->sweep_mark;

	if (is_idle(pm_load(mark)))
		return;
	if (pmh_sweep_account_ready(t))
		set_mark_bits(mark_map(t, pm_load(mark)), offset, len, true);
	else
		pm_store64(mark, pm_load(mark) | MARK_GIVEN_UP);
}

void
pmh_sweep_discard(PmhTable *t, uint64_t offset, uint64_t len)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	mark = pm_load(&run->sweep_mark);

	if (!is_idle(mark) && pm_load(&run->mark_shrinks) != 0 &&
		pmh_sweep_account_ready(t))
	{
		set_mark_bits(mark_map(t, mark), offset, len, false);
		return;
	}
	pm_store64(&run->value_space_known, 0);
	pm_store64(&run->values_lost, 1);
}

bool
pmh_sweep_map_run(const PmhTable *t, uint64_t *block, uint64_t *nblocks)
{
	uint64_t	mark = pm_load(&pmh_run(t)->sweep_mark);

	if (mark == 0)
		return false;
	*block = (mark & ~MARK_LOW_BITS) >> t->block_shift;
	*nblocks = 0;
	if (map_is_mapped(t, mark))
		*nblocks = mark_map_blocks(t, mark_map(t, mark)->covered);
	return true;
}

/* ---- beginning ---- */

static void
clear_mark_map(PmhTable *t, uint64_t offset, uint64_t covered)
{
	MarkMap    *map = mark_map(t, offset);

	for (uint64_t i = 0; i < (covered / PMH_LINE + 63) / 64; i++)
		pm_store64(&map->word[i], 0);
	pm_store64(&map->covered, covered);
}

/* Return the map of a walk that was never ended. */
static PmhResult
free_old_map(PmhTable *t, uint64_t mark)
{
	PmhResult	result;

	if (mark == 0)
		return PMH_OK;
	result = pmh_map_all(t);
	if (result != PMH_OK)
		return result;
	if (!map_is_mapped(t, mark))
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_RUN_OFFSET,
						"The mark map of a sweep is in an impossible place.");
	pmh_space_free_run(t, mark & ~MARK_LOW_BITS,
					   mark_map_blocks(t, mark_map(t, mark)->covered));
	return PMH_OK;
}

/* Allocate and clear a map for a file of this size. */
static PmhResult
make_mark_map(PmhTable *t, uint64_t covered, uint64_t *offset)
{
	PmhResult	result;

	do
		result = pmh_space_alloc_run(t, mark_map_blocks(t, covered), offset);
	while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	if (result == PMH_OK)
		clear_mark_map(t, *offset, covered);
	return result;
}

/*
 * Let the map at 'offset' be the one.  PMH_OK; PMH_RETRY if the length of the
 * file has changed meanwhile; PMH_DONE if somebody else is about to free what
 * he has found.  The grow lock keeps new value regions away: of those that
 * exist now, all that is in no list of buffers is forgotten here, and found
 * again.
 */
static PmhResult
install_mark_map(PmhTable *t, PmhReclaim *r, uint64_t offset, uint64_t covered,
				 uint64_t *old_mark)
{
	PmhRun	   *run = pmh_run(t);
	PmhResult	result = PMH_RETRY;

	pmh_lock(&t->file_lock->grow);
	if (pm_load_acquire(&pmh_live(t)->blocks) << t->block_shift == covered)
	{
		pmh_lock(&t->file_lock->space);
		*old_mark = pm_load(&run->sweep_mark);
		result = (*old_mark & MARK_CLOSED) != 0 ? PMH_DONE : PMH_OK;
		if (result == PMH_OK)
		{
			r->mark = offset;
			r->serial = pm_load(&run->mark_serial) + 1;
			pm_store64(&run->mark_serial, r->serial);
			r->first_region = pm_load(&pmh_live(t)->value_region);
			pm_store64(&run->sweep_mark, r->mark);
			pm_store64(&run->mark_shrinks, r->shrinks);
			pm_store64(&run->value_space_known, 0);
			pm_store64(&run->values_lost, 0);
			pm_store64(&run->shrink_limit, r->limit);
			pm_store64(&run->region_blocks, r->region_blocks);
		}
		pmh_unlock(&t->file_lock->space);
		if (result == PMH_OK)
			pmh_value_forget_free(t);
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
		uint64_t	covered = pm_load_acquire(&pmh_live(t)->blocks) << t->block_shift;
		uint64_t	offset;
		PmhResult	result = make_mark_map(t, covered, &offset);

		if (result != PMH_OK)
			return result;
		r->covered = covered;
		r->mark_blocks = mark_map_blocks(t, covered);
		result = install_mark_map(t, r, offset, covered, &old_mark);
		if (result == PMH_OK)
			return free_old_map(t, old_mark);
		pmh_space_free_run(t, offset, r->mark_blocks);
		if (result == PMH_DONE)
			return PMH_OK;
	}
}

/* ---- marking ---- */

/*
 * Is run.sweep_mark still ours?  The space lock is held.  (The place of the map
 * does not tell: a later walk may have got the same.)
 */
static bool
mark_is_ours(const PmhTable *t, const PmhReclaim *r)
{
	const PmhRun *run = pmh_run(t);

	return r->mark != 0 && pm_load(&run->sweep_mark) != 0 &&
		pm_load(&run->mark_serial) == r->serial;
}

void
pmh_reclaim_mark(PmhTable *t, const PmhReclaim *r, uint64_t payload)
{
	if (r->mark == 0)
		return;
	pmh_lock(&t->file_lock->space);
	if (mark_is_ours(t, r))
		set_mark_bits(mark_map(t, r->mark), pmh_pointer_offset(payload),
					  pmh_class_bytes(pmh_pointer_class(payload)), true);
	pmh_unlock(&t->file_lock->space);
}

/* ---- the end ---- */

/*
 * Close our map: nobody marks any more, and nobody takes over.  True if it is
 * complete; if it is still ours at all, *map_is_ours.
 */
static bool
close_map(PmhTable *t, const PmhReclaim *r, bool *map_is_ours)
{
	uint64_t   *mark = &pmh_run(t)->sweep_mark;
	bool		complete;

	pmh_lock(&t->file_lock->space);
	*map_is_ours = mark_is_ours(t, r);
	complete = *map_is_ours && (pm_load(mark) & MARK_GIVEN_UP) == 0;
	if (*map_is_ours)
		pm_store64(mark, pm_load(mark) | MARK_CLOSED);
	pmh_unlock(&t->file_lock->space);
	return complete;
}

/* There is no map any more, and all free value space is known if 'known'. */
static void
drop_map(PmhTable *t, PmhReclaim *r, bool known)
{
	PmhRun	   *run = pmh_run(t);

	pmh_lock(&t->file_lock->space);
	pm_store64(&run->sweep_mark, 0);
	if (known && pm_load(&run->values_lost) == 0)
		pm_store64(&run->value_space_known, 1);
	pmh_unlock(&t->file_lock->space);
	pmh_space_free_run(t, r->mark & ~MARK_LOW_BITS, r->mark_blocks);
}

void
pmh_reclaim_abandon(PmhTable *t, PmhReclaim *r)
{
	bool		map_is_ours;

	if (r->mark == 0)
		return;
	(void) close_map(t, r, &map_is_ours);
	if (map_is_ours)
		drop_map(t, r, false);
	r->mark = 0;
}

/* The first line from 'line' on that is marked (or is not), or 'end'. */
static uint64_t
next_line(const PmhTable *t, const PmhReclaim *r, uint64_t line, uint64_t end,
		  bool marked)
{
	const MarkMap *map = mark_map(t, r->mark);

	while (line < end)
	{
		uint64_t	word = pm_load(&map->word[line / 64]);
		uint64_t	left = (marked ? word : ~word) >> (line % 64);

		if (left != 0)
		{
			line += (uint64_t) __builtin_ctzll(left);
			return line < end ? line : end;
		}
		line += 64 - line % 64;
	}
	return end;
}

/* Give what is not marked in a region to the free lists. */
static void
free_unmarked(PmhTable *t, const PmhReclaim *r, uint64_t from, uint64_t to)
{
	uint64_t	line = from / PMH_LINE;
	uint64_t	end = to / PMH_LINE;

	while (line < end)
	{
		uint64_t	start = line;

		line = next_line(t, r, line, end, true);
		if (line > start)
			pmh_value_free_span(t, start * PMH_LINE, (line - start) * PMH_LINE);
		line = next_line(t, r, line, end, false);
	}
}

/* Free what is not marked in one region, or all of it; *next: the one behind. */
static PmhResult
settle_region(PmhTable *t, const PmhReclaim *r, uint64_t block, uint64_t *next)
{
	PmhResult	result = pmh_region_check(t, block, r->covered >> t->block_shift);
	const PmhRegion *region;
	uint64_t	from;
	uint64_t	to;

	if (result != PMH_OK)
		return result;
	region = pmh_at(t, block << t->block_shift);
	*next = region->next;
	from = (block << t->block_shift) + PMH_LINE;
	to = (block + region->blocks) << t->block_shift;
	if (next_line(t, r, from / PMH_LINE, to / PMH_LINE, true) == to / PMH_LINE)
		return pmh_region_return(t, block);
	free_unmarked(t, r, from, to);
	return PMH_OK;
}

bool
pmh_reclaim_is_ours(const PmhTable *t, const PmhReclaim *r)
{
	return mark_is_ours(t, r) && !is_idle(pm_load(&pmh_run(t)->sweep_mark));
}

PmhResult
pmh_reclaim_finish(PmhTable *t, PmhReclaim *r)
{
	uint64_t	left = pm_load(&pmh_live(t)->blocks);
	bool		map_is_ours;
	bool		complete;
	PmhResult	result = PMH_OK;

	if (r->mark == 0)
		return PMH_OK;
	complete = close_map(t, r, &map_is_ours);
	if (complete)
		result = pmh_map_all(t);
	for (uint64_t block = r->first_region; complete && result == PMH_OK && block != 0;)
	{
		if (left-- == 0)
			result = pmh_fail(t, PMH_ERR_CORRUPT, 0, block << t->block_shift,
							  "The list of value regions runs in a circle.");
		else
			result = settle_region(t, r, block, &block);
	}
	if (map_is_ours)
		drop_map(t, r, complete && result == PMH_OK);
	r->mark = 0;
	return result;
}
