/*-------------------------------------------------------------------------
 *
 * delete_groups.c
 *	  Many values of one key deleted at once: long lists and short ones, plain
 *	  entries, values that are not there, pairs that are there twice.
 *
 *-------------------------------------------------------------------------
 */
#include "error.h"
#include "fixture.h"
#include "segment.h"
#include "table.h"
#include "table_alone.h"
#include "unit.h"

/* Exchange entries at random. */
static void
shuffle(PmhEntry *entries, size_t n, uint64_t *seed)
{
	for (size_t i = n; i-- > 1;)
	{
		size_t		j = fixture_random(seed) % (i + 1);
		PmhEntry	e = entries[i];

		entries[i] = entries[j];
		entries[j] = e;
	}
}

/* Three quarters of a long list, in groups, with values that are not there (any more). */
static void
long_list(PmhTable *t, PmhEntry *entries)
{
	PmhValues	values = {0};
	uint64_t	seed = 7;
	size_t		removed;
	size_t		n = 0;

	for (uint64_t i = 0; i < LONG_VALUES; i++)
		REQUIRE(pmh_insert(t, fixture_hash(1), i, false) == PMH_OK);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
	{
		if (i % 4 != 1)
			entries[n++] = (PmhEntry) {fixture_hash(1), i};
	}
	shuffle(entries, n, &seed);
	for (size_t done = 0, group; done < n; done += group)
	{
		size_t		again = done > 100 ? 50 : 0;

		group = 1 + fixture_random(&seed) % 997;
		if (group > n - done)
			group = n - done;
		REQUIRE(pmh_delete_group(t, entries + done - again, group + again, &removed) == PMH_OK);
		CHECK(removed == group);
	}
	REQUIRE(pmh_lookup(t, fixture_hash(1), &values) == PMH_OK);
	CHECK(values.n == LONG_VALUES / 4);
	for (size_t i = 0; i < values.n; i++)
		CHECK(values.value[i] % 4 == 1);
	pmh_values_free(&values);
	check(t);
}

/* A pair that is there twice, and is to go once, or twice, among others. */
static void
repeated_pair(PmhTable *t, PmhEntry *entries)
{
	PmhValues	values = {0};
	size_t		removed;
	size_t		n;

	for (uint64_t i = 0; i < 2; i++)
		REQUIRE(pmh_insert(t, fixture_hash(1), LONG_VALUES, false) == PMH_OK);
	for (n = 0; n < 4; n++)
		entries[n] = (PmhEntry) {fixture_hash(1), LONG_VALUES + n};
	REQUIRE(pmh_delete_group(t, entries, n, &removed) == PMH_OK);
	CHECK(removed == 1);
	REQUIRE(fixture_lookup_repeats(t, fixture_hash(1), &values) == PMH_OK);
	CHECK(values.n == LONG_VALUES / 4 + 1);

	REQUIRE(pmh_insert(t, fixture_hash(1), LONG_VALUES, false) == PMH_OK);
	for (n = 0; n < 4; n++)
		entries[n] = (PmhEntry) {fixture_hash(1), LONG_VALUES + n / 2};
	REQUIRE(pmh_delete_group(t, entries, n, &removed) == PMH_OK);
	CHECK(removed == 2);
	REQUIRE(pmh_lookup(t, fixture_hash(1), &values) == PMH_OK);
	CHECK(values.n > 0 && values.value[values.n - 1] < LONG_VALUES);
	pmh_values_free(&values);
}

/* Plain entries, short lists and long ones in one call. */
static void
lists_of_all_lengths(PmhTable *t, PmhEntry *entries)
{
	PmhValues	values = {0};
	size_t		removed;
	size_t		n = 0;

	for (uint64_t key = 10; key < 40; key++)
	{
		for (uint64_t i = 0; i < key - 9; i++)
		{
			REQUIRE(pmh_insert(t, fixture_hash(key), i, false) == PMH_OK);
			entries[n++] = (PmhEntry) {fixture_hash(key), i};
		}
	}
	REQUIRE(pmh_delete_group(t, entries, n, &removed) == PMH_OK);
	CHECK(removed == n);
	for (uint64_t key = 10; key < 40; key++)
	{
		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		CHECK(values.n == 0);
	}
	pmh_values_free(&values);
	check(t);
}

static void
run(void)
{
	PmhTable   *t = create();
	PmhEntry   *entries = malloc(LONG_VALUES * sizeof(PmhEntry));

	REQUIRE(entries != NULL);
	long_list(t, entries);
	repeated_pair(t, entries);
	lists_of_all_lengths(t, entries);
	free(entries);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("delete_groups");
	TEST(run());
	force_pmem = true;
	TEST(run());
	unlink(path);
	return unit_done("delete_groups");
}
