/*-------------------------------------------------------------------------
 *
 * keyhash_test.c
 *	  Unit test of src/am/keyhash.c: the hash of a word can be undone, for
 *	  every seed and word we can think of and for many we cannot.
 *
 *	keyhash_test [ROUNDS]		so many random words
 *
 *-------------------------------------------------------------------------
 */
#include <stdint.h>

#include "../engine/unit.h"
#include "am/keyhash.h"

#define ROUNDS		4000000

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

/* It comes back from its hash, and is itself the hash of something. */
static void
check_round_trip(uint64_t word, uint64_t seed, uint64_t flip)
{
	if (!CHECK(pmhash_unhash_word(pmhash_hash_word(word, seed), flip) == word &&
			   pmhash_hash_word(pmhash_unhash_word(word, flip), seed) == word))
		fprintf(stderr, "word %llx, seed %llx\n", (unsigned long long) word, (unsigned long long) seed);
}

/* The words around 'word', so that carries and borrows are met. */
static void
check_around(uint64_t word, uint64_t seed, uint64_t flip)
{
	for (int d = -2; d <= 2; d++)
	{
		check_round_trip(word + (uint64_t) d, seed, flip);
		check_round_trip(~(word + (uint64_t) d), seed, flip);
	}
}

/* All words with up to three bits set or cleared, and their neighbours. */
static void
words_with_few_bits(void)
{
	uint64_t	seeds[] = {
		0, 1, UINT64_MAX, UINT64_C(0x8000000000000000), UINT64_C(0xffffffff),
		UINT64_C(0x100000000), UINT64_C(0x7fffffff), UINT64_C(0x80000000),
		next_random(), next_random(), next_random(), next_random()
	};

	for (unsigned s = 0; s < sizeof(seeds) / sizeof(seeds[0]); s++)
	{
		uint64_t	flip = pmhash_hash_flip(seeds[s]);

		check_around(0, seeds[s], flip);
		for (int i = 0; i < 64; i++)
			for (int j = i; j < 64; j++)
				for (int k = j; k < 64; k++)
					check_around(UINT64_C(1) << i | UINT64_C(1) << j | UINT64_C(1) << k, seeds[s],
								 flip);
	}
}

/* Every int2, and int4s and int8s at the ends, sign-extended as keys.c does. */
static void
integers(void)
{
	static const int64_t ends[] = {INT16_MIN, INT32_MAX - 65535, INT32_MIN, INT64_MAX - 65535, INT64_MIN};
	uint64_t	seed = next_random();
	uint64_t	flip = pmhash_hash_flip(seed);

	for (unsigned e = 0; e < sizeof(ends) / sizeof(ends[0]); e++)
		for (uint64_t i = 0; i <= UINT16_MAX; i++)
			check_round_trip((uint64_t) ends[e] + i, seed, flip);
}

static void
random_words(long rounds)
{
	uint64_t	seed = 0;
	uint64_t	flip = 0;

	for (long i = 0; i < rounds; i++)
	{
		if (i % 64 == 0)
		{
			seed = next_random();
			flip = pmhash_hash_flip(seed);
		}
		check_round_trip(next_random(), seed, flip);
	}
}

/* The hash is the library's, not something like it. */
static void
against_the_library(void)
{
	for (int i = 0; i < 1000; i++)
	{
		uint64_t	word = next_random();
		uint64_t	seed = next_random();
		unsigned char bytes[8];

		for (int b = 0; b < 8; b++)
			bytes[b] = (unsigned char) (word >> (8 * b));
		CHECK(pmhash_hash_word(word, seed) == XXH3_64bits_withSeed(bytes, 8, seed) &&
			  pmhash_hash_bytes(bytes, 8, seed) == pmhash_hash_word(word, seed));
	}
}

/*
 * The veil: the vector for 8 bytes that SipHash's authors publish (key 00 to 0f,
 * message 00 to 07); and its numbers follow neither the order of the hashes nor
 * their high half, and are others under another key.
 */
static void
veil(void)
{
	static const uint64_t published[2] = {
		UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)
	};
	uint64_t	key[2] = {next_random(), next_random()};
	uint64_t	other[2] = {key[0], key[1] ^ 1};
	long		ascending = 0;

	CHECK(pmhash_veil(UINT64_C(0x0706050403020100), published) == UINT64_C(0x93f5f5799a932462));
	for (long i = 0; i < 10000; i++)
	{
		uint64_t	hash = (uint64_t) i << 40;

		ascending += pmhash_veil(hash, key) < pmhash_veil(hash + (UINT64_C(1) << 40), key);
		CHECK(pmhash_veil(hash, key) >> 32 != hash >> 32 &&
			  pmhash_veil(hash, key) != pmhash_veil(hash, other) &&
			  pmhash_veil(hash, key) >> 32 != pmhash_veil(hash + 1, key) >> 32);
	}
	CHECK(ascending >= 4700 && ascending <= 5300);
}

/*
 * The permutation can be undone under any key, and hashes that differ in a few bits only,
 * wherever these are, fall into each 256th of all values about as often as others.
 */
static void
permutation(void)
{
	for (int round = 0; round < 1000; round++)
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
			CHECK(pmhash_permute_back(&p, permuted) == hash &&
				  pmhash_permute(&p, pmhash_permute_back(&p, hash)) == hash);
		}
		/* 64 are expected; ten standard deviations are 80. */
		for (int i = 0; i < 256; i++)
			CHECK(part[i] != 0 && part[i] <= 144);
	}
}

int
main(int argc, char **argv)
{
	TEST(veil());
	TEST(permutation());
	TEST(against_the_library());
	TEST(words_with_few_bits());
	TEST(integers());
	TEST(random_words(argc > 1 ? atol(argv[1]) : ROUNDS));
	return unit_done("keyhash_test");
}
