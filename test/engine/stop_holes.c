/*-------------------------------------------------------------------------
 *
 * stop_holes.c
 *	  Readers beside others that punch the file, or move its directory, between a look at
 *	  it and what follows.  Nothing is missed, and nothing sound is called damaged.
 *
 * The engine is compiled with PMH_STOP_POINTS here.  At a named point of one
 * handle others act through a second one, once.  stop_between, which finds what others do to
 * lists at random, seldom comes by these.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "content.h"
#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "pm.h"
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
static uint64_t keys_there = KEYS;
static const char *act_at;		/* NULL: nowhere */
static void (*act) (void);
static unsigned acted;

void
pmh_stop_point(const char *name)
{
	if (act_at == NULL || strcmp(act_at, name) != 0)
		return;
	act_at = NULL;
	act();
	acted++;
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
	REQUIRE(fixture_shrink(others, PMH_DEFAULT_FILL) == PMH_OK);
	REQUIRE(blocks() < before / 3);
}

/* Most of it goes, as VACUUM does it. */
static void
file_is_punched(void)
{
	uint64_t	before = blocks();

	take_keys(others, 0, keys_there, STAYING);
	shrink(before);
}

/* Keys, in a file of which 'short_one' maps the first part only. */
static PmhTable *
make_long_file(bool deep_directory)
{
	PmhTable   *short_one;

	others = fixture_create(path);
	put_keys(others, 0, KEYS / 10);
	short_one = fixture_open(path, 1);
	put_keys(others, KEYS / 10, KEYS);
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
	result = operation(t);
	if (!CHECK(result == PMH_OK))
		fprintf(stderr, "  punched at %s: %s\n", point, pmh_error(t)->detail);
	CHECK(acted == 1);
	act_at = NULL;
	CHECK(look_all_up(t) == PMH_OK);
	pmh_close(t);
	CLOSE_SOUND(others);
}

/* The list of a key lies in the part that a cursor does not map. */
static uint64_t gone_hash;

static void
list_goes(void)
{
	take_values(others, gone_hash, 10, LIST_VALUES, 1);
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
	keys_there = keys;
	put_keys(others, 0, keys);
	t = fixture_open(path, 1);
	gone_hash = fixture_hash(KEYS);
	put_values(others, gone_hash, 0, LIST_VALUES);
	act = punch;
	acted = 0;
	act_at = point;
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
	CLOSE_SOUND(others);
}

int
main(void)
{
	path = fixture_path("stop_holes");
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
	return unit_done("stop_holes");
}
