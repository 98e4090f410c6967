/*-------------------------------------------------------------------------
 *
 * shrink_threads.c
 *	  Shrinking while others insert, delete, look up and sweep: what is there
 *	  all the time is found by every look-up, and seen exactly once by every
 *	  sweep and cursor.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "error.h"
#include "fixture.h"
#include "table.h"
#include "unit.h"
#include "workers.h"

#ifdef __SANITIZE_THREAD__
#define WORKERS			3		/* waves, churn, and one that shrinks */
#define ROUNDS			2
#define PAUSE			20000
#else
#define WORKERS			4		/* ... and two that shrink */
#define ROUNDS			12
#define PAUSE			1000
#endif
#define KEYS			((uint64_t) FIXTURE_SCALE(20000))
#define LONG_KEYS		3		/* the first keys have very many values */
#define LONG_VALUES		((uint64_t) FIXTURE_SCALE(20000))
#define WAVE			((uint64_t) FIXTURE_SCALE(80000))
#define LONG_WAVE		((uint64_t) FIXTURE_SCALE(30000))
#define OWN_PAIRS		5000
#define LOT				200

#include "standing.h"

static const char *path;

/*
 * ThreadSanitizer makes reading a segment a hundred times as slow: writers let
 * readers have a turn, or these would never find a segment unchanged.
 */
static void
pace(uint64_t operations)
{
#ifdef __SANITIZE_THREAD__
	if (operations % 16 == 0)
		usleep(4000);
#else
	(void) operations;
#endif
}

/* Recorded by the processes that shrink. */
typedef struct Tally
{
	uint64_t	shrinks;
	uint64_t	shorter;		/* the file was cut */
} Tally;

static Tally *tally;

static PmhTable *
open_table(void)
{
	PmhEnv		env = fixture_env(1);
	PmhError	error;
	PmhTable   *t;

	REQUIRE(pmh_open(path, &env, &t, NULL, &error) == PMH_OK);
	return t;
}

/* One pair of a wave: new keys, and more values for long keys and others. */
static PmhEntry
wave_entry(uint64_t round, uint64_t i, bool to_lists)
{
	uint64_t	value = own_value(i, 0);

	if (!to_lists)
		return (PmhEntry) {fixture_hash(KEYS + round * WAVE + i), value};
	if (i % 2 == 0)
		return (PmhEntry) {fixture_hash(i / 2 % LONG_KEYS), value};
	return (PmhEntry) {fixture_hash(i % KEYS), value};
}

/* Let the table grow a lot and take it all out again, over and over. */
static void
waves(Stage *stage)
{
	PmhTable   *t = open_table();
	PmhEntry   *entries = malloc((WAVE + LONG_WAVE) * sizeof(PmhEntry));

	REQUIRE(entries != NULL);
	for (uint64_t round = 0; !stage_stopped(stage); round++)
	{
		bool		to_lists = round % 2 != 0;
		uint64_t	n = to_lists ? LONG_WAVE : WAVE;
		size_t		done;

		for (uint64_t i = 0; i < n; i++)
			entries[i] = wave_entry(round, i, to_lists);
		for (uint64_t from = 0; from < 2 * n; from += LOT)
		{
			const PmhEntry *lot = entries + from % n;

			pace(0);
			if (from < n)
				REQUIRE(pmh_insert_group(t, lot, LOT, false, &done) == PMH_OK);
			else
				REQUIRE(pmh_delete_group(t, lot, LOT, &done) == PMH_OK);
			CHECK(done == LOT);
		}
		usleep(20000);
	}
	free(entries);
	pmh_close(t);
}

/* Insert and delete pairs of its own, on keys that stay and new ones. */
static void
churn(Stage *stage, int number)
{
	PmhTable   *t = open_table();
	PmhEntry   *own = calloc(OWN_PAIRS, sizeof(PmhEntry));
	uint64_t	seed = 99;
	uint64_t	counter = 0;

	REQUIRE(own != NULL);
	while (!stage_stopped(stage))
	{
		pace(counter);
		replace_own(t, &own[fixture_random(&seed) % OWN_PAIRS],
					own_value(counter++, number), &seed);
	}
	take_out_own(t, own, OWN_PAIRS);
	free(own);
	pmh_close(t);
}

/* Shrink all the time; one in five is given up half-way. */
static void
shrink_on(Stage *stage, int number)
{
	PmhTable   *t = open_table();
	uint64_t	seed = (uint64_t) number;

	while (!stage_stopped(stage))
	{
		PmhShrink	shrink;
		PmhResult	result = pmh_shrink_begin(t, PMH_DEFAULT_FILL, &shrink);
		uint64_t	most = fixture_random(&seed) % 5 == 0 ?
			fixture_random(&seed) % 500 : UINT64_MAX;

		if (result == PMH_DONE)
		{
			usleep(PAUSE);
			continue;
		}
		while (result == PMH_OK && shrink.steps < most)
			result = pmh_shrink_step(t, &shrink);
		if (!CHECK(result == PMH_DONE || shrink.steps >= most))
			fprintf(stderr, "%s\n", pmh_error(t)->detail);
		__atomic_fetch_add(&tally->shrinks, result == PMH_DONE, __ATOMIC_RELAXED);
		__atomic_fetch_add(&tally->shorter, shrink.bytes_after < shrink.bytes_before,
						   __ATOMIC_RELAXED);
		pmh_shrink_end(t, &shrink);
	}
	pmh_close(t);
}

static void
work(Stage *stage, int number)
{
	if (number == 0)
		waves(stage);
	else if (number == 1)
		churn(stage, number);
	else
		shrink_on(stage, number);
}

/* ---- readers ---- */

static void
sweep_once(PmhTable *t, uint8_t *seen, uint64_t ids)
{
	PmhSweep	sweep;
	PmhResult	result;

	memset(seen, 0, ids);
	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	while ((result = pmh_sweep_next(t, &sweep)) == PMH_OK)
	{
		for (size_t i = 0; i < sweep.n; i++)
		{
			uint64_t	id = sweep.entries[i].value / 2;

			if (sweep.entries[i].value % 2 != 0)
				continue;
			REQUIRE(id < ids);
			seen[id]++;
		}
	}
	CHECK(result == PMH_DONE);
	pmh_sweep_end(t, &sweep);
	for (uint64_t id = 0; id < ids; id++)
		CHECK(seen[id] == 1);
}

static void
look_up_once(PmhTable *t)
{
	PmhValues	values = {0};
	uint64_t	id = 0;

	for (uint64_t key = 0; key < KEYS; key++)
	{
		uint64_t	n = 0;

		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		for (size_t i = 0; i < values.n; i++)
		{
			if (values.value[i] % 2 == 0)
				CHECK(values.value[i] == 2 * (id + n++));
		}
		CHECK(n == values_of_key(key));
		id += values_of_key(key);
	}
	pmh_values_free(&values);
}

/* Read a long key in small batches, slowly where it is likely to change. */
static void
cursor_once(PmhTable *t, PmhCursor *cursor, uint64_t key, uint8_t *seen)
{
	uint64_t	first = key * LONG_VALUES;
	unsigned	batches = 0;
	PmhResult	result;

	memset(seen, 0, LONG_VALUES);
	pmh_cursor_open(t, cursor, fixture_hash(key));
	while ((result = pmh_cursor_next(t, cursor, 50)) == PMH_OK)
	{
		if (batches++ % 8 == 0)
			usleep(200);
		for (size_t i = 0; i < cursor->batch.n; i++)
		{
			uint64_t	id = cursor->batch.value[i] / 2;

			if (cursor->batch.value[i] % 2 != 0)
				continue;
			REQUIRE(id >= first && id < first + LONG_VALUES);
			seen[id - first]++;
		}
	}
	CHECK(result == PMH_DONE);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
		CHECK(seen[i] == 1);
}

/* Has the table been shrunk, and (not when all is slow) its file, some times? */
static bool
enough_seen(void)
{
#ifdef __SANITIZE_THREAD__
	return __atomic_load_n(&tally->shrinks, __ATOMIC_RELAXED) >= 1;
#else
	return __atomic_load_n(&tally->shorter, __ATOMIC_RELAXED) >= 3;
#endif
}

int
main(void)
{
	PmhEnv		env = fixture_env(1);
	PmhError	error;
	PmhTable   *t;
	PmhStats	stats;
	PmhCursor	cursor = {0};
	Stage	   *stage = stage_make();
	Worker		worker[WORKERS];
	uint64_t	ids;
	uint8_t    *seen;

	path = fixture_path("shrink_threads");
	unlink(path);
	tally = mmap(NULL, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(tally != MAP_FAILED);
	REQUIRE(pmh_create(path, NULL, NULL, &env, &t, &error) == PMH_OK);
	ids = fill(t);
	seen = malloc(ids);
	REQUIRE(seen != NULL);
	sweep_once(t, seen, ids);

	workers_start(worker, WORKERS, work, stage);
	for (int round = 0; round < ROUNDS || !enough_seen(); round++)
	{
		look_up_once(t);
		sweep_once(t, seen, ids);
		for (uint64_t key = 0; key < LONG_KEYS; key++)
			cursor_once(t, &cursor, key, seen);
		REQUIRE(pmh_stats(t, &stats) == PMH_OK);
		CHECK(stats.entries >= ids);
		CHECK(pmh_check(t, false, fixture_report, NULL) == PMH_OK);
		REQUIRE(round < 100 * ROUNDS);
	}
	workers_stop(worker, WORKERS, stage);

	CHECK(tally->shrinks > 0);
	sweep_once(t, seen, ids);
	look_up_once(t);
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == ids);
	CHECK(stats.merges > 0);
	CHECK(stats.value_space_known);
	printf("%llu shrinks, %llu made the file shorter, %llu merges\n",
		   (unsigned long long) tally->shrinks, (unsigned long long) tally->shorter,
		   (unsigned long long) stats.merges);
	pmh_cursor_free(&cursor);
	pmh_close(t);
	unlink(path);
	free(seen);
	return unit_done("shrink_threads");
}
