/*-------------------------------------------------------------------------
 *
 * sweep_threads.c
 *	  Sweeps, cursors and look-ups while others insert, delete and split, and then
 *	  while others shrink: what is there all the time is found by every look-up and
 *	  seen exactly once by every sweep and cursor; what a sweep takes out is gone.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "error.h"
#include "fixture.h"
#include "sweeps.h"
#include "table.h"
#include "unit.h"
#include "workers.h"

#define WORKERS			3		/* two that come and go, one in bursts */
#ifdef __SANITIZE_THREAD__
#define SHRINKERS		3		/* waves, churn, and one that shrinks */
#define ROUNDS			2
#define PAUSE			20000
#else
#define SHRINKERS		4		/* ... and two that shrink */
#define ROUNDS			12
#define PAUSE			1000
#endif
#define KEYS			((uint64_t) FIXTURE_SCALE(40000))
#define LONG_KEYS		4		/* the first keys have very many values */
#define LONG_VALUES		((uint64_t) FIXTURE_SCALE(30000))
#define BURST			((uint64_t) FIXTURE_SCALE(7000))
#define WAVE			((uint64_t) FIXTURE_SCALE(120000))
#define LONG_WAVE		((uint64_t) FIXTURE_SCALE(40000))
#define OWN_PAIRS		20000	/* pairs a worker has in the table at a time */
#define OWN_FEW			5000	/* ... beside shrinks */
#define BATCH			200

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
	uint64_t	shorter;		/* the file had less space than before */
} Tally;

static Tally *tally;

/* ---- those that insert and delete ---- */

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
	PmhTable   *t = fixture_open(path, 1);

	for (uint64_t round = 0; !stage_stopped(stage); round++)
		burst(t, number, round % LONG_KEYS);
	pmh_close(t);
}

/* Insert and delete n pairs of its own, on keys that stay and new ones. */
static void
churn(Stage *stage, int number, uint64_t n)
{
	PmhTable   *t = fixture_open(path, 1);
	PmhEntry   *own = calloc(n, sizeof(PmhEntry));
	uint64_t	seed = (uint64_t) number + 99;
	uint64_t	counter = 0;

	REQUIRE(own != NULL);
	while (!stage_stopped(stage))
	{
		if (n == OWN_FEW)
			pace(counter);
		replace_own(t, &own[fixture_random(&seed) % n], own_value(counter++, number), &seed);
	}
	take_out_own(t, own, n);
	free(own);
	pmh_close(t);
}

static void
work(Stage *stage, int number)
{
	if (number == WORKERS - 1)
		work_in_bursts(stage, number);
	else
		churn(stage, number, OWN_PAIRS);
}

/* ---- those that let it grow and shrink ---- */

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

/* Let the table grow far and take it all out again, over and over. */
static void
waves(Stage *stage)
{
	PmhTable   *t = fixture_open(path, 1);
	PmhEntry   *entries = malloc((WAVE + LONG_WAVE) * sizeof(PmhEntry));

	REQUIRE(entries != NULL);
	for (uint64_t round = 0; !stage_stopped(stage); round++)
	{
		bool		to_lists = round % 2 != 0;
		uint64_t	n = to_lists ? LONG_WAVE : WAVE;
		size_t		done;

		for (uint64_t i = 0; i < n; i++)
			entries[i] = wave_entry(round, i, to_lists);
		for (uint64_t from = 0; from < 2 * n; from += BATCH)
		{
			const PmhEntry *batch = entries + from % n;

			pace(0);
			if (from < n)
				REQUIRE(pmh_insert_group(t, batch, BATCH, false, &done) == PMH_OK);
			else
				REQUIRE(pmh_delete_group(t, batch, BATCH, &done) == PMH_OK);
			CHECK(done == BATCH);
		}
		usleep(20000);
	}
	free(entries);
	pmh_close(t);
}

/* Shrink all the time; one in five is given up half-way. */
static void
shrink_on(Stage *stage, int number)
{
	PmhTable   *t = fixture_open(path, 1);
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
		pmh_shrink_end(&shrink);
	}
	pmh_close(t);
}

static void
work_on_size(Stage *stage, int number)
{
	if (number == 0)
		waves(stage);
	else if (number == 1)
		churn(stage, number, OWN_FEW);
	else
		shrink_on(stage, number);
}

/* ---- readers ---- */

/* May an id be there no more, after a sweep that took the thirds out? */
static bool
is_gone(uint64_t id, bool without_thirds)
{
	return without_thirds && id % 3 == 0;
}

/* Every id that stays has been seen once. */
static void
check_seen(const uint8_t *seen, uint64_t first, uint64_t n, bool without_thirds)
{
	for (uint64_t i = 0; i < n; i++)
		CHECK(seen[i] == !is_gone(first + i, without_thirds));
}

/* One sweep; takes the ids divisible by three out if 'remove'. */
static uint64_t
sweep_once(PmhTable *t, uint8_t *seen, uint64_t ids, bool remove)
{
	Sweeper		s;
	const PmhEntry *pair;
	uint64_t	wanted = 0;

	memset(seen, 0, ids);
	sweeper_begin(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		uint64_t	id = pair->value / 2;

		if (pair->value % 2 != 0)
			continue;
		REQUIRE(id < ids);
		seen[id]++;
		if (!remove || id % 3 != 0)
			continue;
		sweeper_take_out(&s);
		wanted++;
	}
	CHECK(sweeper_end(&s) == PMH_OK);
	CHECK(s.removed == wanted);
	return s.removed;
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
	cursor->start = (uint32_t) fixture_hash(want);
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
	check_seen(seen, first, n, without_thirds);
}

/* Each key has the values that stay, in order, whatever others it has. */
static void
look_up_once(PmhTable *t, bool without_thirds)
{
	PmhValues	values = {0};
	uint64_t	id = 0;

	for (uint64_t key = 0; key < KEYS; key++)
	{
		uint64_t	end = id + values_of_key(key);

		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		for (size_t i = 0; i < values.n; i++)
		{
			if (values.value[i] % 2 != 0)
				continue;
			while (id < end && is_gone(id, without_thirds))
				id++;
			CHECK(values.value[i] == 2 * id++);
		}
		while (id < end && is_gone(id, without_thirds))
			id++;
		CHECK(id == end);
		id = end;
	}
	pmh_values_free(&values);
}

static void
read_all(PmhTable *t, uint8_t *seen, uint64_t ids, bool without_thirds)
{
	PmhCursor	cursor = {0};

	for (int round = 0; round < 3; round++)
	{
		(void) sweep_once(t, seen, ids, false);
		check_seen(seen, 0, ids, without_thirds);
		for (uint64_t i = 0; i < 5 * LONG_KEYS; i++)
			cursor_once(t, &cursor, i % LONG_KEYS, seen, without_thirds,
						50 + 1000 * (size_t) round);
	}
	pmh_cursor_free(&cursor);
}

/* ---- the two tests ---- */

/* Returns how many pairs a sweep has taken out: the ids divisible by three. */
static uint64_t
test_sweeps(PmhTable *t, uint8_t *seen, uint64_t ids)
{
	Stage	   *stage = stage_make();
	Worker		worker[WORKERS];
	uint64_t	removed;
	PmhStats	stats;

	workers_start(worker, WORKERS, work, stage);
	read_all(t, seen, ids, false);
	removed = sweep_once(t, seen, ids, true);
	check_seen(seen, 0, ids, false);
	CHECK(removed == (ids + 2) / 3);
	read_all(t, seen, ids, true);
	workers_stop(worker, WORKERS, stage);

	(void) sweep_once(t, seen, ids, true);
	check_seen(seen, 0, ids, true);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == ids - removed);
	return ids - removed;
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

static void
test_shrinks(PmhTable *t, uint8_t *seen, uint64_t ids, uint64_t staying)
{
	Stage	   *stage = stage_make();
	Worker		worker[SHRINKERS];
	PmhCursor	cursor = {0};
	PmhStats	stats;

	workers_start(worker, SHRINKERS, work_on_size, stage);
	for (int round = 0; round < ROUNDS || !enough_seen(); round++)
	{
		look_up_once(t, true);
		(void) sweep_once(t, seen, ids, false);
		check_seen(seen, 0, ids, true);
		for (uint64_t key = 0; key < LONG_KEYS; key++)
			cursor_once(t, &cursor, key, seen, true, 50);
		REQUIRE(pmh_stats(t, &stats) == PMH_OK);
		CHECK(stats.entries >= staying);
		CHECK(pmh_check(t, false, fixture_report, NULL, NULL) == PMH_OK);
		REQUIRE(round < 100 * ROUNDS);
	}
	workers_stop(worker, SHRINKERS, stage);

	CHECK(tally->shrinks > 0);
	(void) sweep_once(t, seen, ids, false);
	check_seen(seen, 0, ids, true);
	look_up_once(t, true);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == staying);
	CHECK(stats.merges > 0);
	CHECK(stats.value_space_known);
	printf("# %llu shrinks, %llu punched the file, %llu merges\n",
		   (unsigned long long) tally->shrinks, (unsigned long long) tally->shorter,
		   (unsigned long long) stats.merges);
	pmh_cursor_free(&cursor);
}

int
main(void)
{
	PmhEnv		env = fixture_env(1);
	PmhError	error;
	PmhTable   *t;
	uint64_t	ids;
	uint64_t	staying;
	uint8_t    *seen;

	path = fixture_path("sweep_threads");
	unlink(path);
	tally = mmap(NULL, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(tally != MAP_FAILED);
	REQUIRE(pmh_create(path, NULL, &env, &t, &error) == PMH_OK);
	ids = fill(t);
	seen = malloc(ids);
	REQUIRE(seen != NULL);
	(void) sweep_once(t, seen, ids, false);
	check_seen(seen, 0, ids, false);
	TEST(staying = test_sweeps(t, seen, ids));
	TEST(test_shrinks(t, seen, ids, staying));
	pmh_close(t);
	unlink(path);
	free(seen);
	return unit_done("sweep_threads");
}
