/*-------------------------------------------------------------------------
 *
 * shrink.c
 *	  Shrinking with no other process at work: what is there before is there
 *	  afterwards, the structure is sound, and the file is shorter.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>
#include <sys/stat.h>

#include "buffer.h"
#include "crowd.h"
#include "directory.h"
#include "element.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list_rewrite.h"
#include "list_write.h"
#include "place.h"
#include "segment.h"
#include "segment_resize.h"
#include "table.h"
#include "unit.h"

#define UNIQUE_KEYS		((uint64_t) FIXTURE_SCALE(200000))
#define LIST_KEYS		((uint64_t) FIXTURE_SCALE(2000))
#define LIST_VALUES		300
#define LONG_KEYS		3
#define LONG_VALUES		((uint64_t) FIXTURE_SCALE(60000))

/* What small tables leave is much compared with their size. */
#define FULL_SIZE		(FIXTURE_SCALE(10) == 10)

static const char *path;
static uint64_t instance = 1;
static bool force_pmem;
static bool crowded;			/* half of the keys are in the overflow table */

static uint64_t
key_hash(uint64_t key)
{
	return crowded && key % 2 == 1 ? crowd_of_many_hash(7, key) : fixture_hash(key);
}

static PmhTable *
create(void)
{
	PmhEnv		env = fixture_env(instance);
	PmhError	error;
	PmhTable   *t;

	env.force_pmem = force_pmem;
	unlink(path);
	REQUIRE(pmh_create(path, NULL, NULL, &env, &t, &error) == PMH_OK);
	return t;
}

/* Open under another instance: recovery. */
static PmhTable *
reopen(PmhTable *t)
{
	PmhEnv		env = fixture_env(++instance);
	PmhError	error;
	bool		recovered;

	env.force_pmem = force_pmem;
	pmh_close(t);
	REQUIRE(pmh_open(path, &env, &t, &recovered, &error) == PMH_OK);
	CHECK(recovered);
	return t;
}

static uint64_t
file_bytes(PmhTable *t)
{
	PmhStats	stats;

	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	return stats.file_bytes;
}

static uint64_t
allocated_bytes(void)
{
	struct stat st;

	REQUIRE(stat(path, &st) == 0);
	return (uint64_t) st.st_blocks * 512;
}

static void
check(PmhTable *t)
{
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
}

/* Shrink to the end; returns false if it does not pay. */
static bool
shrink_all(PmhTable *t, int fill_percent)
{
	PmhShrink	shrink;
	PmhResult	result = pmh_shrink_begin(t, fill_percent, &shrink);

	if (result == PMH_DONE)
		return false;
	REQUIRE(result == PMH_OK);
	while ((result = pmh_shrink_step(t, &shrink)) == PMH_OK)
		;
	CHECK(result == PMH_DONE);
	CHECK(shrink.bytes_after == file_bytes(t));
	pmh_shrink_end(t, &shrink);
	return true;
}

/* Take every pair out whose value is not 0 modulo 'keep' (0: all). */
static void
sweep_out(PmhTable *t, uint64_t keep)
{
	PmhSweep	sweep;
	PmhResult	result;
	uint8_t    *dead = NULL;
	size_t		removed;

	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	while ((result = pmh_sweep_next(t, &sweep)) == PMH_OK)
	{
		dead = realloc(dead, sweep.n);
		REQUIRE(dead != NULL);
		for (size_t i = 0; i < sweep.n; i++)
			dead[i] = keep == 0 || sweep.entries[i].value % keep != 0;
		REQUIRE(pmh_sweep_remove(t, &sweep, dead, &removed) == PMH_OK);
	}
	CHECK(result == PMH_DONE);
	pmh_sweep_end(t, &sweep);
	free(dead);
}

static void
insert_unique(PmhTable *t, uint64_t from, uint64_t to)
{
	for (uint64_t key = from; key < to; key++)
		REQUIRE(pmh_insert(t, key_hash(key), key, false) == PMH_OK);
}

/* Of the keys below n just those divisible by 'keep' are there (0: none). */
static void
check_unique(PmhTable *t, uint64_t n, uint64_t keep)
{
	PmhValues	values = {0};

	for (uint64_t key = 0; key < n; key++)
	{
		bool		there = keep != 0 && key % keep == 0;

		REQUIRE(pmh_lookup(t, key_hash(key), &values) == PMH_OK);
		CHECK(values.n == (there ? 1 : 0) && (!there || values.value[0] == key));
	}
	pmh_values_free(&values);
}

static void
test_unique(void)
{
	PmhTable   *t = create();
	PmhStats	stats;
	uint64_t	before;
	uint64_t	allocated;

	insert_unique(t, 0, UNIQUE_KEYS);
	CHECK(!shrink_all(t, PMH_DEFAULT_FILL));
	before = file_bytes(t);
	allocated = allocated_bytes();
	sweep_out(t, 10);
	CHECK(shrink_all(t, PMH_DEFAULT_FILL));
	check(t);
	check_unique(t, UNIQUE_KEYS, 10);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == UNIQUE_KEYS / 10);
	/* (Half of few keys in a table of their own: that one has segments as well.) */
	CHECK(stats.load_factor > (FULL_SIZE || !crowded ? 0.5 : 0.45));
	CHECK(stats.merges > 0);
	CHECK(stats.global_depth == stats.max_depth);
	CHECK(stats.file_bytes < before / (FULL_SIZE ? 5 : 2));
	CHECK(allocated_bytes() < allocated / (FULL_SIZE ? 5 : 2));
	CHECK(!shrink_all(t, PMH_DEFAULT_FILL));

	/* It grows again into what was given away. */
	for (uint64_t key = 0; key < UNIQUE_KEYS; key++)
	{
		if (key % 10 != 0)
			REQUIRE(pmh_insert(t, key_hash(key), key, false) == PMH_OK);
	}
	check(t);
	check_unique(t, UNIQUE_KEYS, 1);

	/* Drain it slowly, with a shrink now and then. */
	for (uint64_t keep = 2; keep <= 256; keep *= 2)
	{
		sweep_out(t, keep);
		(void) shrink_all(t, PMH_DEFAULT_FILL);
		check(t);
		check_unique(t, UNIQUE_KEYS, keep);
	}
	sweep_out(t, 0);
	(void) shrink_all(t, PMH_DEFAULT_FILL);
	check(t);
	CHECK(file_bytes(t) <= 1024 * 1024);
	insert_unique(t, 0, UNIQUE_KEYS / 10);
	check(t);
	check_unique(t, UNIQUE_KEYS / 10, 1);
	pmh_close(t);
}

/* Recovery cuts the file where it ends, and finds everything. */
static void
test_recovery(void)
{
	PmhTable   *t = create();
	struct stat st;

	insert_unique(t, 0, UNIQUE_KEYS);
	sweep_out(t, 10);
	CHECK(shrink_all(t, PMH_DEFAULT_FILL));
	t = reopen(t);
	check(t);
	check_unique(t, UNIQUE_KEYS, 10);
	REQUIRE(stat(path, &st) == 0);
	CHECK((uint64_t) st.st_size == file_bytes(t));
	insert_unique(t, UNIQUE_KEYS, 2 * UNIQUE_KEYS);
	check(t);
	pmh_close(t);
}

/* What a table is filled to by its maker's wish is no reason to shrink it. */
static void
test_fill(void)
{
	PmhTable   *t = create();
	PmhBulk    *bulk;
	PmhEntry   *entries = malloc(UNIQUE_KEYS * sizeof(PmhEntry));
	uint32_t	depth;

	REQUIRE(entries != NULL);
	for (uint64_t key = 0; key < UNIQUE_KEYS; key++)
		entries[key] = (PmhEntry) {key_hash(key), key};
	REQUIRE(pmh_bulk_begin(t, UNIQUE_KEYS, 30, &depth, &bulk) == PMH_OK);
	REQUIRE(pmh_bulk_partition(bulk, 0, 0, entries, UNIQUE_KEYS) == PMH_OK);
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK);
	free(entries);
	CHECK(!shrink_all(t, 30));
	check_unique(t, UNIQUE_KEYS, 1);
	CHECK(shrink_all(t, PMH_DEFAULT_FILL));
	check(t);
	check_unique(t, UNIQUE_KEYS, 1);
	pmh_close(t);
}

/* ---- lists ---- */

static uint64_t
values_of(uint64_t key)
{
	return key < LONG_KEYS ? LONG_VALUES : LIST_VALUES;
}

static void
insert_lists(PmhTable *t)
{
	for (uint64_t key = 0; key < LIST_KEYS; key++)
	{
		for (uint64_t i = 0; i < values_of(key); i++)
			REQUIRE(pmh_insert(t, key_hash(key), i, false) == PMH_OK);
	}
}

static void
check_lists(PmhTable *t, uint64_t keep)
{
	PmhValues	values = {0};

	for (uint64_t key = 0; key < LIST_KEYS; key++)
	{
		uint64_t	n = keep == 0 ? 0 : (values_of(key) + keep - 1) / keep;

		REQUIRE(pmh_lookup(t, key_hash(key), &values) == PMH_OK);
		CHECK(values.n == n);
		for (uint64_t i = 0; i < n && i < values.n; i++)
			CHECK(values.value[i] == i * keep);
	}
	pmh_values_free(&values);
}

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
	check(t);
	check_lists(t, 10);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.value_space_known);
	CHECK((double) stats.list_bytes < 20.0 * (double) stats.list_entries);
	/* (A second table has some blocks of its own, which few keys do not pay for.) */
	CHECK(stats.file_bytes < before / (FULL_SIZE ? 3 : 2) + (crowded ? 65536 : 0));
	CHECK(allocated_bytes() < allocated / (FULL_SIZE ? 3 : 2) + (crowded ? 65536 : 0));

	/* Segments with few keys beside those of the crowd: looked at again, in vain. */
	CHECK(!shrink_all(t, PMH_DEFAULT_FILL) || crowded);
	CHECK(file_bytes(t) == stats.file_bytes);

	/* The lists grow again. */
	for (uint64_t key = 0; key < LIST_KEYS; key++)
	{
		for (uint64_t i = 0; i < values_of(key); i++)
		{
			if (i % 10 != 0)
				REQUIRE(pmh_insert(t, key_hash(key), i, false) == PMH_OK);
		}
	}
	check(t);
	check_lists(t, 1);

	for (uint64_t keep = 3; keep < 100; keep *= 3)
	{
		sweep_out(t, keep);
		(void) shrink_all(t, PMH_DEFAULT_FILL);
		check(t);
		check_lists(t, keep);
	}
	t = reopen(t);
	check(t);
	check_lists(t, 81);
	sweep_out(t, 0);
	CHECK(shrink_all(t, PMH_DEFAULT_FILL) || !FULL_SIZE);
	check(t);
	CHECK(file_bytes(t) <= 1024 * 1024);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.value_bytes <= 256 * 1024);
	insert_lists(t);
	check(t);
	check_lists(t, 1);
	pmh_close(t);
}

/*
 * A shrink that goes no further than some steps.  'ends': it tells the table so.
 * False if it was through before.
 */
static bool
shrink_some_steps(PmhTable *t, unsigned steps, bool ends)
{
	PmhShrink	shrink;
	PmhResult	result = pmh_shrink_begin(t, PMH_DEFAULT_FILL, &shrink);

	for (unsigned i = 0; i < steps && result == PMH_OK; i++)
		result = pmh_shrink_step(t, &shrink);
	pmh_shrink_end(ends ? t : NULL, &shrink);
	REQUIRE(result == PMH_OK || result == PMH_DONE);
	return result == PMH_OK;
}

/* A shrink that is given up at any step leaves a sound table. */
static void
test_given_up(void)
{
	PmhTable   *t = create();

	insert_lists(t);
	insert_unique(t, LIST_KEYS, LIST_KEYS + UNIQUE_KEYS / 4);
	sweep_out(t, 20);
	for (unsigned steps = 1; shrink_some_steps(t, steps, true); steps += 1 + steps / 2)
	{
		check(t);
		check_lists(t, 20);
	}
	check(t);
	check_lists(t, 20);
	pmh_close(t);
}

/* As if the process that shrinks were gone, with its limit and map in force. */
static void
test_orphaned(void)
{
	PmhTable   *t = create();

	insert_lists(t);
	sweep_out(t, 20);
	for (unsigned steps = 1; shrink_some_steps(t, steps, false); steps += 1 + steps / 2)
	{
		check(t);
		for (uint64_t i = 0; i < 50; i++)
			REQUIRE(pmh_insert(t, key_hash(steps), 20 * LONG_VALUES + i * 2 + 1,
							   false) == PMH_OK);
		for (uint64_t i = 0; i < 50; i++)
			CHECK(pmh_delete(t, key_hash(steps), 20 * LONG_VALUES + i * 2 + 1) == PMH_OK);
		check(t);
		check_lists(t, 20);
	}
	sweep_out(t, 20);
	check(t);
	check_lists(t, 20);
	pmh_close(t);
}

/* A region is taken off the list in any order: first, middle, last. */
static void
test_regions(void)
{
	PmhTable   *t = create();
	uint64_t	lists[4];
	uint64_t	n = 3;

	for (unsigned i = 0; i < 4; i++)
	{
		lists[i] = n;
		n *= 4;
	}
	for (unsigned i = 0; i < 4; i++)
	{
		for (uint64_t key = 0; key < lists[i] * 10; key++)
		{
			for (uint64_t v = 0; v < 100; v++)
				REQUIRE(pmh_insert(t, fixture_hash(i * 100000 + key), i, false) == PMH_OK ||
						v == 0);
		}
	}
	for (unsigned gone = 0; gone < 4; gone++)
	{
		PmhSweep	sweep;
		uint8_t    *dead = NULL;
		size_t		removed;

		REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
		while (pmh_sweep_next(t, &sweep) == PMH_OK)
		{
			dead = realloc(dead, sweep.n);
			REQUIRE(dead != NULL);
			for (size_t i = 0; i < sweep.n; i++)
				dead[i] = sweep.entries[i].value == (gone + 1) % 4;
			REQUIRE(pmh_sweep_remove(t, &sweep, dead, &removed) == PMH_OK);
		}
		pmh_sweep_end(t, &sweep);
		free(dead);
		(void) shrink_all(t, PMH_DEFAULT_FILL);
		check(t);
		t = reopen(t);
		check(t);
	}
	pmh_close(t);
}

/* A crash between the two stores that take a region off the list. */
static void
test_region_log(void)
{
	PmhTable   *t = create();
	PmhLive    *live;
	PmhRegion  *before;
	PmhRegion  *region;
	uint64_t	block;
	uint64_t	next;

	insert_lists(t);
	live = pmh_live(t);
	before = pmh_at(t, live->value_region << t->block_shift);
	block = before->next;
	REQUIRE(block != 0);
	region = pmh_at(t, block << t->block_shift);
	next = region->next;

	/* Nothing points to it any more but its neighbour, and the log. */
	sweep_out(t, 0);
	live->region_unlink = live->value_region << PMH_UNLINK_BEFORE_SHIFT | block;
	before->next = next;		/* and not its checksum */
	t = reopen(t);
	live = pmh_live(t);
	before = pmh_at(t, live->value_region << t->block_shift);
	CHECK(live->region_unlink == 0);
	CHECK(before->next == next);
	check(t);
	sweep_out(t, 0);
	check(t);
	insert_lists(t);
	check_lists(t, 1);
	check(t);

	/* A log that cannot be is damage. */
	{
		PmhEnv		env = fixture_env(++instance);
		PmhError	error;

		pmh_live(t)->region_unlink = UINT64_C(5) << PMH_UNLINK_BEFORE_SHIFT | 1;
		pmh_close(t);
		CHECK(pmh_open(path, &env, &t, NULL, &error) == PMH_ERR_CORRUPT);
	}
}

/* ---- what is under way when a shrink comes by ---- */

/* A sweep goes on after segments have been merged past and before it. */
static void
test_sweep_and_merge(void)
{
	PmhTable   *t = create();
	uint8_t    *seen = calloc(UNIQUE_KEYS, 1);
	uint8_t    *dead = NULL;
	uint64_t	removed_all = 0;
	unsigned	steps = 0;
	PmhSweep	sweep;

	REQUIRE(seen != NULL);
	insert_unique(t, 0, UNIQUE_KEYS);
	sweep_out(t, 16);
	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	while (pmh_sweep_next(t, &sweep) == PMH_OK)
	{
		size_t		removed;

		/* In the middle of a step, where left buddies have been seen. */
		if (++steps == 7)
			CHECK(shrink_all(t, PMH_DEFAULT_FILL));
		dead = realloc(dead, sweep.n);
		REQUIRE(dead != NULL);
		for (size_t i = 0; i < sweep.n; i++)
		{
			seen[sweep.entries[i].value]++;
			dead[i] = sweep.entries[i].value % 32 != 0;
		}
		REQUIRE(pmh_sweep_remove(t, &sweep, dead, &removed) == PMH_OK);
		removed_all += removed;
	}
	pmh_sweep_end(t, &sweep);
	CHECK(steps > 7);
	for (uint64_t key = 0; key < UNIQUE_KEYS; key++)
		CHECK(seen[key] == (key % 16 == 0));
	CHECK(removed_all == (UNIQUE_KEYS + 15) / 16 - (UNIQUE_KEYS + 31) / 32);
	check(t);
	check_unique(t, UNIQUE_KEYS, 32);
	free(seen);
	free(dead);
	pmh_close(t);
}

/* Rewrite one buffer of a list; returns where its values are now. */
static uint64_t
rewrite_buffer(PmhTable *t, uint64_t hash, uint64_t payload)
{
	PmhListStretch	run = {.first = payload, .values = pmh_buffer_count(t, payload),
		.bytes = pmh_class_bytes(pmh_pointer_class(payload)),
	.after = pmh_buffer_next(t, payload)};
	PmhListSlot at;
	PmhPlace	place;
	uint64_t	made = 0;
	PmhResult	result;

	do
	{
		REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
		REQUIRE(pmh_segment_find_list(t, &place, hash, &at));
		run.before = 0;
		for (uint64_t p = at.payload; p != payload; p = pmh_buffer_next(t, p))
			run.before = p;
		result = pmh_list_rewrite(t, &place, &at, hash, &run, &made);
		pmh_segment_unlock(&place);
	} while (result == PMH_NEED && pmh_provide(t) == PMH_OK);
	REQUIRE(result == PMH_OK);
	return made;
}

/*
 * A cursor stands in a buffer.  The list is rewritten into another one and back
 * again, while values in front are taken out: what the cursor has not read yet
 * is before the line where it stands.
 */
static void
test_cursor_and_rewrite(void)
{
	PmhTable   *t = create();
	uint64_t	hash = fixture_hash(1);
	uint8_t    *seen = calloc(LONG_VALUES, 1);
	uint64_t	given[1000];	/* of the buffer where the cursor stands */
	size_t		ngiven = 0;
	PmhCursor	cursor = {0};
	uint64_t	buffer = 0;
	uint64_t	other;
	PmhResult	result;

	REQUIRE(seen != NULL);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
		REQUIRE(pmh_insert(t, hash, i, false) == PMH_OK);
	pmh_cursor_open(t, &cursor, hash);
	do
	{
		REQUIRE(pmh_cursor_next(t, &cursor, 50) == PMH_OK);
		if (cursor.chunk != buffer)
			ngiven = 0;
		buffer = cursor.chunk;
		for (size_t i = 0; i < cursor.batch.n; i++)
		{
			seen[cursor.batch.value[i]]++;
			if (ngiven < 1000)
				given[ngiven++] = cursor.batch.value[i];
		}
	} while (cursor.line < 30 || pmh_buffer_next(t, buffer) == 0 ||
			 pmh_buffer_count(t, buffer) < pmh_class_capacity(pmh_pointer_class(buffer)));

	other = rewrite_buffer(t, hash, buffer);
	CHECK(other != buffer);
	for (size_t i = 0; i < ngiven; i += 3)
		REQUIRE(pmh_delete(t, hash, given[i]) == PMH_OK);
	REQUIRE(rewrite_buffer(t, hash, other) == buffer);

	while ((result = pmh_cursor_next(t, &cursor, 50)) == PMH_OK)
	{
		for (size_t i = 0; i < cursor.batch.n; i++)
			seen[cursor.batch.value[i]]++;
	}
	CHECK(result == PMH_DONE);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
		CHECK(seen[i] == 1);
	pmh_cursor_free(&cursor);
	check(t);
	free(seen);
	pmh_close(t);
}

/* The same under a step of a sweep: what it judges dead goes nevertheless. */
static void
test_sweep_and_rewrite(void)
{
	PmhTable   *t = create();
	uint64_t	hash = fixture_hash(1);
	uint64_t	n = 500;
	PmhListSlot at;
	PmhPlace	place;
	PmhSweep	sweep;
	PmhValues	values = {0};
	uint8_t    *dead;
	uint64_t	other;
	size_t		removed;

	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_insert(t, hash, i, false) == PMH_OK);
	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	REQUIRE(pmh_sweep_next(t, &sweep) == PMH_OK);
	REQUIRE(sweep.n == n);
	REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
	REQUIRE(pmh_segment_find_list(t, &place, hash, &at));
	pmh_segment_unlock(&place);

	other = rewrite_buffer(t, hash, at.payload);
	for (uint64_t i = 0; i < 7; i++)
		REQUIRE(pmh_delete(t, hash, i) == PMH_OK);
	REQUIRE(rewrite_buffer(t, hash, other) == at.payload);

	dead = calloc(n, 1);
	REQUIRE(dead != NULL);
	for (size_t i = 0; i < n; i++)
		dead[i] = sweep.entries[i].value % 2 == 0;
	REQUIRE(pmh_sweep_remove(t, &sweep, dead, &removed) == PMH_OK);
	CHECK(removed == n / 2 - 4);
	pmh_sweep_end(t, &sweep);
	free(dead);
	REQUIRE(pmh_lookup(t, hash, &values) == PMH_OK);
	CHECK(values.n == n / 2 - 3);
	for (size_t i = 0; i < values.n; i++)
		CHECK(values.value[i] % 2 == 1);
	pmh_values_free(&values);
	check(t);
	pmh_close(t);
}

/* The first buffer of the list of a key. */
static uint64_t
list_head(PmhTable *t, uint64_t hash)
{
	PmhListSlot at;
	PmhPlace	place;

	REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
	REQUIRE(pmh_segment_find_list(t, &place, hash, &at));
	pmh_segment_unlock(&place);
	return at.payload;
}

/* A buffer further on than the next one, full and as large as 'payload', or 0. */
static uint64_t
twin_behind(PmhTable *t, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint64_t	p = pmh_buffer_next(t, payload);

	if (p != 0)
		p = pmh_buffer_next(t, p);
	while (p != 0 && (pmh_pointer_class(p) != class ||
					  pmh_buffer_count(t, p) < pmh_class_capacity(class)))
		p = pmh_buffer_next(t, p);
	return p;
}

/*
 * A walk goes along a list, and has let go of the segment after a buffer.
 * This is rewritten into another one, and a later part of the list into its old
 * place: what lies in between has not been seen.
 */
static void
test_walk_and_rewrite(void)
{
	PmhTable   *t = create();
	uint64_t	hash = fixture_hash(1);
	PmhListWalk walk = {0};
	uint64_t	head;
	uint64_t	payload;
	uint64_t	twin;

	for (uint64_t i = 0; i < LONG_VALUES; i++)
		REQUIRE(pmh_insert(t, hash, i, false) == PMH_OK);
	head = list_head(t, hash);
	walk.before = pmh_buffer_next(t, head);
	while (walk.before != 0 && twin_behind(t, walk.before) == 0)
		walk.before = pmh_buffer_next(t, walk.before);
	REQUIRE(walk.before != 0);
	pmh_list_pause(t, &walk);
	REQUIRE(pmh_list_resume(t, hash, head, &walk, &payload) == PMH_OK);
	CHECK(payload == pmh_buffer_next(t, walk.before));

	/* What others do to the buffer does not matter as long as it stays there. */
	pmh_buffer_bump(t, pmh_pointer_offset(walk.before));
	CHECK(pmh_list_resume(t, hash, head, &walk, &payload) == PMH_RETRY);
	REQUIRE(pmh_list_search(t, PMH_PRIMARY, hash, &walk) == PMH_OK && walk.before != 0);
	REQUIRE(pmh_list_resume(t, hash, head, &walk, &payload) == PMH_OK);
	CHECK(payload == pmh_buffer_next(t, walk.before));

	pmh_list_pause(t, &walk);
	twin = twin_behind(t, walk.before);
	CHECK(rewrite_buffer(t, hash, walk.before) != walk.before);
	REQUIRE(rewrite_buffer(t, hash, twin) == walk.before);
	CHECK(pmh_list_resume(t, hash, head, &walk, &payload) == PMH_RETRY);
	REQUIRE(pmh_list_search(t, PMH_PRIMARY, hash, &walk) == PMH_OK);
	REQUIRE(pmh_list_resume(t, hash, head, &walk, &payload) == PMH_OK);
	CHECK(walk.before == 0 && payload == head);
	check(t);
	pmh_close(t);
}

/* The buffer of a list that a removal reads in its n-th step (the first: 1). */
static uint64_t
buffer_of_step(PmhTable *t, uint64_t head, unsigned n)
{
	uint32_t	lines = 0;
	uint64_t	p = head;

	/* The first step sees to the first lines while the segment is locked. */
	while (p != 0 && (lines += pmh_class_lines(pmh_pointer_class(p))) <= PMH_LOCKED_LINES)
		p = pmh_buffer_next(t, p);
	for (unsigned i = 2; p != 0 && i < n; i++)
		p = pmh_buffer_next(t, p);
	return p;
}

/*
 * The same under a removal in steps: it is about to read a buffer when this is
 * rewritten, and a later one into its place.  All that was handed in goes.
 */
static void
test_removal_and_rewrite(void)
{
	PmhTable   *t = create();
	uint64_t	hash = fixture_hash(1);
	PmhEntry   *entry = malloc(LONG_VALUES * sizeof(*entry));
	PmhRemoval	removal;
	uint64_t	head;
	uint64_t	payload;
	uint64_t	twin;
	size_t		n = 0;
	unsigned	steps = 1;
	PmhResult	result;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
	{
		REQUIRE(pmh_insert(t, hash, i, false) == PMH_OK);
		if (i % 3 == 0)
			entry[n++] = (PmhEntry) {hash, i};
	}
	head = list_head(t, hash);
	REQUIRE(pmh_removal_begin(t, entry, n, true, &removal) == PMH_OK);
	REQUIRE(pmh_removal_step(t, &removal, 1) == PMH_OK);
	payload = buffer_of_step(t, head, steps + 1);
	while (payload != 0 && twin_behind(t, payload) == 0)
	{
		REQUIRE(pmh_removal_step(t, &removal, 1) == PMH_OK);
		payload = buffer_of_step(t, head, ++steps + 1);
	}
	REQUIRE(payload != 0 && removal.removed > 0 && removal.left > 0);
	twin = twin_behind(t, payload);
	CHECK(rewrite_buffer(t, hash, payload) != payload);
	REQUIRE(rewrite_buffer(t, hash, twin) == payload);
	while ((result = pmh_removal_step(t, &removal, 1)) == PMH_OK)
		;
	CHECK(result == PMH_DONE && removal.removed == n && removal.left == 0);
	pmh_removal_end(&removal);
	free(entry);
	check(t);
	pmh_close(t);
}

/*
 * The directory is folded while a writer has a segment that he has found in the
 * larger one: he can go on, and asks for a doubling if he needs one.
 */
static void
test_fold_under_writer(void)
{
	PmhTable   *t = create();
	PmhPlace	place;
	uint64_t	deeper;
	uint32_t	depth;

	insert_unique(t, 0, UNIQUE_KEYS / 10);
	depth = pmh_dirword_depth(pmh_live(t)->dirword);
	REQUIRE(pmh_directory_double(t, depth) == PMH_OK);
	REQUIRE(pmh_directory_double(t, depth + 1) == PMH_OK);

	REQUIRE(pmh_segment_lock(t, fixture_hash(5), &place) == PMH_OK);
	REQUIRE(pmh_directory_fold(t, UINT64_MAX) == PMH_OK);
	CHECK(pmh_dirword_depth(pmh_live(t)->dirword) == depth);
	CHECK(pmh_directory_strategy(t, &place, PMH_STASH) == PMH_OK);
	deeper = (place.elem & ~(UINT64_C(31) << PMH_ELEM_DEPTH_SHIFT)) |
		(uint64_t) (depth + 1) << PMH_ELEM_DEPTH_SHIFT;
	CHECK(pmh_directory_publish(t, &place, deeper, deeper) == PMH_NEED);
	CHECK(t->need.doubling && t->need.doubling_depth == depth);
	REQUIRE(pmh_segment_move(t, &place) == PMH_OK);
	pmh_segment_unlock(&place);

	CHECK(pmh_provide(t) == PMH_OK);
	CHECK(pmh_dirword_depth(pmh_live(t)->dirword) == depth + 1);
	check(t);
	check_unique(t, UNIQUE_KEYS / 10, 1);
	pmh_close(t);
}

/* ---- deleting in groups ---- */

static void
test_drain(void)
{
	PmhTable   *t = create();
	PmhEntry   *entries = malloc(LONG_VALUES * sizeof(PmhEntry));
	PmhValues	values = {0};
	uint64_t	seed = 7;
	size_t		removed;
	size_t		n = 0;

	REQUIRE(entries != NULL);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
		REQUIRE(pmh_insert(t, fixture_hash(1), i, false) == PMH_OK);

	for (uint64_t i = 0; i < LONG_VALUES; i++)
	{
		if (i % 4 != 1)
			entries[n++] = (PmhEntry) {fixture_hash(1), i};
	}
	for (size_t i = n; i-- > 1;)
	{
		size_t		j = fixture_random(&seed) % (i + 1);
		PmhEntry	e = entries[i];

		entries[i] = entries[j];
		entries[j] = e;
	}
	/* In groups, with values among them that are not there (any more). */
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
	check(t);

	/* A pair that is there twice, and is to go once, among others. */
	for (uint64_t i = 0; i < 2; i++)
		REQUIRE(pmh_insert(t, fixture_hash(1), LONG_VALUES, false) == PMH_OK);
	for (n = 0; n < 4; n++)
		entries[n] = (PmhEntry) {fixture_hash(1), LONG_VALUES + n};
	REQUIRE(pmh_delete_group(t, entries, n, &removed) == PMH_OK);
	CHECK(removed == 1);
	REQUIRE(pmh_lookup_repeats(t, fixture_hash(1), &values) == PMH_OK);
	CHECK(values.n == LONG_VALUES / 4 + 1);

	/* The same, but it is to go twice. */
	REQUIRE(pmh_insert(t, fixture_hash(1), LONG_VALUES, false) == PMH_OK);
	for (n = 0; n < 4; n++)
		entries[n] = (PmhEntry) {fixture_hash(1), LONG_VALUES + n / 2};
	REQUIRE(pmh_delete_group(t, entries, n, &removed) == PMH_OK);
	CHECK(removed == 2);
	REQUIRE(pmh_lookup(t, fixture_hash(1), &values) == PMH_OK);
	CHECK(values.n > 0 && values.value[values.n - 1] < LONG_VALUES);

	/* Plain entries, short lists and long ones in one call. */
	n = 0;
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
	check(t);
	pmh_values_free(&values);
	free(entries);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("shrink");
	for (int round = 0; round < 2; round++)
	{
		force_pmem = round == 1;
		for (int keys = 0; keys < 2; keys++)
		{
			crowded = keys == 1;
			TEST(test_unique());
			TEST(test_recovery());
			TEST(test_lists());
			TEST(test_given_up());
			TEST(test_orphaned());
			TEST(test_sweep_and_merge());
		}
		crowded = false;
		TEST(test_regions());
		TEST(test_region_log());
		TEST(test_cursor_and_rewrite());
		TEST(test_sweep_and_rewrite());
		TEST(test_walk_and_rewrite());
		TEST(test_removal_and_rewrite());
		TEST(test_fold_under_writer());
		TEST(test_drain());
	}
	force_pmem = false;
	TEST(test_fill());
	unlink(path);
	return unit_done("shrink");
}
