/*-------------------------------------------------------------------------
 *
 * sweep_threads.c
 *	  Sweeps and cursors while others insert, delete and split: what is there
 *	  all the time is seen exactly once, and what a sweep takes out is gone.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "fixture.h"
#include "unit.h"
#include "workers.h"

#define WORKERS			3		/* the last one works in bursts */
#define BURST			((uint64_t) FIXTURE_SCALE(7000))
#define KEYS			((uint64_t) FIXTURE_SCALE(60000))
#define LONG_KEYS		4		/* the first keys have very many values */
#define LONG_VALUES		((uint64_t) FIXTURE_SCALE(40000))
#define OWN_PAIRS		20000	/* pairs a worker has in the table at a time */

#include "standing.h"

static const char *path;

static PmhTable *
open_table(uint64_t instance)
{
	PmhEnv		env = fixture_env(instance);
	PmhError	error;
	PmhTable   *t;

	REQUIRE(pmh_open(path, &env, &t, NULL, &error) == PMH_OK);
	return t;
}

/*
 * Put so many values in front of a long list that buffers are chained, and take
 * them out again: buffers in which a cursor stands vanish.
 */
static void
burst(PmhTable *t, int number, uint64_t key)
{
	for (uint64_t i = 0; i < BURST; i++)
		REQUIRE(pmh_insert(t, fixture_hash(key), own_value(i, number), false) == PMH_OK);
	for (uint64_t i = BURST; i-- > 0;)
		CHECK(pmh_delete(t, fixture_hash(key), own_value(i, number)) == PMH_OK);
}

static void
work_in_bursts(Stage *stage, int number)
{
	PmhTable   *t = open_table(1);

	for (uint64_t round = 0; !stage_stopped(stage); round++)
		burst(t, number, round % LONG_KEYS);
	pmh_close(t);
}

/* Insert and delete pairs of its own, on old keys and new ones. */
static void
churn(Stage *stage, int number)
{
	PmhTable   *t = open_table(1);
	PmhEntry   *own = calloc(OWN_PAIRS, sizeof(PmhEntry));
	uint64_t	seed = (uint64_t) number + 99;
	uint64_t	counter = 0;

	REQUIRE(own != NULL);
	while (!stage_stopped(stage))
		replace_own(t, &own[fixture_random(&seed) % OWN_PAIRS],
					own_value(counter++, number), &seed);
	take_out_own(t, own, OWN_PAIRS);
	free(own);
	pmh_close(t);
}

static void
work(Stage *stage, int number)
{
	if (number == WORKERS - 1)
		work_in_bursts(stage, number);
	else
		churn(stage, number);
}

/* Every id that stays has been seen 'want(id)' times. */
static void
check_seen(const uint8_t *seen, uint64_t ids, bool without_thirds)
{
	for (uint64_t id = 0; id < ids; id++)
		CHECK(seen[id] == (without_thirds && id % 3 == 0 ? 0 : 1));
}

/* One sweep; takes the ids divisible by three out if 'remove'. */
static uint64_t
sweep_once(PmhTable *t, uint8_t *seen, uint64_t ids, bool remove)
{
	PmhSweep	sweep;
	PmhResult	result;
	uint8_t    *dead = NULL;
	uint64_t	total = 0;
	uint64_t	wanted = 0;

	memset(seen, 0, ids);
	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	while ((result = pmh_sweep_next(t, &sweep)) == PMH_OK)
	{
		size_t		removed;

		dead = realloc(dead, sweep.n);
		REQUIRE(dead != NULL);
		for (size_t i = 0; i < sweep.n; i++)
		{
			uint64_t	id = sweep.entries[i].value / 2;

			dead[i] = 0;
			if (sweep.entries[i].value % 2 != 0)
				continue;
			REQUIRE(id < ids);
			seen[id]++;
			dead[i] = remove && id % 3 == 0;
			wanted += dead[i];
		}
		REQUIRE(pmh_sweep_remove(t, &sweep, dead, &removed) == PMH_OK);
		total += removed;
	}
	CHECK(result == PMH_DONE);
	CHECK(total == wanted);
	pmh_sweep_end(t, &sweep);
	free(dead);
	return total;
}

/*
 * Read long keys by cursors; ids of the key are first .. first + n - 1.  Near
 * the head of the list, where bursts come and go, the cursor takes its time.
 */
static void
cursor_once(PmhTable *t, PmhCursor *cursor, uint64_t key, uint8_t *seen,
			bool without_thirds, size_t want)
{
	uint64_t	n = values_of_key(key);
	uint64_t	first = key * n;
	unsigned	batches = 0;
	PmhResult	result;

	memset(seen, 0, n);
	pmh_cursor_open(t, cursor, fixture_hash(key));
	while ((result = pmh_cursor_next(t, cursor, want)) == PMH_OK)
	{
		if (batches++ < 20)
			usleep(300);
		for (size_t i = 0; i < cursor->batch.n; i++)
		{
			uint64_t	id = cursor->batch.value[i] / 2;

			if (cursor->batch.value[i] % 2 != 0)
				continue;
			REQUIRE(id >= first && id < first + n);
			seen[id - first]++;
		}
	}
	CHECK(result == PMH_DONE);
	for (uint64_t i = 0; i < n; i++)
		CHECK(seen[i] == (without_thirds && (first + i) % 3 == 0 ? 0 : 1));
}

static void
read_all(PmhTable *t, uint8_t *seen, uint64_t ids, bool without_thirds)
{
	PmhCursor	cursor = {0};

	for (int round = 0; round < 3; round++)
	{
		(void) sweep_once(t, seen, ids, false);
		check_seen(seen, ids, without_thirds);
		for (uint64_t i = 0; i < 5 * LONG_KEYS; i++)
			cursor_once(t, &cursor, i % LONG_KEYS, seen, without_thirds,
						50 + 1000 * (size_t) round);
	}
	pmh_cursor_free(&cursor);
}

int
main(void)
{
	PmhEnv		env = fixture_env(1);
	PmhError	error;
	PmhTable   *t;
	PmhStats	stats;
	Stage	   *stage = stage_make();
	Worker		worker[WORKERS];
	uint64_t	ids;
	uint64_t	removed;
	uint8_t    *seen;

	path = fixture_path("sweep_threads");
	unlink(path);
	REQUIRE(pmh_create(path, NULL, NULL, &env, &t, &error) == PMH_OK);
	ids = fill(t);
	seen = malloc(ids);
	REQUIRE(seen != NULL);
	(void) sweep_once(t, seen, ids, false);
	check_seen(seen, ids, false);

	workers_start(worker, WORKERS, work, stage);
	read_all(t, seen, ids, false);
	removed = sweep_once(t, seen, ids, true);
	check_seen(seen, ids, false);
	CHECK(removed == (ids + 2) / 3);
	read_all(t, seen, ids, true);
	workers_stop(worker, WORKERS, stage);

	(void) sweep_once(t, seen, ids, true);
	check_seen(seen, ids, true);
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == ids - removed);
	pmh_close(t);
	unlink(path);
	free(seen);
	return unit_done("sweep_threads");
}
