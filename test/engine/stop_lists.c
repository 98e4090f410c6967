/*-------------------------------------------------------------------------
 *
 * stop_lists.c
 *	  Readers beside others that do what is least convenient: what is in a slot of a list
 *	  gets another buffer, and the one that it had before; the index is replaced; the file
 *	  is punched between a look at it and what follows.  Nothing is missed, and nothing sound is
 *	  called damaged.
 *
 * The engine is compiled with PMH_STOP_POINTS here.  At a named point of one
 * handle others act through a second one, once.  stop_between searches for such
 * things at random; these are the ones that were found.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "pm.h"
#include "rewritten.h"
#include "segment.h"
#include "space.h"
#include "stop_point.h"
#include "sweeps.h"
#include "table.h"
#include "unit.h"

#define LIST_VALUES		UINT64_C(200000)
#define KEYS			UINT64_C(60000)
#define STAYING			50		/* one key in so many stays */

static const char *path;
static PmhTable *others;
static const char *act_at;		/* NULL: nowhere */
static unsigned act_after;		/* when it has been passed so often */
static void (*act) (void);
static unsigned acted;

void
pmh_stop_point(const char *name)
{
	if (act_at == NULL || strcmp(act_at, name) != 0 || act_after-- > 0)
		return;
	act_at = NULL;
	act();
	acted++;
}

static void
close_sound(void)
{
	CHECK(pmh_check(others, true, fixture_report, NULL, NULL) == PMH_OK);
	pmh_close(others);
}

/* Load the values 0 .. n - 1 of one key. */
static void
load_list(uint64_t hash, uint64_t n)
{
	PmhEntry   *entry = malloc(n * sizeof(*entry));
	uint32_t	depth;
	PmhBulk    *bulk;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < n; i++)
		entry[i] = (PmhEntry) {hash, i};
	REQUIRE(pmh_bulk_begin(others, n, 90, &depth, &bulk) == PMH_OK);
	REQUIRE(pmh_bulk_partition(bulk, 0, 0, entry, n) == PMH_OK);
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK);
	free(entry);
}

/* ---- buffers of a list are replaced ---- */

#define LAST_VALUES		UINT64_C(3000)	/* those that slots below some have */
#define STAYS			7		/* one value in so many stays when a list becomes thin */

static uint64_t list_hash;
static uint64_t added;

/*
 * Each buffer is rewritten, and once more, so that many are where others were; so are the
 * indexes.
 */
static void
rewrite_lists(void)
{
	PmhListPath path;

	for (unsigned i = 0; i < 2; i++)
	{
		for (uint64_t below = UINT64_MAX; below > 0; below = path.number)
		{
			(void) slot_below(others, list_hash, below, 1, -1);
			path = slot_below(others, list_hash, below, 0, -1);
		}
		(void) slot_below(others, list_hash, 1, 2, -1);
	}
}

/* A removal of most values, and a shrink: smaller buffers, and a smaller index. */
static void
thin_out(void)
{
	PmhEntry   *entry = malloc(LIST_VALUES * sizeof(*entry));
	size_t		n = 0;
	size_t		removed;
	PmhListPath path;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < LIST_VALUES; i++)
	{
		if (i % STAYS != 0 && i > LAST_VALUES)
			entry[n++] = (PmhEntry) {list_hash, i};
	}
	REQUIRE(pmh_delete_group(others, entry, n, &removed) == PMH_OK && removed == n);
	free(entry);
	for (uint64_t below = UINT64_MAX; below > 0; below = path.number)
	{
		uint32_t	class;

		path = slot_below(others, list_hash, below, 0, 0);
		class = pmh_buffer_class_for(pmh_buffer_count(others, path.payload[0]));
		(void) slot_below(others, list_hash, below, 0, (int) class);
	}
}

/* The index becomes larger. */
static void
add_to_list(void)
{
	for (uint64_t i = 0; i < LIST_VALUES / 2; i++, added++)
		REQUIRE(pmh_insert(others, list_hash, LIST_VALUES + added, false) == PMH_OK);
}

/* Each value that stays comes once, however small the batches are. */
static void
read_all(PmhTable *t, size_t want, uint64_t stays)
{
	uint8_t    *times = calloc(LIST_VALUES, 1);
	uint64_t	wrong = 0;
	PmhCursor	cursor = {0};
	PmhResult	result;

	REQUIRE(times != NULL);
	pmh_cursor_open(t, &cursor, list_hash);
	while ((result = pmh_cursor_next(t, &cursor, want)) == PMH_OK)
	{
		for (size_t i = 0; i < cursor.batch.n; i++)
		{
			if (cursor.batch.value[i] < LIST_VALUES)
				times[cursor.batch.value[i]]++;
		}
	}
	if (!CHECK(result == PMH_DONE))
		fprintf(stderr, "  %s\n", pmh_error(t)->detail);
	for (uint64_t i = 0; i < LIST_VALUES; i++)
		wrong += i % stays == 0 || i <= LAST_VALUES ? times[i] != 1 : times[i] > 1;
	CHECK(wrong == 0);
	pmh_cursor_free(&cursor);
	free(times);
}

/* Others act at the n-th time that a point is met, for some n. */
static void
read_beside(void (*what) (void), const char *point)
{
	for (unsigned nth = 1; nth <= 250; nth += nth < 4 ? 1 : 61)
	{
		for (size_t want = 40; want <= 5000; want *= 5)
		{
			PmhTable   *t;

			list_hash = fixture_hash(7);
			others = fixture_create(path);
			load_list(list_hash, LIST_VALUES);
			t = fixture_open(path, 1);
			act = what;
			acted = 0;
			act_at = point;
			act_after = nth - 1;
			read_all(t, want, what == thin_out ? STAYS : 1);
			CHECK(acted == 1 || nth > 4);
			act_at = NULL;
			pmh_close(t);
			close_sound();
		}
	}
}

/* A removal takes out what it is to, and nothing else. */
static void
drain_beside(void (*what) (void), const char *point)
{
	for (unsigned nth = 1; nth <= 100; nth += nth < 4 ? 1 : 31)
	{
		PmhEntry   *entry = malloc(LIST_VALUES * sizeof(*entry));
		PmhTable   *t;
		PmhStats	stats;
		size_t		n = 0;
		size_t		removed;

		REQUIRE(entry != NULL);
		list_hash = fixture_hash(7);
		added = 0;
		others = fixture_create(path);
		load_list(list_hash, LIST_VALUES);
		t = fixture_open(path, 1);
		for (uint64_t i = 0; i < LIST_VALUES; i += STAYS)
			entry[n++] = (PmhEntry) {list_hash, i};
		act = what;
		acted = 0;
		act_at = point;
		act_after = nth - 1;
		CHECK(pmh_delete_group(t, entry, n, &removed) == PMH_OK && removed == n);
		CHECK(acted == 1 || nth > 4);
		act_at = NULL;
		CHECK(pmh_stats(t, &stats) == PMH_OK && stats.entries == LIST_VALUES - n + added);
		pmh_close(t);
		close_sound();
		free(entry);
	}
}

static uint64_t
loaded_of(const PmhCursor *cursor, uint64_t loaded)
{
	uint64_t	n = 0;

	for (size_t i = 0; i < cursor->batch.n; i++)
		n += cursor->batch.value[i] < loaded;
	return n;
}

/* A cursor goes on while the list that it reads gets an index of indexes, and one of these. */
static void
levels(void)
{
	const uint64_t loaded = 5000;
	PmhCursor	cursor = {0};
	uint64_t	n = loaded;
	uint64_t	found = 0;
	PmhStats	stats;

	list_hash = fixture_hash(7);
	others = fixture_create(path);
	load_list(list_hash, loaded);
	CHECK(pmh_pointer_level(slot_below(others, list_hash, 1, 0, 0).head) == 1);
	pmh_cursor_open(others, &cursor, list_hash);
	for (uint32_t level = 1; level <= PMH_MAX_LEVEL; level++)
	{
		REQUIRE(pmh_cursor_next(others, &cursor, 100) == PMH_OK);
		found += loaded_of(&cursor, loaded);
		while (pmh_pointer_level(slot_below(others, list_hash, 1, 0, 0).head) <= level &&
			   n < UINT64_C(500000) * level)
			REQUIRE(pmh_insert(others, list_hash, n++, false) == PMH_OK);
	}
	CHECK(pmh_pointer_level(slot_below(others, list_hash, 1, 0, 0).head) == PMH_MAX_LEVEL);
	while (pmh_cursor_next(others, &cursor, 1000) == PMH_OK)
		found += loaded_of(&cursor, loaded);
	CHECK(found == loaded);
	CHECK(pmh_stats(others, &stats) == PMH_OK && stats.entries == n);
	pmh_cursor_free(&cursor);
	close_sound();
}

/* ---- the file is punched ---- */

static uint64_t
blocks(void)
{
	return pmh_blocks_with_space(others);
}

static void
shrink(uint64_t before)
{
	PmhShrink	shrink;
	PmhResult	result;

	REQUIRE(pmh_shrink_begin(others, PMH_DEFAULT_FILL, &shrink) == PMH_OK);
	while ((result = pmh_shrink_step(others, &shrink)) == PMH_OK)
		;
	REQUIRE(result == PMH_DONE);
	pmh_shrink_end(&shrink);
	REQUIRE(blocks() < before / 3);
}

/* Most of it goes, as VACUUM does it. */
static void
file_is_punched(void)
{
	PmhEntry   *entry = malloc(KEYS * sizeof(*entry));
	uint64_t	before = blocks();
	size_t		n = 0;
	size_t		removed;

	REQUIRE(entry != NULL);
	for (uint64_t key = 0; key < KEYS; key++)
	{
		if (key % STAYING != 0)
			entry[n++] = (PmhEntry) {fixture_hash(key), key};
	}
	REQUIRE(pmh_delete_group(others, entry, n, &removed) == PMH_OK);
	free(entry);
	shrink(before);
}

/* Keys, in a file of which 'short_one' maps the first part only. */
static PmhTable *
make_long_file(bool deep_directory)
{
	PmhTable   *short_one;

	others = fixture_create(path);
	for (uint64_t key = 0; key < KEYS / 10; key++)
		REQUIRE(pmh_insert(others, fixture_hash(key), key, false) == PMH_OK);
	short_one = fixture_open(path, 1);
	for (uint64_t key = KEYS / 10; key < KEYS; key++)
		REQUIRE(pmh_insert(others, fixture_hash(key), key, false) == PMH_OK);
	while (deep_directory && pmh_dirword_depth(pm_load(&pmh_live(others)->dirword)) < PMH_SMALL_DIR_DEPTH + 4)
		REQUIRE(pmh_directory_double(others, pmh_dirword_depth(pm_load(&pmh_live(others)->dirword))) == PMH_OK);
	return short_one;
}

typedef PmhResult (*Operation) (PmhTable *t);

static PmhResult
look_all_up(PmhTable *t)
{
	PmhValues	values = {0};
	PmhResult	result = PMH_OK;

	for (uint64_t key = 0; key < KEYS && result == PMH_OK; key += STAYING)
	{
		result = pmh_lookup(t, fixture_hash(key), &values);
		CHECK(result != PMH_OK || (values.n == 1 && values.value[0] == key));
	}
	pmh_values_free(&values);
	return result;
}

static PmhResult
insert_some(PmhTable *t)
{
	PmhResult	result = PMH_OK;

	for (uint64_t key = KEYS; key < KEYS + 2000 && result == PMH_OK; key++)
		result = pmh_insert(t, fixture_hash(key), key, false);
	return result;
}

/* The directory is doubled; other words are stored in its old place, which name no part of the file. */
static void
directory_is_reused(void)
{
	uint64_t	dirword = pm_load(&pmh_live(others)->dirword);
	uint64_t   *word = pmh_at(others, pmh_dirword_offset(dirword));
	uint32_t	depth = pmh_dirword_depth(dirword);

	REQUIRE(pmh_directory_double(others, depth) == PMH_OK);
	for (uint64_t i = 0; i < pmh_directory_elements(depth); i++)
		pm_store64(&word[i], pmh_make_elem(PMH_MAX_BLOCKS - 1, 0, PMH_UNITS_PER_BLOCK, 0, PMH_SINGLE));
}

static void
operation_and_others(Operation operation, const char *point, bool deep_directory, void (*what) (void))
{
	PmhTable   *t = make_long_file(deep_directory);
	PmhResult	result;

	act = what;
	acted = 0;
	act_at = point;
	act_after = 0;
	result = operation(t);
	if (!CHECK(result == PMH_OK))
		fprintf(stderr, "  punched at %s: %s\n", point, pmh_error(t)->detail);
	CHECK(acted == 1);
	act_at = NULL;
	CHECK(look_all_up(t) == PMH_OK);
	pmh_close(t);
	close_sound();
}

/* The list of a key lies in the part that a cursor does not map. */
static uint64_t gone_hash;

static void
list_goes(void)
{
	PmhEntry   *entry = malloc(LIST_VALUES * sizeof(*entry));
	size_t		n = 0;
	size_t		removed;

	REQUIRE(entry != NULL);
	for (uint64_t i = 10; i < LIST_VALUES; i++)
		entry[n++] = (PmhEntry) {gone_hash, i};
	REQUIRE(pmh_delete_group(others, entry, n, &removed) == PMH_OK && removed == n);
	free(entry);
}

static void
list_is_punched(void)
{
	uint64_t	before = blocks();

	list_goes();
	shrink(before);
}

static void
list_and_keys_are_punched(void)
{
	list_goes();
	file_is_punched();
}

static void
cursor_and_holes(const char *point, void (*punch) (void), uint64_t keys)
{
	uint64_t	found = 0;
	PmhTable   *t;
	PmhCursor	cursor = {0};
	PmhResult	result;

	others = fixture_create(path);
	for (uint64_t key = 0; key < keys; key++)
		REQUIRE(pmh_insert(others, fixture_hash(key), key, false) == PMH_OK);
	t = fixture_open(path, 1);
	gone_hash = fixture_hash(KEYS);
	for (uint64_t i = 0; i < LIST_VALUES; i++)
		REQUIRE(pmh_insert(others, gone_hash, i, false) == PMH_OK);
	act = punch;
	acted = 0;
	act_at = point;
	act_after = 0;
	pmh_cursor_open(t, &cursor, gone_hash);
	while ((result = pmh_cursor_next(t, &cursor, 100)) == PMH_OK)
	{
		for (size_t i = 0; i < cursor.batch.n; i++)
			found += cursor.batch.value[i] < 10;
	}
	if (!CHECK(result == PMH_DONE))
		fprintf(stderr, "  list punched at %s: %s\n", point, pmh_error(t)->detail);
	CHECK(acted == 1 && found == 10);
	act_at = NULL;
	pmh_cursor_free(&cursor);
	pmh_close(t);
	close_sound();
}

int
main(void)
{
	path = fixture_path("stop_lists");
	TEST(read_beside(rewrite_lists, "list_before_span"));
	TEST(read_beside(rewrite_lists, "list_before_reading"));
	TEST(read_beside(rewrite_lists, "list_before_validation"));
	TEST(read_beside(rewrite_lists, "list_before_step"));
	TEST(read_beside(thin_out, "list_before_span"));
	TEST(read_beside(thin_out, "list_before_reading"));
	TEST(read_beside(thin_out, "list_before_validation"));
	TEST(read_beside(thin_out, "list_before_step"));
	TEST(drain_beside(rewrite_lists, "drain_before_lock"));
	TEST(drain_beside(rewrite_lists, "list_before_validation"));
	TEST(drain_beside(rewrite_lists, "list_before_step"));
	TEST(drain_beside(add_to_list, "drain_before_lock"));
	TEST(levels());
	TEST(operation_and_others(look_all_up, "provide_before_map", false, file_is_punched));
	TEST(operation_and_others(look_all_up, "outside_before_span", false, file_is_punched));
	TEST(operation_and_others(insert_some, "provide_before_map", false, file_is_punched));
	TEST(operation_and_others(insert_some, "outside_before_span", false, file_is_punched));
	TEST(operation_and_others(sweep_through_reading, "provide_before_map", false, file_is_punched));
	TEST(operation_and_others(sweep_through_reading, "outside_before_span", false, file_is_punched));
	TEST(operation_and_others(fixture_check, "check_before_blocks", true, file_is_punched));
	TEST(operation_and_others(fixture_check, "check_before_elements", false, file_is_punched));
	TEST(operation_and_others(look_all_up, "locate_before_element", true, directory_is_reused));
	TEST(cursor_and_holes("provide_before_map", list_and_keys_are_punched, KEYS / 2));
	TEST(cursor_and_holes("probe_between_checks", list_is_punched, 0));
	unlink(path);
	return unit_done("stop_lists");
}
