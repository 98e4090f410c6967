/*-------------------------------------------------------------------------
 *
 * check_figures.c
 *	  Statistics are exact and estimates are near, for tables of all sizes,
 *	  with and without duplicates.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "segment.h"
#include "table.h"
#include "unit.h"

/* The estimate may be off by so many percent. */
static void
check_estimate(PmhTable *t, uint64_t entries, uint64_t percent)
{
	uint64_t	guess;
	uint64_t	bytes;

	REQUIRE(pmh_estimate(t, &guess, &bytes) == PMH_OK);
	CHECK(guess >= entries - entries * percent / 100);
	CHECK(guess <= entries + entries * percent / 100);
	CHECK(bytes == pmh_blocks(t) << PMH_BLOCK_SHIFT);
}

/* What must be true of the statistics of any table. */
static PmhStats
check_stats(PmhTable *t, uint64_t entries)
{
	PmhStats	s;
	uint64_t	least = 0;

	REQUIRE(pmh_stats(t, &s) == PMH_OK);
	CHECK(s.entries == entries);
	CHECK(s.segments == s.segments_single + s.segments_two_choice + s.segments_stash);
	CHECK(s.segments == s.splits + 1);
	CHECK(s.min_depth <= s.max_depth && s.max_depth <= s.global_depth);
	CHECK(s.doublings == s.global_depth);
	CHECK(s.used_slots == s.entries - s.list_entries + s.lists);
	CHECK(s.load_factor == (double) s.used_slots / (double) s.slots);
	CHECK(s.entries_stash <= s.entries_elsewhere && s.entries_elsewhere <= s.used_slots);
	CHECK(s.list_bytes >= s.list_entries * PMH_VALUE_BYTES);
	CHECK(s.list_bytes <= s.value_bytes && s.value_bytes <= s.used_bytes);
	CHECK(s.used_bytes <= s.file_bytes);
	least = s.slots / PMH_SLOTS * PMH_BUCKET_SIZE + s.value_bytes;
	CHECK(s.used_bytes >= least);
	CHECK(s.value_space_known);
	return s;
}

/* Unique keys: what is inserted is what is counted, at every size. */
static void
unique_keys(const char *path)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	n = 0;

	check_estimate(t, 0, 0);
	(void) check_stats(t, 0);
	for (uint64_t size = 1; size <= (uint64_t) FIXTURE_SCALE(1000000); size *= 10)
	{
		PmhStats	s;

		for (; n < size; n++)
			REQUIRE(pmh_insert(t, fixture_hash(n), n, false) == PMH_OK);
		s = check_stats(t, n);
		CHECK(s.lists == 0);
		check_estimate(t, n, s.segments <= 64 ? 0 : 3);
	}
	pmh_close(t);
	unlink(path);
}

/* Key k has k % 100 values, and a few have very many. */
static void
duplicates(const char *path)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	keys = FIXTURE_SCALE(20000);
	uint64_t	n = 0;
	uint64_t	long_keys = 0;
	PmhStats	s;

	for (uint64_t k = 0; k < keys; k++)
	{
		uint64_t	values = k % 2000 == 0 ? 9000 : k % 100;

		for (uint64_t i = 0; i < values; i++)
			REQUIRE(pmh_insert(t, fixture_hash(k), i, false) == PMH_OK);
		n += values;
		long_keys += values > PMH_INLINE_MAX * 4;
	}
	s = check_stats(t, n);
	CHECK(s.lists >= long_keys);
	CHECK(s.compactions >= s.lists);
	check_estimate(t, n, s.segments <= 64 ? 5 : 20);
	pmh_close(t);
	unlink(path);
}

int
main(void)
{
	const char *path = fixture_path("check_figures");

	TEST(unique_keys(path));
	TEST(duplicates(path));
	return unit_done("check_figures");
}
