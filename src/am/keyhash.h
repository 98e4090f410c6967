/*-------------------------------------------------------------------------
 *
 * keyhash.h
 *	  The hash functions of keys, free of PostgreSQL: XXH3 over a key's bytes, a
 *	  keyed permutation of what that gives, the way back for keys of 8 bytes, and a
 *	  veil for hashes that other users see.
 *
 * XXH3_64bits_withSeed, given exactly 8 bytes and a fixed seed, xors its
 * input with a constant that depends on the seed, and then mixes with steps
 * each of which can be undone: it is a permutation of the 64-bit words.  So
 * the hash of a short key gives the key away.  See pmhash_unhash_word.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_KEYHASH_H
#define PMHASH_KEYHASH_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Hash of any number of bytes. */
static inline uint64_t
pmhash_hash_bytes(const void *bytes, size_t length, uint64_t seed)
{
	return XXH3_64bits_withSeed(bytes, length, seed);
}

/* Hash of a word: a permutation for every seed. */
static inline uint64_t
pmhash_hash_word(uint64_t word, uint64_t seed)
{
	/* XXH3 reads its input as little-endian; the inverse relies on it */
	uint64_t	bytes = htole64(word);

	return XXH3_64bits_withSeed(&bytes, sizeof(bytes), seed);
}

/*
 * A permutation of all 64-bit words that has a secret key: three rounds of a product with
 * a secret odd number, each of which sends the low bits up, and a shift that brings the
 * high ones down.  See src/README, "Chosen keys".
 */
typedef struct PmhashPermutation
{
	uint64_t	flip[2];
	uint64_t	multiplier[3];
	uint64_t	inverse[3];		/* of the multipliers, modulo 2^64 */
} PmhashPermutation;

extern void pmhash_permutation_make(PmhashPermutation *p, const uint64_t key[2]);

#define PMHASH_SHIFT_OUTER		32
#define PMHASH_SHIFT_INNER		29

static inline uint64_t
pmhash_permute(const PmhashPermutation *p, uint64_t x)
{
	x = (x ^ p->flip[0]) * p->multiplier[0];
	x ^= x >> PMHASH_SHIFT_OUTER;
	x *= p->multiplier[1];
	x ^= x >> PMHASH_SHIFT_INNER;
	x = (x ^ p->flip[1]) * p->multiplier[2];
	return x ^ (x >> PMHASH_SHIFT_OUTER);
}

static inline uint64_t
pmhash_permute_back(const PmhashPermutation *p, uint64_t x)
{
	x ^= x >> PMHASH_SHIFT_OUTER;
	x = (x * p->inverse[2]) ^ p->flip[1];
	x ^= (x >> PMHASH_SHIFT_INNER) ^ (x >> (2 * PMHASH_SHIFT_INNER));
	x *= p->inverse[1];
	x ^= x >> PMHASH_SHIFT_OUTER;
	return (x * p->inverse[0]) ^ p->flip[0];
}

/*
 * A pseudorandom function of a hash under a secret key: without the key it gives
 * nothing away of the hash, nor of the seed that it was made with.
 */
extern uint64_t pmhash_veil(uint64_t hash, const uint64_t key[2]);

extern uint64_t pmhash_hash_flip(uint64_t seed);
extern uint64_t pmhash_unhash_word(uint64_t hash, uint64_t flip);

#endif							/* PMHASH_KEYHASH_H */
