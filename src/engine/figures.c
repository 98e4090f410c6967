/*-------------------------------------------------------------------------
 *
 * figures.c
 *	  Statistics: exact by walking everything, and estimates from a sample.
 *
 * Both read as any reader does and hold no process up.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "segment.h"

/* A sample has segments at 2^SAMPLE_BITS points at equal distances in the space of hashes. */
#define SAMPLE_BITS		6

typedef struct Count Count;

/* How a list is counted. */
typedef PmhResult (*CountList) (PmhTable *t, uint64_t hash, Count *c);

struct Count
{
	PmhStats   *stats;
	CountList	how;
	uint64_t	weight;			/* the segment at hand stands for so many */
	uint32_t	hashing;		/* it has so many hashing buckets */
};

/* Exactly; it counts when all has been read. */
static PmhResult
count_list(PmhTable *t, uint64_t hash, Count *c)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = PMH_LIST_START;
	uint64_t	entries = 0;
	uint64_t	bytes = 0;

	while (at.below != 0)
	{
		PmhListPosition before = at;
		uint32_t	n;
		PmhResult	result = pmh_list_whole(t, hash, &at, value, &n);

		if (result != PMH_OK)
			return result;
		entries += n;
		for (unsigned i = 0; i <= PMH_MAX_LEVEL; i++)
			bytes += i > 0 && at.met[i] == before.met[i] ? 0 :
				pmh_class_bytes(pmh_pointer_class(at.met[i]));
	}
	c->stats->lists += bytes > 0 ? c->weight : 0;
	c->stats->list_entries += c->weight * entries;
	c->stats->list_bytes += c->weight * bytes;
	c->stats->entries += c->weight * entries;
	return PMH_OK;
}

/*
 * About how many values has a list?  Reads its last two buffers; those in the slots before them
 * are taken to have as many.
 */
static PmhResult
guess_list(PmhTable *t, uint64_t hash, Count *c)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = PMH_LIST_START;
	uint64_t	entries = 0;
	uint64_t	buffers = 0;

	while (at.below != 0 && buffers < 2)
	{
		uint32_t	n;
		PmhResult	result = pmh_list_whole(t, hash, &at, value, &n);

		if (result != PMH_OK)
			return result;
		entries += n;
		buffers += at.met[0] != 0;
	}
	if (buffers > 0)
		c->stats->entries += c->weight * (entries + at.below * entries / buffers);
	return PMH_OK;
}

static inline PmhResult
count_entry(PmhTable *t, void *arg, const PmhWalked *e)
{
	Count	   *c = arg;

	if (pmh_home_bucket(e->hash, c->hashing) != e->bucket)
		c->stats->entries_elsewhere += c->weight;
	if (e->bucket >= c->hashing)
		c->stats->entries_stash += c->weight;
	if (pmh_word_is_pointer(e->word))
		return c->how(t, e->hash, c);
	c->stats->entries += c->weight;
	return PMH_OK;
}

/*
 * Count all segments, or a sample of them.  PMH_CANCELLED if the caller's hook says so:
 * a table may have a million.
 *
 * The points of a sample meet a segment with a probability of 2^-depth, and so each one met
 * stands for 2^depth.  A segment that several of them meet is counted once (its lists may
 * be very long), and is all there is between them.
 */
static PmhResult
count(PmhTable *t, bool sample, CountList how, PmhStats *stats)
{
	uint64_t   *of_strategy[] = {&stats->segments_single, &stats->segments_two_choice,
		&stats->segments_stash};
	Count		c = {.stats = stats, .how = how};
	PmhWalk		walk;
	PmhResult	result = pmh_walk_begin(t, &walk, sample ? SAMPLE_BITS : PMH_MAX_DEPTH);

	_Static_assert(sizeof(of_strategy) / sizeof(of_strategy[0]) == PMH_STASH + 1,
				   "each strategy has its count");
	memset(stats, 0, sizeof(*stats));
	stats->min_depth = PMH_MAX_DEPTH;
	while (result == PMH_OK && !walk.at.through)
	{
		const PmhPlace *place = &walk.snap.place;
		uint32_t	depth;

		result = pmh_wait_cancelled() ? pmh_fail_cancelled(t) :
			pm_is_lost(&t->file) ? pmh_fail_lost(t) : pmh_walk_segment(t, &walk);
		if (result != PMH_OK)
			break;
		if (!pmh_strategy_exists(pmh_elem_strategy(place->elem)))
		{
			result = pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
							  "A directory element has an impossible strategy.");
			break;
		}
		depth = pmh_elem_depth(place->elem);
		c.hashing = place->hashing;
		c.weight = depth > walk.bits ? UINT64_C(1) << (depth - walk.bits) : 1;
		stats->min_depth = depth < stats->min_depth ? depth : stats->min_depth;
		stats->max_depth = depth > stats->max_depth ? depth : stats->max_depth;
		stats->segments += c.weight;
		*of_strategy[pmh_elem_strategy(place->elem)] += c.weight;
		stats->slots += c.weight * place->buckets * PMH_SLOTS;
		for (uint32_t b = 0; b < place->buckets; b++)
			stats->used_slots += c.weight * pmh_state_count(pmh_bucket_state(&walk.copy[b]));
		result = pmh_walk_entries(t, &walk, count_entry, &c);
	}
	pmh_walk_end(&walk);
	return result;
}

PmhResult
pmh_stats(PmhTable *table, PmhStats *stats)
{
	const PmhRun *run;
	uint64_t	blocks;
	uint64_t	free_units;
	PmhResult	result = pmh_conclude(table, count(table, false, count_list, stats));

	if (result != PMH_OK)
		return result;
	stats->load_factor = (double) stats->used_slots / (double) stats->slots;
	run = pmh_run(table);
	pmh_space_figures(table, &blocks, &free_units);
	stats->value_bytes = pm_load(&run->value_blocks) << PMH_BLOCK_SHIFT;
	stats->file_bytes = blocks << PMH_BLOCK_SHIFT;
	stats->used_bytes = stats->file_bytes - free_units * PMH_UNIT_SIZE;
	stats->global_depth = pmh_dirword_depth(pm_load(&pmh_live(table)->dirword));
	stats->splits = pm_load(&run->splits);
	stats->grows = pm_load(&run->grows);
	stats->doublings = pm_load(&run->doublings);
	stats->compactions = pm_load(&run->compactions);
	stats->strategy_changes = pm_load(&run->strategy_changes);
	return pmh_conclude(table, PMH_OK);
}

PmhResult
pmh_estimate_fill(PmhTable *t, PmhStats *stats)
{
	return count(t, true, guess_list, stats);
}

PmhResult
pmh_estimate(PmhTable *table, uint64_t *entries)
{
	PmhStats	stats;
	PmhResult	result = pmh_estimate_fill(table, &stats);

	*entries = stats.entries;
	return pmh_conclude(table, result);
}
