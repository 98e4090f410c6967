/*-------------------------------------------------------------------------
 *
 * check.c
 *	  Is everything in the file as src/README says it is?
 *
 * The whole table is read as a reader reads it, so that writers may be at work.  Tests,
 * where there are none, also hold what is reachable against the space map and the bits of
 * value blocks (test/lib/check_alone.h).
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "segment.h"

typedef struct PmhCheck
{
	PmhTable   *t;
	PmhReport	report;
	void	   *arg;
	uint64_t	findings;
	PmhWalk		walk;			/* its keys: hashes of pointer slots of a segment */
	size_t		nkeys;
} PmhCheck;

/* Report something found; text: a printf format for a sentence. */
static void finding(PmhCheck *c, uint64_t offset, const char *text, ...)
			__attribute__((format(printf, 3, 4)));

static void
finding(PmhCheck *c, uint64_t offset, const char *text, ...)
{
	char		sentence[256];
	va_list		args;

	va_start(args, text);
	vsnprintf(sentence, sizeof(sentence), text, args);
	va_end(args);
	c->findings++;
	c->report(c->arg, offset, sentence);
}

/* What a function of the engine found damaged is a finding, not a failure. */
static PmhResult
absorb(PmhCheck *c, PmhResult result)
{
	if (result != PMH_ERR_CORRUPT)
		return result;
	finding(c, c->t->error.offset, "%s", c->t->error.detail);
	return PMH_OK;
}

/* ---- header ---- */

/* The parts of the header; false if the directory cannot be read at all. */
static bool
check_header(PmhCheck *c)
{
	const PmhLive *live = pmh_live(c->t);
	PmhLive		words = {.dirword = pm_load_acquire(&live->dirword)};
	PmhFormat	format;
	PmhError	error;

	memcpy(&format, pmh_format(c->t), sizeof(format));
	if (pmh_check_format(&format, &error) != PMH_OK)
		finding(c, PMH_FORMAT_OFFSET, "%s", error.detail);
	else if (format.file_id != c->t->file_id)
		finding(c, PMH_FORMAT_OFFSET, "The identity has changed.");
	PMH_STOP_POINT("check_before_blocks");
	words.blocks = pm_load_acquire(&live->blocks);
	if (pmh_check_live_words(&words, UINT64_MAX, &error) != PMH_OK)
	{
		finding(c, error.offset, "%s", error.detail);
		return false;
	}
	return true;
}

/* ---- directory ---- */

/*
 * The element of the segment at hand, and its neighbours: one that names the same segment is
 * to be equal.
 */
static PmhResult
check_elements(PmhCheck *c)
{
	PmhTable   *t = c->t;
	const PmhPlace *place = &c->walk.snap.place;
	uint32_t	depth = pmh_dirword_depth(place->dirword);
	uint64_t	offset = pmh_dirword_offset(place->dirword);
	const uint64_t *dir = pmh_at(t, offset);
	uint64_t	group = UINT64_C(1) << (depth - pmh_elem_depth(place->elem));
	uint64_t	first = place->index & ~(group - 1);

	PMH_STOP_POINT("check_before_elements");
	if (!pmh_elem_sane(place->elem, first, depth, pmh_blocks(t)))
		finding(c, offset + place->index * sizeof(uint64_t),
				"Directory element %llu is impossible.", (unsigned long long) place->index);
	for (uint64_t i = first; i < first + group; i++)
	{
		bool		differs;

		if (pm_load_acquire(&dir[i]) == place->elem)
			continue;
		/* All of them are changed under this lock. */
		if (!pmh_lock_or_cancel(&t->file_lock->directory))
			return pmh_fail_cancelled(t);
		differs = pm_load(&dir[i]) != place->elem && pmh_place_current(t, place);
		pmh_unlock(&t->file_lock->directory);
		if (differs)
			finding(c, offset + i * sizeof(uint64_t),
					"Directory element %llu differs from its neighbour of the same segment.",
					(unsigned long long) i);
		break;
	}
	return PMH_OK;
}

/* ---- value lists ---- */

/* Check the list of a key. */
static PmhResult
check_list(PmhCheck *c, uint64_t hash)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = PMH_LIST_START;

	while (at.below != 0)
	{
		uint32_t	n;
		PmhResult	result = pmh_list_whole(c->t, hash, &at, value, &n);

		if (result != PMH_OK)
			return result;
		if (n == 0 && at.met[0] != 0)
			finding(c, pmh_pointer_offset(at.met[0]), "The value buffer at offset %llu is empty.",
					(unsigned long long) pmh_pointer_offset(at.met[0]));
	}
	return PMH_OK;
}

/* ---- buckets ---- */

/*
 * Does the home bucket have the bits that announce an entry?  They are set
 * before the entry is, and stay as long as the segment.  So if it is only the
 * copy that lacks them, it was made while the entry was put in; and if the
 * bucket has changed since, nothing is known.
 */
static bool
announced(const PmhCheck *c, uint32_t home, uint32_t bits)
{
	const PmhSnapshot *snap = &c->walk.snap;

	if ((pmh_bucket_state(&c->walk.copy[home]) & bits) != 0 ||
		(pmh_bucket_state(pmh_bucket(c->t, &snap->place, home)) & bits) != 0)
		return true;
	pmh_read_fence();
	return !pmh_snapshot_current(c->t, snap, home);
}

/* Why an entry may not stand in this bucket, or NULL. */
static const char *
misplaced(const PmhCheck *c, uint32_t bucket, uint64_t hash)
{
	const PmhPlace *place = &c->walk.snap.place;
	uint32_t	depth = pmh_elem_depth(place->elem);
	uint32_t	home = pmh_home_bucket(hash, place->hashing);
	PmhStrategy strategy = pmh_elem_strategy(place->elem);

	PMH_ASSERT(bucket < place->buckets && depth <= pmh_dirword_depth(place->dirword));
	if (pmh_hash_prefix(hash, depth) !=
		place->index >> (pmh_dirword_depth(place->dirword) - depth))
		return "of another segment";
	if (bucket == home)
		return NULL;
	if (bucket >= place->hashing)
	{
		if (!pmh_strategy_has_stash(strategy))
			return "in a stash that is not in use";
		return announced(c, home, PMH_STATE_STASHED) ? NULL :
			"in the stash without its home telling so";
	}
	if (bucket != pmh_alt_bucket(hash, place->hashing, home))
		return "in a bucket that is not its own";
	if (!pmh_strategy_has_alternative(strategy))
		return "in its second bucket while there is one choice";
	return announced(c, home, pmh_filter_bit(hash)) ? NULL :
		"in its second bucket without its home telling so";
}

static PmhResult
check_slot(PmhCheck *c, uint32_t bucket, unsigned slot)
{
	const PmhBucket *b = &c->walk.copy[bucket];
	uint64_t	word = pmh_slot_load_word(b, slot);
	uint64_t	hash = pmh_slot_load_hash(b, slot, word);
	uint64_t	offset = pmh_bucket_offset(&c->walk.snap.place, bucket);
	const char *wrong = misplaced(c, bucket, hash);

	if (wrong != NULL)
		finding(c, offset, "Slot %u of the bucket at offset %llu holds an entry %s.", slot,
				(unsigned long long) offset, wrong);
	if (!pmh_word_is_pointer(word))
		return PMH_OK;
	if ((pmh_bucket_state(b) & PMH_STATE_POINTERS) == 0)
		finding(c, offset, "The bucket at offset %llu holds a pointer without telling so.",
				(unsigned long long) offset);
	for (size_t i = 0; i < c->nkeys; i++)
	{
		if (c->walk.key[i] == hash)
			finding(c, offset,
					"Slot %u of the bucket at offset %llu is the second pointer of its key.",
					slot, (unsigned long long) offset);
	}
	PMH_ASSERT(c->nkeys < PMH_SEGMENT_SLOTS);
	c->walk.key[c->nkeys++] = hash;
	return absorb(c, check_list(c, hash));
}

/* The next segment of the walk: all slots, also of entries that do not count. */
static PmhResult
check_segment(PmhCheck *c)
{
	PmhResult	result = pmh_walk_segment(c->t, &c->walk);

	if (result != PMH_OK)
		return absorb(c, result);
	c->nkeys = 0;
	result = check_elements(c);
	for (uint32_t b = 0; result == PMH_OK && b < c->walk.snap.place.buckets; b++)
	{
		uint32_t	left = pmh_bucket_state(&c->walk.copy[b]) & PMH_STATE_OCCUPIED;

		for (; result == PMH_OK && left != 0; left &= left - 1)
			result = check_slot(c, b, (unsigned) __builtin_ctz(left));
	}
	return result;
}

/* ---- putting it together ---- */

PmhResult
pmh_check(PmhTable *table, PmhReport report, void *arg)
{
	PmhCheck	c = {.t = table, .report = report, .arg = arg};
	PmhResult	result = pmh_map_all(table);

	if (result == PMH_ERR_CORRUPT)
		finding(&c, PMH_LIVE_OFFSET + offsetof(PmhLive, blocks),
				"The length of the file is damaged in its header.");
	if (result == PMH_OK)
		result = pmh_walk_begin(table, &c.walk, PMH_MAX_DEPTH);
	if (result == PMH_OK && check_header(&c))
	{
		while (result == PMH_OK && !c.walk.at.through)
			result = pmh_wait_cancelled() ? pmh_fail_cancelled(table) :
				pm_is_lost(&table->file) ? pmh_fail_lost(table) : check_segment(&c);
	}
	pmh_walk_end(&c.walk);
	result = pmh_conclude(table, result);
	if (result == PMH_OK && c.findings > 0)
		return pmh_fail(table, PMH_ERR_CORRUPT, 0, 0,
						"The check has found %llu faults.",
						(unsigned long long) c.findings);
	return result;
}

/* Gives the plain entries, then the list, a buffer at a time. */
PmhResult
pmh_lookup_repeats(PmhTable *table, uint64_t hash, PmhGive give, void *arg)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = PMH_LIST_START;
	PmhProbe	probe;
	PmhResult	result;

	result = pmh_probe(table, hash, &probe);
	if (result == PMH_OK && probe.n > 0)
		give(arg, probe.value, probe.n);
	while (result == PMH_OK && probe.list != 0 && at.below != 0)
	{
		uint32_t	n;

		result = pmh_list_whole(table, hash, &at, value, &n);
		if (result == PMH_OK)
			give(arg, value, n);
	}
	return pmh_conclude(table, result);
}
