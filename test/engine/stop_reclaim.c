/*-------------------------------------------------------------------------
 *
 * stop_reclaim.c
 *	  A walk finds out which value buffers are in use beside processes that are
 *	  stopped between taking a buffer off its list and freeing it, or that free
 *	  lists as it begins.  Each buffer has one owner in the end; so have the maps of
 *	  walks.
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
#include "file_size.h"
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
#define SHRUNK_LISTS	UINT64_C(3000)

/* Of the first segment in hash order, however deep it is. */
#define FIRST_HASH		(fixture_hash(7) >> 24)
#define OTHER_HASH		(fixture_hash(8) >> 24)

static const char *path;
static PmhTable *others;

/* In a child: */
static const char *stop_at;		/* NULL: nowhere */
static bool only_beside_map;	/* not before there is a mark map */
static PmhTable *self;
static bool stop_in_wait;		/* the first one after that, of a walk with a map */
static bool may_give_up;
static bool give_up;

void
pmh_stop_point(const char *name)
{
	if (stop_at == NULL || strcmp(stop_at, name) != 0 ||
		(only_beside_map && pm_load(&pmh_run(self)->reclaim_mark) == 0))
		return;
	stop_at = NULL;
	raise(SIGSTOP);
	stop_in_wait = only_beside_map;
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
start(Operation operation, const char *point, bool beside_map)
{
	static const PmhWaitHooks hooks = {.begin = wait_begins, .cancelled = wants_to_give_up};
	pid_t		pid = fork();

	REQUIRE(pid >= 0);
	if (pid == 0)
	{
		(void) alarm(60);
		pmh_set_wait_hooks(&hooks);
		only_beside_map = beside_map;
		self = fixture_open(path, 1);
		stop_at = point;
		_exit(operation(self) == PMH_OK ? 0 : 1);
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
start_until(Operation operation, const char *point, bool beside_map)
{
	pid_t		pid = start(operation, point, beside_map);

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
close_sound(void)
{
	CHECK(pmh_check(others, true, fixture_report, NULL) == PMH_OK);
	pmh_close(others);
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
	pm_store64(&pmh_run(others)->value_space_known, 0);
	sweeper = start_until(sweep_through, "mark_map_before_forget", false);
	deleter = start(delete_lists, NULL, false);
	usleep(300000);
	go_on(sweeper);
	await(sweeper);
	await(deleter);
	CHECK(pm_load(&pmh_run(others)->value_space_known) != 0);
	close_sound();
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

static PmhResult
shrink(PmhTable *t)
{
	return fixture_shrink(t, PMH_DEFAULT_FILL);
}

/*
 * A walk with a map is held at a point before it reads the list of FIRST_HASH; a writer
 * takes the buffer off, and stops, with the stripe held, before it frees it.  The walk
 * may not end before the writer has.
 */
static void
walk_and_writer(Operation walk, const char *point, Operation write)
{
	pid_t		walker = start_until(walk, point, true);
	pid_t		writer = start_until(write, "list_before_free", false);
	uint64_t	map = pm_load(&pmh_run(others)->reclaim_mark);
	uint64_t	serial = pm_load(&pmh_run(others)->mark_serial);
	bool		waits;

	go_on(walker);
	waits = stops_again(walker);
	CHECK(waits);
	CHECK(pm_load(&pmh_run(others)->reclaim_mark) == map &&
		  pm_load(&pmh_run(others)->mark_serial) == serial);
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

/* Lists in one region, which goes back as a whole if nothing in it is marked. */
static void
make_lists(bool another)
{
	others = fixture_create(path);
	insert_values(FIRST_HASH, FULL_VALUES);
	if (another)
		insert_values(OTHER_HASH, FULL_VALUES);
	pm_store64(&pmh_run(others)->value_space_known, 0);
}

static void
list_grows_beside_sweep(bool another)
{
	make_lists(another);
	walk_and_writer(sweep_through, "sweep_before_list", insert_one_more);
	CHECK(pm_load(&pmh_run(others)->value_space_known) != 0);
	close_sound();
}

static void
list_goes_beside_sweep(bool another)
{
	make_lists(another);
	for (uint64_t i = 1; i < FULL_VALUES; i++)
		REQUIRE(pmh_delete(others, FIRST_HASH, i) == PMH_OK);
	walk_and_writer(sweep_through, "segment_between_buckets", delete_last);
	CHECK(pm_load(&pmh_run(others)->value_space_known) != 0);
	close_sound();
}

/* The sweep frees nothing then, and the next one finds what there is. */
static void
wait_is_given_up(void)
{
	make_lists(true);
	walk_and_writer(sweep_given_up, "sweep_before_list", insert_one_more);
	CHECK(pm_load(&pmh_run(others)->value_space_known) == 0);
	CHECK(pm_load(&pmh_run(others)->reclaim_mark) == 0);
	CHECK(pmh_check(others, true, fixture_report, NULL) == PMH_OK);
	CHECK(sweep_through(others) == PMH_OK);
	CHECK(pm_load(&pmh_run(others)->value_space_known) != 0);
	close_sound();
}

/* The regions of lists that are gone are given up, and one list is left in them. */
static void
list_goes_beside_shrink(void)
{
	others = fixture_create(path);
	for (uint64_t i = 0; i < SHRUNK_LISTS; i++)
		insert_values(fixture_hash(i) | UINT64_C(1) << 63, FULL_VALUES);
	insert_values(FIRST_HASH, FULL_VALUES);
	for (uint64_t i = 1; i < FULL_VALUES; i++)
		REQUIRE(pmh_delete(others, FIRST_HASH, i) == PMH_OK);
	for (uint64_t i = 0; i < SHRUNK_LISTS * FULL_VALUES; i++)
		REQUIRE(pmh_delete(others, fixture_hash(i / FULL_VALUES) | UINT64_C(1) << 63,
						   i % FULL_VALUES) == PMH_OK);
	walk_and_writer(shrink, "segment_between_buckets", delete_last);
	close_sound();
}

/* ---- a walk that takes over from one that was never ended ---- */

#define FREED_BLOCKS	16
#define KEYS			UINT64_C(40000)

/* Blocks in the part of the file that another process maps; the file grows after it. */
static uint64_t
take_blocks(void)
{
	uint64_t	offset;
	PmhResult	result;

	while ((result = pmh_space_alloc_extent(others, FREED_BLOCKS, &offset)) == PMH_NEED)
		REQUIRE(pmh_provide(others) == PMH_OK);
	REQUIRE(result == PMH_OK);
	return offset;
}

/*
 * It finds space for its own map, but cannot map the other one: it has no addresses just
 * then.  The other one's space is not lost by that.
 */
static void
old_map_out_of_reach(void)
{
	struct rlimit limit;
	struct rlimit none;
	uint64_t	offset;
	PmhTable   *t;
	PmhSweep	old;
	PmhSweep	sweep;

	others = fixture_create(path);
	insert_values(FIRST_HASH, FULL_VALUES);
	offset = take_blocks();
	t = fixture_open(path, 1);
	for (uint64_t i = 0; i < KEYS; i++)
		REQUIRE(pmh_insert(others, fixture_hash(i + 100), i, false) == PMH_OK);
	pm_store64(&pmh_run(others)->value_space_known, 0);
	REQUIRE(pmh_sweep_begin(others, &old) == PMH_OK);
	REQUIRE(pm_load(&pmh_run(others)->reclaim_mark) > t->file.bound);
	pmh_space_free_extent(others, offset, FREED_BLOCKS);

	REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
	none = (struct rlimit) {1, limit.rlim_max};
	REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
	CHECK(pmh_sweep_begin(t, &sweep) == PMH_ERR_NO_MEMORY);
	REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
	pmh_sweep_end(others, &old);
	CHECK(pmh_check(others, true, fixture_report, NULL) == PMH_OK);

	/* And now it can. */
	REQUIRE(pmh_sweep_begin(others, &old) == PMH_OK);
	CHECK(sweep_through(t) == PMH_OK);
	CHECK(pm_load(&pmh_run(others)->value_space_known) != 0);
	pmh_sweep_end(others, &old);
	pmh_close(t);
	close_sound();
}

/* ---- what is allocated before a walk begins, and in a list only after that ---- */

/*
 * A writer has allocated a buffer when there was no map yet, and stops, with the stripe
 * held, before the list has it.  The walk does not come by before it has.
 */
static void
list_grows_before_sweep(void)
{
	pid_t		writer;
	pid_t		walker;

	make_lists(true);
	/* What the writer has mapped has room for the map of marks. */
	pmh_space_free_extent(others, take_blocks(), FREED_BLOCKS);
	writer = start_until(insert_one_more, "repoint_before_word", false);
	walker = start(sweep_through, NULL, false);
	for (unsigned i = 0; i < 1000 && pm_load(&pmh_run(others)->reclaim_mark) == 0; i++)
		usleep(10000);
	usleep(200000);
	go_on(writer);
	await(writer);
	await(walker);
	CHECK(pm_load(&pmh_run(others)->value_space_known) != 0);
	close_sound();
}

/* ---- a walk that is about to free what it has found ---- */

/* Another one that begins then finds nothing out: it would free the same. */
static void
closed_map_is_left_alone(void)
{
	pid_t		first;
	PmhSweep	sweep;
	PmhResult	result;

	make_lists(true);
	first = start_until(sweep_through, "reclaim_closed", false);
	result = pmh_sweep_begin(others, &sweep);
	CHECK(result == PMH_OK && !pmh_sweep_reclaims(&sweep));
	go_on(first);
	await(first);
	CHECK(sweep_to_end(others, &sweep, result) == PMH_OK);
	CHECK(pm_load(&pmh_run(others)->value_space_known) != 0);
	close_sound();
}

/* ---- what is freed where the map of a walk is out of reach ---- */

#define MOST_TAKEN		200

/* Keys that leave the segment of FIRST_HASH alone. */
static void
insert_keys(uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		REQUIRE(pmh_insert(others, fixture_hash(i) | UINT64_C(1) << 63, i, false) == PMH_OK);
}

/*
 * The walk has marked a list already, and a process that has not mapped the map frees
 * it: what is free is not known when the walk ends, and the next one finds it.
 */
static void
freed_after_mark_without_map(void)
{
	uint64_t	taken[MOST_TAKEN];	/* so that the map is not near the start of the file */
	unsigned	n = 0;
	PmhTable   *t;
	PmhSweep	sweep;
	PmhResult	result;

	others = fixture_create(path);
	insert_keys(0, KEYS / 10);
	insert_values(FIRST_HASH, FULL_VALUES);
	t = fixture_open(path, 1);
	insert_keys(KEYS / 10, KEYS);
	pm_store64(&pmh_run(others)->value_space_known, 0);
	do
	{
		REQUIRE(n < MOST_TAKEN);
		while ((result = pmh_space_alloc_extent(others, 1, &taken[n])) == PMH_NEED)
			REQUIRE(pmh_provide(others) == PMH_OK);
		REQUIRE(result == PMH_OK);
	} while (taken[n++] < t->file.bound);
	REQUIRE(pmh_sweep_begin(others, &sweep) == PMH_OK);
	REQUIRE(pm_load(&pmh_run(others)->reclaim_mark) > t->file.bound);
	while (n > 0)
		pmh_space_free_extent(others, taken[--n], 1);
	result = pmh_sweep_next(others, &sweep);
	REQUIRE(result == PMH_OK && sweep.segments_done > 0);
	for (uint64_t i = 0; i < FULL_VALUES; i++)
		CHECK(pmh_delete(t, FIRST_HASH, i) == PMH_OK);
	REQUIRE(pm_load(&pmh_run(others)->reclaim_mark) > t->file.bound);
	CHECK(sweep_to_end(others, &sweep, result) == PMH_OK);
	CHECK(pm_load(&pmh_run(others)->value_space_known) == 0);
	CHECK(pmh_check(others, true, fixture_report, NULL) == PMH_OK);
	CHECK(sweep_through(others) == PMH_OK);
	CHECK(pm_load(&pmh_run(others)->value_space_known) != 0);
	pmh_close(t);
	close_sound();
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
	TEST(list_goes_beside_shrink());
	TEST(wait_is_given_up());
	TEST(old_map_out_of_reach());
	TEST(list_grows_before_sweep());
	TEST(closed_map_is_left_alone());
	TEST(freed_after_mark_without_map());
	unlink(path);
	return unit_done("stop_reclaim");
}
