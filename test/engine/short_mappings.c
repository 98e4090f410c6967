/*-------------------------------------------------------------------------
 *
 * short_mappings.c
 *	  Several handles of one process on one file, each with as much of it mapped and
 *	  looked at as it has needed so far, while others let it grow in the middle of every
 *	  operation.  Now and then all begin anew, with a file that has a tail to be cut off.
 *	  And readers beside others that punch the file, or move its directory, between a look at
 *	  it and what follows: nothing is missed, and nothing sound is called damaged.
 *
 * The engine is compiled with PMH_SHORT_MAPPINGS here (map.c, file_size.c): a mapping is
 * no longer than the file, and the bound of a handle is raised no further than was asked
 * for, so an offset that is followed before it is checked fails an assertion (pmh_at).  It
 * is compiled with PMH_STOP_POINTS as well, and wherever an operation comes by such a point
 * without holding a lock, others are let in: they insert, or grow the file, or move blocks
 * about.
 *
 *	short_mappings			some histories
 *	short_mappings N		N histories, beginning with a random one
 *
 *-------------------------------------------------------------------------
 */
#include <time.h>

#include "content.h"
#include "sweeps.h"

#define HANDLES		4
#define STEPS		15			/* of a history */
#define KEYS		UINT64_C(12000)
#define LASTING		UINT64_C(1500)	/* keys that stay */
#define LISTS		UINT64_C(60)	/* the first ones have lists, and every 16th */
#define LIST_VALUES	UINT64_C(30)
#define LONG_VALUES	UINT64_C(4000)	/* of the first key of all, ... */
#define MORE_VALUES	700				/* ... which gets more of them by and by: */
#define EVERY		3000			/* stop points from one intrusion to the next ... */
#define EVERY_DECISIVE	2		/* ... and of those where more is mapped */
#define RUN			8			/* blocks */
#define MAX_BLOCKS	8192		/* no further than that for growth alone */
#define LONGEST_TAIL (UINT64_C(16) << 20)	/* bytes left past the end of the file */

static const char *path;
static uint64_t seed;
static PmhTable *handle[HANDLES];
static PmhTable *at_work;		/* is in an operation; NULL: others keep out */
static uint64_t instance;
static bool present[KEYS];
static uint64_t next_key;		/* not used so far */
static uint64_t next_value;		/* of the first key */
static uint64_t intrusions;
static uint64_t moves;			/* of a mapping, in the middle of an operation */

/* At a named point others act, once, through a second handle: see holes. */
#define GONE_VALUES		UINT64_C(200000)
#define HOLE_KEYS			UINT64_C(60000)
#define STAYING			50		/* one key in so many stays */

static PmhTable *others;
static uint64_t keys_there = HOLE_KEYS;
static const char *act_at;		/* NULL: nowhere */
static void (*act) (void);
static unsigned acted;

/* ---- the model ---- */

static uint64_t
values_of(uint64_t key)
{
	return key == 0 ? LONG_VALUES : key < LISTS || key % 16 == 0 ? LIST_VALUES : 1;
}

static uint64_t
value_of(uint64_t key, uint64_t i)
{
	return i << 20 | key;
}

static void
insert_key(PmhTable *t, uint64_t key)
{
	for (uint64_t i = 0; i < values_of(key); i++)
		REQUIRE(pmh_insert(t, fixture_hash(key), value_of(key, i), false) == PMH_OK);
	present[key] = true;
}

/* A key that no other thread is using, or KEYS. */
static uint64_t
new_key(void)
{
	return next_key < KEYS ? next_key++ : KEYS;
}

/* ---- others ---- */

static void
add_keys(PmhTable *t, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
	{
		uint64_t	key = new_key();

		if (key < KEYS)
			insert_key(t, key);
	}
}

/* The first key's list becomes longer by values that any sweep takes out. */
static void
add_values(PmhTable *t)
{
	for (unsigned i = 0; i < MORE_VALUES; i++, next_value++)
		REQUIRE(pmh_insert(t, fixture_hash(0), value_of(0, next_value), false) == PMH_OK);
}

static bool
is_added_value(const PmhEntry *pair)
{
	return pair->hash == fixture_hash(0) && pair->value >> 20 >= LONG_VALUES;
}

/* Let the file grow, and give the space back to the map. */
static void
grow(PmhTable *t)
{
	uint64_t	before = pmh_blocks(t);
	uint64_t	run[MAX_BLOCKS / RUN];
	size_t		n = 0;
	PmhResult	result = PMH_OK;

	while (result == PMH_OK && before < MAX_BLOCKS && pmh_blocks(t) == before)
	{
		result = pmh_provide_extent(t, RUN, &run[n]);
		n += result == PMH_OK;
	}
	CHECK(pmh_conclude(t, result) == PMH_OK);
	while (n > 0)
		pmh_space_free_extent(t, run[--n], RUN);
}

static void
deepen_directory(PmhTable *t)
{
	if (directory_depth(t) < PMH_SMALL_DIR_DEPTH + 3)
		CHECK(double_directory(t) == PMH_OK);
}

/* Is the handle at work about to map more, or to free what it has found? */
static bool
is_decisive(const char *name)
{
	return strcmp(name, "map_all_before_length") == 0 ||
		strcmp(name, "provide_before_map") == 0 ||
		strcmp(name, "punch_before_lock") == 0 ||
		strcmp(name, "value_walk_settles") == 0;
}

/*
 * Another handle than the one at work does something: at random moments, and
 * more often where it is likely to matter.
 */
void
pmh_stop_point(const char *name)
{
	PmhTable   *inside = at_work;
	PmhTable   *other;
	uint64_t	every = is_decisive(name) ? EVERY_DECISIVE : EVERY;

	if (act_at != NULL && strcmp(act_at, name) == 0)
	{
		act_at = NULL;
		act();
		acted++;
	}
	if (inside == NULL || fixture_random(&seed) % every != 0 || !fixture_no_lock_held())
		return;
	do
		other = handle[fixture_random(&seed) % HANDLES];
	while (other == inside);
	at_work = NULL;
	intrusions++;
	switch (fixture_random(&seed) % 5)
	{
		case 0:
			add_keys(other, 50);
			break;
		case 1:
			deepen_directory(other);
			break;
		case 2:
			add_values(other);
			break;
		default:
			grow(other);
			break;
	}
	at_work = inside;
}

/* ---- operations ---- */

static PmhValues values;

static void
expect_key(PmhTable *t, uint64_t key)
{
	REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
	if (key == 0 && present[key])
		CHECK(values.n >= LONG_VALUES);
	else
		CHECK(values.n == (present[key] ? values_of(key) : 0));
}

static void
do_lookups(PmhTable *t)
{
	for (int i = 0; i < 200; i++)
	{
		uint64_t	key = fixture_random(&seed) % (next_key < KEYS ? next_key : KEYS);

		expect_key(t, key);
	}
	REQUIRE(fixture_lookup_repeats(t, fixture_hash(1), &values) == PMH_OK);
	CHECK(values.n == LIST_VALUES);
}

static void
do_lookup_group(PmhTable *t)
{
	uint64_t	hash[300];
	uint64_t	found = 0;
	uint64_t	want = 0;

	for (unsigned i = 0; i < 300; i++)
	{
		uint64_t	key = fixture_random(&seed) % LASTING;

		hash[i] = fixture_hash(key);
		want += values_of(key);
	}
	REQUIRE(fixture_lookup_group(t, hash, 300, count_found, &found) == PMH_OK);
	CHECK(found >= want);
}

/* With a pause after each batch, in which others are at work. */
static void
do_cursor(PmhTable *t)
{
	PmhCursor	cursor = {0};
	uint64_t	n = 0;
	PmhResult	result;

	pmh_cursor_open(t, &cursor, fixture_hash(0));
	while ((result = pmh_cursor_next(t, &cursor, 300)) == PMH_OK)
	{
		n += cursor.batch.n;
		if (fixture_random(&seed) % 4 == 0)
			grow(handle[fixture_random(&seed) % HANDLES]);
	}
	CHECK(result == PMH_DONE && n >= LONG_VALUES);
	pmh_cursor_free(&cursor);
}

static void
do_insert(PmhTable *t)
{
	add_keys(t, 300);
}

static void
do_insert_group(PmhTable *t)
{
	PmhEntry	entry[200 + LIST_VALUES];
	size_t		n = 0;
	size_t		done;

	while (n < 200 && next_key < KEYS)
	{
		uint64_t	key = new_key();

		for (uint64_t i = 0; i < values_of(key); i++)
			entry[n++] = (PmhEntry) {fixture_hash(key), value_of(key, i)};
	}
	REQUIRE(pmh_insert_group(t, entry, n, false, &done) == PMH_OK && done == n);
	for (size_t i = 0; i < n; i++)
		present[entry[i].value & ((1 << 20) - 1)] = true;
}

/* Every third of the keys that need not stay; and some values of the long list. */
static void
do_delete(PmhTable *t)
{
	static PmhEntry entry[KEYS * 3 + LONG_VALUES];
	uint64_t	first = LASTING + fixture_random(&seed) % 3;
	uint64_t	end = next_key;
	size_t		n = 0;
	size_t		want = 0;
	size_t		removed;

	for (uint64_t key = first; key < end; key += 3)
	{
		for (uint64_t i = 0; i < values_of(key); i++)
			entry[n++] = (PmhEntry) {fixture_hash(key), value_of(key, i)};
		want += present[key] ? values_of(key) : 0;
		present[key] = false;
	}
	for (uint64_t i = 0; i < LONG_VALUES; i += 2)
		entry[n++] = (PmhEntry) {fixture_hash(0), value_of(0, i)};
	REQUIRE(pmh_delete_group(t, entry, n, &removed) == PMH_OK);
	CHECK(removed == want + LONG_VALUES / 2);
	for (uint64_t i = 0; i < LONG_VALUES; i += 2)
		REQUIRE(pmh_insert(t, fixture_hash(0), value_of(0, i), false) == PMH_OK);
}

/*
 * Takes out all keys that need not stay and are there already; what is free is known then,
 * also in blocks that this handle had not mapped.
 */
static void
do_sweep(PmhTable *t)
{
	uint64_t	end = next_key;
	Sweeper		s;
	const PmhEntry *pair;

	if (fixture_random(&seed) % 2 == 0)
		fixture_forget_space(handle[fixture_random(&seed) % HANDLES]);
	sweeper_begin(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		uint64_t	key = pair->value & ((1 << 20) - 1);

		if ((key >= LASTING && key < end) || is_added_value(pair))
			sweeper_take_out(&s);
	}
	CHECK(sweeper_end(&s) == PMH_OK && pmh_value_space_is_known(t));
	memset(&present[LASTING], 0, end - LASTING);
}

static void
do_shrink(PmhTable *t)
{
	CHECK(fixture_shrink(t, PMH_DEFAULT_FILL) == PMH_OK);
}

static void
do_figures(PmhTable *t)
{
	PmhStats	stats;
	uint64_t	entries;

	CHECK(pmh_stats(t, &stats) == PMH_OK);
	CHECK(pmh_estimate(t, &entries) == PMH_OK);
	CHECK(pmh_check(t, fixture_report, NULL) == PMH_OK);
}

static void
do_reopen(PmhTable *t)
{
	unsigned	i = 0;

	while (handle[i] != t)
		i++;
	at_work = NULL;
	pmh_close(t);
	handle[i] = fixture_open(path, instance);
}

/*
 * All go and come back in another run of the system, which cuts off what has been
 * left past the end of the file.
 */
static void
do_restart(PmhTable *t)
{
	uint64_t	end = pmh_blocks(t) << PMH_BLOCK_SHIFT;

	at_work = NULL;
	for (unsigned i = 0; i < HANDLES; i++)
		pmh_close(handle[i]);
	REQUIRE(truncate(path, (off_t) (end + fixture_random(&seed) % LONGEST_TAIL)) == 0);
	instance++;
	for (unsigned i = 0; i < HANDLES; i++)
	{
		handle[i] = fixture_open(path, instance);
		CHECK(handle[i]->file.bound <= end);
	}
}

typedef void (*Operation) (PmhTable *t);

static const Operation operation[] = {
	do_lookups, do_lookup_group, do_cursor, do_insert, do_insert_group,
	do_delete, do_sweep, do_shrink, do_figures, do_reopen, do_restart
};

#define OPERATIONS	(sizeof(operation) / sizeof(operation[0]))

/* ---- histories ---- */

static void
begin_file(void)
{
	memset(present, 0, sizeof(present));
	next_key = 0;
	next_value = LONG_VALUES;
	instance = 1;
	handle[0] = fixture_create(path);
	for (unsigned i = 1; i < HANDLES; i++)
		handle[i] = fixture_open(path, instance);
	add_keys(handle[0], LASTING);
}

static void
end_file(void)
{
	for (unsigned i = 0; i < HANDLES; i++)
	{
		for (uint64_t key = 0; key < next_key; key++)
			expect_key(handle[i], key);
	}
	CHECK(check_alone(handle[0], fixture_report, NULL) == PMH_OK);
	for (unsigned i = 0; i < HANDLES; i++)
		pmh_close(handle[i]);
	unlink(path);
}

/* No bound lies past the end of the file. */
static void
expect_bounds(void)
{
	struct stat st;

	REQUIRE(stat(path, &st) == 0);
	for (unsigned i = 0; i < HANDLES; i++)
		CHECK(handle[i]->file.bound <= (uint64_t) st.st_size);
}

static void
run_history(void)
{
	begin_file();
	for (unsigned i = 0; i < STEPS; i++)
	{
		PmhTable   *t = handle[fixture_random(&seed) % HANDLES];
		const char *base = t->file.base;
		Operation	chosen = operation[fixture_random(&seed) % OPERATIONS];

		at_work = t;
		chosen(t);
		at_work = NULL;
		moves += chosen != do_reopen && chosen != do_restart && t->file.base != base;
		expect_bounds();
	}
	end_file();
}

/* A sweep finds out what is free in blocks that its handle has never come by. */
static void
test_blocks_not_mapped(void)
{
	begin_file();
	REQUIRE(pmh_map_all(handle[1]) == PMH_OK);
	while (pm_load(&pmh_run(handle[0])->newest_block) << PMH_BLOCK_SHIFT < handle[1]->file.bound)
		add_values(handle[0]);
	fixture_forget_space(handle[0]);
	for (uint64_t i = LONG_VALUES; i < next_value; i++)
		REQUIRE(pmh_delete(handle[0], fixture_hash(0), value_of(0, i)) == PMH_OK);
	CHECK(sweep_through(handle[1]) == PMH_OK && pmh_value_space_is_known(handle[1]));
	end_file();
}

/*
 * ---- holes ----
 *
 * stop_between, which finds what others do to lists at random, seldom comes by these points.
 */

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
	put_keys(others, 0, HOLE_KEYS / 10);
	short_one = fixture_open(path, 1);
	put_keys(others, HOLE_KEYS / 10, HOLE_KEYS);
	while (deep_directory && directory_depth(others) < PMH_SMALL_DIR_DEPTH + 4)
		REQUIRE(double_directory(others) == PMH_OK);
	return short_one;
}

typedef PmhResult (*Reader) (PmhTable *t);

static PmhResult
look_all_up(PmhTable *t)
{
	PmhValues	values = {0};
	PmhResult	result = PMH_OK;

	for (uint64_t key = 0; key < HOLE_KEYS && result == PMH_OK; key += STAYING)
	{
		result = pmh_lookup(t, fixture_hash(key), &values);
		CHECK(result != PMH_OK || (values.n == 1 && values.value[0] == key));
	}
	pmh_values_free(&values);
	return result;
}

static PmhResult
insert_new(PmhTable *t)
{
	PmhResult	result = PMH_OK;

	for (uint64_t key = HOLE_KEYS; key < HOLE_KEYS + 2000 && result == PMH_OK; key++)
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
operation_and_others(Reader operation, const char *point, bool deep_directory, void (*what) (void))
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
	take_values(others, gone_hash, 10, GONE_VALUES, 1);
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
	gone_hash = fixture_hash(HOLE_KEYS);
	put_values(others, gone_hash, 0, GONE_VALUES);
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
main(int argc, char **argv)
{
	long		histories = argc > 1 ? atol(argv[1]) : 40;

	path = fixture_path("short_mappings");
	seed = argc > 1 ? (uint64_t) time(NULL) : 1;
	TEST(test_blocks_not_mapped());
	TEST(operation_and_others(look_all_up, "provide_before_map", false, file_is_punched));
	TEST(operation_and_others(look_all_up, "outside_before_span", false, file_is_punched));
	TEST(operation_and_others(insert_new, "provide_before_map", false, file_is_punched));
	TEST(operation_and_others(insert_new, "outside_before_span", false, file_is_punched));
	TEST(operation_and_others(sweep_through_reading, "provide_before_map", false, file_is_punched));
	TEST(operation_and_others(sweep_through_reading, "outside_before_span", false, file_is_punched));
	TEST(operation_and_others(fixture_check, "check_before_blocks", true, file_is_punched));
	TEST(operation_and_others(fixture_check, "check_before_elements", false, file_is_punched));
	TEST(operation_and_others(look_all_up, "locate_before_element", true, directory_is_reused));
	TEST(cursor_and_holes("provide_before_map", list_and_keys_are_punched, HOLE_KEYS / 2));
	TEST(cursor_and_holes("probe_between_checks", list_is_punched, 0));
	for (long i = 0; i < histories; i++)
	{
		uint64_t	first = seed;

		run_history();
		if (unit_failed > 0)
		{
			fprintf(stderr, "history with seed %llu\n", (unsigned long long) first);
			break;
		}
	}
	CHECK(moves > 2 * (uint64_t) histories);
	printf("%llu intrusions, %llu operations whose mapping moved\n",
		   (unsigned long long) intrusions, (unsigned long long) moves);
	pmh_values_free(&values);
	return unit_done("short_mappings");
}
