/*-------------------------------------------------------------------------
 *
 * stop_lists.c
 *	  Readers beside others that do what is least convenient: a list comes back to
 *	  a buffer that it had before; the file is punched between a look at it and what
 *	  follows.  Nothing is missed, and nothing sound is called damaged.
 *
 * The engine is compiled with PMH_STOP_POINTS here.  At a named point of one
 * handle others act through a second one, once.  stop_between searches for such
 * things at random; these are the ones that were found.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "buffer.h"
#include "directory.h"
#include "element.h"
#include "error.h"
#include "file_size.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list_read.h"
#include "list_rewrite.h"
#include "live.h"
#include "lookup.h"
#include "pm.h"
#include "segment_resize.h"
#include "stop_point.h"
#include "sweeps.h"
#include "table.h"
#include "space.h"
#include "unit.h"

#define TAIL_VALUES		pmh_class_capacity(PMH_CHAIN_CLASS - 1)
#define HEAD_VALUES		40
#define LATER_VALUES	1000
#define CHAIN_VALUES	UINT64_C(200000)
#define KEYS			UINT64_C(60000)
#define STAYING			50		/* one key in so many stays */

static const char *path;
static PmhTable *others;
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

static uint64_t
head_of(uint64_t hash)
{
	PmhProbe	probe;

	REQUIRE(pmh_probe(others, hash, &probe) == PMH_OK);
	return probe.list;
}

/* ---- a list comes back to a buffer ---- */

/*
 * All but the oldest values go, and one comes: the last buffer is full, and is
 * copied to the next one that is given out.
 */
static void
list_breathes(uint64_t hash)
{
	Sweeper		s;
	const PmhEntry *pair;

	sweeper_begin(&s, others);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		if (pair->value >= TAIL_VALUES)
			sweeper_take_out(&s);
	}
	REQUIRE(sweeper_end(&s) == PMH_OK);
	REQUIRE(pmh_insert(others, hash, 500000, false) == PMH_OK);
}

/* A cursor stands in the middle of that buffer. */
static void
cursor_and_growth(void)
{
	uint64_t	hash = fixture_hash(7);
	uint8_t    *count = calloc(TAIL_VALUES, 1);
	PmhCursor	cursor = {0};
	bool		came_back = false;
	uint64_t	wrong = 0;
	PmhResult	result;

	REQUIRE(count != NULL);
	others = fixture_create(path);
	load_list(hash, TAIL_VALUES + HEAD_VALUES);
	for (uint64_t i = 0; i < LATER_VALUES; i++)
		REQUIRE(pmh_insert(others, hash, 100000 + i, false) == PMH_OK);
	pmh_cursor_open(others, &cursor, hash);
	while ((result = pmh_cursor_next(others, &cursor, 50)) == PMH_OK)
	{
		uint64_t	next = pmh_buffer_next(others, cursor.chunk);

		for (size_t i = 0; i < cursor.batch.n; i++)
		{
			if (cursor.batch.value[i] < TAIL_VALUES)
				count[cursor.batch.value[i]]++;
		}
		/* In the last but one: it is the last that will be freed. */
		if (came_back || cursor.line < 8 || pmh_buffer_next(others, next) != 0)
			continue;
		list_breathes(hash);
		came_back = head_of(hash) == cursor.chunk;
		REQUIRE(came_back);
	}
	CHECK(result == PMH_DONE && came_back);
	for (uint64_t i = 0; i < TAIL_VALUES; i++)
		wrong += count[i] != 1;
	CHECK(wrong == 0);
	pmh_cursor_free(&cursor);
	free(count);
	close_sound();
}

/* Take all values of a buffer out, and put others in until it is the head. */
static bool
buffer_becomes_head(uint64_t hash, uint64_t payload, uint64_t *next_value)
{
	uint32_t	class = pmh_pointer_class(payload);
	PmhEntry   *entry = malloc(pmh_class_capacity(class) * sizeof(*entry));
	size_t		n = 0;
	size_t		removed;

	REQUIRE(entry != NULL);
	for (uint32_t line = pmh_class_first_line(class); line < pmh_class_lines(class); line++)
	{
		uint64_t	value[PMH_VALUES_PER_LINE];
		uint32_t	k = pmh_line_read(pmh_buffer_line(others, payload, line),
										  pmh_line_cells(payload, line), value);

		for (uint32_t i = 0; i < k; i++)
			entry[n++] = (PmhEntry) {hash, value[i]};
	}
	REQUIRE(pmh_delete_group(others, entry, n, &removed) == PMH_OK && removed == n);
	free(entry);
	for (unsigned i = 0; i < 10000 && head_of(hash) != payload; i++)
		REQUIRE(pmh_insert(others, hash, (*next_value)++, false) == PMH_OK);
	return head_of(hash) == payload;
}

/*
 * A cursor has come by nearly all of a list when its buffer goes and comes back
 * as the head: it reads on from there, or anew, and either is no circle.
 */
static void
cursor_and_no_circle(void)
{
	uint64_t	hash = fixture_hash(7);
	uint64_t	next_value = CHAIN_VALUES;
	uint64_t	given = 0;
	unsigned	rounds = 0;
	PmhCursor	cursor = {0};
	PmhResult	result;

	others = fixture_create(path);
	load_list(hash, CHAIN_VALUES);
	pmh_cursor_open(others, &cursor, hash);
	while ((result = pmh_cursor_next(others, &cursor, 1000)) == PMH_OK)
	{
		for (size_t i = 0; i < cursor.batch.n; i++)
			given += cursor.batch.value[i] < CHAIN_VALUES;
		if (given > CHAIN_VALUES * 9 / 10 && rounds < 3 && cursor.line > 0)
			rounds += buffer_becomes_head(hash, cursor.chunk, &next_value);
	}
	if (!CHECK(result == PMH_DONE))
		fprintf(stderr, "  %s\n", pmh_error(others)->detail);
	CHECK(rounds == 3);
	pmh_cursor_free(&cursor);
	close_sound();
}

/* What a cursor has remembered of a heavy key is not cleared for each light one. */
static void
cursor_of_light_keys(void)
{
	uint64_t	heavy = fixture_hash(7);
	uint64_t	light = fixture_hash(8);
	size_t		capacity;
	PmhCursor	cursor = {0};

	others = fixture_create(path);
	load_list(heavy, CHAIN_VALUES);
	for (uint64_t i = 0; i < 2000; i++)
		REQUIRE(pmh_insert(others, light, i, false) == PMH_OK);
	pmh_cursor_open(others, &cursor, heavy);
	while (pmh_cursor_next(others, &cursor, 1000) == PMH_OK)
		;
	capacity = cursor.seen.capacity;
	for (unsigned i = 0; i < 2; i++)
	{
		pmh_cursor_open(others, &cursor, light);
		while (pmh_cursor_next(others, &cursor, 100) == PMH_OK)
			;
	}
	pmh_cursor_open(others, &cursor, light);
	CHECK(capacity >= CHAIN_VALUES / 64 && cursor.seen.capacity < capacity / 4);
	pmh_cursor_free(&cursor);
	close_sound();
}

/* ---- a list that does run in a circle ---- */

/* Each way along a list ends, and says so. */
static void
circle_is_found(void)
{
	uint64_t	hash = fixture_hash(7);
	PmhEntry	absent = {hash, CHAIN_VALUES};
	PmhValues	values = {0};
	PmhCursor	cursor = {0};
	PmhStats	stats;
	PmhShrink	shrink;
	size_t		removed;
	uint64_t	last;
	PmhResult	result;

	others = fixture_create(path);
	load_list(hash, CHAIN_VALUES);
	for (last = head_of(hash); pmh_buffer_next(others, last) != 0;)
		last = pmh_buffer_next(others, last);
	pm_store64(&pmh_buffer_header(others, last)->next, pmh_buffer_next(others, head_of(hash)));
	(void) alarm(60);
	CHECK(pmh_lookup(others, hash, &values) == PMH_ERR_CORRUPT);
	pmh_cursor_open(others, &cursor, hash);
	while ((result = pmh_cursor_next(others, &cursor, 1000)) == PMH_OK)
		;
	CHECK(result == PMH_ERR_CORRUPT);
	CHECK(pmh_delete(others, hash, CHAIN_VALUES) == PMH_ERR_CORRUPT);
	CHECK(pmh_delete_group(others, &absent, 1, &removed) == PMH_ERR_CORRUPT);
	CHECK(pmh_stats(others, &stats) == PMH_ERR_CORRUPT);
	CHECK(pmh_check(others, false, NULL, NULL, NULL) == PMH_ERR_CORRUPT);

	/* A shrink looks first whether it pays, which would end with the circle. */
	pm_store64(&pmh_buffer_header(others, last)->next, 0);
	for (uint64_t key = 0; key < KEYS; key++)
		REQUIRE(pmh_insert(others, fixture_hash(key + 100), key, false) == PMH_OK);
	for (uint64_t key = 0; key < KEYS; key++)
		REQUIRE(pmh_delete(others, fixture_hash(key + 100), key) == PMH_OK);
	REQUIRE(pmh_shrink_begin(others, PMH_DEFAULT_FILL, &shrink) == PMH_OK);
	for (last = head_of(hash); pmh_buffer_next(others, last) != 0;)
		last = pmh_buffer_next(others, last);
	pm_store64(&pmh_buffer_header(others, last)->next, pmh_buffer_next(others, head_of(hash)));
	while ((result = pmh_shrink_step(others, &shrink)) == PMH_OK)
		;
	CHECK(result == PMH_ERR_CORRUPT);
	pmh_shrink_end(&shrink);
	(void) alarm(0);
	pmh_values_free(&values);
	pmh_cursor_free(&cursor);
	pmh_close(others);
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

/* The directory is doubled, and what stands where it was names no part of the file. */
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
	close_sound();
}

/* The list of a key lies in the part that a cursor does not map. */
static uint64_t gone_hash;

static void
list_goes(void)
{
	PmhEntry   *entry = malloc(CHAIN_VALUES * sizeof(*entry));
	size_t		n = 0;
	size_t		removed;

	REQUIRE(entry != NULL);
	for (uint64_t i = 10; i < CHAIN_VALUES; i++)
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
	for (uint64_t i = 0; i < CHAIN_VALUES; i++)
		REQUIRE(pmh_insert(others, gone_hash, i, false) == PMH_OK);
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
	close_sound();
}

int
main(void)
{
	path = fixture_path("stop_lists");
	TEST(cursor_and_growth());
	TEST(cursor_and_no_circle());
	TEST(cursor_of_light_keys());
	TEST(circle_is_found());
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
