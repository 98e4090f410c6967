/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  Sweeps: the whole table in hash order.
 *
 * See src/README, "Cursors and sweeps".  A step is a segment with its small lists, or a
 * buffer of a long list, which is streamed after the segment it hangs on.  A plain entry of
 * its key that the segment's step has given may get into the list: it is left out there.
 *
 * A sweep that begins while it is unknown what is free in value blocks also finds that
 * out (value_space.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "segment.h"

/*
 * Lists found in a segment after its step has this many entries are streamed,
 * so that a step stays a bounded piece of work under a lock.
 */
#define STEP_ENTRIES	8192

/* Steps that have no entries, until the caller has a word. */
#define EMPTY_STEPS		32

struct PmhSweepPrivate
{
	PmhWalk		walk;			/* its keys: of lists to be streamed, then values that the key
								 * at hand has given already */
	size_t		capacity;		/* of entries[] */
	size_t		nkeys;
	size_t		key;			/* the one at hand, if the position in its list ... */
	size_t		ngiven;
	PmhListPosition list;		/* ... is not the end */
};

static PmhResult
no_memory(PmhTable *t)
{
	return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
					"There is no memory for the entries of a segment.");
}

static PmhResult
reserve_entries(PmhTable *t, PmhSweep *sweep, size_t n)
{
	return pmh_reserve((void **) &sweep->entries, sweep->n, n, &sweep->priv->capacity,
					   sizeof(PmhEntry)) ? PMH_OK : no_memory(t);
}

static void
add_entry(PmhSweep *sweep, uint64_t hash, uint64_t value)
{
	PMH_ASSERT(sweep->n < sweep->priv->capacity && value <= PMH_VALUE_MAX);
	sweep->entries[sweep->n++] = (PmhEntry) {hash, value};
}

/*
 * The list that an entry of the segment's copy points to: its values become entries
 * if it is small and still there, else it is streamed after this step.
 */
static PmhResult
take_list(PmhTable *t, PmhSweep *sweep, const PmhWalked *e)
{
	struct PmhSweepPrivate *p = sweep->priv;
	uint64_t	payload = pmh_word_payload(e->word);
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition pos = PMH_LIST_START;
	uint64_t	version;
	uint32_t	n = 0;
	PmhResult	result;

	do
		result = pmh_buffer_check_span(t, payload);
	while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	if (result != PMH_OK && result != PMH_ERR_CORRUPT)
		return result;
	PMH_STOP_POINT("sweep_before_list");
	version = pmh_buffer_version(t, pmh_pointer_offset(payload));
	if (!pmh_snapshot_current(t, &p->walk.snap, e->bucket))
		result = PMH_RETRY;
	else if (result == PMH_OK && (pmh_pointer_level(payload) > 0 || sweep->n > STEP_ENTRIES))
		result = PMH_RETRY;
	else if (result == PMH_OK)
		result = pmh_list_step(t, e->hash, payload, version, &pos, UINT32_MAX, value, &n);
	if (result == PMH_RETRY || result == PMH_NEED)
	{
		PMH_ASSERT(p->nkeys < PMH_SEGMENT_SLOTS);
		p->walk.key[p->nkeys++] = e->hash;
		return PMH_OK;
	}
	if (result == PMH_OK)
		result = reserve_entries(t, sweep, n + PMH_SEGMENT_SLOTS);
	if (result != PMH_OK)
		return result;
	if (sweep->reclaims)
		pmh_value_mark(t, payload);
	for (uint32_t i = 0; i < n; i++)
		add_entry(sweep, e->hash, value[i]);
	return PMH_OK;
}

static inline PmhResult
take_entry(PmhTable *t, void *arg, const PmhWalked *e)
{
	PmhSweep   *sweep = arg;

	if (unlikely(pmh_word_is_pointer(e->word)))
		return take_list(t, sweep, e);
	add_entry(sweep, e->hash, pmh_word_payload(e->word));
	return PMH_OK;
}

static PmhResult
step_segment(PmhTable *t, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	PmhResult	result = pmh_walk_segment(t, &p->walk);

	p->nkeys = p->key = 0;
	p->list = PMH_LIST_END;
	if (result == PMH_OK)
		result = reserve_entries(t, sweep, PMH_SEGMENT_SLOTS);
	if (result == PMH_OK)
		result = pmh_walk_entries(t, &p->walk, take_entry, sweep);
	sweep->segments_total = ++sweep->segments_done;
	if (!p->walk.at.through)
		sweep->segments_total = (uint64_t) ((double) sweep->segments_done /
			((double) p->walk.at.next / 18446744073709551616.0));
	return result;
}

/* Begin with the next list that is streamed: which of its values may have been plain entries? */
static void
open_list(struct PmhSweepPrivate *p)
{
	uint64_t	hash = p->walk.key[p->key];
	const PmhPlace *place = &p->walk.snap.place;
	uint32_t	home = pmh_home_bucket(hash, place->hashing);
	const uint32_t bucket[] = {home, pmh_alt_bucket(hash, place->hashing, home),
		place->hashing, place->hashing + 1};

	PMH_ASSERT(p->list.below == 0 && p->key < p->nkeys);
	p->list = PMH_LIST_START;
	p->ngiven = 0;
	for (unsigned i = 0; i < 4; i++)
	{
		const PmhBucket *b = &p->walk.copy[bucket[i]];
		uint32_t	state;
		int			pointer;
		uint32_t	mask = pmh_bucket_find(b, hash, &state, &pointer);

		for (; pointer < 0 && mask != 0; mask &= mask - 1)
			p->walk.key[p->nkeys + p->ngiven++] =
				pmh_word_payload(pmh_slot_load_word(b, (unsigned) __builtin_ctz(mask)));
	}
	PMH_ASSERT(p->nkeys + p->ngiven <= PMH_SEGMENT_SLOTS);
}

/* A buffer of a list that is streamed. */
static PmhResult
step_list(PmhTable *t, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	uint64_t	hash = p->walk.key[p->key];
	const uint64_t *given = p->walk.key + p->nkeys;
	uint64_t	value[PMH_STEP_MAX];
	uint32_t	n;
	PmhResult	result = pmh_list_next(t, hash, &p->list, UINT32_MAX, value, &n);

	if (result == PMH_OK)
		result = reserve_entries(t, sweep, n);
	if (result != PMH_OK)
		return result;
	for (unsigned i = 0; sweep->reclaims && i <= PMH_MAX_LEVEL; i++)
		pmh_value_mark(t, p->list.met[i]);
	for (size_t k = 0; k < p->ngiven; k++)
	{
		for (uint32_t i = 0; i < n; i++)
		{
			if (value[i] == given[k])
				value[i--] = value[--n];
		}
	}
	for (uint32_t i = 0; i < n; i++)
		add_entry(sweep, hash, value[i]);
	p->key += p->list.below == 0;
	return PMH_OK;
}

PmhResult
pmh_sweep_begin_reading(PmhTable *table, PmhSweep *sweep)
{
	PmhResult	result;

	memset(sweep, 0, sizeof(*sweep));
	sweep->priv = calloc(1, sizeof(*sweep->priv));
	if (sweep->priv == NULL)
		return no_memory(table);
	result = pmh_walk_begin(table, &sweep->priv->walk, PMH_MAX_DEPTH);
	if (result != PMH_OK)
		pmh_sweep_end(sweep);
	return result;
}

PmhResult
pmh_sweep_begin(PmhTable *table, PmhSweep *sweep)
{
	PmhResult	result = pmh_sweep_begin_reading(table, sweep);

	sweep->reclaims = result == PMH_OK && !pmh_value_space_is_known(table);
	return result;
}

/* Steps until one has entries, some have had none, or the sweep is complete: PMH_DONE. */
static PmhResult
next_entries(PmhTable *table, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(p->key <= p->nkeys && p->nkeys <= PMH_SEGMENT_SLOTS);
	sweep->n = 0;
	for (unsigned i = 0; i < EMPTY_STEPS && result == PMH_OK && sweep->n == 0; i++)
	{
		if (p->key < p->nkeys)
		{
			if (p->list.below == 0)
				open_list(p);
			result = step_list(table, sweep);
		}
		else if (p->walk.at.through)
		{
			result = sweep->reclaims ? pmh_value_settle(table) : PMH_OK;
			return result == PMH_OK ? PMH_DONE : result;
		}
		else
			result = step_segment(table, sweep);
	}
	return result;
}

PmhResult
pmh_sweep_next(PmhTable *table, PmhSweep *sweep)
{
	return pmh_conclude(table, next_entries(table, sweep));
}

void
pmh_sweep_end(PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;

	if (p != NULL)
	{
		pmh_walk_end(&p->walk);
		free(p);
	}
	free(sweep->entries);
	memset(sweep, 0, sizeof(*sweep));
}
