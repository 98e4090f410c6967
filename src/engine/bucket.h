/*-------------------------------------------------------------------------
 *
 * bucket.h
 *	  Reading and writing the parts of a bucket; see layout.h for the format.
 *
 * All loads are relaxed atomics, since readers race with writers; what they
 * give is believed only after the version has been validated (lock.h).
 * Stores do not flush: the functions of bucket.c order flushes and fences.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_BUCKET_H
#define PMH_BUCKET_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "error.h"
#include "layout.h"
#include "lock.h"
#include "pm.h"
#include "stop_point.h"
#include "table.h"

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
	return pm_load((const uint64_t *) (b->bytes + pmh_slot_word[slot]));
}

static inline uint64_t
pmh_slot_load_hash(const PmhBucket *b, unsigned slot, uint64_t word)
{
	uint64_t	fp = pm_load((const uint8_t *) (b->bytes + PMH_SLOT_FINGERPRINT + slot));
	uint64_t	mid = pm_load((const uint32_t *) (b->bytes + pmh_slot_mid[slot]));
	uint64_t	top = pm_load((const uint8_t *) (b->bytes + pmh_slot_top[slot]));

	return fp | (word >> PMH_WORD_HASH_SHIFT) << 8 | mid << 24 | top << 56;
}

/* Does a slot (whose fingerprint is known to match) hold this hash? */
static inline bool
pmh_slot_has_hash(const PmhBucket *b, unsigned slot, uint64_t word, uint64_t hash)
{
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
 * Put an entry into a bucket of a locked segment that has room.  'version' is that of
 * the bucket; home is the bucket whose filter announces the entry ('announce' bits, 0 if
 * it is this one).  Durable on return; fence_first as for pmh_insert.
 */
extern void pmh_bucket_put(PmhTable *t, PmhBucket *b, uint64_t *version,
						   uint64_t hash, uint64_t word, PmhBucket *home,
						   uint32_t announce, bool fence_first);

/*
 * The two halves of it.  The first one fills a slot and flushes what has to be
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
 * Take slots out of a bucket of a locked segment whose state is 'state', 'version'
 * its version: all of them plain, in a bucket without pointers, or all that go with
 * them.  Durable after the next pm_fence.
 */
static inline void
pmh_bucket_take(const PmFile *f, PmhBucket *b, uint64_t *version, uint32_t state,
				uint32_t mask)
{
	pmh_version_bump(version);
	PMH_STOP_POINT("clear_before_commit");
	pm_commit32(f, pmh_bucket_state_at(b), state & ~(mask & PMH_STATE_OCCUPIED));
	PMH_STOP_POINT("clear_after_commit");
}

/*
 * Take slots out of a bucket with one commit store: mask.  Also clears
 * shadowed entries of any key whose pointer slot goes with it.  Durable on
 * return if fence, else after the next pm_fence.
 */
extern void pmh_bucket_clear(PmhTable *t, const PmhPlace *place, uint32_t bucket,
							 uint32_t mask, bool fence);

/*
 * Store another payload in a pointer slot (one 8-byte commit store, durable on
 * return), and count the version up before and after, so that what it pointed
 * to may be freed.
 */
extern void pmh_bucket_repoint(PmhTable *t, const PmhPlace *place,
							   uint32_t bucket, unsigned slot, uint64_t payload);

/*
 * Take a pointer slot out (as pmh_bucket_clear, durable on return), counting
 * the version up before and after, so that the list may be freed.
 */
extern void pmh_bucket_unpoint(PmhTable *t, const PmhPlace *place,
							   uint32_t bucket, unsigned slot);

/*
 * Which slots of a bucket (a reader's copy, or in a locked segment) hold plain
 * entries that count, and which hold pointers?
 */
static inline void
pmh_bucket_kinds(const PmhBucket *b, uint32_t *plain, uint32_t *pointers)
{
	uint32_t	state = pmh_bucket_state(b);

	*plain = state & PMH_STATE_OCCUPIED;
	*pointers = 0;
	if ((state & PMH_STATE_POINTERS) == 0)
		return;
	for (uint32_t m = *plain; m != 0; m &= m - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(m);
		uint64_t	word = pmh_slot_load_word(b, slot);
		int			pointer;

		if (!pmh_word_is_pointer(word))
			continue;
		*pointers |= UINT32_C(1) << slot;
		*plain &= ~pmh_bucket_find(b, pmh_slot_load_hash(b, slot, word), &state,
								   &pointer);
	}
	*plain &= ~*pointers;
}

/* The entries of a bucket that count: the occupied slots but the shadowed ones. */
static inline uint32_t
pmh_bucket_live(const PmhBucket *b)
{
	uint32_t	plain;
	uint32_t	pointers;

	pmh_bucket_kinds(b, &plain, &pointers);
	return plain | pointers;
}

#endif							/* PMH_BUCKET_H */
