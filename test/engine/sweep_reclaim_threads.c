/*-------------------------------------------------------------------------
 *
 * sweep_reclaim_threads.c
 *	  After a crash the first complete sweep finds the value buffers that
 *	  nothing points to, and no others, while writers go on.  (Beside writers and other
 *	  walks that stand still: stop_reclaim.c.)
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "fixture.h"
#include "list.h"
#include "table.h"
#include "unit.h"
#include "workers.h"

#define WORKERS		2
#define KEYS		((uint64_t) FIXTURE_SCALE(3000))
#define LEAKS		500

static const char *path;
static uint64_t instance = 1;

static PmhTable *
open_table(bool *recovered)
{
	PmhEnv		env = fixture_env(instance);
	PmhError	error;
	PmhTable   *t;

	REQUIRE(pmh_open(path, &env, &t, recovered, &error) == PMH_OK);
	return t;
}

static uint64_t
values_of_key(uint64_t key)
{
	return 1 + fixture_hash(key) % 40 * (key % 20 == 0 ? 40 : 1);
}

/* Every key has the values 0, 10, 20 ...; what else it has ends in 1 .. 9. */
static void
fill(PmhTable *t)
{
	for (uint64_t key = 0; key < KEYS; key++)
	{
		for (uint64_t i = 0; i < values_of_key(key); i++)
			REQUIRE(pmh_insert(t, fixture_hash(key), 10 * i, false) == PMH_OK);
	}
}

static void
check_values(PmhTable *t)
{
	PmhValues	values = {0};

	for (uint64_t key = 0; key < KEYS; key++)
	{
		uint64_t	n = 0;

		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		for (size_t i = 0; i < values.n; i++)
		{
			if (values.value[i] % 10 == 0)
				CHECK(values.value[i] == 10 * n++);
		}
		CHECK(n == values_of_key(key));
	}
	pmh_values_free(&values);
}

/* What a crash between making a buffer and publishing it leaves. */
static uint64_t
leak_buffers(PmhTable *t)
{
	uint64_t	bytes = 0;

	for (uint32_t i = 0; i < LEAKS; i++)
	{
		uint32_t	class = PMH_LEAST_CLASS + i % (PMH_CLASSES - PMH_LEAST_CLASS);
		uint64_t	offset;
		PmhResult	result;

		while ((result = pmh_value_alloc(t, class, &offset)) == PMH_NEED)
			REQUIRE(pmh_provide(t) == PMH_OK);
		REQUIRE(result == PMH_OK);
		memset(pmh_at(t, offset), 0xff, pmh_class_bytes(class));
		bytes += pmh_class_bytes(class);
	}
	return bytes;
}

/* Insert and delete values: lists grow, shrink, come and go. */
static void
churn(Stage *stage, int number)
{
	PmhTable   *t = open_table(NULL);
	uint64_t	seed = (uint64_t) number;

	while (!stage_stopped(stage))
	{
		uint64_t	key = fixture_random(&seed) % (2 * KEYS);
		uint64_t	n = 1 + fixture_random(&seed) % 100;

		for (uint64_t i = 0; i < n; i++)
			REQUIRE(pmh_insert(t, fixture_hash(key), 10 * i + 1 + (uint64_t) number, false) == PMH_OK);
		for (uint64_t i = 0; i < n; i++)
			CHECK(pmh_delete(t, fixture_hash(key), 10 * i + 1 + (uint64_t) number) == PMH_OK);
	}
	pmh_close(t);
}

static uint64_t
sweep(PmhTable *t, uint64_t most_steps)
{
	PmhSweep	sweep;
	PmhResult	result = PMH_OK;
	uint64_t	n = 0;

	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	while (most_steps-- > 0 && (result = pmh_sweep_next(t, &sweep)) == PMH_OK)
	{
		for (size_t i = 0; i < sweep.n; i++)
			n += sweep.entries[i].value % 10 == 0;
	}
	CHECK(result == (most_steps == UINT64_MAX ? PMH_OK : PMH_DONE));
	pmh_sweep_end(&sweep);
	return n;
}

static bool
known(PmhTable *t)
{
	PmhStats	stats;

	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	return stats.value_space_known;
}

/* The check complains if there is value space neither used nor free. */
static void
check_nothing_lost(PmhTable *t)
{
	CHECK(known(t));
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	check_values(t);
}

static uint64_t
used_bytes(PmhTable *t)
{
	PmhStats	stats;

	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	return stats.used_bytes;
}

static void
findings(void *arg, uint64_t offset, const char *finding)
{
	(void) offset;
	(void) finding;
	(*(int *) arg)++;
}

int
main(void)
{
	PmhEnv		env = fixture_env(instance);
	PmhError	error;
	PmhTable   *t;
	Stage	   *stage = stage_make();
	Worker		worker[WORKERS];
	uint64_t	pairs = 0;
	uint64_t	before;
	uint64_t	leaked;
	int			found = 0;
	bool		recovered;

	path = fixture_path("sweep_reclaim_threads");
	unlink(path);
	REQUIRE(pmh_create(path, NULL, &env, &t, &error) == PMH_OK);
	fill(t);
	for (uint64_t key = 0; key < KEYS; key++)
		pairs += values_of_key(key);
	check_nothing_lost(t);

	/* The check sees what is lost: else it would prove nothing below. */
	leaked = leak_buffers(t);
	before = used_bytes(t);
	CHECK(pmh_check(t, true, findings, NULL, &found) == PMH_ERR_CORRUPT);
	CHECK(found == 1);
	pmh_close(t);

	/* No other thread is at work. */
	instance++;
	t = open_table(&recovered);
	CHECK(recovered);
	CHECK(!known(t));
	CHECK(sweep(t, UINT64_MAX) == pairs);
	check_nothing_lost(t);

	/* What was found is used again. */
	(void) leak_buffers(t);
	CHECK(used_bytes(t) < before + leaked / 2);
	pmh_close(t);

	/* With writers at work, and a sweep that was given up before. */
	instance++;
	t = open_table(&recovered);
	CHECK(recovered);
	workers_start(worker, WORKERS, churn, stage);
	usleep(20000);
	(void) sweep(t, 3);
	CHECK(!known(t));
	for (int i = 0; i < 10 && !known(t); i++)
		CHECK(sweep(t, UINT64_MAX) == pairs);
	usleep(20000);
	workers_stop(worker, WORKERS, stage);
	check_nothing_lost(t);
	pmh_close(t);

	unlink(path);
	return unit_done("sweep_reclaim_threads");
}
