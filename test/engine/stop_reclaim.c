/*-------------------------------------------------------------------------
 *
 * stop_reclaim.c
 *	  A walk finds out which value buffers are in use beside processes that are
 *	  stopped between taking a buffer off its list and freeing it, or that free
 *	  lists as it begins.  Each buffer has one owner in the end.
 *
 * The engine is compiled with PMH_STOP_POINTS here.  Walk and writer are processes of
 * their own, which stop at a named point; a walk stops then where it begins to wait for
 * a lock as well.
 *
 *-------------------------------------------------------------------------
 */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "lock.h"
#include "pm.h"
#include "space.h"
#include "stop_point.h"
#include "sweeps.h"
#include "table.h"
#include "unit.h"

#define LOST_LISTS		50
#define LOST_VALUES		30
#define FULL_VALUES		10		/* in a list as it is made, which is full then */

/* Of the first segment in hash order, however deep it is. */
#define FIRST_HASH		(fixture_hash(7) >> 24)
#define OTHER_HASH		(fixture_hash(8) >> 24)

static const char *path;
static PmhTable *others;

/* In a child: */
static const char *stop_at;		/* NULL: nowhere */
static bool of_walk;			/* it is one that finds out what is used: ... */
static bool begun;
static bool stop_in_wait;		/* ... the first wait after that, as well */
static bool may_give_up;
static bool give_up;

void
pmh_stop_point(const char *name)
{
	begun |= strcmp(name, "value_walk_begun") == 0;
	if (stop_at == NULL || strcmp(stop_at, name) != 0 || (of_walk && !begun))
		return;
	stop_at = NULL;
	raise(SIGSTOP);
	stop_in_wait = of_walk;
}

static void
wait_begins(void)
{
	if (!stop_in_wait)
		return;
	stop_in_wait = false;
	raise(SIGSTOP);
	may_give_up = true;
}

static bool
wants_to_give_up(void)
{
	return give_up && may_give_up;
}

typedef PmhResult (*Operation) (PmhTable *t);

static pid_t
start(Operation operation, const char *point, bool walks)
{
	static const PmhWaitHooks hooks = {.begin = wait_begins, .cancelled = wants_to_give_up};
	pid_t		pid = fork();

	REQUIRE(pid >= 0);
	if (pid == 0)
	{
		PmhTable   *t = fixture_open(path, 1);

		(void) alarm(60);
		pmh_set_wait_hooks(&hooks);
		of_walk = walks;
		stop_at = point;
		_exit(operation(t) == PMH_OK ? 0 : 1);
	}
	return pid;
}

/* Let a process go on until it stops once more, or ends. */
static bool
stops_again(pid_t pid)
{
	int			status;

	REQUIRE(waitpid(pid, &status, WUNTRACED) == pid);
	return WIFSTOPPED(status);
}

static pid_t
start_until(Operation operation, const char *point, bool walks)
{
	pid_t		pid = start(operation, point, walks);

	REQUIRE(stops_again(pid));
	return pid;
}

static void
go_on(pid_t pid)
{
	REQUIRE(kill(pid, SIGCONT) == 0);
}

static void
await(pid_t pid)
{
	int			status;

	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void
insert_values(uint64_t hash, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_insert(others, hash, i, false) == PMH_OK);
}

/* ---- what is freed when a sweep begins to find out what is free ---- */

static PmhResult
delete_lists(PmhTable *t)
{
	PmhResult	result = PMH_OK;

	for (uint64_t i = 0; i < LOST_LISTS * LOST_VALUES && result == PMH_OK; i++)
		result = pmh_delete(t, fixture_hash(i / LOST_VALUES), i);
	return result;
}

/*
 * The others may do what they can as long as the sweep stands still; what they
 * cannot they do when it goes on.  Nothing is lost in either case.
 */
static void
lists_freed_as_sweep_begins(void)
{
	pid_t		sweeper;
	pid_t		deleter;

	others = fixture_create(path);
	for (uint64_t i = 0; i < 4 * LOST_LISTS * LOST_VALUES; i++)
		REQUIRE(pmh_insert(others, fixture_hash(i / LOST_VALUES), i, false) == PMH_OK);
	pmh_value_lose(others);
	sweeper = start_until(sweep_through, "value_walk_begun", false);
	deleter = start(delete_lists, NULL, false);
	usleep(300000);
	go_on(sweeper);
	await(sweeper);
	await(deleter);
	CHECK(pmh_value_space_is_known(others));
	CLOSE_SOUND(others);
}

/* ---- what is off its list, and not freed, when the walk is over ---- */

static PmhResult
insert_one_more(PmhTable *t)
{
	return pmh_insert(t, FIRST_HASH, FULL_VALUES, false);
}

static PmhResult
delete_last(PmhTable *t)
{
	return pmh_delete(t, FIRST_HASH, 0);
}

static PmhResult
sweep_given_up(PmhTable *t)
{
	PmhResult	result;

	give_up = true;
	result = sweep_through(t);
	return result == PMH_CANCELLED ? PMH_OK : result == PMH_OK ? PMH_RETRY : result;
}

/*
 * A walk is held at a point before it reads the list of FIRST_HASH; a writer
 * takes the buffer off, and stops, with the stripe held, before it frees it.  The walk
 * may not end before the writer has.
 */
static void
walk_and_writer(Operation walk, const char *point, Operation write)
{
	pid_t		walker = start_until(walk, point, true);
	pid_t		writer = start_until(write, "list_before_free", false);
	bool		waits;

	go_on(walker);
	waits = stops_again(walker);
	CHECK(waits);
	CHECK(!pmh_value_space_is_known(others));
	if (waits && walk == sweep_given_up)
	{
		go_on(walker);
		await(walker);
		waits = false;
	}
	go_on(writer);
	await(writer);
	if (waits)
	{
		go_on(walker);
		await(walker);
	}
}

/* Lists in one block, which is given back if nothing in it is marked. */
static void
make_lists(bool another)
{
	others = fixture_create(path);
	insert_values(FIRST_HASH, FULL_VALUES);
	if (another)
		insert_values(OTHER_HASH, FULL_VALUES);
	pmh_value_lose(others);
}

static void
list_grows_beside_sweep(bool another)
{
	make_lists(another);
	walk_and_writer(sweep_through, "sweep_before_list", insert_one_more);
	CHECK(pmh_value_space_is_known(others));
	CLOSE_SOUND(others);
}

static void
list_goes_beside_sweep(bool another)
{
	make_lists(another);
	for (uint64_t i = 1; i < FULL_VALUES; i++)
		REQUIRE(pmh_delete(others, FIRST_HASH, i) == PMH_OK);
	walk_and_writer(sweep_through, "segment_between_buckets", delete_last);
	CHECK(pmh_value_space_is_known(others));
	CLOSE_SOUND(others);
}

/* The sweep frees nothing then, and the next one finds what there is. */
static void
wait_is_given_up(void)
{
	make_lists(true);
	walk_and_writer(sweep_given_up, "sweep_before_list", insert_one_more);
	CHECK(!pmh_value_space_is_known(others));
	CHECK_SOUND(others);
	CHECK(sweep_through(others) == PMH_OK);
	CHECK(pmh_value_space_is_known(others));
	CLOSE_SOUND(others);
}

/* ---- what is allocated before a walk begins, and in a list only after that ---- */

/*
 * A writer has allocated a buffer when a walk begins, and stops, with the stripe held, before
 * the list has it.  The walk does not come by before it has.
 */
static void
list_grows_before_sweep(void)
{
	pid_t		writer;
	pid_t		walker;

	make_lists(true);
	writer = start_until(insert_one_more, "repoint_before_word", false);
	walker = start(sweep_through, NULL, false);
	for (unsigned i = 0; i < 1000 && pm_load(&pmh_run(others)->old_blocks) == 0; i++)
		usleep(10000);
	usleep(200000);
	go_on(writer);
	await(writer);
	await(walker);
	CHECK(pmh_value_space_is_known(others));
	CLOSE_SOUND(others);
}

/* ---- two walks at a time ---- */

/* One is about to free what it has found; another one comes by and does so. */
static void
walk_beside_walk(void)
{
	pid_t		first;

	make_lists(true);
	first = start_until(sweep_through, "value_walk_settles", false);
	CHECK(sweep_through(others) == PMH_OK);
	CHECK(pmh_value_space_is_known(others));
	REQUIRE(delete_last(others) == PMH_OK);
	insert_values(OTHER_HASH, 3 * FULL_VALUES);
	go_on(first);
	await(first);
	CHECK(pmh_value_space_is_known(others));
	CLOSE_SOUND(others);
}

/* The other one begins with the bits anew: what the first has found is void. */
static void
bits_begin_anew_beside_walk(void)
{
	pid_t		first;
	PmhSweep	sweep;
	PmhResult	result;

	make_lists(true);
	first = start_until(sweep_through, "value_walk_settles", false);
	pmh_value_lose(others);
	result = pmh_sweep_begin(others, &sweep);
	CHECK(result == PMH_OK && sweep.reclaims);
	go_on(first);
	await(first);
	CHECK(!pmh_value_space_is_known(others));
	CHECK(sweep_to_end(others, &sweep, result) == PMH_OK);
	CHECK(pmh_value_space_is_known(others));
	CLOSE_SOUND(others);
}

/* ---- what is freed in a block of an earlier life ---- */

/* After it was marked, and before: it is free when the walk is through. */
static void
freed_beside_walk(const char *point)
{
	pid_t		walker;
	uint64_t	blocks;

	make_lists(true);
	walker = start_until(sweep_through, point, false);
	for (uint64_t i = 0; i < FULL_VALUES; i++)
	{
		REQUIRE(pmh_delete(others, FIRST_HASH, i) == PMH_OK);
		REQUIRE(pmh_delete(others, OTHER_HASH, i) == PMH_OK);
	}
	go_on(walker);
	await(walker);
	CHECK(pmh_value_space_is_known(others));
	blocks = pm_load(&pmh_run(others)->value_blocks);
	CHECK(blocks == 0);
	CLOSE_SOUND(others);
}

int
main(void)
{
	path = fixture_path("stop_reclaim");
	(void) alarm(120);
	TEST(lists_freed_as_sweep_begins());
	TEST(list_grows_beside_sweep(false));
	TEST(list_grows_beside_sweep(true));
	TEST(list_goes_beside_sweep(false));
	TEST(list_goes_beside_sweep(true));
	TEST(wait_is_given_up());
	TEST(list_grows_before_sweep());
	TEST(walk_beside_walk());
	TEST(bits_begin_anew_beside_walk());
	TEST(freed_beside_walk("value_walk_begun"));
	TEST(freed_beside_walk("sweep_before_list"));
	TEST(freed_beside_walk("value_walk_settles"));
	unlink(path);
	return unit_done("stop_reclaim");
}
