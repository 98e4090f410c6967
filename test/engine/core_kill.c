/*-------------------------------------------------------------------------
 *
 * core_kill.c
 *	  A process is killed at a random point of its work, again and again; the
 *	  file is recovered as after a crash of the system, and holds exactly what
 *	  had been done: every finished operation, and the one that was interrupted
 *	  either wholly or not at all.
 *
 * Operation i toggles a pair that is derived from i, so that the parent, which
 * sees how far the child has come, knows the model.
 *
 *-------------------------------------------------------------------------
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"
#include "sweeps.h"
#include "unit.h"

#define KEYS	UINT64_C(30000)
#define VALUES	64

static const char *path;
static uint64_t *done;			/* operations finished; shared with the child */
static uint64_t set[KEYS];		/* the model */

/* The pair of operation i.  A few keys have many values; phases of growth. */
static void
pair_of(uint64_t i, uint64_t *key, unsigned *value)
{
	uint64_t	r = fixture_hash(i);
	uint64_t	spread = 1 + (i >> 4) % KEYS;

	*key = r % spread;
	*value = (unsigned) (r >> 40) % (*key % 11 == 0 ? VALUES : *key % 3 == 0 ? 7 : 1);
}

static PmhResult
apply(PmhTable *t, uint64_t i)
{
	uint64_t	key;
	unsigned	v;
	PmhResult	result;

	pair_of(i, &key, &v);
	if ((set[key] >> v & 1) == 0)
		result = pmh_insert(t, fixture_hash(key), key * VALUES + v, false);
	else
		result = pmh_delete(t, fixture_hash(key), key * VALUES + v);
	set[key] ^= UINT64_C(1) << v;
	return result;
}

static void
child(uint64_t instance, bool force_pmem)
{
	PmhEnv		env = fixture_env(instance);
	PmhTable   *t;
	PmhError	error;

	env.force_pmem = force_pmem;
	if (pmh_open(path, &env, &t, NULL, &error) != PMH_OK)
		_exit(2);
	/* As VACUUM does, so that lost buffers come back. */
	if (instance % 3 == 0 && sweep_through(t) != PMH_OK)
		_exit(3);
	for (uint64_t i = *done;; i++)
	{
		if (apply(t, i) != PMH_OK)
			_exit(4);
		__atomic_store_n(done, i + 1, __ATOMIC_RELEASE);
	}
}

static uint64_t
values_of(PmhTable *t, uint64_t key, PmhValues *values)
{
	uint64_t	found = 0;

	REQUIRE(pmh_lookup(t, fixture_hash(key), values) == PMH_OK);
	for (size_t i = 0; i < values->n; i++)
	{
		CHECK(values->value[i] / VALUES == key);
		found |= UINT64_C(1) << values->value[i] % VALUES;
	}
	return found;
}

static void
verify(uint64_t instance, uint64_t from)
{
	PmhEnv		env = fixture_env(instance);
	PmhTable   *t;
	PmhError	error;
	PmhValues	values = {0};
	uint64_t	key;
	unsigned	v;

	pmh_locks_init(env.locks, FIXTURE_STRIPES);
	REQUIRE(pmh_open(path, &env, &t, NULL, &error) == PMH_OK);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);

	/* The model follows the child; the interrupted operation may be in or not. */
	for (uint64_t i = from; i < *done; i++)
	{
		pair_of(i, &key, &v);
		set[key] ^= UINT64_C(1) << v;
	}
	pair_of(*done, &key, &v);
	if (values_of(t, key, &values) == (set[key] ^ UINT64_C(1) << v))
	{
		set[key] ^= UINT64_C(1) << v;
		++*done;
	}
	for (uint64_t k = 0; k < KEYS; k++)
		CHECK(values_of(t, k, &values) == set[k]);
	pmh_values_free(&values);
	pmh_close(t);
}

static void
run(bool force_pmem, int rounds)
{
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;
	PmhError	error;
	uint64_t	seed = 8 + force_pmem;
	uint64_t	instance = 1;

	unlink(path);
	*done = 0;
	memset(set, 0, sizeof(set));
	REQUIRE(pmh_create(path, NULL, &env, &t, &error) == PMH_OK);
	pmh_close(t);
	for (int round = 0; round < rounds; round++)
	{
		uint64_t	from = *done;
		struct timespec ts = {0, (long) (fixture_random(&seed) % 25000000)};
		int			status;
		pid_t		pid;

		instance++;
		pid = fork();
		REQUIRE(pid >= 0);
		if (pid == 0)
			child(instance, force_pmem);
		(void) nanosleep(&ts, NULL);
		REQUIRE(kill(pid, SIGKILL) == 0);
		REQUIRE(waitpid(pid, &status, 0) == pid);
		REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		verify(++instance, from);
	}
	CHECK(*done > KEYS);
	unlink(path);
}

int
main(void)
{
	path = fixture_path("core_kill");
	done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(done != MAP_FAILED);
	run(false, 150);
	run(true, 60);
	return unit_done("core_kill");
}
