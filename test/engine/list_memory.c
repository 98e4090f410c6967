/*-------------------------------------------------------------------------
 *
 * list_memory.c
 *	  However long the list of a key is, a cursor, a check and a sweep take little memory
 *	  for it: each value comes once all the same.  (Of a list that changes: stop_between.)
 *
 * Memory is counted as malloc hands it out (nothing is counted with a sanitizer,
 * which has a malloc of its own).
 *
 *-------------------------------------------------------------------------
 */
#include <malloc.h>

#include "fixture.h"
#include "list.h"
#include "sweeps.h"
#include "table.h"
#include "unit.h"

#define VALUES		FIXTURE_SCALE(UINT64_C(1000000))
#define BATCH		FIXTURE_SCALE(1000)

#define MOST_BYTES	(4 * PMH_STEP_MAX * 40)

/* Values are as far apart as rows of wide tables: one or two to a page. */
#define VALUE(i)	((i) / 2 << 15 | (1 + (i) % 2))
#define INDEX(v)	(((v) >> 15) * 2 + ((v) & 1 ? 0 : 1))

static const char *path;
static uint64_t hash;
static uint8_t *times;			/* that each value came */

static size_t
bytes_taken(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static PmhTable *
make_list(uint64_t n)
{
	PmhTable   *t = fixture_create(path);
	PmhEntry   *entry = malloc(n * sizeof(PmhEntry));
	size_t		done;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < n; i++)
		entry[i] = (PmhEntry) {hash, VALUE(i)};
	REQUIRE(pmh_insert_group(t, entry, n, false, &done) == PMH_OK && done == n);
	free(entry);
	times = calloc(2 * n, 1);
	REQUIRE(times != NULL);
	return t;
}

static void
end(PmhTable *t)
{
	free(times);
	pmh_close(t);
	(void) unlink(path);
}

static void
note(const uint64_t *value, size_t n)
{
	for (size_t i = 0; i < n; i++)
		times[INDEX(value[i])]++;
}

/* How many of the values [from .. to) did not come so often. */
static uint64_t
not_so_often(uint64_t from, uint64_t to, unsigned often)
{
	uint64_t	n = 0;

	for (uint64_t i = from; i < to; i++)
		n += times[i] != often;
	return n;
}

/* ---- nothing changes ---- */

static void
test_cursor(void)
{
	PmhTable   *t = make_list(VALUES);
	PmhCursor	cursor = {0};
	size_t		before = bytes_taken();
	size_t		most = 0;
	PmhResult	result;

	pmh_cursor_open(t, &cursor, hash);
	while ((result = pmh_cursor_next(t, &cursor, BATCH)) == PMH_OK)
	{
		size_t		taken = bytes_taken() - before;

		note(cursor.batch.value, cursor.batch.n);
		if (taken > most && taken < SIZE_MAX / 2)
			most = taken;
	}
	CHECK(result == PMH_DONE && not_so_often(0, VALUES, 1) == 0);
	if (!CHECK(most <= MOST_BYTES))
		fprintf(stderr, "  %zu bytes for %zu values\n", most, (size_t) VALUES);
	pmh_cursor_free(&cursor);
	end(t);
}

/* Memory and values while all of a key is read at once, by a check. */
typedef struct Reading
{
	size_t		before;
	size_t		most;
	unsigned	pieces;
} Reading;

static void
note_piece(void *arg, const uint64_t *value, size_t n)
{
	Reading    *reading = arg;
	size_t		taken = bytes_taken() - reading->before;

	note(value, n);
	reading->pieces++;
	if (taken > reading->most && taken < SIZE_MAX / 2)
		reading->most = taken;
}

static void
test_repeats(void)
{
	PmhTable   *t = make_list(VALUES);
	Reading		reading = {.before = bytes_taken()};

	memset(times, 0, VALUES);
	CHECK(pmh_lookup_repeats(t, hash, note_piece, &reading) == PMH_OK);
	CHECK(not_so_often(0, VALUES, 1) == 0);
	CHECK(reading.pieces > VALUES / PMH_STEP_MAX);
	if (!CHECK(reading.most <= MOST_BYTES))
		fprintf(stderr, "  %zu bytes for %zu values\n", reading.most, (size_t) VALUES);
	end(t);
}

/* A sweep that takes out every third value, also from buffers that it comes by again. */
static void
test_sweep(void)
{
	PmhTable   *t = make_list(VALUES);
	uint8_t    *dead = malloc(8 * PMH_STEP_MAX);
	size_t		before = bytes_taken();
	size_t		most = 0;
	size_t		sum = 0;
	PmhStats	stats;
	PmhSweep	sweep;
	PmhResult	result;

	REQUIRE(dead != NULL && pmh_sweep_begin(t, &sweep) == PMH_OK);
	while ((result = pmh_sweep_next(t, &sweep)) == PMH_OK)
	{
		size_t		taken = bytes_taken() - before;
		size_t		removed;

		REQUIRE(sweep.n <= 8 * PMH_STEP_MAX);
		for (size_t i = 0; i < sweep.n; i++)
		{
			note(&sweep.entries[i].value, 1);
			dead[i] = INDEX(sweep.entries[i].value) % 3 == 0;
		}
		REQUIRE(sweep_remove(t, &sweep, dead, &removed) == PMH_OK);
		sum += removed;
		if (taken > most && taken < SIZE_MAX / 2)
			most = taken;
	}
	pmh_sweep_end(&sweep);
	CHECK(result == PMH_DONE && not_so_often(0, VALUES, 1) == 0);
	CHECK(sum == (VALUES + 2) / 3);
	CHECK(pmh_stats(t, &stats) == PMH_OK && stats.entries == VALUES - sum);
	if (!CHECK(most <= MOST_BYTES + (1 << 20)))
		fprintf(stderr, "  %zu bytes for %zu values\n", most, (size_t) VALUES);
	CHECK(check_alone(t, fixture_report, NULL) == PMH_OK);
	free(dead);
	end(t);
}

int
main(void)
{
	path = fixture_path("list_memory");
	hash = fixture_hash(7);
	TEST(test_cursor());
	TEST(test_repeats());
	TEST(test_sweep());
	return unit_done("list_memory");
}
