/*-------------------------------------------------------------------------
 *
 * keyhash.c
 *	  The inverse of XXH3_64bits_withSeed on 8 bytes, the key of the permutation
 *	  after it, and a veil for hashes.
 *
 * Plain C11 without PostgreSQL, so that test/unit can try it alone.
 *
 * For an input of 8 bytes, read as a little-endian word w, XXH3 computes
 * (xxHash's specification, section "XXH3 on 4 to 8 bytes")
 *
 *		h = rotl(w, 32) ^ flip(seed)
 *		h = h ^ rotl(h, 49) ^ rotl(h, 24)
 *		h = h * K
 *		h = h ^ ((h >> 35) + 8)
 *		h = h * K
 *		h = h ^ (h >> 28)
 *
 * and every line can be undone.  What flip() is for a seed we do not repeat
 * from the specification but get from the library: it is what hashing the word 0
 * leaves after undoing all lines but the first.
 *
 *-------------------------------------------------------------------------
 */
#include "am/keyhash.h"

/* The multiplier K of XXH3 and its inverse modulo 2^64. */
#define MIX_MULTIPLIER		UINT64_C(0x9FB21C651E98DF25)
#define UNMIX_MULTIPLIER	UINT64_C(0x02AB9C720D1024AD)

_Static_assert(MIX_MULTIPLIER * UNMIX_MULTIPLIER == 1, "they are inverses");

static inline uint64_t
rotate_left(uint64_t x, int n)
{
	return (x << n) | (x >> (64 - n));
}

/*
 * Undo h ^ rotl(h, 49) ^ rotl(h, 24).
 *
 * As a polynomial over GF(2) modulo x^64 + 1 a rotation by n is a product
 * with x^n, so the step is a product with p = 1 + x^49 + x^24.  Squaring
 * doubles exponents: p^64 = 1 + x^(49*64) + x^(24*64) = 1 + 1 + 1 = 1, hence
 * the inverse of p is p^63 = p * p^2 * p^4 * p^8 * p^16 * p^32.  With
 * exponents modulo 64 the factors p^8, p^16 and p^32 are x^8, x^16 and x^32.
 */
static inline uint64_t
undo_rotations(uint64_t h)
{
	h ^= rotate_left(h, 49) ^ rotate_left(h, 24);
	h ^= rotate_left(h, 34) ^ rotate_left(h, 48);
	h ^= rotate_left(h, 4) ^ rotate_left(h, 32);
	return rotate_left(h, 8 + 16 + 32);
}

/* Undo everything but the xor with flip(seed). */
static inline uint64_t
unmix(uint64_t h)
{
	h ^= (h >> 28) ^ (h >> 56);
	h *= UNMIX_MULTIPLIER;
	/* what was added is below bit 30, so bits 35 to 63 are as they were */
	h ^= (h >> 35) + 8;
	h *= UNMIX_MULTIPLIER;
	return undo_rotations(h);
}

/* The constant that a seed stands for: what pmhash_unhash_word needs. */
uint64_t
pmhash_hash_flip(uint64_t seed)
{
	return unmix(pmhash_hash_word(0, seed));
}

/*
 * The word whose pmhash_hash_word is 'hash', where 'flip' is
 * pmhash_hash_flip of the same seed.
 */
uint64_t
pmhash_unhash_word(uint64_t hash, uint64_t flip)
{
	return rotate_left(unmix(hash) ^ flip, 32);
}

/* The finisher of SplitMix64: from a key to as many numbers as are needed. */
static uint64_t
draw(const uint64_t key[2], uint64_t i)
{
	uint64_t	x = key[i & 1] + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* The inverse of an odd number modulo 2^64: each step doubles the right bits. */
static uint64_t
inverse(uint64_t odd)
{
	uint64_t	x = odd;		/* right in the lowest three */

	for (unsigned bits = 3; bits < 64; bits *= 2)
		x *= 2 - odd * x;
	return x;
}

void
pmhash_permutation_make(PmhashPermutation *p, const uint64_t key[2])
{
	for (unsigned i = 0; i < 2; i++)
		p->flip[i] = draw(key, i);
	for (unsigned i = 0; i < 3; i++)
	{
		p->multiplier[i] = draw(key, 2 + i) | 1;
		p->inverse[i] = inverse(p->multiplier[i]);
	}
}

/*
 * One round of SipHash (Aumasson, Bernstein: SipHash: a fast short-input PRF.
 * INDOCRYPT 2012, figure 2.1).
 */
static inline void
sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotate_left(v[1], 13) ^ v[0];
	v[0] = rotate_left(v[0], 32);
	v[2] += v[3];
	v[3] = rotate_left(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotate_left(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotate_left(v[1], 17) ^ v[2];
	v[2] = rotate_left(v[2], 32);
}

/* Take one word of the message in: two rounds. */
static inline void
sip_take(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	sip_round(v);
	sip_round(v);
	v[0] ^= word;
}

/*
 * SipHash-2-4 of a message of 8 bytes, 'hash'.
 *
 * XXH3 would not do: its seed can be computed from what it gives.
 */
uint64_t
pmhash_veil(uint64_t hash, const uint64_t key[2])
{
	uint64_t	v[4] = {
		key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
		key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)
	};

	sip_take(v, hash);
	sip_take(v, (uint64_t) sizeof(hash) << 56);
	v[2] ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
