/*-------------------------------------------------------------------------
 *
 * values_lists.c
 *	  Value lists of one handle: through all classes and into long chains
 *	  against a model, in buffers that fit when made from an array, and read by
 *	  cursors in batches of any size.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "rewritten.h"
#include "segment.h"
#include "space.h"
#include "table.h"
#include "unit.h"

/* The model: which of the values 0 .. range - 1 key k has. */
typedef struct Model
{
	uint64_t	hash;
	uint64_t	range;
	uint8_t    *has;
	uint64_t	n;
} Model;

static int
compare_values(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return (x > y) - (x < y);
}

/* Values are spread over all 47 bits, the least and the greatest included. */
static uint64_t
value_of(const Model *m, uint64_t i)
{
	if (i == 0)
		return 0;
	if (i == m->range - 1)
		return PMH_VALUE_MAX;
	return i * (PMH_VALUE_MAX / m->range) + i % 7;
}

static void
compare_lookup(PmhTable *t, const Model *m, PmhValues *values)
{
	size_t		k = 0;
	bool		same = true;

	REQUIRE(pmh_lookup(t, m->hash, values) == PMH_OK);
	CHECK(values->n == m->n);
	for (uint64_t i = 0; i < m->range && same; i++)
	{
		if (m->has[i])
			same = k < values->n && values->value[k++] == value_of(m, i);
	}
	CHECK(same);
}

/* leave_out of a cursor: all values but those that leave 1 modulo *argument. */
static size_t
only_ones(const void *argument, uint64_t *value, size_t n)
{
	size_t		kept = 0;

	for (size_t i = 0; i < n; i++)
	{
		if (value[i] % *(const uint64_t *) argument == 1)
			value[kept++] = value[i];
	}
	return kept;
}

/*
 * All batches of a cursor together are the same, each value once, wherever in the
 * buffers it begins; with a modulus only those of the values that leave 1, by its
 * leave_out, and hardly a batch is empty.
 */
static void
compare_cursor(PmhTable *t, const Model *m, size_t want, PmhCursor *cursor, uint64_t modulus,
			   uint32_t start)
{
	uint64_t	expected = 0;
	uint64_t	empty = 0;
	PmhValues	all = {0};
	PmhResult	result;
	size_t		n = 0;

	for (uint64_t i = 0; i < m->range; i++)
		expected += m->has[i] && (modulus == 0 || value_of(m, i) % modulus == 1);
	pmh_cursor_open(t, cursor, m->hash);
	cursor->start = start;
	if (modulus != 0)
	{
		cursor->leave_out = only_ones;
		cursor->leave_out_argument = &modulus;
	}
	while ((result = pmh_cursor_next(t, cursor, want)) == PMH_OK)
	{
		empty += cursor->batch.n == 0;
		REQUIRE(pmh_values_reserve(t, &all, cursor->batch.n) == PMH_OK);
		memcpy(all.value + all.n, cursor->batch.value, cursor->batch.n * sizeof(uint64_t));
		all.n += cursor->batch.n;
		for (size_t i = 1; i < cursor->batch.n; i++)
			CHECK(cursor->batch.value[i - 1] < cursor->batch.value[i]);
		if (want != 0)
			CHECK(cursor->batch.n <= want + PMH_PROBE_MAX + pmh_class_capacity(PMH_CHUNK_CLASS));
	}
	CHECK(result == PMH_DONE);
	CHECK(pmh_cursor_next(t, cursor, want) == PMH_DONE);
	n = all.n;
	CHECK(n == expected);
	CHECK(empty <= 1);
	pmh_values_finish(&all);
	CHECK(all.n == n);
	for (uint64_t i = 0, k = 0; i < m->range && k < all.n; i++)
	{
		if (m->has[i] && (modulus == 0 || value_of(m, i) % modulus == 1))
			CHECK(all.value[k++] == value_of(m, i));
	}
	pmh_values_free(&all);
}

static void
step(PmhTable *t, Model *m, uint64_t *seed, unsigned insert_percent)
{
	uint64_t	i = fixture_random(seed) % m->range;

	if (fixture_random(seed) % 100 < insert_percent)
	{
		if (m->has[i])
			return;
		REQUIRE(pmh_insert(t, m->hash, value_of(m, i), false) == PMH_OK);
		m->has[i] = 1;
		m->n++;
	}
	else
	{
		CHECK(pmh_delete(t, m->hash, value_of(m, i)) ==
			  (m->has[i] ? PMH_OK : PMH_NOT_FOUND));
		m->n -= m->has[i];
		m->has[i] = 0;
	}
}

static void
check_table(PmhTable *t, uint64_t entries)
{
	PmhStats	stats;

	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == entries);
}

/* Grow a list and let it shrink to nothing again, comparing all the way. */
static void
against_model(PmhTable *t, uint64_t range, uint64_t number)
{
	static const uint32_t starts[] = {0, UINT32_C(0x9e3779b9), UINT32_MAX};
	Model		m = {fixture_hash(number), range, calloc(range, 1), 0};
	PmhValues	values = {0};
	PmhCursor	cursor = {0};
	uint64_t	seed = range;
	uint64_t	pause = range / 4 + 1;

	REQUIRE(m.has != NULL);
	for (unsigned percent = 90; percent > 0; percent -= 30)
	{
		for (uint64_t i = 0; i < 3 * range; i++)
		{
			step(t, &m, &seed, percent);
			if (i % pause == 0 || range < 50)
				compare_lookup(t, &m, &values);
		}
		for (uint64_t modulus = 0; modulus < 60; modulus += 29)
		{
			for (unsigned k = 0; k < sizeof(starts) / sizeof(starts[0]); k++)
			{
				compare_cursor(t, &m, 1, &cursor, modulus, starts[k]);
				compare_cursor(t, &m, 100, &cursor, modulus, starts[k]);
				compare_cursor(t, &m, 1000, &cursor, modulus, starts[k]);
				compare_cursor(t, &m, 0, &cursor, modulus, starts[k]);
			}
		}
		check_table(t, m.n);
	}
	for (uint64_t i = 0; i < range; i++)
	{
		if (m.has[i])
			CHECK(pmh_delete(t, m.hash, value_of(&m, i)) == PMH_OK);
	}
	m.n = 0;
	memset(m.has, 0, range);
	compare_lookup(t, &m, &values);
	check_table(t, 0);
	pmh_values_free(&values);
	pmh_cursor_free(&cursor);
	free(m.has);
}

/* Make a list from an array: is it right, and what does it cost? */
static void
from_array(PmhTable *t, size_t n)
{
	uint64_t	hash = fixture_hash(n);
	uint64_t   *value = malloc(n * sizeof(uint64_t));
	PmhListMade made = {0};
	PmhListPosition at = PMH_LIST_START;
	uint64_t	payload;
	uint64_t	version;
	uint64_t	bytes;
	PmhValues	values = {0};
	PmhResult	result;
	bool		same = true;

	REQUIRE(value != NULL);
	for (size_t i = 0; i < n; i++)
		value[i] = fixture_random(&hash) & PMH_VALUE_MAX & ~UINT64_C(0xff);
	hash = fixture_hash(n);
	while ((result = pmh_list_make(t, hash, value, n, &made)) == PMH_NEED)
		REQUIRE(pmh_provide(t) == PMH_OK);
	REQUIRE(result == PMH_OK);
	payload = made.head;
	version = pmh_buffer_version(t, pmh_pointer_offset(payload));
	while (at.below != 0)
	{
		uint32_t	k;

		REQUIRE(pmh_values_reserve(t, &values, PMH_STEP_MAX) == PMH_OK);
		REQUIRE(pmh_list_step(t, hash, payload, version, &at, UINT32_MAX,
							  values.value + values.n, &k) == PMH_OK);
		values.n += k;
	}
	CHECK(values.n == n);
	pmh_values_finish(&values);
	for (size_t i = 0; i < n; i++)
		same = same && bsearch(&value[i], values.value, values.n, sizeof(uint64_t),
							   compare_values) != NULL;
	CHECK(same);
	bytes = list_bytes(t, payload);
	if (n <= 7)
		CHECK(bytes == (n <= 5 ? 32 : 48));
	else if (n <= 40)
		CHECK(bytes == (n + PMH_VALUES_PER_LINE - 1) / PMH_VALUES_PER_LINE * PMH_VALUE_LINE);
	else
		CHECK(bytes * 100 <= n * (n < 556 ? 835 : n < 1000 ? 726 : n < 2000 ? 706 : n < 10000 ? 690 :
							  648));
	pmh_value_lose(t);			/* nothing points to it */
	pmh_values_free(&values);
	free(value);
}

/* An expected order of magnitude of the slack of a list that grew one by one. */
static void
grown_cost(PmhTable *t, uint64_t n)
{
	uint64_t	hash = fixture_hash(n);
	PmhStats	stats;

	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_insert(t, hash, i, i % 2 == 0) == PMH_OK);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.lists == 1);
	CHECK(stats.list_entries == n);
	CHECK(stats.list_bytes <= 8 * n);
	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_delete(t, hash, n - 1 - i) == PMH_OK);
	check_table(t, 0);
}

static void
run(const char *path, bool force_pmem)
{
	PmhEnv		env = fixture_env(1);
	PmhError	error;
	PmhTable   *t;

	env.force_pmem = force_pmem;
	unlink(path);
	REQUIRE(pmh_create(path, NULL, &env, &t, &error) == PMH_OK);
	for (uint64_t range = 2; range <= (uint64_t) FIXTURE_SCALE(20000); range = range * 3 + 1)
		against_model(t, range, range);
	grown_cost(t, FIXTURE_SCALE(100000));
	for (size_t n = 1; n < 100; n++)
		from_array(t, n);
	for (size_t n = 100; n < 6000; n += 37)
		from_array(t, n);
	from_array(t, 10000);
	from_array(t, 10001);
	from_array(t, 123456);
	check_table(t, 0);
	pmh_close(t);
	unlink(path);
}

int
main(void)
{
	const char *path = fixture_path("values_lists");

	run(path, false);
	run(path, true);
	return unit_done("values_lists");
}
