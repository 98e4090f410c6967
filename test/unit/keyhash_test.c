/*-------------------------------------------------------------------------
 *
 * keyhash_test.c
 *	  Unit test of src/am/keyhash.c: the hash of a word can be undone, for
 *	  every seed and word we can think of and for many we cannot.
 *
 * Usage: keyhash_test [rounds]		(default 20000000)
 * Prints one line per group of checks; exit status 1 at the first failure.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/keyhash.h"

static uint64_t random_state = UINT64_C(0x243F6A8885A308D3);

/* splitmix64 */
static uint64_t
next_random(void)
{
	uint64_t	z = (random_state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static void
fail(const char *what, uint64_t number, uint64_t key)
{
	printf("%016" PRIx64 " %s, key or seed %016" PRIx64 "\n", number, what, key);
	exit(1);
}

static void
check_round_trip(uint64_t word, uint64_t seed, uint64_t flip)
{
	if (pmhash_unhash_word(pmhash_hash_word(word, seed), flip) != word)
		fail("does not come back from its hash", word, seed);
	/* and onto: every word is the hash of something */
	if (pmhash_hash_word(pmhash_unhash_word(word, flip), seed) != word)
		fail("is not the hash of its inverse", word, seed);
}

/* The words around 'word', so that carries and borrows are met. */
static void
check_around(uint64_t word, uint64_t seed, uint64_t flip)
{
	int			d;

	for (d = -2; d <= 2; d++)
	{
		check_round_trip(word + (uint64_t) (int64_t) d, seed, flip);
		check_round_trip(~(word + (uint64_t) (int64_t) d), seed, flip);
	}
}

/* All words with up to three bits set or cleared, and their neighbours. */
static void
check_edges(uint64_t seed)
{
	uint64_t	flip = pmhash_hash_flip(seed);
	int			i,
				j,
				k;

	check_around(0, seed, flip);
	for (i = 0; i < 64; i++)
		for (j = i; j < 64; j++)
			for (k = j; k < 64; k++)
				check_around(UINT64_C(1) << i | UINT64_C(1) << j |
							 UINT64_C(1) << k, seed, flip);
}

/* The hash is the library's, not something like it. */
static void
check_against_library(void)
{
	int			i;

	for (i = 0; i < 1000; i++)
	{
		uint64_t	word = next_random();
		uint64_t	seed = next_random();
		unsigned char bytes[8];
		int			b;

		for (b = 0; b < 8; b++)
			bytes[b] = (unsigned char) (word >> (8 * b));
		if (pmhash_hash_word(word, seed) !=
			XXH3_64bits_withSeed(bytes, 8, seed) ||
			pmhash_hash_bytes(bytes, 8, seed) != pmhash_hash_word(word, seed))
			fail("has another hash than XXH3's", word, seed);
	}
}

/*
 * The veil: the vector for 8 bytes that SipHash's authors publish (key 00 to 0f,
 * message 00 to 07); and its numbers follow neither the order of the hashes nor
 * their high half, and are others under another key.
 */
static void
check_veil(void)
{
	static const uint64_t published[2] = {
		UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)
	};
	uint64_t	key[2] = {next_random(), next_random()};
	uint64_t	other[2] = {key[0], key[1] ^ 1};
	long		ascending = 0;
	long		i;

	if (pmhash_veil(UINT64_C(0x0706050403020100), published) !=
		UINT64_C(0x93f5f5799a932462))
		fail("has another veil than by SipHash-2-4", UINT64_C(0x0706050403020100), published[0]);
	for (i = 0; i < 10000; i++)
	{
		uint64_t	hash = (uint64_t) i << 40;

		ascending += pmhash_veil(hash, key) < pmhash_veil(hash + (UINT64_C(1) << 40), key);
		if (pmhash_veil(hash, key) >> 32 == hash >> 32 ||
			pmhash_veil(hash, key) == pmhash_veil(hash, other) ||
			pmhash_veil(hash, key) >> 32 == pmhash_veil(hash + 1, key) >> 32)
			fail("has a veil that tells something", hash, key[0]);
	}
	if (ascending < 4700 || ascending > 5300)
		fail("of 10,000 veils are in the order of the hashes", (uint64_t) ascending, key[0]);
}

/*
 * The permutation can be undone under any key, and hashes that differ in a few bits only,
 * wherever these are, fall into each 256th of all values about as often as others.
 */
static void
check_permutation(void)
{
	for (int round = 0; round < 2000; round++)
	{
		uint64_t	key[2] = {next_random(), next_random()};
		uint64_t	base = next_random();
		unsigned	part[256] = {0};
		PmhashPermutation p;

		pmhash_permutation_make(&p, key);
		for (uint64_t i = 0; i < 16384; i++)
		{
			uint64_t	hash = base ^ i << round % 51;
			uint64_t	permuted = pmhash_permute(&p, hash);

			part[permuted >> 56]++;
			if (pmhash_permute_back(&p, permuted) != hash ||
				pmhash_permute(&p, pmhash_permute_back(&p, hash)) != hash)
				fail("does not come back from its permutation", hash, key[0]);
		}
		/* 64 are expected; ten standard deviations are 80. */
		for (int i = 0; i < 256; i++)
		{
			if (part[i] == 0 || part[i] > 144)
				fail("permuted hashes in a 256th", part[i], key[0]);
		}
	}
}

int
main(int argc, char **argv)
{
	static const uint64_t seeds[] = {
		0, 1, UINT64_MAX, UINT64_C(0x8000000000000000), UINT64_C(0xffffffff),
		UINT64_C(0x100000000), UINT64_C(0x7fffffff), UINT64_C(0x80000000)
	};
	long		rounds = argc > 1 ? atol(argv[1]) : 20000000;
	uint64_t	flip = 0;
	uint64_t	seed = 0;
	int64_t		small;
	long		i;

	check_veil();
	printf("ok - the veil is SipHash-2-4 and tells nothing of a hash\n");

	check_permutation();
	printf("ok - the permutation can be undone, and parts what agrees\n");

	check_against_library();
	printf("ok - hash is XXH3_64bits_withSeed\n");

	for (i = 0; i < (long) (sizeof(seeds) / sizeof(seeds[0])); i++)
		check_edges(seeds[i]);
	for (i = 0; i < 4; i++)
		check_edges(next_random());
	printf("ok - round trip of words with few bits set or cleared\n");

	/* every int2, and int4s at the ends, sign-extended as keys.c does */
	seed = next_random();
	flip = pmhash_hash_flip(seed);
	for (small = INT16_MIN; small <= INT16_MAX; small++)
	{
		check_round_trip((uint64_t) small, seed, flip);
		check_round_trip((uint64_t) (INT32_MAX - (small + 32768)), seed, flip);
		check_round_trip((uint64_t) (INT32_MIN + (small + 32768)), seed, flip);
		check_round_trip((uint64_t) (INT64_MAX - (small + 32768)), seed, flip);
		check_round_trip((uint64_t) (INT64_MIN + (small + 32768)), seed, flip);
	}
	printf("ok - round trip of every int2 and of the ends of int4 and int8\n");

	for (i = 0; i < rounds; i++)
	{
		if (i % 64 == 0)
		{
			seed = next_random();
			flip = pmhash_hash_flip(seed);
		}
		check_round_trip(next_random(), seed, flip);
	}
	printf("ok - round trip of %ld random words\n", rounds);
	return 0;
}
