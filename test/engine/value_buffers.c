/*-------------------------------------------------------------------------
 *
 * value_buffers.c
 *	  Value buffers of all classes: where they may be, where their lines are, and
 *	  that no byte of a region is lost or given out twice, by allocation, by free
 *	  lists, by a reclaim.  Lists in pairs of the odd class.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "buffer.h"
#include "error.h"
#include "file_size.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list_write.h"
#include "live.h"
#include "sweeps.h"
#include "table.h"
#include "table_alone.h"
#include "unit.h"
#include "value_space.h"

#define PAIRS			300		/* that the first region has room for */
#define ODD_KEYS		UINT64_C(3000)
#define ODD_VALUES		UINT64_C(6)		/* a list of them is of the odd class */

/* ---- figures ---- */

/* Bytes of buffers in the free lists, all of them where such may be. */
static uint64_t
free_bytes(PmhTable *t)
{
	uint64_t	bytes = 0;

	for (uint32_t class = 0; class < PMH_CLASSES; class++)
	{
		for (uint64_t p = pmh_run(t)->free_list[class]; p != 0;
			 p = *(const uint64_t *) pmh_at(t, p))
		{
			CHECK(pmh_class_may_be_free_at(class, p));
			bytes += pmh_class_bytes(class);
		}
	}
	return bytes;
}

/* The same with what is left of the newest region. */
static uint64_t
unused_bytes(PmhTable *t)
{
	return free_bytes(t) + pmh_run(t)->region_end - pmh_run(t)->region_next;
}

/* Bytes that buffers may have, in all regions. */
static uint64_t
region_bytes(PmhTable *t)
{
	uint64_t	bytes = 0;
	uint64_t	block = pmh_newest_region(t);

	while (block != 0)
	{
		const PmhRegion *region = pmh_at(t, block << PMH_BLOCK_SHIFT);

		bytes += (region->blocks << PMH_BLOCK_SHIFT) - PMH_LINE;
		block = region->next;
	}
	return bytes;
}

/* ---- buffers alone ---- */

/* Has each line its bytes to itself, inside of the buffer and of one cache line? */
static void
check_lines(uint64_t offset, uint32_t class)
{
	uint64_t	payload = pmh_make_pointer(offset, class);
	uint64_t	grains_used = 0;
	uint32_t	values = 0;

	for (uint32_t line = pmh_class_first_line(class); line < pmh_class_lines(class); line++)
	{
		uint32_t	capacity = pmh_line_capacity(class, line);
		uint64_t	size = capacity == PMH_VALUES_PER_LINE ? PMH_VALUE_LINE : PMH_GRAIN;
		uint64_t	at = pmh_line_offset(payload, line);

		CHECK(at >= offset && at + size <= offset + pmh_class_bytes(class));
		CHECK(at / PMH_LINE == (at + size - 1) / PMH_LINE);
		values += capacity;
		if (class == PMH_ODD_CLASS)
		{
			uint64_t	bits = (UINT64_C(1) << size / PMH_GRAIN) - 1;

			bits <<= (at - offset) / PMH_GRAIN;
			CHECK((grains_used & bits) == 0);
			grains_used |= bits;
		}
	}
	CHECK(values == pmh_class_capacity(class));
}

static uint64_t
take(PmhTable *t, uint32_t class)
{
	uint64_t	offset = 0;
	unsigned	needs = 0;
	PmhResult	result;

	/* A region, and the file for it. */
	while ((result = pmh_value_alloc(t, class, &offset)) == PMH_NEED && needs++ < 3)
		REQUIRE(pmh_provide(t) == PMH_OK);
	REQUIRE(result == PMH_OK);
	CHECK(pmh_class_may_be_at(class, offset));
	check_lines(offset, class);
	return offset;
}

/* Buffers of the odd class take 48 bytes each, and those that are freed are taken again. */
static void
test_pairs(void)
{
	PmhTable   *t = create();
	uint64_t	offset[2 * PAIRS];
	uint64_t	unused;

	pm_store64(&pmh_run(t)->region_blocks, 4);
	(void) take(t, PMH_LEAST_CLASS);	/* one region for all is there */
	unused = unused_bytes(t);
	for (uint64_t i = 0; i < 2 * PAIRS; i++)
	{
		offset[i] = take(t, PMH_ODD_CLASS);
		CHECK(unused - unused_bytes(t) == (i + 1) * pmh_class_bytes(PMH_ODD_CLASS));
		memset(pmh_at(t, offset[i]), 0xff, pmh_class_bytes(PMH_ODD_CLASS));
	}
	unused = unused_bytes(t);
	for (uint64_t i = 0; i < 2 * PAIRS; i += 1 + i % 3)
		pmh_value_free(t, offset[i], PMH_ODD_CLASS);
	for (uint64_t i = 0; i < 2 * PAIRS; i += 1 + i % 3)
		(void) take(t, PMH_ODD_CLASS);
	CHECK(unused_bytes(t) == unused);
	pmh_close(t);
}

/* What is left of a region is too small for two: the buffer comes from another one. */
static void
test_end_of_region(void)
{
	PmhTable   *t = create();
	const PmhRun *run = pmh_run(t);

	(void) take(t, PMH_LEAST_CLASS);
	while (run->region_end - run->region_next >= pmh_class_bytes(PMH_PAIR_CLASS))
		(void) take(t, PMH_PAIR_CLASS);
	CHECK(run->region_end - run->region_next >= pmh_class_bytes(PMH_ODD_CLASS));
	CHECK(free_bytes(t) == 0);
	(void) take(t, PMH_ODD_CLASS);
	pmh_close(t);
}

/* A span of any length, anywhere, is in the free lists as a whole. */
static void
test_spans(void)
{
	PmhTable   *t = create();
	uint64_t	start = take(t, PMH_MAX_CLASS);

	for (uint64_t from = 0; from < 4; from++)
	{
		for (uint64_t grains = 1; grains <= pmh_class_grains[PMH_MAX_CLASS] - from;
			 grains += 1 + grains / 60)
		{
			pmh_value_forget_free(t);
			pmh_value_free_span(t, start + from * PMH_GRAIN, grains * PMH_GRAIN);
			CHECK(free_bytes(t) == grains * PMH_GRAIN);
		}
	}
	pmh_close(t);
}

/* Buffers of all classes, larger ones in pieces: those of each have room. */
static void
test_classes(void)
{
	PmhTable   *t = create();
	uint64_t	taken = 0;

	for (unsigned round = 0; round < 5; round++)
	{
		for (uint32_t class = PMH_LEAST_CLASS; class <= PMH_MAX_CLASS; class++)
		{
			uint64_t	offset = take(t, class);

			if (round % 2 == 0)
				pmh_value_free(t, offset, class);
			else
				taken += pmh_class_bytes(class);
			CHECK(region_bytes(t) == unused_bytes(t) + taken);
		}
	}
	pmh_close(t);
}

/* ---- lists ---- */

static uint64_t
odd_value(uint64_t key, uint64_t i)
{
	return key * 16 + i;
}

/* Lists that fit exactly, neighbours in hash order being neighbours in the region. */
static PmhTable *
make_odd_lists(void)
{
	PmhTable   *t = create();
	PmhEntry   *entry = malloc(ODD_KEYS * ODD_VALUES * sizeof(*entry));
	uint32_t	depth;
	PmhBulk    *bulk;
	PmhStats	stats;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < ODD_KEYS * ODD_VALUES; i++)
	{
		uint64_t	key = i / ODD_VALUES;

		entry[i] = (PmhEntry) {fixture_hash(key), odd_value(key, i % ODD_VALUES)};
	}
	REQUIRE(pmh_bulk_begin(t, ODD_KEYS, PMH_DEFAULT_FILL, &depth, &bulk) == PMH_OK);
	REQUIRE(pmh_bulk_partition(bulk, 0, 0, entry, ODD_KEYS * ODD_VALUES) == PMH_OK);
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK);
	free(entry);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.lists == ODD_KEYS);
	CHECK(stats.list_bytes == ODD_KEYS * pmh_class_bytes(PMH_ODD_CLASS));
	return t;
}

/* Has each key its first n values, but for those that leave 0 modulo 'gone'? */
static void
check_odd_lists(PmhTable *t, uint64_t n, uint64_t gone)
{
	PmhValues	values = {0};

	for (uint64_t key = 0; key < ODD_KEYS; key++)
	{
		bool		there = gone == 0 || key % gone != 0;

		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		CHECK(values.n == (there ? n : 0));
		for (uint64_t i = 0; i < values.n; i++)
			CHECK(values.value[i] == odd_value(key, i));
	}
	pmh_values_free(&values);
}

/* The short line is filled; then the list grows, and its neighbour is as it was. */
static void
test_grow_odd_lists(void)
{
	PmhTable   *t = make_odd_lists();

	check_odd_lists(t, ODD_VALUES, 0);
	for (uint64_t i = ODD_VALUES; i < 12; i++)
	{
		for (uint64_t key = 0; key < ODD_KEYS; key++)
			REQUIRE(pmh_insert(t, fixture_hash(key), odd_value(key, i), false) == PMH_OK);
		check_odd_lists(t, i + 1, 0);
		check(t);
	}
	pmh_close(t);
}

/*
 * Lists go, of pairs one or both, and what was free is not known after a crash: the
 * sweep finds all of it, and nothing of the others.
 */
static void
test_reclaim_odd_lists(uint64_t gone)
{
	PmhTable   *t = make_odd_lists();
	uint64_t	ngone = (ODD_KEYS + gone - 1) / gone;
	PmhStats	stats;
	uint64_t	unused;

	for (uint64_t key = 0; key < ODD_KEYS; key += gone)
	{
		for (uint64_t i = 0; i < ODD_VALUES; i++)
			REQUIRE(pmh_delete(t, fixture_hash(key), odd_value(key, i)) == PMH_OK);
	}
	t = reopen(t);
	sweep_out(t, 1);
	check(t);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.value_space_known);
	CHECK(stats.list_bytes == (ODD_KEYS - ngone) * pmh_class_bytes(PMH_ODD_CLASS));
	unused = unused_bytes(t);
	CHECK(region_bytes(t) == stats.list_bytes + unused);

	for (uint64_t i = 0; i < ngone; i++)
		memset(pmh_at(t, take(t, PMH_ODD_CLASS)), 0xff, pmh_class_bytes(PMH_ODD_CLASS));
	CHECK(region_bytes(t) == stats.list_bytes + unused_bytes(t) +
		  ngone * pmh_class_bytes(PMH_ODD_CLASS));
	check_odd_lists(t, ODD_VALUES, gone);
	pmh_close(t);
}

/* A list of four whole blocks. */
static PmhListMade
make_long_list(PmhTable *t, uint64_t hash)
{
	static uint64_t values[PMH_BLOCK_SIZE];
	const size_t n = 4 * pmh_class_capacity(PMH_MAX_CLASS);
	PmhListMade made = {0};
	PmhResult	result;

	REQUIRE(n <= PMH_BLOCK_SIZE);
	for (size_t i = 0; i < n; i++)
		values[i] = i + 1;
	while ((result = pmh_list_make(t, hash, values, n, 0, &made)) == PMH_NEED)
		REQUIRE(pmh_provide(t) == PMH_OK);
	REQUIRE(result == PMH_OK);
	return made;
}

/* A sweep that takes nothing out, and finds what is free. */
static void
reclaim(PmhTable *t)
{
	PmhSweep	sweep;
	PmhResult	result = pmh_sweep_begin(t, &sweep);

	CHECK(result == PMH_OK && pmh_sweep_reclaims(&sweep));
	CHECK(sweep_to_end(t, &sweep, result) == PMH_OK);
}

/* A damaged pointer in a list that is given up names a buffer of another key's list. */
static void
test_retire_damaged(void)
{
	PmhTable   *t = create();
	PmhListMade own = make_long_list(t, fixture_hash(1));
	PmhListMade other = make_long_list(t, fixture_hash(2));
	PmhBufferHeader *head = pmh_buffer_header(t, own.head);
	uint64_t	before;

	head->next = other.head;
	before = free_bytes(t);
	pmh_list_unmake(t, &own);
	CHECK(free_bytes(t) == before + pmh_class_bytes(pmh_pointer_class(own.head)));
	pmh_list_unmake(t, &other);
	CHECK(free_bytes(t) == before + pmh_class_bytes(pmh_pointer_class(own.head)) +
		  other.bytes);
	/* The rest of the list is nowhere: the next sweep finds it. */
	CHECK(!pmh_value_space_is_known(t));
	reclaim(t);
	CHECK(pmh_value_space_is_known(t));
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("value_buffers");
	TEST(test_pairs());
	TEST(test_end_of_region());
	TEST(test_spans());
	TEST(test_classes());
	TEST(test_grow_odd_lists());
	TEST(test_reclaim_odd_lists(2));
	TEST(test_reclaim_odd_lists(3));
	TEST(test_reclaim_odd_lists(7));
	TEST(test_retire_damaged());
	unlink(path);
	return unit_done("value_buffers");
}
