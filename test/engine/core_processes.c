/*-------------------------------------------------------------------------
 *
 * core_processes.c
 *	  Several processes, each mapping the file where it likes: writers and
 *	  readers at once, and readers beside a writer that stands still with its
 *	  lock held.
 *
 *-------------------------------------------------------------------------
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"
#include "unit.h"

#define WRITERS		3
#define READERS		2
#define PERMANENT	UINT64_C(5000)

static const char *path;
static uint64_t keys;

static uint64_t
writer_key(unsigned writer, uint64_t k)
{
	return PERMANENT + k * WRITERS + writer;
}

static PmhTable *
open_table(void)
{
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;
	PmhError	error;

	/* Shift what comes next to other addresses in each process. */
	REQUIRE(mmap(NULL, 4096 * (size_t) (1 + getpid() % 100), PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	REQUIRE(pmh_open(path, &env, &t, NULL, &error) == PMH_OK);
	return t;
}

/* All keys get one value, every seventh gets forty, every third goes again. */
static void
write_keys(PmhTable *t, unsigned writer)
{
	for (uint64_t k = 0; k < keys; k++)
	{
		uint64_t	key = writer_key(writer, k);
		uint64_t	n = k % 7 == 0 ? 40 : 1;

		for (uint64_t v = 0; v < n; v++)
			REQUIRE(pmh_insert(t, fixture_hash(key), key * 64 + v, false) == PMH_OK);
		if (k % 3 == 0)
		{
			for (uint64_t v = 0; v < n; v++)
				REQUIRE(pmh_delete(t, fixture_hash(key), key * 64 + v) == PMH_OK);
		}
	}
}

static void
check_written(PmhTable *t)
{
	PmhValues	values = {0};

	for (unsigned writer = 0; writer < WRITERS; writer++)
	{
		for (uint64_t k = 0; k < keys; k++)
		{
			uint64_t	key = writer_key(writer, k);
			size_t		n = k % 3 == 0 ? 0 : k % 7 == 0 ? 40 : 1;

			REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
			CHECK(values.n == n);
			CHECK(n == 0 || (values.value[0] == key * 64 && values.value[n - 1] == key * 64 + n - 1));
		}
	}
	pmh_values_free(&values);
}

/* Permanent keys are always found; keys of writers have possible values. */
static void
read_keys(PmhTable *t, uint64_t *seed, uint64_t rounds)
{
	PmhValues	values = {0};

	for (uint64_t i = 0; i < rounds; i++)
	{
		uint64_t	key = fixture_random(seed) % PERMANENT;

		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		CHECK(values.n == 1 && values.value[0] == key);
		key = PERMANENT + fixture_random(seed) % (keys * WRITERS);
		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		for (size_t k = 0; k < values.n; k++)
			CHECK(values.value[k] / 64 == key);
	}
	pmh_values_free(&values);
}

/* What a child does: a function of its number.  Its exit status tells. */
static pid_t
spawn(void (*job) (unsigned), unsigned number)
{
	pid_t		pid = fork();

	REQUIRE(pid >= 0);
	if (pid == 0)
	{
		unit_failed = 0;
		job(number);
		_exit(unit_failed == 0 ? 0 : 1);
	}
	return pid;
}

static void
writer_job(unsigned number)
{
	PmhTable   *t = open_table();

	write_keys(t, number);
	pmh_close(t);
}

static void
reader_job(unsigned number)
{
	PmhTable   *t = open_table();
	uint64_t	seed = number;

	read_keys(t, &seed, keys);
	pmh_close(t);
}

static void
restless_job(unsigned number)
{
	PmhTable   *t = open_table();

	for (;;)
		write_keys(t, number);
}

static void
test_concurrent(void)
{
	pid_t		child[WRITERS + READERS];
	PmhTable   *t;

	for (unsigned i = 0; i < WRITERS; i++)
		child[i] = spawn(writer_job, i);
	for (unsigned i = 0; i < READERS; i++)
		child[WRITERS + i] = spawn(reader_job, i);
	for (unsigned i = 0; i < WRITERS + READERS; i++)
	{
		int			status;

		REQUIRE(waitpid(child[i], &status, 0) == child[i]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	t = open_table();
	check_written(t);
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	pmh_close(t);
}

/* Is any lock word held? */
static bool
lock_held(void)
{
	const uint64_t *word = (const uint64_t *) fixture_locks();
	size_t		header = pmh_locks_size(0) / sizeof(uint64_t);

	for (size_t i = 0; i < FIXTURE_STRIPES; i++)
	{
		if (__atomic_load_n(&word[header + 8 * i], __ATOMIC_RELAXED) != 0)
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
	pid_t		child = spawn(restless_job, 0);
	uint64_t	seed = 4711;
	unsigned	held = 0;
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	alarm(120);
	for (int i = 0; i < 400; i++)
	{
		int			status;
		struct timespec ts = {0, (long) (fixture_random(&seed) % 2000000)};

		(void) nanosleep(&ts, NULL);
		REQUIRE(kill(child, SIGSTOP) == 0);
		REQUIRE(waitpid(child, &status, WUNTRACED) == child);
		REQUIRE(WIFSTOPPED(status));
		held += lock_held();
		read_keys(t, &seed, 2000);
		REQUIRE(kill(child, SIGCONT) == 0);
	}
	alarm(0);
	REQUIRE(kill(child, SIGKILL) == 0);
	REQUIRE(waitpid(child, NULL, 0) == child);
	CHECK(held > 10);
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
	PmhTable   *t;
	PmhError	error;
	bool		recovered;
	uint64_t	seed = 5;

	pmh_locks_init(env.locks, FIXTURE_STRIPES);
	REQUIRE(pmh_open(path, &env, &t, &recovered, &error) == PMH_OK);
	CHECK(recovered);
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	read_keys(t, &seed, 100000);
	pmh_close(t);
}

int
main(void)
{
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;
	PmhError	error;

	path = fixture_path("core_processes");
	keys = FIXTURE_SCALE(100000);
	REQUIRE(pmh_create(path, NULL, NULL, &env, &t, &error) == PMH_OK);
	for (uint64_t k = 0; k < PERMANENT; k++)
		REQUIRE(pmh_insert(t, fixture_hash(k), k, false) == PMH_OK);
	pmh_close(t);

	test_concurrent();
	test_stopped_writer();
	test_after_kill();
	unlink(path);
	return unit_done("core_processes");
}
