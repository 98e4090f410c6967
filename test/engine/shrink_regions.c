/*-------------------------------------------------------------------------
 *
 * shrink_regions.c
 *	  A shrink notes which value regions are sparse.  Before it begins to empty
 *	  them others return one of these and, afterwards, make a new one where that
 *	  was.  Nothing in the new one may be lost: what the shrink frees there is
 *	  free for all.
 *
 * No stop point is needed: nothing is locked between two steps of a shrink, and
 * others act then through a second handle.
 *
 *-------------------------------------------------------------------------
 */

#include "buffer.h"
#include "error.h"
#include "file_size.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "lookup.h"
#include "pm.h"
#include "region.h"
#include "shrink.h"
#include "sweeps.h"
#include "table.h"
#include "unit.h"

#define KEYS			UINT64_C(400)
#define VALUES			UINT64_C(320)
#define GONE_KEYS		(KEYS * 7 / 10)
#define SPARE_BLOCKS	4		/* left of the free space, below what pays */

static const char *path;
static PmhTable *others;

/* Hashes ascend with the key, so that regions hold neighbouring keys. */
static uint64_t
list_hash(uint64_t key)
{
	return (key << 54) | (fixture_hash(key) >> 10);
}

static void
load_lists(PmhTable *t)
{
	PmhEntry   *entry = malloc(KEYS * VALUES * sizeof(*entry));
	uint32_t	depth;
	PmhBulk    *bulk;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < KEYS * VALUES; i++)
		entry[i] = (PmhEntry) {list_hash(i / VALUES), i % VALUES};
	REQUIRE(pmh_bulk_begin(t, KEYS * VALUES, PMH_DEFAULT_FILL, &depth, &bulk) == PMH_OK);
	REQUIRE(pmh_bulk_partition(bulk, 0, 0, entry, KEYS * VALUES) == PMH_OK);
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK);
	free(entry);
}

/*
 * A table that has lost most of its lists, so that regions are empty, and the
 * server was started anew since: a sweep will return them.
 */
static void
make_table(void)
{
	PmhTable   *t = fixture_create(path);

	load_lists(t);
	for (uint64_t i = 0; i < GONE_KEYS * VALUES; i++)
		REQUIRE(pmh_delete(t, list_hash(i / VALUES), i % VALUES) == PMH_OK);
	pmh_close(t);
	others = fixture_open(path, 2);
}

/* Others sweep, and return what is empty. */
static void
others_sweep(void)
{
	REQUIRE(sweep_through(others) == PMH_OK);
}

static void
others_insert_list(uint64_t key)
{
	for (uint64_t i = 0; i < VALUES; i++)
		REQUIRE(pmh_insert(others, list_hash(key), i, false) == PMH_OK);
}

/* Others use what is free, so that the shrink has nothing more to do. */
static void
others_fill_the_file(void)
{
	const uint64_t *free_units = &pmh_run(others)->free_units;

	for (uint64_t key = 0; pm_load(free_units) > SPARE_BLOCKS * PMH_UNITS_PER_BLOCK; key++)
		REQUIRE(pmh_insert(others, fixture_hash(key), key, false) == PMH_OK);
}

/* Where the list of a key begins. */
static uint64_t
list_offset(PmhTable *t, uint64_t key)
{
	PmhProbe	probe;

	REQUIRE(pmh_probe(t, list_hash(key), &probe) == PMH_OK && probe.list != 0);
	return pmh_pointer_offset(probe.list);
}

static void
steps_until(PmhTable *t, PmhShrink *shrink, PmhShrinkPhase phase, bool through)
{
	const struct PmhShrinkPrivate *p = shrink->priv;

	while (p->phase != phase || (through && (!p->at.through || p->key < p->nkeys)))
		REQUIRE(pmh_shrink_step(t, shrink) == PMH_OK);
}

/*
 * A shrink that has just begun to empty sparse regions, and key 0 with a list in a
 * region that others made since, where one was that the shrink had noted.
 */
static PmhTable *
begin_and_make_region(PmhShrink *shrink)
{
	PmhTable   *t;
	PmhRegionSpan *noted;
	PmhRegionSpan *again;
	size_t		n;

	make_table();
	t = fixture_open(path, 2);
	REQUIRE(pmh_shrink_begin(t, PMH_DEFAULT_FILL, shrink) == PMH_OK);
	steps_until(t, shrink, PMH_SHRINK_LISTING, false);
	REQUIRE(pmh_regions(t, PMH_NEWEST_REGION, &noted, &n) == PMH_OK);
	others_sweep();
	steps_until(t, shrink, PMH_SHRINK_EMPTYING, false);
	others_insert_list(0);
	again = pmh_region_of(noted, n, list_offset(t, 0));
	REQUIRE(again != NULL);
	free(noted);
	return t;
}

/* The regions have been emptied, and nothing more pays. */
static void
end_shrink(PmhTable *t, PmhShrink *shrink)
{
	PmhResult	result;

	steps_until(t, shrink, PMH_SHRINK_EMPTYING, true);
	others_fill_the_file();
	while ((result = pmh_shrink_step(t, shrink)) == PMH_OK)
		;
	CHECK(result == PMH_DONE && shrink->priv->rounds == 1);
	pmh_shrink_end(t, shrink);
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
}

static void
close_and_remove(PmhTable *t)
{
	pmh_close(t);
	pmh_close(others);
	unlink(path);
}

/* The shrink comes by that list. */
static void
test_region_comes_back(void)
{
	PmhShrink	shrink;
	PmhTable   *t = begin_and_make_region(&shrink);

	end_shrink(t, &shrink);
	CHECK(pm_load(&pmh_run(t)->value_space_known) == 1);
	close_and_remove(t);
}

/*
 * A second shrink, which has seen no value regions and so has no map, sets its
 * limit.  What is freed past that in a region which is newer than the map of the
 * first is not left to the first; the next sweep finds it.
 */
static void
test_limit_without_map(void)
{
	PmhShrink	shrink;
	PmhTable   *t = begin_and_make_region(&shrink);

	pmh_space_set_limit(others, list_offset(t, 0) >> PMH_BLOCK_SHIFT, 0);
	for (uint64_t i = 0; i < VALUES; i++)
		REQUIRE(pmh_delete(others, list_hash(0), i) == PMH_OK);
	end_shrink(t, &shrink);
	CHECK(pm_load(&pmh_run(t)->value_space_known) == 0);
	others_sweep();
	CHECK(pm_load(&pmh_run(t)->value_space_known) == 1);
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	close_and_remove(t);
}

int
main(void)
{
	path = fixture_path("shrink_regions");
	TEST(test_region_comes_back());
	TEST(test_limit_without_map());
	return unit_done("shrink_regions");
}
