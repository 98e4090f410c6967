/*-------------------------------------------------------------------------
 *
 * shrink.c
 *	  Giving space back after mass deletes.
 *
 * See src/README, "Shrinking".  Three kinds of walk in hash order, each in
 * steps of a segment or a piece of a list:
 *
 *	merging		buddies that fit in one segment become one; extensions that are
 *				too large are replaced
 *	listing		lists that have lost much are rewritten, and all are added up
 *	emptying	buffers go to the first value blocks, if lists need only some
 *
 * and a pass in the order of the file: what is free is punched (file_size.c).
 * Merging of buddies is the inverse of the split of extendible hashing (Fagin et al., 1979);
 * that all is published as splits are is ours.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "segment.h"

#define MERGED_PERCENT		70

/* Files of fewer blocks are left alone. */
#define SMALL_FILE_BLOCKS	16

/* Merging pays if the load is below this share of what it would come to. */
#define LOW_LOAD			0.65

/* Lists have lost much if they take so many times what they need. */
#define LOOSE_LISTS			2.0
#define FEW_LIST_BYTES		(64.0 * 1024)

/* Value blocks are emptied if lists take less than this part of them. */
#define LOW_VALUE_FILL		0.4
#define SPARSE_VALUE_FILL	0.85
#define FEW_SPARSE_BLOCKS	4

/* Blocks that are left free, besides a share of the file. */
#define SPARE_BLOCKS		4

/*
 * Free space pays if it is this share of the file, and more than what is left
 * over when the file grows: that is never more than half.
 */
#define MUCH_FREE			0.25
#define MOSTLY_FREE			0.5
#define GROWTH_REST			(4.0 * 1024 * 1024)

/* What a step along segments costs: two are read, and may be written. */
#define SEGMENT_STEP_BYTES	(2 * PMH_BLOCK_SIZE)

/* A buffer to which values are added, and that is rewritten, has room for a share more. */
#define HEAD_ROOM			4

/* Buffers of a list seen to under one hold of the stripe. */
#define STEP_BUFFERS		8

typedef enum Phase
{
	MERGING,
	LISTING,
	EMPTYING,
	PUNCHING
} Phase;

struct PmhShrinkPrivate
{
	Phase		phase;
	uint32_t	percent;		/* how full segments may become */
	PmhWalk		walk;			/* its keys: of lists to be seen to */
	bool		no_space;		/* the file can't grow: merging passes over what does not fit,
								 * later walks build nothing new */
	bool		gained;			/* this walk has merged or reduced a segment */
	uint64_t	limit;			/* when emptying: of blocks in which buffers may stay */
	uint64_t	block;			/* when punching: where to go on, ... */
	uint64_t	spare;			/* ... and how many free blocks are still to be left */
	uint64_t	list_bytes;		/* that lists occupy */
	uint64_t	bytes_seen;		/* by all steps so far */
	size_t		nkeys;
	size_t		key;			/* the one at hand */
	uint64_t	below;			/* slots of its list below this one are left */
};

static void
start_walk(struct PmhShrinkPrivate *p, Phase phase)
{
	PMH_ASSERT(p->key == p->nkeys);
	p->phase = phase;
	p->walk.at = (PmhPosition) {0};
	p->nkeys = p->key = 0;
}

/* Get what PMH_NEED asks for.  A full file system is no error: p->no_space. */
static PmhResult
provide(PmhTable *t, struct PmhShrinkPrivate *p)
{
	PmhResult	result = pmh_provide(t);

	if (result != PMH_ERR_NO_SPACE && result != PMH_ERR_TOO_LARGE)
		return result;
	p->no_space = true;
	return PMH_OK;
}

/* ---- merging ---- */

/*
 * Merge a locked segment, the left one of its pair, with its buddy.  As
 * pmh_segment_merge; also PMH_NOT_FOUND if the buddy is split further or busy.
 */
static PmhResult
merge_with_buddy(PmhTable *t, const PmhPlace *left, uint64_t start,
				 uint32_t percent)
{
	uint32_t	depth = pmh_elem_depth(left->elem);
	PmhPlace	right;
	PmhResult	result;
	bool		same_stripe;

	PMH_ASSERT(depth > 0 && pmh_is_locked(&left->stripe->lock));
	PMH_ASSERT((pmh_hash_prefix(start, depth) & 1) == 0);
	result = pmh_locate(t, start | pmh_segment_span(depth), &right);
	if (result != PMH_OK)
		return result;
	same_stripe = right.stripe == left->stripe;
	if (pmh_elem_depth(right.elem) != depth ||
		(!same_stripe && !pmh_trylock(&right.stripe->lock)))
		return PMH_NOT_FOUND;
	result = PMH_NOT_FOUND;
	if (pmh_place_current(t, &right) && pmh_elem_whole(right.elem))
		result = pmh_segment_merge(t, left, &right, percent);
	if (!same_stripe)
		pmh_segment_unlock(&right);
	return result;
}

/*
 * A segment of 'depth' has come into being at p->walk.at.  Look at it once more;
 * if it is the right one of a pair, begin with the other.
 */
static PmhResult
look_back(PmhTable *t, struct PmhShrinkPrivate *p, uint32_t depth)
{
	PmhPlace	buddy;
	PmhResult	result;

	PMH_ASSERT(depth <= PMH_MAX_DEPTH);
	p->walk.at.next = pmh_segment_start(p->walk.at.next, depth);
	if (depth == 0 || (pmh_hash_prefix(p->walk.at.next, depth) & 1) == 0)
		return PMH_OK;
	result = pmh_locate(t, p->walk.at.next - pmh_segment_span(depth), &buddy);
	if (result == PMH_OK && pmh_elem_depth(buddy.elem) == depth)
		p->walk.at.next -= pmh_segment_span(depth);
	return result == PMH_NEED ? PMH_OK : result;
}

/* One segment: merge it, or give it a smaller extension, or pass it by. */
static PmhResult
merge_step(PmhTable *t, struct PmhShrinkPrivate *p)
{
	PmhPlace	place;
	uint64_t	start;
	uint32_t	depth;
	bool		merged = false;
	PmhResult	result;

	PMH_ASSERT(p->phase == MERGING && !p->walk.at.through);
	start = pmh_touch_segment(t, p->walk.at.next);
	(void) pmh_touch_segment(t, start); /* its buddy */
	result = pmh_segment_lock(t, p->walk.at.next, &place);
	if (result != PMH_OK)
		return result;
	depth = pmh_elem_depth(place.elem);
	start = pmh_segment_start(p->walk.at.next, depth);
	result = PMH_NOT_FOUND;
	if (depth > 0 && (pmh_hash_prefix(start, depth) & 1) == 0)
		result = merge_with_buddy(t, &place, start, p->percent);
	if (result == PMH_OK)
		merged = true;
	else if (result == PMH_NOT_FOUND)
		result = pmh_segment_reduce(t, &place, p->percent);
	pmh_segment_unlock(&place);

	if (result == PMH_NEED)
	{
		if (p->no_space)		/* the kernel has said so: only map */
			t->need.blocks = 0;
		result = provide(t, p);
		if (result != PMH_OK || !p->no_space)
			return result;
		result = PMH_NOT_FOUND; /* others may do with what is free: pass it by */
	}
	if (result != PMH_OK && result != PMH_NOT_FOUND)
		return result;
	p->gained |= result == PMH_OK;
	if (merged)
		return look_back(t, p, depth - 1);
	pmh_position_advance(&p->walk.at, depth);
	return PMH_OK;
}

/* ---- lists ---- */

/* The smallest class for what a buffer of values, or an index, holds, as things are now. */
static uint32_t
class_needed(const PmhTable *t, const PmhListPath *path, uint32_t level)
{
	uint64_t	payload = path->payload[level];
	uint32_t	class = PMH_INDEX_CLASS;
	uint32_t	last = 0;
	size_t		values;

	PMH_ASSERT(payload != 0);
	if (level > 0)
	{
		(void) pmh_index_last(t, payload, UINT32_MAX, &last);
		while (last >= pmh_index_slots(pmh_make_pointer(0, class)))
			class++;
		return class;
	}
	values = pmh_buffer_count(t, payload);
	/* In the last slot values are added, as a rule. */
	if (path->payload[1] != 0)
		(void) pmh_index_last(t, path->payload[1], UINT32_MAX, &last);
	if (path->payload[1] == 0 || path->slot[1] == last)
		class = pmh_buffer_class_for(values + values / HEAD_ROOM);
	else
		class = pmh_buffer_class_for(values);
	if (class > pmh_pointer_class(payload))
		class = pmh_pointer_class(payload);
	return class;
}

/*
 * See to a buffer of the list: if it is loose, or has to move, put what it holds into
 * another one.  PMH_OK, PMH_NEED.
 */
static PmhResult
tidy_buffer(PmhTable *t, struct PmhShrinkPrivate *p, PmhListPath *path, uint32_t level)
{
	uint64_t	payload = path->payload[level];
	uint32_t	class = class_needed(t, path, level);

	if (p->no_space ||
		(pmh_class_bytes(class) * 4 > pmh_class_bytes(pmh_pointer_class(payload)) * 3 &&
		 !(p->phase == EMPTYING && pmh_pointer_offset(payload) >> PMH_BLOCK_SHIFT >= p->limit)))
		return PMH_OK;
	return pmh_list_rewrite(t, path, level, p->walk.key[p->key], class);
}

/* Some buffers of the list at hand, whose segment is locked. */
static PmhResult
tidy_list(PmhTable *t, struct PmhShrinkPrivate *p, const PmhPlace *place)
{
	uint64_t	hash = p->walk.key[p->key];
	PmhListPath path;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock) && p->below > 0);
	if (!pmh_segment_find_list(t, place, hash, &path))
	{
		p->below = 0;
		return PMH_OK;
	}
	for (unsigned i = 0; i < STEP_BUFFERS && result == PMH_OK && p->below > 0; i++)
	{
		uint64_t	below = p->below;

		result = pmh_list_find_below(t, hash, &path, &below);
		if (result != PMH_OK || path.payload[0] == 0)
			below = 0;
		for (uint32_t level = 0; level <= PMH_MAX_LEVEL && result == PMH_OK; level++)
		{
			if (path.payload[level] != 0)
				result = tidy_buffer(t, p, &path, level);
		}
		if (result != PMH_OK)
			break;
		p->list_bytes += pmh_class_bytes(pmh_pointer_class(path.payload[0]));
		p->bytes_seen += pmh_class_bytes(pmh_pointer_class(path.payload[0]));
		p->below = below;
	}
	return result;
}

static PmhResult
list_step(PmhTable *t, struct PmhShrinkPrivate *p)
{
	PmhPlace	place;
	PmhResult	result = pmh_segment_lock(t, p->walk.key[p->key], &place);

	PMH_ASSERT(p->key < p->nkeys);
	if (result != PMH_OK)
		return result;
	p->bytes_seen += sizeof(PmhBucket);
	result = tidy_list(t, p, &place);
	pmh_segment_unlock(&place);
	if (result == PMH_NEED)
		return provide(t, p);
	if (result == PMH_OK && p->below == 0)
	{
		p->key++;
		p->below = UINT64_MAX;
	}
	return result;
}

static inline PmhResult
note_list(PmhTable *t, void *arg, const PmhWalked *e)
{
	struct PmhShrinkPrivate *p = arg;

	(void) t;
	if (pmh_word_is_pointer(e->word))
		p->walk.key[p->nkeys++] = e->hash;
	return PMH_OK;
}

/* Begin with the next segment: which lists has it? */
static PmhResult
segment_step(PmhTable *t, struct PmhShrinkPrivate *p)
{
	PmhResult	result = pmh_walk_segment(t, &p->walk);

	PMH_ASSERT(p->key == p->nkeys);
	p->nkeys = p->key = 0;
	p->below = UINT64_MAX;
	if (result == PMH_OK)
		result = pmh_walk_entries(t, &p->walk, note_list, p);
	PMH_ASSERT(p->nkeys <= PMH_SEGMENT_SLOTS);
	return result;
}

/* ---- what is to be done ---- */

/* A walk is through: what is next? */
static PmhResult
end_walk(PmhTable *t, struct PmhShrinkPrivate *p)
{
	uint64_t	all = pm_load(&pmh_run(t)->value_blocks);
	uint64_t	blocks;
	uint64_t	free_units;
	double		needed;

	PMH_ASSERT(p->walk.at.through && p->key == p->nkeys);
	switch (p->phase)
	{
		case MERGING:
			if (p->no_space && p->gained)
			{
				/* what was passed by may fit now */
				p->no_space = p->gained = false;
				start_walk(p, MERGING);
				return PMH_OK;
			}
			start_walk(p, LISTING);
			p->list_bytes = 0;
			p->walk.at.through = all == 0;
			return PMH_OK;
		case LISTING:
			/* Are value blocks that lists could do without worth a walk? */
			needed = (double) p->list_bytes / (double) PMH_BLOCK_SIZE;
			if (!p->no_space && pmh_value_space_is_known(t) &&
				needed < (double) all * SPARSE_VALUE_FILL &&
				needed + FEW_SPARSE_BLOCKS < (double) all)
			{
				start_walk(p, EMPTYING);
				p->limit = pmh_value_begin_again(t, p->list_bytes);
				return PMH_OK;
			}
			break;
		case EMPTYING:
		case PUNCHING:
			break;
	}
	/* Punch free blocks, except the first ones: new entries will need them. */
	pmh_space_figures(t, &blocks, &free_units);
	p->spare = (blocks - free_units / PMH_UNITS_PER_BLOCK) / 32 + SPARE_BLOCKS;
	p->block = 0;
	p->phase = PUNCHING;
	return PMH_OK;
}

/* ---- the public face ---- */

/* Would a shrink come to anything? */
static PmhResult
look_whether_it_pays(PmhTable *t, uint32_t percent, bool *pays)
{
	uint64_t	blocks;
	uint64_t	free_units;
	double		lists;			/* bytes of them */
	double		needed;			/* by lists, in bytes */
	double		values;
	double		all_bytes;
	double		free_bytes;
	double		much;
	PmhStats	stats;
	PmhResult	result;

	*pays = false;
	pmh_space_figures(t, &blocks, &free_units);
	if (blocks <= SMALL_FILE_BLOCKS)
		return PMH_OK;
	free_bytes = (double) free_units * (double) PMH_UNIT_SIZE;
	all_bytes = (double) (blocks << PMH_BLOCK_SHIFT);
	much = all_bytes * MUCH_FREE;
	result = pmh_estimate_fill(t, &stats);
	if (result != PMH_OK)
		return result;
	values = (double) (pm_load(&pmh_run(t)->value_blocks) << PMH_BLOCK_SHIFT);
	lists = (double) stats.list_bytes;
	needed = (double) stats.lists * PMH_VALUE_LINE + (double) stats.list_entries *
		(1 + 1.0 / HEAD_ROOM) * PMH_VALUE_LINE / PMH_VALUES_PER_LINE;
	*pays = (stats.segments > 1 &&
			 (double) stats.used_slots < (double) stats.slots * percent / 100 * LOW_LOAD) ||
		(lists > FEW_LIST_BYTES && lists > needed * LOOSE_LISTS) ||
		(values - lists > much && lists < values * LOW_VALUE_FILL) ||
		(free_bytes > much &&
		 (free_bytes > GROWTH_REST || free_bytes > all_bytes * MOSTLY_FREE));
	return PMH_OK;
}

static uint64_t
file_bytes(const PmhTable *t)
{
	return pmh_blocks_with_space(t) << PMH_BLOCK_SHIFT;
}

PmhResult
pmh_shrink_begin(PmhTable *table, int fill_percent, PmhShrink *shrink)
{
	uint32_t	percent = fill_percent < MERGED_PERCENT ? (uint32_t) fill_percent :
		MERGED_PERCENT;
	struct PmhShrinkPrivate *p;
	bool		pays;
	PmhResult	result;

	memset(shrink, 0, sizeof(*shrink));
	shrink->bytes_before = shrink->bytes_after = file_bytes(table);
	result = pmh_conclude(table, look_whether_it_pays(table, percent, &pays));
	if (result != PMH_OK || !pays)
		return result == PMH_OK ? PMH_DONE : result;
	shrink->priv = p = calloc(1, sizeof(*p));
	if (p == NULL)
		return pmh_fail(table, PMH_ERR_NO_MEMORY, 0, 0,
						"There is no memory for shrinking the file.");
	p->percent = percent;
	result = pmh_walk_begin(table, &p->walk, PMH_MAX_DEPTH);
	if (result != PMH_OK)
		pmh_shrink_end(shrink);
	return result;
}

PmhResult
pmh_shrink_step(PmhTable *table, PmhShrink *shrink)
{
	struct PmhShrinkPrivate *p = shrink->priv;
	PmhResult	result;

	PMH_ASSERT(p != NULL);
	if (p->phase == PUNCHING)
		result = pmh_space_punch(table, &p->block, &p->spare);
	else if (p->key < p->nkeys)
		result = list_step(table, p);
	else
	{
		result = p->walk.at.through ? end_walk(table, p) :
			p->phase == MERGING ? merge_step(table, p) :
			segment_step(table, p);
		p->bytes_seen += SEGMENT_STEP_BYTES;
	}
	shrink->bytes_seen = p->bytes_seen;
	shrink->bytes_after = file_bytes(table);
	return pmh_conclude(table, result);
}

void
pmh_shrink_end(PmhShrink *shrink)
{
	struct PmhShrinkPrivate *p = shrink->priv;

	if (p == NULL)
		return;
	pmh_walk_end(&p->walk);
	free(p);
	shrink->priv = NULL;
}
