/*-------------------------------------------------------------------------
 *
 * core_threads.c
 *	  Several processes (under ThreadSanitizer threads), each mapping the file where
 *	  it likes: writers and readers at once, and readers beside a writer that stands
 *	  still with its lock held.
 *
 * Every writer owns the keys of its residue class; what it has put in stands in a
 * model that all share.  So it can check its own look-ups exactly, others for being
 * possible, and in the end all can be checked by the process that did not write.
 * What never is deleted must always be found.
 *
 *-------------------------------------------------------------------------
 */
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"
#include "unit.h"
#include "workers.h"

#define WRITERS		3
#define READERS		2
#define PERMANENT	UINT64_C(5000)	/* keys that are there all the time */
#define VALUES		64			/* a key's value v is key * VALUES + v */

static const char *path;
static uint64_t keys;			/* of each writer */
static uint64_t *model;			/* by writer and key: a bit for each value it has */
static bool flushed;

static uint64_t
writer_key(unsigned writer, uint64_t k)
{
	return PERMANENT + k * WRITERS + writer;
}

static uint64_t *
model_of(unsigned writer, uint64_t k)
{
	return &model[writer * keys + k];
}

static PmhTable *
open_table(void)
{
	PmhEnv		env = fixture_env_on(flushed, 1);

	fixture_shift_addresses();
	return fixture_open_in(path, &env);
}

/* ---- writers ---- */

/* Put a value in, or take it out if it is there. */
static void
change(PmhTable *t, unsigned writer, uint64_t k, unsigned v)
{
	uint64_t	key = writer_key(writer, k);
	uint64_t   *set = model_of(writer, k);

	if ((*set >> v & 1) == 0)
		CHECK(pmh_insert(t, fixture_hash(key), key * VALUES + v, false) == PMH_OK);
	else
		CHECK(pmh_delete(t, fixture_hash(key), key * VALUES + v) == PMH_OK);
	*set ^= UINT64_C(1) << v;
}

static void
check_writer(PmhTable *t, unsigned writer)
{
	PmhValues	values = {0};

	for (uint64_t k = 0; k < keys; k++)
	{
		uint64_t	key = writer_key(writer, k);
		uint64_t	found = 0;

		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		for (size_t i = 0; i < values.n; i++)
		{
			CHECK(values.value[i] / VALUES == key);
			found |= UINT64_C(1) << values.value[i] % VALUES;
		}
		CHECK(found == *model_of(writer, k));
		CHECK(values.n == (size_t) __builtin_popcountll(found));
	}
	pmh_values_free(&values);
}

/*
 * Changes all over the writer's keys, few enough that lists come and go; then a pass
 * in order, in which every seventh key gets all its values.
 */
static void
write_keys(Stage *stage, int number)
{
	unsigned	writer = (unsigned) number;
	PmhTable   *t = open_table();
	uint64_t	seed = writer;

	(void) stage;
	for (uint64_t i = 0; i < 4 * keys; i++)
	{
		uint64_t	k = fixture_random(&seed) % keys;

		change(t, writer, k, (unsigned) (fixture_random(&seed) % (k % 5 == 0 ? 32 : 2)));
	}
	for (uint64_t k = 0; k < keys; k += 7)
	{
		for (unsigned v = 0; v < 40; v++)
			change(t, writer, k, v);
	}
	check_writer(t, writer);
	pmh_close(t);
}

/* ---- readers ---- */

typedef struct Count
{
	uint64_t	first;			/* key of hashes[0] */
	uint64_t	n;
	bool		possible;
} Count;

static void
count_found(void *arg, size_t key, uint64_t value)
{
	Count	   *count = arg;

	count->n++;
	if (value != count->first + key)
		count->possible = false;
}

/* Permanent keys are always found; keys of writers have possible values, in order. */
static void
read_some(PmhTable *t, uint64_t *seed, PmhValues *values)
{
	uint64_t	hashes[20];
	Count		count = {fixture_random(seed) % (PERMANENT - 20), 0, true};
	uint64_t	key = writer_key((unsigned) (fixture_random(seed) % WRITERS),
								 fixture_random(seed) % keys);
	bool		possible = true;

	for (uint64_t i = 0; i < 20; i++)
		hashes[i] = fixture_hash(count.first + i);
	CHECK(pmh_lookup_group(t, hashes, 20, count_found, &count) == PMH_OK);
	CHECK(count.n == 20 && count.possible);

	REQUIRE(pmh_lookup(t, hashes[0], values) == PMH_OK);
	CHECK(values->n == 1 && values->value[0] == count.first);
	REQUIRE(pmh_lookup(t, fixture_hash(key), values) == PMH_OK);
	for (size_t i = 0; i < values->n; i++)
		possible = possible && values->value[i] / VALUES == key &&
			(i == 0 || values->value[i] > values->value[i - 1]);
	CHECK(possible);
}

static void
read_keys(Stage *stage, int number)
{
	PmhTable   *t = open_table();
	PmhValues	values = {0};
	uint64_t	seed = 77 + (uint64_t) number;

	while (!stage_stopped(stage))
		read_some(t, &seed, &values);
	pmh_values_free(&values);
	pmh_close(t);
}

static void
test_concurrent(void)
{
	PmhEnv		env = fixture_env_on(flushed, 1);
	Stage	   *reading = stage_make();
	Stage	   *writing = stage_make();
	Worker		reader[READERS];
	Worker		writer[WRITERS];
	PmhTable   *t;
	PmhError	error;

	REQUIRE(pmh_create(path, NULL, &env, &t, &error) == PMH_OK);
	for (uint64_t k = 0; k < PERMANENT; k++)
		REQUIRE(pmh_insert(t, fixture_hash(k), k, false) == PMH_OK);
	workers_start(reader, READERS, read_keys, reading);
	workers_start(writer, WRITERS, write_keys, writing);
	workers_stop(writer, WRITERS, writing);
	workers_stop(reader, READERS, reading);
	for (unsigned i = 0; i < WRITERS; i++)
		check_writer(t, i);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	pmh_close(t);
}

/* ---- a writer that stands still, and is killed ---- */

#ifndef __SANITIZE_THREAD__

static void
write_on(Stage *stage, int number)
{
	PmhTable   *t = open_table();

	(void) stage;
	for (uint64_t k = 0;; k = (k + 1) % keys)
	{
		for (unsigned v = 0; v < (k % 7 == 0 ? 40 : 1); v++)
			change(t, (unsigned) number, k, v);
	}
}

/* Is any stripe held? */
static bool
lock_held(void)
{
	const PmhLocks *locks = fixture_locks();

	for (uint64_t i = 0; i < locks->nstripes; i++)
	{
		if (__atomic_load_n(&locks->stripe[i].lock, __ATOMIC_RELAXED) != 0)
			return true;
	}
	return false;
}

/*
 * Stop a writer again and again at random points, many of which are inside of
 * its critical sections; readers must go on.  (If one waited, the alarm would
 * end the test.)
 */
static void
test_stopped_writer(void)
{
	PmhTable   *t = open_table();
	Stage	   *stage = stage_make();
	PmhValues	values = {0};
	Worker		writer;
	uint64_t	seed = 4711;
	unsigned	held = 0;

	workers_start(&writer, 1, write_on, stage);
	alarm(240);
	for (int i = 0; i < 400; i++)
	{
		struct timespec ts = {0, (long) (fixture_random(&seed) % 2000000)};
		int			status;

		(void) nanosleep(&ts, NULL);
		REQUIRE(kill(writer.pid, SIGSTOP) == 0);
		REQUIRE(waitpid(writer.pid, &status, WUNTRACED) == writer.pid);
		REQUIRE(WIFSTOPPED(status));
		held += lock_held();
		for (int k = 0; k < 200; k++)
			read_some(t, &seed, &values);
		REQUIRE(kill(writer.pid, SIGCONT) == 0);
	}
	alarm(0);
	REQUIRE(kill(writer.pid, SIGKILL) == 0);
	REQUIRE(waitpid(writer.pid, NULL, 0) == writer.pid);
	CHECK(held > 10);
	pmh_values_free(&values);
	pmh_close(t);
}

/*
 * The writer was killed, perhaps inside of an operation: what a crash of the
 * whole system is to a file in the page cache.  New locks, a new instance.
 */
static void
test_after_kill(void)
{
	PmhEnv		env = fixture_env(2);
	PmhValues	values = {0};
	PmhTable   *t;
	PmhError	error;
	bool		recovered;
	uint64_t	seed = 5;

	pmh_locks_init(env.locks, FIXTURE_STRIPES);
	REQUIRE(pmh_open(path, &env, &t, &recovered, &error) == PMH_OK);
	CHECK(recovered);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	for (int i = 0; i < 20000; i++)
		read_some(t, &seed, &values);
	for (unsigned i = 1; i < WRITERS; i++)
		check_writer(t, i);
	pmh_values_free(&values);
	pmh_close(t);
}

#endif

/* The tests in their order, with a new file. */
static void
run(bool on, uint64_t nkeys)
{
	flushed = on;
	keys = nkeys;
	memset(model, 0, WRITERS * keys * sizeof(uint64_t));
	TEST(test_concurrent());
#ifndef __SANITIZE_THREAD__
	TEST(test_stopped_writer());
	TEST(test_after_kill());
#endif
	unlink(path);
}

int
main(void)
{
	path = fixture_path("core_threads");
	model = mmap(NULL, WRITERS * FIXTURE_SCALE(150000) * sizeof(uint64_t),
				 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(model != MAP_FAILED);
	run(false, FIXTURE_SCALE(150000));
	run(true, FIXTURE_SCALE(50000));
	return unit_done("core_threads");
}
