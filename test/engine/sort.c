/*-------------------------------------------------------------------------
 *
 * sort.c
 *	  pmh_sort_numbers and pmh_sort_entries against qsort, on what is hard for a sort by
 *	  digits; values of a key, and runs of them that follow each other backward.
 *
 *-------------------------------------------------------------------------
 */
#include "fixture.h"
#include "sort.h"

#define MOST	70000

static uint64_t number[MOST];
static uint64_t wanted[MOST];
static uint64_t seed = 1;

/* ---- what is sorted ---- */

static uint64_t
any(uint64_t i)
{
	return fixture_random(&seed);
}

static uint64_t
few_values(uint64_t i)
{
	return fixture_random(&seed) % 3;
}

/* a TID and a position */
static uint64_t
tid(uint64_t i)
{
	return (fixture_random(&seed) % 5000) << 31 | (1 + fixture_random(&seed) % 150) << 16 | (i & 0xffff);
}

static uint64_t
all_equal(uint64_t i)
{
	return 77;
}

static uint64_t
ascending(uint64_t i)
{
	return i * 3;
}

static uint64_t
descending(uint64_t i)
{
	return UINT64_MAX - i;
}

/* In order but for the first and the last; they differ in one bit only. */
static uint64_t
one_bit(uint64_t i)
{
	return i == 0 ? UINT64_C(1) << 63 : 0;
}

/* Each digit has one number that differs: a level for each. */
static uint64_t
deep(uint64_t i)
{
	return i % 2 == 0 ? i / 2 : UINT64_MAX >> (i % 64);
}

static uint64_t
last_is_least(uint64_t i)
{
	return (MOST - i) / 2 * 2 + (i < MOST / 2);
}

/* Ascending pieces of 41, each in front of the one before; the second with equal ones. */
static uint64_t
backward_pieces(uint64_t i)
{
	return (MOST - i / 41) * 64 + i % 41;
}

static uint64_t
backward_pieces_that_meet(uint64_t i)
{
	return (MOST - i / 41) * 6 + i % 41 / 6;
}

/* The same, but a piece overlaps the one before. */
static uint64_t
nearly_backward_pieces(uint64_t i)
{
	return backward_pieces(i) + (i == 41 * 3 + 40 ? 64 : 0);
}

typedef uint64_t (*Maker) (uint64_t i);

static const Maker maker[] = {
	any, few_values, tid, all_equal, ascending, descending, one_bit, deep, last_is_least,
	backward_pieces, backward_pieces_that_meet, nearly_backward_pieces
};

static void
test_sort(Maker make, size_t n)
{
	for (size_t i = 0; i < n; i++)
		wanted[i] = number[i] = make(i);
	qsort(wanted, n, sizeof(uint64_t), fixture_compare_numbers);
	(void) pmh_sort_numbers(number, n, NULL);
	if (n > 0)
		CHECK(memcmp(number, wanted, n * sizeof(uint64_t)) == 0);
}

/* ---- entries ---- */

static unsigned asked;
static unsigned stop_at;		/* 0: never */

static bool
stop(void)
{
	return ++asked == stop_at;
}

static PmhEntry entry[MOST];
static PmhEntry wanted_entry[MOST];
static PmhEntry made_entry[MOST];

/*
 * Hashes of the one kind and values of the other.  It is asked in each look at them, if there
 * are many: stopped at any moment, all entries are still there.
 */
static void
test_entries(Maker hash, Maker value, size_t n)
{
	unsigned	asks;

	for (size_t i = 0; i < n; i++)
		wanted_entry[i] = entry[i] = made_entry[i] = (PmhEntry) {hash(i), value(i)};
	qsort(wanted_entry, n, sizeof(PmhEntry), fixture_compare_entries);
	asked = stop_at = 0;
	CHECK(pmh_sort_entries(entry, n, n % 2 == 0 ? stop : NULL));
	asks = asked;
	CHECK(n % 2 != 0 || asks >= n / 32768);
	CHECK(n == 0 || memcmp(entry, wanted_entry, n * sizeof(PmhEntry)) == 0);
	for (unsigned at = 1; at <= asks; at += 1 + asks / 7)
	{
		memcpy(entry, made_entry, n * sizeof(PmhEntry));
		asked = 0;
		stop_at = at;
		CHECK(!pmh_sort_entries(entry, n, stop) && asked == at);
		qsort(entry, n, sizeof(PmhEntry), fixture_compare_entries);
		CHECK(memcmp(entry, wanted_entry, n * sizeof(PmhEntry)) == 0);
	}
}

/* Values as look-ups hand them out: sorted, each once. */
static void
test_values(Maker make, size_t n)
{
	PmhValues	values = {number, n, MOST};
	size_t		different = 0;

	for (size_t i = 0; i < n; i++)
		wanted[i] = number[i] = make(i);
	qsort(wanted, n, sizeof(uint64_t), fixture_compare_numbers);
	for (size_t i = 0; i < n; i++)
	{
		if (i == 0 || wanted[i] != wanted[i - 1])
			wanted[different++] = wanted[i];
	}
	pmh_values_finish(&values);
	CHECK(values.n == different);
	if (n > 0)
		CHECK(memcmp(number, wanted, different * sizeof(uint64_t)) == 0);
}

int
main(void)
{
	for (size_t m = 0; m < sizeof(maker) / sizeof(maker[0]); m++)
	{
		for (size_t n = 0; n < 300; n++)
		{
			test_sort(maker[m], n);
			test_values(maker[m], n);
		}
		for (size_t n = 300; n <= MOST; n = n * 3 + 1)
			test_sort(maker[m], n);
		test_sort(maker[m], MOST);
		test_values(maker[m], MOST);
		for (size_t k = 0; k < sizeof(maker) / sizeof(maker[0]); k++)
		{
			for (size_t n = 0; n < 60; n++)
				test_entries(maker[m], maker[k], n);
			test_entries(maker[m], maker[k], 1001);
		}
		test_entries(maker[m], any, MOST);
		test_entries(all_equal, maker[m], MOST);
	}
	return unit_done("sort");
}
