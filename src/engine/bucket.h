/*-------------------------------------------------------------------------
 *
 * bucket.h
 *	  Buckets, and where they are.
 *
 * All loads are relaxed atomics, since readers race with writers; what they
 * give is believed only after the version has been validated (lock.h).
 * Stores do not flush: the functions of bucket.c order flushes and fences.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_BUCKET_H
#define PMH_BUCKET_H

#include "handle.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

typedef struct PmhPlace PmhPlace;

typedef struct PmhBucket
{
	_Alignas(8) char bytes[PMH_BUCKET_SIZE];
} PmhBucket;

/*
 * Byte offsets of the parts of a slot inside its bucket.  Known to the compiler
 * everywhere, so that unrolled loops have them as constants.
 */
static const uint8_t pmh_slot_top[] = {
	22, 23, 24,
	64, 65, 66, 67, 25,
	128, 129, 130, 131, 26,
	192, 193, 194, 195, 27
};

static const uint8_t pmh_slot_mid[] = {
	28, 32, 36,
	68, 72, 76, 80, 84,
	132, 136, 140, 144, 148,
	196, 200, 204, 208, 212
};

static const uint8_t pmh_slot_word[] = {
	40, 48, 56,
	88, 96, 104, 112, 120,
	152, 160, 168, 176, 184,
	216, 224, 232, 240, 248
};

_Static_assert(sizeof(pmh_slot_top) == PMH_SLOTS && sizeof(pmh_slot_mid) == PMH_SLOTS &&
			   sizeof(pmh_slot_word) == PMH_SLOTS,
			   "not every slot has a place in the bucket for each of its parts");

#define PMH_LINE0_SLOTS		3	/* slots 0..2 stand in line 0 */
#define PMH_LINE_SLOTS		5	/* the others: five to a line */
#define PMH_LINE0_MASK		UINT32_C(0x7)

/* Cache line (0..3) a slot stands in. */
static inline unsigned
pmh_slot_line(unsigned slot)
{
	PMH_ASSERT(slot < PMH_SLOTS);
	return (slot + 2) / PMH_LINE_SLOTS;
}

/* ---- the state word ---- */

static inline uint32_t
pmh_bucket_state(const PmhBucket *b)
{
	return __atomic_load_n((const uint32_t *) b->bytes, __ATOMIC_ACQUIRE);
}

/* Where it is: for commit stores. */
static inline uint32_t *
pmh_bucket_state_at(PmhBucket *b)
{
	return (uint32_t *) b->bytes;
}

/* Set bits of a mask of slots.  (The instruction is not in baseline x86-64.) */
static inline unsigned
pmh_mask_count(uint32_t mask)
{
	mask -= (mask >> 1) & UINT32_C(0x55555555);
	mask = (mask & UINT32_C(0x33333333)) + ((mask >> 2) & UINT32_C(0x33333333));
	mask = (mask + (mask >> 4)) & UINT32_C(0x0f0f0f0f);
	return (mask * UINT32_C(0x01010101)) >> 24;
}

static inline unsigned
pmh_state_count(uint32_t state)
{
	return pmh_mask_count(state & PMH_STATE_OCCUPIED);
}

static inline bool
pmh_state_full(uint32_t state)
{
	return (state & PMH_STATE_OCCUPIED) == PMH_STATE_OCCUPIED;
}

/* Two choices count from this many entries in the home bucket on. */
#define PMH_BALANCE_FROM	14

/* Has a home bucket so many?  (Quicker than to count them.) */
static inline bool
pmh_state_balances(uint32_t state)
{
	uint32_t	free_slots = ~state & PMH_STATE_OCCUPIED;

	for (unsigned i = PMH_BALANCE_FROM; i < PMH_SLOTS; i++)
		free_slots &= free_slots - 1;
	return free_slots == 0;
}

/* The filter bit of a hash, to be set in the state of its home bucket. */
static inline uint32_t
pmh_filter_shift(uint64_t hash)
{
	return PMH_STATE_ELSEWHERE_SHIFT +
		((pmh_hash_fingerprint(hash) * PMH_ELSEWHERE_BITS) >> 8);
}

static inline uint32_t
pmh_filter_bit(uint64_t hash)
{
	return UINT32_C(1) << pmh_filter_shift(hash);
}

/* ---- slots ---- */

static inline uint64_t
pmh_slot_load_word(const PmhBucket *b, unsigned slot)
{
	PMH_ASSERT(slot < PMH_SLOTS);
	return pm_load((const uint64_t *) (b->bytes + pmh_slot_word[slot]));
}

/* The bits of the hash that are in a word, in their place. */
static inline uint64_t
pmh_word_hash(uint64_t word)
{
	return word >> PMH_WORD_HASH_SHIFT << 8;
}

/* Bits 24 to 63 of the hash. */
static inline uint64_t
pmh_slot_load_high(const PmhBucket *b, unsigned slot)
{
	uint64_t	mid = pm_load((const uint32_t *) (b->bytes + pmh_slot_mid[slot]));
	uint64_t	top = pm_load((const uint8_t *) (b->bytes + pmh_slot_top[slot]));

	PMH_ASSERT(slot < PMH_SLOTS);
	return mid | top << 32;
}

static inline uint64_t
pmh_slot_load_hash(const PmhBucket *b, unsigned slot, uint64_t word)
{
	uint64_t	fp = pm_load((const uint8_t *) (b->bytes + PMH_SLOT_FINGERPRINT + slot));

	return fp | pmh_word_hash(word) | pmh_slot_load_high(b, slot) << 24;
}

/* Does a slot (whose fingerprint is known to match) hold this hash? */
static inline bool
pmh_slot_has_hash(const PmhBucket *b, unsigned slot, uint64_t word, uint64_t hash)
{
	PMH_ASSERT(slot < PMH_SLOTS);
	return (word >> PMH_WORD_HASH_SHIFT) == pmh_hash_home_bits(hash) &&
		pm_load((const uint32_t *) (b->bytes + pmh_slot_mid[slot])) ==
		(uint32_t) (hash >> 24) &&
		pm_load((const uint8_t *) (b->bytes + pmh_slot_top[slot])) ==
		(uint8_t) (hash >> 56);
}

static inline uint64_t
pmh_make_word(uint64_t hash, uint64_t payload_and_flag)
{
	return payload_and_flag | (uint64_t) pmh_hash_home_bits(hash) << PMH_WORD_HASH_SHIFT;
}

static inline bool
pmh_word_is_pointer(uint64_t word)
{
	return (word & PMH_WORD_POINTER) != 0;
}

static inline uint64_t
pmh_word_payload(uint64_t word)
{
	return word & PMH_WORD_PAYLOAD;
}

static inline uint64_t *
pmh_slot_word_at(PmhBucket *b, unsigned slot)
{
	PMH_ASSERT(slot < PMH_SLOTS);
	return (uint64_t *) (b->bytes + pmh_slot_word[slot]);
}

/* Fill a free slot: everything but the state. */
static inline void
pmh_slot_store(PmhBucket *b, unsigned slot, uint64_t hash, uint64_t word)
{
	PMH_ASSERT(slot < PMH_SLOTS && (pmh_bucket_state(b) & UINT32_C(1) << slot) == 0);
	pm_store64(pmh_slot_word_at(b, slot), word);
	pm_store32((uint32_t *) (b->bytes + pmh_slot_mid[slot]), (uint32_t) (hash >> 24));
	pm_store8((uint8_t *) (b->bytes + pmh_slot_top[slot]), (uint8_t) (hash >> 56));
	pm_store8((uint8_t *) (b->bytes + PMH_SLOT_FINGERPRINT + slot),
			  pmh_hash_fingerprint(hash));
}

/*
 * Which occupied slots have this fingerprint?  Loads the state and the
 * fingerprints as three aligned words, the state first; *state is the state they
 * came with.
 */
static inline uint32_t
pmh_bucket_match(const PmhBucket *b, uint8_t fingerprint, uint32_t *state)
{
	const uint64_t *w = (const uint64_t *) b->bytes;
	uint64_t	w0 = __atomic_load_n(&w[0], __ATOMIC_ACQUIRE);
	uint32_t	mask;

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__) && !defined(PMH_STOP_LOADS)
	/* To the processor, loads of 8 aligned bytes as good as those below. */
	__m128i		fp = _mm_set1_epi8((char) fingerprint);
	__m128i		lo =
		_mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(_mm_cvtsi64_si128((long long) w0)),
												   (const __m64 *) &w[1]));
	__m128i		hi = _mm_loadl_epi64((const __m128i *) &w[2]);

	mask = (uint32_t) _mm_movemask_epi8(_mm_cmpeq_epi8(lo, fp)) >> 4;
	mask |= (uint32_t) _mm_movemask_epi8(_mm_cmpeq_epi8(hi, fp)) << 12;
#else
	uint64_t	w1 = pm_load(&w[1]);
	uint64_t	w2 = pm_load(&w[2]);

	mask = 0;
	for (unsigned i = 0; i < 4; i++)
		mask |= (uint32_t) ((uint8_t) (w0 >> (32 + 8 * i)) == fingerprint) << i;
	for (unsigned i = 0; i < 8; i++)
		mask |= (uint32_t) ((uint8_t) (w1 >> (8 * i)) == fingerprint) << (4 + i);
	for (unsigned i = 0; i < 6; i++)
		mask |= (uint32_t) ((uint8_t) (w2 >> (8 * i)) == fingerprint) << (12 + i);
#endif
	*state = (uint32_t) w0;
	return mask & *state & PMH_STATE_OCCUPIED;
}

/*
 * Occupied slots that hold exactly this hash, as a mask.  *pointer is the
 * lowest of them that is a pointer slot, or -1.  A bucket has at most one;
 * plain entries beside it are shadowed and do not count.
 */
static inline uint32_t
pmh_bucket_find(const PmhBucket *b, uint64_t hash, uint32_t *state, int *pointer)
{
	uint32_t	mask = pmh_bucket_match(b, pmh_hash_fingerprint(hash), state);
	uint32_t	found = 0;

	*pointer = -1;
	while (mask != 0)
	{
		unsigned	slot = (unsigned) __builtin_ctz(mask);
		uint64_t	word = pmh_slot_load_word(b, slot);

		mask &= mask - 1;
		if (!pmh_slot_has_hash(b, slot, word, hash))
			continue;
		found |= UINT32_C(1) << slot;
		if (pmh_word_is_pointer(word) && *pointer < 0)
			*pointer = (int) slot;
	}
	return found;
}

/*
 * Put an entry into a bucket of a locked segment that has room, in two halves.  'version' is
 * that of the bucket; home is the bucket whose filter announces the entry ('announce' bits, 0
 * if it is this one).  The first half fills a slot and flushes what has to be
 * durable before the second one, if anything has: then *ordered is set.  It returns
 * what is to change in the state of the bucket.  Until that has been committed nothing
 * else may change the bucket, but for the filter bits of its state.  The second one is
 * the commit store; durable after the next pm_fence.
 */
extern uint32_t pmh_bucket_prepare(PmhTable *t, PmhBucket *b, uint64_t *version,
								   uint64_t hash, uint64_t word,
								   PmhBucket *home, uint32_t announce,
								   bool *ordered);
extern void pmh_bucket_commit(PmhTable *t, PmhBucket *b, uint32_t change);

extern PmhResult pmh_bucket_compact(PmhTable *t, const PmhPlace *place,
									uint32_t bucket, uint64_t hash,
									uint32_t mask, const uint64_t *extra);

/*
 * Take slots out of a bucket of a locked segment whose state is 'state', 'version' its
 * version, with one commit store: plain ones, or a pointer with those that it shadows.
 * Durable after the next pm_fence.
 */
static inline void
pmh_bucket_take(const PmFile *f, PmhBucket *b, uint64_t *version, uint32_t state,
				uint32_t mask)
{
	PMH_ASSERT(mask != 0);
	pmh_version_bump(version);
	PMH_STOP_POINT("clear_before_commit");
	pm_commit32(f, pmh_bucket_state_at(b), state & ~(mask & PMH_STATE_OCCUPIED));
	PMH_STOP_POINT("clear_after_commit");
}

/*
 * Store another payload in a pointer slot (one 8-byte commit store, durable on
 * return), and count the version up before and after, so that what it pointed
 * to may be freed.
 */
extern void pmh_bucket_repoint(PmhTable *t, const PmhPlace *place,
							   uint32_t bucket, unsigned slot, uint64_t payload);

/*
 * Take a pointer slot out, durably, counting the version up before and after, so that the
 * list may be freed; and what it shadows.
 */
extern void pmh_bucket_unpoint(PmhTable *t, const PmhPlace *place,
							   uint32_t bucket, unsigned slot);

/*
 * The entries of a bucket (a reader's copy, or in a locked segment) that count: the occupied
 * slots but the shadowed ones.
 */
static inline uint32_t
pmh_bucket_live(const PmhBucket *b)
{
	uint32_t	state = pmh_bucket_state(b);
	uint32_t	live = state & PMH_STATE_OCCUPIED;
	uint32_t	pointers = 0;

	if ((state & PMH_STATE_POINTERS) == 0)
		return live;
	for (uint32_t m = live; m != 0; m &= m - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(m);
		uint64_t	word = pmh_slot_load_word(b, slot);
		int			pointer;

		if (!pmh_word_is_pointer(word))
			continue;
		pointers |= UINT32_C(1) << slot;
		live &= ~pmh_bucket_find(b, pmh_slot_load_hash(b, slot, word), &state, &pointer);
	}
	return live | pointers;
}

/* ---- where a segment is, and its buckets ---- */

/*
 * Where a segment is.  Buckets are numbered 0 .. hashing - 1, then the two of
 * the stash (hashing, hashing + 1).
 */
typedef struct PmhPlace
{
	uint64_t	dirword;
	uint64_t	elem;
	uint64_t	index;			/* of the element in the directory */
	uint64_t	main;			/* offset of the main part, or 0 */
	uint64_t	ext;			/* offset of the other units, or 0 */
	uint64_t	first;			/* of bucket 0 */
	uint64_t	stash;			/* of the first bucket of the stash */
	uint32_t	hashing;		/* N */
	uint32_t	buckets;		/* N + PMH_STASH_BUCKETS */
	PmhStripe  *stripe;
} PmhPlace;

/* A place, and the versions from before it was last seen to be current. */
typedef struct PmhSnapshot
{
	PmhPlace	place;
	uint64_t	version[PMH_VERSIONS];
} PmhSnapshot;

static inline uint64_t
pmh_bucket_offset(const PmhPlace *p, uint32_t bucket)
{
	PMH_ASSERT(bucket < p->buckets);
	if (bucket >= p->hashing)
		return p->stash + (uint64_t) (bucket - p->hashing) * PMH_BUCKET_SIZE;
	if (bucket < PMH_IN_MAIN)
		return p->first + (uint64_t) bucket * PMH_BUCKET_SIZE;
	return p->ext + (uint64_t) (bucket - PMH_IN_MAIN) * PMH_BUCKET_SIZE;
}

static inline PmhBucket *
pmh_bucket(const PmhTable *t, const PmhPlace *p, uint32_t bucket)
{
	return (PmhBucket *) pmh_at(t, pmh_bucket_offset(p, bucket));
}

/*
 * Which of a stripe's versions: the remainder, computed with fewer instructions
 * than a compiler does that has to be right above twice the largest M too.
 */
static inline uint32_t
pmh_version_of(uint32_t bucket)
{
	uint32_t	quotient = bucket * (65536 / PMH_VERSIONS + 1) >> 16;

	return bucket - quotient * PMH_VERSIONS;
}

static inline uint64_t *
pmh_bucket_version(const PmhPlace *p, uint32_t bucket)
{
	PMH_ASSERT(bucket < p->buckets);
	return &p->stripe->version[pmh_version_of(bucket)];
}

static inline uint32_t
pmh_home_bucket(uint64_t hash, uint32_t hashing)
{
	return (pmh_hash_home_bits(hash) * hashing) >> 16;
}

static inline uint32_t
pmh_alt_bucket(uint64_t hash, uint32_t hashing, uint32_t home)
{
	uint32_t	alt = (pmh_hash_alt_bits(hash) * (hashing - 1)) >> 16;

	PMH_ASSERT(home < hashing);
	return alt + (alt >= home);
}

/*
 * Fill the rest of a place in from its element.  False if that does not lie
 * within the bound (pmh_locate finds out why).
 */
static inline bool
pmh_place_decode(const PmhTable *t, PmhPlace *p)
{
	uint64_t	block = pmh_elem_main_block(p->elem);
	uint32_t	size = pmh_elem_size(p->elem);
	uint32_t	units = pmh_elem_units(p->elem);
	bool		has_main = pmh_elem_has_main(p->elem);

	PMH_ASSERT(t->file.bound >= PMH_BLOCK_SIZE);
	p->main = has_main ? block << PMH_BLOCK_SHIFT : 0;
	p->ext = units == 0 ? 0 : pmh_elem_ext_unit(p->elem) << PMH_UNIT_SHIFT;
	p->first = has_main ? p->main : p->ext + PMH_STASH_BUCKETS * PMH_BUCKET_SIZE;
	p->stash = has_main ? p->main + PMH_IN_MAIN * PMH_BUCKET_SIZE : p->ext;
	p->buckets = size * PMH_UNIT_BUCKETS;
	p->hashing = p->buckets - PMH_STASH_BUCKETS;
	p->stripe = pmh_segment_stripe(t->locks, t->file_id, block);
	return size != 0 && p->main <= t->file.bound - PMH_BLOCK_SIZE &&
		p->ext <= t->file.bound - units * PMH_UNIT_SIZE;
}

/* Go on past the segment, of this depth, that has position->next. */
static inline void
pmh_position_advance(PmhPosition *position, uint32_t depth)
{
	PMH_ASSERT(!position->through);
	position->next = pmh_segment_end(position->next, depth);
	position->through = position->next == 0;
}

/* Is the place still what the directory says? */
static inline bool
pmh_place_current(const PmhTable *t, const PmhPlace *p)
{
	const uint64_t *dir = (const uint64_t *) pmh_at(t, pmh_dirword_offset(p->dirword));

	pmh_read_fence();
	return pm_load_acquire(&dir[p->index]) == p->elem &&
		pm_load_acquire(&pmh_live(t)->dirword) == p->dirword;
}

/* The largest segment, in units; bytes that hold any. */
#define PMH_MAX_SIZE			((1 << PMH_ELEM_SIZE_BITS) - 1)
#define PMH_MAX_SEGMENT_BYTES	((size_t) (PMH_MAX_SIZE + 1) * PMH_UNIT_SIZE)

/* ---- the home bucket of a hash, found as look-ups find it ---- */

/*
 * The home bucket of a hash as a look-up finds it: the little of a PmhPlace that
 * nearly all of them need.
 */
typedef struct PmhHome
{
	const char *base;			/* of the mapping */
	uint64_t	dirword;
	const uint64_t *at;			/* the element, and ... */
	uint64_t	elem;			/* ... what it was */
	const PmhBucket *bucket;
	const uint64_t *version;	/* of the bucket */
} PmhHome;

/* Buckets of the segment of an element that hash values go to. */
static inline uint32_t __attribute__((always_inline))
pmh_elem_hashing(uint64_t elem)
{
	return pmh_elem_size(elem) * PMH_UNIT_BUCKETS - PMH_STASH_BUCKETS;
}

/*
 * The offset of one of these.  Whether a bucket is in the extension, which cannot
 * be foreseen, takes no branch; and all of a small segment is as an extension is (see
 * layout.h): no bucket of it has a number below -PMH_STASH_BUCKETS.
 */
static inline uint64_t __attribute__((always_inline))
pmh_elem_bucket_offset(uint64_t elem, uint32_t number)
{
	uint64_t	block = pmh_elem_main_block(elem);
	uint64_t	unit = elem >> PMH_ELEM_EXT_SHIFT &
		((UINT64_C(1) << PMH_ELEM_EXT_BITS) - 1);
	uint64_t	offset = unit * PMH_UNIT_SIZE - PMH_IN_MAIN * PMH_BUCKET_SIZE;
	int64_t		below = (int64_t) number - PMH_IN_MAIN;
	int64_t		has_main =	/* the highest bit of the size */
		(int64_t) (elem << (64 - PMH_ELEM_SIZE_SHIFT - PMH_ELEM_SIZE_BITS));
	uint64_t	in_main = (uint64_t) ((below & has_main) >> 63);	/* all bits or none */

	offset += (block * PMH_BLOCK_SIZE - offset) & in_main;
	return offset + (uint64_t) number * PMH_BUCKET_SIZE;
}

/*
 * Find the home bucket of hash in the directory that was seen last.  False if
 * the bucket does not lie within the bound, or the element cannot be one
 * (pmh_locate finds out why).  As there, nothing is locked.  Whether the
 * directory is the right one is left to pmh_home_current, which has to look at
 * dirword anyway: an element of one that is not any more leads to nothing that
 * would be believed.
 *
 * Every look-up goes through here, and how early the next one's can begin is a
 * matter of the registers that the processor has for what lies between: so it is
 * written for few instructions.
 */
static inline bool __attribute__((always_inline))
pmh_home_find(const PmhTable *t, uint64_t hash, PmhHome *h)
{
	uint64_t	index = (uint64_t) (((unsigned __int128) hash * t->seen_elements) >> 64);
	uint64_t	elem;
	uint64_t	block;
	uint32_t	number;
	uint64_t	offset;

	h->base = t->file.base;
	h->dirword = t->seen_dirword;
	h->at = (const uint64_t *) (h->base + t->seen_offset) + index;
	PMH_ASSERT(pmh_within(t, t->seen_offset, (index + 1) * sizeof(uint64_t)));
	elem = h->elem = pm_load_acquire(h->at);
	block = pmh_elem_main_block(elem);
	number = pmh_home_bucket(hash, pmh_elem_hashing(elem));
	offset = pmh_elem_bucket_offset(elem, number);
	h->bucket = (const PmhBucket *) (h->base + offset);
	h->version = &t->locks->stripe[(t->file_id + block) & t->stripe_mask]
		.version[pmh_version_of(number)];
	/* (A damaged element may have an offset below 0.) */
	return pmh_elem_size(elem) != 0 && offset <= t->file.bound - PMH_BUCKET_SIZE;
}

/* The alternative bucket beside a home that was found, for a prefetch: unchecked. */
static inline const PmhBucket *
pmh_home_alternative(const PmhTable *t, uint64_t hash, const PmhHome *h)
{
	uint32_t	hashing = pmh_elem_hashing(h->elem);
	uint32_t	number = pmh_alt_bucket(hash, hashing, pmh_home_bucket(hash, hashing));

	return pmh_unchecked(t, pmh_elem_bucket_offset(h->elem, number));
}

/* Prefetch the directory element of a hash. */
static inline void __attribute__((always_inline))
pmh_prefetch_element(const PmhTable *t, uint64_t hash)
{
	const uint64_t *dir = (const uint64_t *) pmh_unchecked(t, t->seen_offset);

	__builtin_prefetch(&dir[((unsigned __int128) hash * t->seen_elements) >> 64]);
}

/*
 * Is it what the directory says?  To be called after a load of the version.
 *
 * The directory word is looked at after the element: it has never come a second time, so
 * the directory was the right one when the element was loaded.
 */
static inline bool
pmh_home_current(const PmhHome *h)
{
	const PmhLive *live = (const PmhLive *) (const void *) (h->base + PMH_LIVE_OFFSET);

	pmh_read_fence();
	return pm_load_acquire(h->at) == h->elem &&
		pm_load_acquire(&live->dirword) == h->dirword;
}

#endif							/* PMH_BUCKET_H */
