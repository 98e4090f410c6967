/*-------------------------------------------------------------------------
 *
 * both_tables.c
 *	  Keys with long lists in the primary table and in the overflow table: each
 *	  operation sees to both.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "crowd.h"
#include "directory.h"
#include "element.h"
#include "error.h"
#include "overflow.h"
#include "place.h"
#include "segment.h"
#include "sweeps.h"
#include "table.h"

#define WHERE		7			/* the crowd */
#define CROWD_VALUE	(UINT64_C(1) << 40)
#define KEYS		6
#define MOST		UINT64_C(9000)	/* values of a key in a table */
#define SECOND		UINT64_C(20000)	/* values in the primary table from here on */
#define PLAIN		2000		/* keys that were not chosen */

/* So many values of a key are in the overflow table, and in the primary one. */
static const uint64_t sent_away[KEYS] = {MOST, MOST, 1, 400, 3, 40};
static const uint64_t at_home[KEYS] = {MOST, 2, MOST, 500, 12, 4};

static const char *path;

static uint64_t
key_hash(uint64_t key)
{
	return crowd_hash(WHERE, key);
}

static void
put(PmhTable *t, uint64_t hash, uint64_t value)
{
	REQUIRE(pmh_insert(t, hash, value, false) == PMH_OK);
}

static PmhTable *
make_table(void)
{
	PmhTable   *t = fixture_create(path);

	for (uint64_t i = 0; i < PLAIN; i++)
		put(t, fixture_hash(i + 1000), i);
	crowd_comes(t, WHERE, CROWD_VALUE);
	for (uint64_t key = 0; key < KEYS; key++)
	{
		for (uint64_t v = 0; v < sent_away[key]; v++)
			put(t, key_hash(key), v);
	}
	crowd_goes(t, WHERE, CROWD_VALUE);
	for (uint64_t key = 0; key < KEYS; key++)
	{
		for (uint64_t v = 0; v < at_home[key]; v++)
			put(t, key_hash(key), SECOND + v);
		CHECK(crowd_has_list(t, PMH_OVERFLOW, key_hash(key)) == (sent_away[key] > PMH_INLINE_MAX));
		CHECK(crowd_has_list(t, PMH_PRIMARY, key_hash(key)) == (at_home[key] > PMH_INLINE_MAX));
	}
	return t;
}

static void
end(PmhTable *t)
{
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	pmh_close(t);
}

/* ---- reading ---- */

/* What has been found of a key. */
typedef struct Found
{
	uint8_t		away[MOST];
	uint8_t		home[MOST];
	bool		strange;
} Found;

static Found found[KEYS];

static void
note(uint64_t key, uint64_t value)
{
	Found	   *f = &found[key];

	if (value < sent_away[key])
		f->away[value]++;
	else if (value >= SECOND && value < SECOND + at_home[key])
		f->home[value - SECOND]++;
	else
		f->strange = true;
}

/* Each value of 'from' on and each 'step' th, of either table, is there once. */
static void
is_rest(uint64_t key, uint64_t from, uint64_t step)
{
	Found	   *f = &found[key];
	uint64_t	wrong = 0;

	for (uint64_t v = 0; v < sent_away[key]; v++)
		wrong += f->away[v] != (v >= from && v % step == 0);
	for (uint64_t v = 0; v < at_home[key]; v++)
		wrong += f->home[v] != (v >= from && v % step == 0);
	if (!CHECK(wrong == 0 && !f->strange))
		fprintf(stderr, "  key %llu: %llu values are not right%s\n", (unsigned long long) key,
				(unsigned long long) wrong, f->strange ? ", and something else is there" : "");
	memset(f, 0, sizeof(*f));
}

static void
in_group(void *arg, size_t key, uint64_t value)
{
	(void) arg;
	note(key, value);
}

static void
read_with_cursor(PmhTable *t, PmhCursor *cursor, uint64_t key, size_t want)
{
	PmhResult	result;

	pmh_cursor_open(t, cursor, key_hash(key));
	while ((result = pmh_cursor_next(t, cursor, want)) == PMH_OK)
	{
		CHECK(cursor->batch.n > 0);
		for (size_t i = 0; i < cursor->batch.n; i++)
			note(key, cursor->batch.value[i]);
	}
	CHECK(result == PMH_DONE);
}

static void
short_found(void *arg, size_t key, uint64_t value)
{
	bool	   *many = arg;

	if (value == PMH_VALUE_MANY)
		many[key] = true;
	else
		note(key, value);
}

static void
read_all(PmhTable *t, uint64_t from, uint64_t step)
{
	static const size_t wants[] = {0, 1, 7, 64, 1000};
	uint64_t	hashes[KEYS];
	bool		many[KEYS] = {false};
	PmhValues	values = {0};
	PmhCursor	cursor = {0};

	for (uint64_t key = 0; key < KEYS; key++)
	{
		hashes[key] = key_hash(key);
		REQUIRE(pmh_lookup(t, hashes[key], &values) == PMH_OK);
		for (size_t i = 0; i < values.n; i++)
			note(key, values.value[i]);
		is_rest(key, from, step);
		for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++)
		{
			read_with_cursor(t, &cursor, key, wants[i]);
			is_rest(key, from, step);
		}
	}
	REQUIRE(pmh_lookup_group(t, hashes, KEYS, in_group, NULL) == PMH_OK);
	for (uint64_t key = 0; key < KEYS; key++)
		is_rest(key, from, step);
	REQUIRE(pmh_lookup_group_short(t, hashes, KEYS, short_found, many) == PMH_OK);
	for (uint64_t key = 0; key < KEYS; key++)
	{
		if (!many[key])
			is_rest(key, from, step);
	}
	pmh_values_free(&values);
	pmh_cursor_free(&cursor);
}

/* Sweep; take the values out of which 'out' says so. */
static void
sweep(PmhTable *t, uint64_t from, uint64_t step, bool (*out) (uint64_t value))
{
	Sweeper		s;
	const PmhEntry *pair;
	uint64_t	dead = 0;

	sweeper_begin(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		uint64_t	key = pair->hash ^ key_hash(0);

		if (key >= KEYS)
			continue;
		note(key, pair->value);
		if (out == NULL || !out(pair->value))
			continue;
		sweeper_take_out(&s);
		dead++;
	}
	CHECK(sweeper_end(&s) == PMH_OK);
	CHECK(s.removed == dead);
	for (uint64_t key = 0; key < KEYS; key++)
		is_rest(key, from, step);
}

static bool
is_odd(uint64_t value)
{
	return value % 2 != 0;
}

static void
test_reading(void)
{
	PmhTable   *t = make_table();

	read_all(t, 0, 1);
	sweep(t, 0, 1, NULL);
	sweep(t, 0, 1, is_odd);
	read_all(t, 0, 2);
	CHECK(fixture_shrink(t, 90) == PMH_OK);
	read_all(t, 0, 2);
	sweep(t, 0, 2, NULL);
	end(t);
}

/* ---- taking out ---- */

/*
 * The values below 'to' of a key, of both tables, and for each one a pair that is
 * in neither.  Those below 'from' have gone already.  Returns how many pairs.
 */
static size_t
pairs_of(uint64_t key, uint64_t from, uint64_t to, PmhEntry *entry, size_t *present)
{
	size_t		n = 0;

	*present = 0;
	for (uint64_t v = 0; v < to; v++)
	{
		bool		away = v < sent_away[key];
		bool		home = v < at_home[key];

		if (away)
			entry[n++] = (PmhEntry) {key_hash(key), v};
		if (home)
			entry[n++] = (PmhEntry) {key_hash(key), SECOND + v};
		if (v >= from)
			*present += (size_t) away + home;
		entry[n++] = (PmhEntry) {key_hash(key), 4 * SECOND + v};
	}
	return n;
}

static void
remove_in_steps(PmhTable *t, uint64_t from, uint64_t to, bool wait, size_t effort)
{
	PmhEntry   *entry = malloc(KEYS * 3 * to * sizeof(*entry));
	size_t		n = 0;
	size_t		present = 0;
	PmhRemoval	removal;
	PmhResult	result;

	REQUIRE(entry != NULL);
	for (uint64_t key = 0; key < KEYS; key++)
	{
		size_t		some;

		n += pairs_of(key, from, to, entry + n, &some);
		present += some;
	}
	REQUIRE(pmh_removal_begin(t, entry, n, wait, &removal) == PMH_OK);
	while ((result = pmh_removal_step(t, &removal, effort)) == PMH_OK)
		;
	CHECK(result == PMH_DONE && removal.removed == present && removal.left == 0);
	pmh_removal_end(&removal);
	free(entry);
}

static void
test_removal(bool wait, size_t effort, uint64_t to)
{
	PmhTable   *t = make_table();

	remove_in_steps(t, 0, to, wait, effort);
	read_all(t, to, 1);
	remove_in_steps(t, to, MOST, wait, SIZE_MAX);
	read_all(t, MOST, 1);
	end(t);
}

/* One by one; of a long list the last ones are far from its head. */
static void
test_single(void)
{
	PmhTable   *t = make_table();
	PmhStats	before;
	PmhStats	after;

	REQUIRE(pmh_stats(t, &before) == PMH_OK);
	for (uint64_t key = 0; key < KEYS; key++)
	{
		CHECK(pmh_delete(t, key_hash(key), 4 * SECOND) == PMH_NOT_FOUND);
		for (uint64_t v = 0; v < 3; v++)
		{
			if (v < sent_away[key])
				CHECK(pmh_delete(t, key_hash(key), v) == PMH_OK);
			if (v < at_home[key])
				CHECK(pmh_delete(t, key_hash(key), SECOND + v) == PMH_OK);
			CHECK(pmh_delete(t, key_hash(key), v) == PMH_NOT_FOUND);
			CHECK(pmh_delete(t, key_hash(key), SECOND + v) == PMH_NOT_FOUND);
		}
	}
	read_all(t, 3, 1);
	REQUIRE(pmh_stats(t, &after) == PMH_OK);
	CHECK(before.entries_overflow > after.entries_overflow);
	end(t);
}

/*
 * A reader does not wait for the segment of the key in the overflow table, and
 * what it leaves there is not called absent.
 */
static void
test_locked(size_t n)
{
	PmhTable   *t = make_table();
	PmhEnv		env = fixture_env(1);
	PmhError	error;
	PmhTable   *other;
	PmhPlace	place;
	PmhEntry   *entry = malloc(3 * MOST * sizeof(*entry));
	PmhEntry   *undone = malloc(3 * MOST * sizeof(*entry));
	size_t		present;
	size_t		pairs = pairs_of(0, 0, n, entry, &present);
	size_t		away = 0;
	PmhRemoval	removal;

	REQUIRE(entry != NULL && undone != NULL);
	REQUIRE(pmh_open(path, &env, &other, NULL, &error) == PMH_OK);
	REQUIRE(pmh_segment_lock_in(other, PMH_OVERFLOW,
								pmh_side_hash(other, PMH_OVERFLOW, key_hash(0)), &place) == PMH_OK);
	REQUIRE(pmh_removal_begin(t, entry, pairs, false, &removal) == PMH_OK);
	CHECK(pmh_removal_step(t, &removal, SIZE_MAX) == PMH_DONE);
	CHECK(removal.removed == n && removal.left == pmh_removal_undone(&removal, undone));
	for (size_t i = 0; i < removal.left; i++)
		away += undone[i].value < SECOND;
	CHECK(away == n);
	pmh_removal_end(&removal);
	pmh_segment_unlock(&place);
	pmh_close(other);
	REQUIRE(pmh_removal_begin(t, entry, pairs, false, &removal) == PMH_OK);
	CHECK(pmh_removal_step(t, &removal, SIZE_MAX) == PMH_DONE);
	CHECK(removal.removed == n && removal.left == 0);
	pmh_removal_end(&removal);
	free(entry);
	free(undone);
	end(t);
}

int
main(void)
{
	path = fixture_path("both_tables");
	TEST(test_reading());
	TEST(test_removal(true, 1, 100));
	TEST(test_removal(false, 1, 5000));
	TEST(test_removal(true, SIZE_MAX, 3));
	TEST(test_removal(false, 3, 2));
	TEST(test_single());
	TEST(test_locked(4));
	TEST(test_locked(8000));
	unlink(path);
	return unit_done("both_tables");
}
