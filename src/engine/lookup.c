/*-------------------------------------------------------------------------
 *
 * lookup.c
 *	  Look-up of a key, alone or in a group, without any lock.
 *
 *-------------------------------------------------------------------------
 */
#include <stddef.h>
#include <string.h>

#include "segment.h"

/* So many keys of a group go through a stage of their look-up together. */
#define BATCH					32

/* So many lines of a list are prefetched as soon as it is found. */
#define LIST_AHEAD				8

/*
 * The bucket was not prefetched, and any line of it may be needed: all at
 * once.  (Has to be inline, as everything that only prefetches: a compiler may
 * leave the call of a function out that does nothing else.)
 */
static inline void __attribute__((always_inline))
prefetch_all(const PmhBucket *b)
{
	for (unsigned line = 0; line < PMH_BUCKET_SIZE / PMH_LINE; line++)
		__builtin_prefetch(b->bytes + line * PMH_LINE);
}

/* What one bucket knows of a key goes to the probe. */
static inline void
gather(PmhProbe *probe, const PmhBucket *b, uint64_t hash, uint32_t mask)
{
	uint32_t	first = probe->n;

	for (; mask != 0; mask &= mask - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(mask);
		uint64_t	word = pmh_slot_load_word(b, slot);

		if (!pmh_slot_has_hash(b, slot, word, hash))
			continue;
		if (unlikely(pmh_word_is_pointer(word)))
		{
			/* The plain entries beside it are shadowed. */
			probe->n = first;
			probe->list = pmh_word_payload(word);
			return;
		}
		probe->value[probe->n++] = pmh_word_payload(word);
	}
}

/*
 * The home of a hash was not found, or not any more: there is another directory
 * than the one that was seen last, another segment, or something outside of our
 * mapping.  PMH_RETRY if the next attempt will do, else as pmh_locate.
 */
static PmhResult __attribute__((noinline))
probe_again(PmhTable *t, uint64_t hash)
{
	PmhPlace	place;
	PmhResult	result = pmh_locate(t, hash, &place);

	return result == PMH_OK ? PMH_RETRY : result;
}

/*
 * If the buckets so far have a pointer to a list: the version of its first
 * buffer, whose lines, or the first of many, are going to be read.
 */
static inline void
note_list(const PmhTable *t, PmhProbe *probe)
{
	uint64_t	offset = pmh_pointer_offset(probe->list);
	uint64_t	end = offset + pmh_class_bytes(pmh_pointer_class(probe->list));
	uint64_t	at = offset & ~(uint64_t) (PMH_LINE - 1);

	if (likely(probe->list == 0))
		return;
	for (unsigned i = 0; at < end && i < LIST_AHEAD; at += PMH_LINE, i++)
		__builtin_prefetch(pmh_unchecked(t, at));
	probe->list_version = pmh_buffer_version(t, offset);
}

/* What a reader knows of a home bucket after a look at its line 0. */
typedef struct Sight
{
	uint64_t	version;		/* from before that look */
	uint32_t	state;
	uint32_t	mask;			/* slots with the right fingerprint */
} Sight;

/* False if the home has been moved meanwhile. */
static inline bool
look_at_home(uint64_t hash, const PmhHome *h, Sight *sight)
{
	sight->version = pmh_version_load(h->version);
	if (unlikely(!pmh_home_current(h)))
		return false;
	PMH_STOP_POINT("probe_before_reading");
	sight->mask = pmh_bucket_match(h->bucket, pmh_hash_fingerprint(hash), &sight->state);
	PMH_STOP_POINT("probe_before_slots");
	return true;
}

/* Does the state of a home tell that the hash may be in another bucket? */
static inline bool
is_elsewhere(uint64_t hash, uint32_t home_state)
{
	if ((home_state & PMH_STATE_STASHED) != 0)
		return true;
	return (home_state >> pmh_filter_shift(hash) & 1) != 0;
}

/*
 * Of slots with the right fingerprint those with the hash, or one if none has it.  (In a
 * bucket of 13 entries every twentieth key meets another one's fingerprint.)
 */
static uint32_t __attribute__((noinline))
exact_slots(const PmhBucket *b, uint64_t hash, uint32_t mask)
{
	uint32_t	exact = 0;

	for (uint32_t m = mask; m != 0; m &= m - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(m);

		if (pmh_slot_has_hash(b, slot, pmh_slot_load_word(b, slot), hash))
			exact |= UINT32_C(1) << slot;
	}
	return exact != 0 ? exact : mask & -mask;
}

/*
 * What nearly all look-ups come to: the home bucket alone answers, with one
 * plain entry or none.  Returns how many; -1: there is more to it.
 */
static inline int
probe_simple(uint64_t hash, const PmhHome *h, const Sight *sight,
			 uint64_t *value)
{
	uint32_t	mask = sight->mask;
	int			n = 0;

	if (unlikely(is_elsewhere(hash, sight->state)))
		return -1;
	if (mask != 0)
	{
		unsigned	slot;
		uint64_t	word;

		if (unlikely((mask & (mask - 1)) != 0))
		{
			mask = exact_slots(h->bucket, hash, mask);
			if ((mask & (mask - 1)) != 0)
				return -1;
		}
		slot = (unsigned) __builtin_ctzll(mask);
		word = pmh_slot_load_word(h->bucket, slot);
		if (unlikely(pmh_word_is_pointer(word)))
			return -1;
		if (likely(pmh_slot_has_hash(h->bucket, slot, word, hash)))
			n = 1;
		*value = pmh_word_payload(word);
	}
	PMH_STOP_POINT("probe_before_validation");
	return likely(pmh_version_same(h->version, sight->version)) ? n : -1;
}

/* What a look-up reads besides the home, and what must not have changed since. */
typedef struct Others
{
	unsigned	n;
	const PmhBucket *bucket[3];
	const uint64_t *version_at[3];
	uint64_t	version[3];
	uint32_t	state[3];
} Others;

/*
 * The buckets besides the home that its filters tell of.  Their versions are
 * loaded, and the place is seen to be current, before they are read.
 */
static PmhResult __attribute__((noinline))
gather_elsewhere(PmhTable *t, uint64_t hash, const PmhHome *h,
				 uint32_t home_state, PmhProbe *probe, Others *o)
{
	PmhPlace	place;
	uint32_t	list[3];

	PMH_STOP_POINT("probe_before_elsewhere");
	place.elem = h->elem;
	if (unlikely(!pmh_place_decode(t, &place)))
		return probe_again(t, hash);
	if ((home_state & pmh_filter_bit(hash)) != 0)
		list[o->n++] = pmh_alt_bucket(hash, place.hashing,
									  pmh_home_bucket(hash, place.hashing));
	if ((home_state & PMH_STATE_STASHED) != 0)
	{
		list[o->n++] = place.hashing;
		list[o->n++] = place.hashing + 1;
	}
	for (unsigned i = 0; i < o->n; i++)
	{
		o->bucket[i] = pmh_bucket(t, &place, list[i]);
		o->version_at[i] = pmh_bucket_version(&place, list[i]);
		prefetch_all(o->bucket[i]);
	}
	for (unsigned i = 0; i < o->n; i++)
		o->version[i] = pmh_version_load(o->version_at[i]);
	if (!pmh_home_current(h))
		return PMH_RETRY;
	for (unsigned i = 0; i < o->n; i++)
	{
		uint32_t	mask = pmh_bucket_match(o->bucket[i], pmh_hash_fingerprint(hash),
											&o->state[i]);

		gather(probe, o->bucket[i], hash, mask);
		PMH_STOP_POINT("probe_between_buckets");
	}
	note_list(t, probe);
	PMH_ASSERT(o->n <= 3);
	return PMH_OK;
}

/*
 * Are all buckets that were read as they were?  Their versions tell of operations
 * that have begun since; of one that had begun before and was completed while we
 * went from one bucket to the next, the state tells, which is its commit point.
 * The states first: so a state that is the same has been the same in between.
 */
static bool
is_unchanged(const PmhHome *h, const Sight *sight, const Others *o)
{
	bool		same = pmh_bucket_state(h->bucket) == sight->state;

	for (unsigned i = 0; i < o->n; i++)
		same = same && pmh_bucket_state(o->bucket[i]) == o->state[i];
	for (unsigned i = 0; i < o->n; i++)
		same = same && pmh_version_same(o->version_at[i], o->version[i]);
	return same && pmh_version_same(h->version, sight->version);
}

/*
 * The rest of an attempt, which the same look at the home has begun.
 *
 * Whether the place is current is checked before the versions are compared.  If it
 * is, and they have not changed after that, the segment has been there all the
 * time, and so has the pointer in it.  The other way round it may be moved
 * away in between, its list rewritten and freed, and itself moved back.
 */
static inline PmhResult __attribute__((always_inline))
probe_slots(PmhTable *t, uint64_t hash, const PmhHome *h,
			const Sight *sight, Others *others, PmhProbe *probe)
{
	PmhResult	result = PMH_OK;

	others->n = 0;
	probe->n = 0;
	probe->list = 0;
	gather(probe, h->bucket, hash, sight->mask);
	note_list(t, probe);
	if (unlikely(is_elsewhere(hash, sight->state)))
	{
		result = gather_elsewhere(t, hash, h, sight->state, probe, others);
		if (unlikely(result != PMH_OK))
			return result;
	}
	if (unlikely(probe->list != 0))
	{
		result = pmh_buffer_check_span(t, probe->list);
		if (!pmh_home_current(h))
			return PMH_RETRY;
		PMH_STOP_POINT("probe_between_checks");
	}
	PMH_STOP_POINT("probe_before_validation");
	return likely(is_unchanged(h, sight, others)) ? result : PMH_RETRY;
}

/* How an attempt begins.  False: not so; probe_again tells what to do. */
static inline bool __attribute__((always_inline))
find_and_look(const PmhTable *t, uint64_t hash, PmhHome *h, Sight *sight)
{
	if (unlikely(!pmh_home_find(t, hash, h)))
		return false;
	prefetch_all(h->bucket);
	return look_at_home(hash, h, sight);
}

PmhResult
pmh_probe(PmhTable *t, uint64_t hash, PmhProbe *probe)
{
	PmhHome		home;
	Sight		sight;
	Others		others;

	for (;;)
	{
		PmhResult	result;

		if (likely(find_and_look(t, hash, &home, &sight)))
			result = probe_slots(t, hash, &home, &sight, &others, probe);
		else
			result = probe_again(t, hash);
		if (likely(result == PMH_OK))
			return PMH_OK;
		if (result == PMH_NEED)
			result = pmh_provide(t);
		if (result != PMH_OK && result != PMH_RETRY)
			return result;
	}
}

/*
 * The values that a probe has found, plain ones and the list; PMH_RETRY too.  If 'brief'
 * a list has to be one buffer of less than 4 KiB, else *values is PMH_VALUE_MANY alone.
 */
static PmhResult
collect(PmhTable *t, uint64_t hash, const PmhProbe *probe, bool brief, PmhValues *values)
{
	PmhListPosition pos = probe->list != 0 ? PMH_LIST_START : PMH_LIST_END;
	uint32_t	class = pmh_pointer_class(probe->list);
	bool		many = pmh_pointer_level(probe->list) > 0 || class >= PMH_CHUNK_CLASS;
	size_t		room = 1;
	uint32_t	n = 0;
	PmhResult	result;

	PMH_ASSERT(probe->n <= PMH_PROBE_MAX);
	if (pos.below != 0 && !(brief && many))
		room = many ? PMH_STEP_MAX : pmh_class_capacity(class) + PMH_VALUES_PER_LINE;
	values->n = 0;
	result = pmh_values_reserve(t, values, probe->n + room);
	if (result != PMH_OK)
		return result;
	if (brief && many)
	{
		values->value[values->n++] = PMH_VALUE_MANY;
		return PMH_OK;
	}
	memcpy(values->value, probe->value, probe->n * sizeof(uint64_t));
	values->n = probe->n;
	if (pos.below != 0)
	{
		result = pmh_list_step(t, hash, probe->list, probe->list_version, &pos, UINT32_MAX,
							   values->value + values->n, &n);
		if (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK)
			result = PMH_RETRY;
		if (result == PMH_RETRY && !brief)
			result = PMH_OK;		/* read it as it is now */
		else if (result == PMH_OK && pos.below != 0 && pmh_wait_cancelled())
			result = pmh_fail_cancelled(t);
		values->n += n;
	}
	while (result == PMH_OK && pos.below != 0)
	{
		result = pmh_values_reserve(t, values, PMH_STEP_MAX);
		if (result == PMH_OK)
			result = pmh_list_whole(t, hash, &pos, values->value + values->n, &n);
		values->n += n;
	}
	if (result == PMH_OK)
		pmh_values_finish(values);
	return result;
}

/* A look-up that goes on from a look at the home, or (h is NULL) from the start. */
static PmhResult __attribute__((noinline))
look_further(PmhTable *t, uint64_t hash, const PmhHome *h, const Sight *sight, bool brief,
			 PmhValues *values)
{
	PmhProbe	probe;
	Others		others;
	PmhResult	result = h == NULL ? PMH_RETRY :
		probe_slots(t, hash, h, sight, &others, &probe);

	for (;;)
	{
		if (likely(result == PMH_OK))
			result = collect(t, hash, &probe, brief, values);
		if (likely(result != PMH_RETRY && result != PMH_NEED))
			return pmh_conclude(t, result);
		result = pmh_probe(t, hash, &probe);
		if (result != PMH_OK)
			return pmh_conclude(t, result);
	}
}

PmhResult
pmh_lookup(PmhTable *table, uint64_t hash, PmhValues *values)
{
	PmhHome		home;
	Sight		sight;
	uint64_t	value;
	int			n = -1;

	if (likely(find_and_look(table, hash, &home, &sight)))
		n = probe_simple(hash, &home, &sight, &value);
	/* To hand over what was seen costs each hit a fifth: see bench/results/limits.md. */
	if (unlikely(n < 0 || (n > 0 && values->capacity == 0)))
		return look_further(table, hash, NULL, NULL, false, values);
	if (n > 0)
		values->value[0] = value;
	values->n = (size_t) n;
	return pmh_conclude(table, PMH_OK);
}

/* ---- groups ---- */

/* A key of a group on its way through the pipeline. */
typedef struct Probing
{
	PmhHome		home;
	Sight		sight;
	bool		seen;			/* both are filled in */
} Probing;

/* Second stage: the lock stripe and line 0 of the home bucket. */
static inline void
begin_probing(const PmhTable *t, uint64_t hash, Probing *p)
{
	p->seen = pmh_home_find(t, hash, &p->home);
	if (unlikely(!p->seen))
		return;
	__builtin_prefetch(p->home.version);
	__builtin_prefetch(p->home.bucket);
}

/*
 * Third stage: the lines of slots with the right fingerprint, and what the home
 * tells of another bucket.
 */
static inline void
continue_probing(const PmhTable *t, uint64_t hash, Probing *p)
{
	uint32_t	mask;

	if (unlikely(!p->seen || p->home.base != t->file.base))
	{
		p->seen = false;
		return;
	}
	p->seen = look_at_home(hash, &p->home, &p->sight);
	if (unlikely(!p->seen))
		return;
	mask = p->sight.mask;
	if (mask != 0)
		__builtin_prefetch(p->home.bucket->bytes + PMH_LINE *
						   pmh_slot_line((unsigned) __builtin_ctz(mask)));
	mask &= mask - 1;
	if (unlikely(mask != 0))
		__builtin_prefetch(p->home.bucket->bytes + PMH_LINE *
						   pmh_slot_line((unsigned) __builtin_ctz(mask)));
	if (unlikely((p->sight.state & pmh_filter_bit(hash)) != 0))
		prefetch_all(pmh_home_alternative(t, hash, &p->home));
	if (unlikely(t->cold > 0))
		pmh_ask_further(t, hash, &p->home, p->sight.mask);
}

/* Last stage: hand the values of a key out. */
static inline PmhResult
finish_probing(PmhTable *t, uint64_t hash, const Probing *p, size_t key,
			   PmhValues *values, PmhFound found, void *arg)
{
	bool		seen = p->seen && likely(p->home.base == t->file.base);
	uint64_t	value;
	int			n = likely(seen) ? probe_simple(hash, &p->home, &p->sight, &value) : -1;
	PmhResult	result;

	if (likely(n >= 0))
	{
		if (n > 0)
			found(arg, key, value);
		return PMH_OK;
	}
	result = look_further(t, hash, seen ? &p->home : NULL, &p->sight, true, values);
	for (size_t i = 0; result == PMH_OK && i < values->n; i++)
		found(arg, key, values->value[i]);
	return result;
}

/*
 * In batches, and each stage for a whole batch at once: a prefetch whose address
 * has to be translated first holds back all that comes after it, so there
 * should be little between it and the next one.  While the lines of a batch are
 * on their way the one before it is finished.
 */
PmhResult
pmh_lookup_group(PmhTable *table, const uint64_t *hashes, size_t n, PmhFound found,
				 void *arg)
{
	PmhValues	values = {0};
	Probing		probing[2 * BATCH];
	size_t		asked = 0;
	PmhResult	result = PMH_OK;

	for (size_t i = 0; i < n && i < BATCH; i++)
		pmh_prefetch_element(table, hashes[i]);
	for (size_t from = 0; from < n + BATCH && result == PMH_OK; from += BATCH)
	{
		size_t		end = from + BATCH < n ? from + BATCH : n;
		size_t		next = end + BATCH < n ? end + BATCH : n;
		size_t		last = from < n ? from : n;

		if (unlikely(asked < n && asked <= from + PMH_ASK_KEYS / 2))
			asked += pmh_ask_for_homes(table, hashes + asked, 1, n - asked, false);
		for (size_t i = from; i < end; i++)
			begin_probing(table, hashes[i], &probing[i % (2 * BATCH)]);
		for (size_t i = end; i < next; i++)
			pmh_prefetch_element(table, hashes[i]);
		for (size_t i = from - BATCH; i < last && result == PMH_OK; i++)
			result = finish_probing(table, hashes[i], &probing[i % (2 * BATCH)], i,
									&values, found, arg);
		for (size_t i = from; i < end; i++)
			continue_probing(table, hashes[i], &probing[i % (2 * BATCH)]);
	}
	pmh_values_free(&values);
	return pmh_conclude(table, result);
}
