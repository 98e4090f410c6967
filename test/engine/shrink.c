/*-------------------------------------------------------------------------
 *
 * shrink.c
 *	  Shrinking with no other process at work: what is there before is there
 *	  afterwards, the structure is sound, and the file takes less space.
 *
 *-------------------------------------------------------------------------
 */
#include <signal.h>
#include <sys/resource.h>

#include "sweeps.h"
#include "table_alone.h"

/* What small tables leave is much compared with their size. */
#define FULL_SIZE		(FIXTURE_SCALE(10) == 10)

static uint64_t
allocated_bytes(void)
{
	struct stat st;

	REQUIRE(stat(path, &st) == 0);
	return (uint64_t) st.st_blocks * 512;
}

static void
test_unique(void)
{
	PmhTable   *t = create();
	PmhStats	stats;
	uint64_t	before;
	uint64_t	allocated;
	uint64_t	length;

	put_keys(t, 0, UNIQUE_KEYS);
	CHECK(!shrink_all(t, PMH_DEFAULT_FILL));
	before = file_bytes(t);
	allocated = allocated_bytes();
	length = fixture_file_size(path);
	sweep_out(t, 10);
	CHECK(shrink_all(t, PMH_DEFAULT_FILL));
	CHECK_SOUND(t);
	check_keys(t, UNIQUE_KEYS, 10);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == UNIQUE_KEYS / 10);
	CHECK(stats.load_factor > 0.5);
	CHECK(pmh_run(t)->merges > 0);
	CHECK(stats.file_bytes < before / (FULL_SIZE ? 5 : 2));
	CHECK(allocated_bytes() < allocated / (FULL_SIZE ? 5 : 2) ||
		  pmh_whole_pages(1) > PMH_BLOCK_SIZE); /* few pages have no block in use */
	CHECK(!shrink_all(t, PMH_DEFAULT_FILL));

	/* It takes again what was given away, before it becomes longer. */
	for (uint64_t key = 0; key < UNIQUE_KEYS; key++)
	{
		if (key % 10 != 0)
			REQUIRE(pmh_insert(t, fixture_hash(key), key, false) == PMH_OK);
	}
	CHECK_SOUND(t);
	check_keys(t, UNIQUE_KEYS, 1);
	CHECK(fixture_file_size(path) == length);

	/* Drain it slowly, with a shrink now and then. */
	for (uint64_t keep = 2; keep <= 256; keep *= 2)
	{
		sweep_out(t, keep);
		(void) shrink_all(t, PMH_DEFAULT_FILL);
		CHECK_SOUND(t);
		check_keys(t, UNIQUE_KEYS, keep);
	}
	sweep_out(t, 0);
	(void) shrink_all(t, PMH_DEFAULT_FILL);
	CHECK_SOUND(t);
	CHECK(file_bytes(t) <= 1024 * 1024);
	put_keys(t, 0, UNIQUE_KEYS / 10);
	CHECK_SOUND(t);
	check_keys(t, UNIQUE_KEYS / 10, 1);
	pmh_close(t);
}

/* What a table is filled to by its maker's wish is no reason to shrink it. */
static void
test_fill(void)
{
	PmhTable   *t = create();

	load_unique(t, UNIQUE_KEYS, 30);
	CHECK(!shrink_all(t, 30));
	check_keys(t, UNIQUE_KEYS, 1);
	CHECK(shrink_all(t, PMH_DEFAULT_FILL));
	CHECK_SOUND(t);
	check_keys(t, UNIQUE_KEYS, 1);
	pmh_close(t);
}

/* ---- lists ---- */

static void
test_lists(void)
{
	PmhTable   *t = create();
	PmhStats	stats;
	uint64_t	before;
	uint64_t	allocated;

	insert_lists(t);
	before = file_bytes(t);
	allocated = allocated_bytes();
	sweep_out(t, 10);
	CHECK(shrink_all(t, PMH_DEFAULT_FILL));
	CHECK_SOUND(t);
	check_lists(t, 10);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(pmh_value_space_is_known(t));
	CHECK((double) stats.list_bytes < 20.0 * (double) stats.list_entries);
	CHECK(stats.file_bytes < before / (FULL_SIZE ? 3 : 2));
	CHECK(allocated_bytes() < allocated / (FULL_SIZE ? 3 : 2));
	CHECK(!shrink_all(t, PMH_DEFAULT_FILL));
	CHECK(file_bytes(t) == stats.file_bytes);

	/* The lists grow again. */
	for (uint64_t key = 0; key < LIST_KEYS; key++)
	{
		for (uint64_t i = 0; i < values_of(key); i++)
		{
			if (i % 10 != 0)
				REQUIRE(pmh_insert(t, fixture_hash(key), i, false) == PMH_OK);
		}
	}
	CHECK_SOUND(t);
	check_lists(t, 1);

	for (uint64_t keep = 3; keep < 100; keep *= 3)
	{
		sweep_out(t, keep);
		(void) shrink_all(t, PMH_DEFAULT_FILL);
		CHECK_SOUND(t);
		check_lists(t, keep);
	}
	t = reopen(t);
	CHECK_SOUND(t);
	check_lists(t, 81);
	sweep_out(t, 0);
	/* (Unless what is left of the file is no more than what a shrink spares.) */
	CHECK(shrink_all(t, PMH_DEFAULT_FILL) || !FULL_SIZE || file_bytes(t) <= 256 * 1024);
	CHECK_SOUND(t);
	CHECK(file_bytes(t) <= 1024 * 1024);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.value_bytes <= 256 * 1024);
	insert_lists(t);
	CHECK_SOUND(t);
	check_lists(t, 1);
	pmh_close(t);
}

/* A shrink that goes no further than some steps.  False if it was through before. */
static bool
shrink_some_steps(PmhTable *t, unsigned steps)
{
	PmhShrink	shrink;
	PmhResult	result = pmh_shrink_begin(t, PMH_DEFAULT_FILL, &shrink);

	for (unsigned i = 0; i < steps && result == PMH_OK; i++)
		result = pmh_shrink_step(t, &shrink);
	REQUIRE(result == PMH_OK || result == PMH_DONE);
	return result == PMH_OK;
}

/* A shrink that is given up at any step leaves a sound table. */
static void
test_given_up(void)
{
	PmhTable   *t = create();

	insert_lists(t);
	put_keys(t, LIST_KEYS, LIST_KEYS + UNIQUE_KEYS / 4);
	sweep_out(t, 20);
	for (unsigned steps = 1; shrink_some_steps(t, steps); steps += 1 + steps / 2)
	{
		CHECK_SOUND(t);
		for (uint64_t i = 0; i < 50; i++)
			REQUIRE(pmh_insert(t, fixture_hash(steps), 20 * LONG_VALUES + i * 2 + 1,
							   false) == PMH_OK);
		for (uint64_t i = 0; i < 50; i++)
			CHECK(pmh_delete(t, fixture_hash(steps), 20 * LONG_VALUES + i * 2 + 1) == PMH_OK);
		CHECK_SOUND(t);
		check_lists(t, 20);
	}
	CHECK_SOUND(t);
	check_lists(t, 20);
	pmh_close(t);
}

/* Of two handles that find no room at the same time one takes back what was punched. */
static void
test_growth_after_punch(void)
{
	PmhTable   *t = create();
	PmhTable   *other = fixture_open(path, instance);
	uint64_t	offset;
	uint64_t	blocks;
	uint64_t	with_space;
	PmhResult	result;

	put_keys(t, 0, UNIQUE_KEYS);
	check_keys(other, UNIQUE_KEYS, 1);
	sweep_out(t, 64);
	CHECK(shrink_all(t, PMH_DEFAULT_FILL));
	do
		result = pmh_space_alloc_extent(t, 1, &offset);
	while (result == PMH_OK);
	CHECK(result == PMH_NEED && pmh_space_alloc_extent(other, 1, &offset) == PMH_NEED);
	blocks = pmh_blocks(t);
	with_space = pmh_blocks_with_space(t);
	CHECK(pmh_provide(t) == PMH_OK && pmh_blocks_with_space(t) > with_space);
	with_space = pmh_blocks_with_space(t);
	CHECK(pmh_provide(other) == PMH_OK && pmh_blocks_with_space(t) == with_space);
	CHECK(pmh_blocks(t) == blocks);
	pmh_close(other);
	pmh_close(t);
}

/* The file can't grow, but one block is free: what it is used for makes room for the rest. */
static void
test_full_disk(void)
{
	uint64_t   *taken = malloc(UNIQUE_KEYS * sizeof(uint64_t));

	REQUIRE(taken != NULL && signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	for (uint64_t keep = 8; keep < 16; keep++)
	{
		PmhTable   *t = create();
		uint64_t	blocks;
		uint64_t	free_units;
		uint64_t	length;
		rlim_t		before;
		size_t		n = 0;

		put_keys(t, 0, UNIQUE_KEYS);
		length = fixture_file_size(path);
		before = set_limit(RLIMIT_FSIZE, length);
		while (pmh_space_alloc_units(t, 1, &taken[n]) == PMH_OK)
			n++;
		for (uint64_t freed = 0; freed < 2 * PMH_UNITS_PER_BLOCK; freed++)
			pmh_space_free_units(t, taken[--n], 1);
		sweep_out(t, keep);
		CHECK(shrink_all(t, PMH_DEFAULT_FILL));
		pmh_space_figures(t, &blocks, &free_units);
		CHECK(free_units > blocks * PMH_UNITS_PER_BLOCK / 4 || file_bytes(t) < length / 2);
		while (n > 0)
			pmh_space_free_units(t, taken[--n], 1);
		CHECK_SOUND(t);
		check_keys(t, UNIQUE_KEYS, keep);
		(void) set_limit(RLIMIT_FSIZE, before);
		pmh_close(t);
	}
	free(taken);
}

int
main(void)
{
	path = fixture_path("shrink");
	for (int round = 0; round < 2; round++)
	{
		force_pmem = round == 1;
		TEST(test_unique());
		TEST(test_lists());
		TEST(test_given_up());
	}
	force_pmem = false;
	TEST(test_fill());
	TEST(test_growth_after_punch());
	TEST(test_full_disk());
	unlink(path);
	return unit_done("shrink");
}
