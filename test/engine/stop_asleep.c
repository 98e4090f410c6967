/*-------------------------------------------------------------------------
 *
 * stop_asleep.c
 *	  A search: what an operation does while a writer sleeps that holds locks.
 *
 * stop_between lets others act between two steps of an operation, from beginning to
 * end.  Here one writer, with a stack of its own, inserts, deletes or sweeps, and is stopped
 * at any of its stop points, each name of them as likely, with what it has locked.  The operation goes on as far as
 * it can; where it has to wait for a lock the writer goes on, else at some stop point of
 * the operation, or past its end.  Then each key has the values that it should have, and
 * the check finds each buffer in one place.
 *
 * All of it is decided by random numbers from a seed:
 *
 *	stop_asleep					some files, with operations on each
 *	stop_asleep FILES SEED		as many, from this seed on
 *
 *-------------------------------------------------------------------------
 */
#include <ucontext.h>

#include "fixture.h"
#include "sweeps.h"

#define FILES			3
#define OPERATIONS		50		/* on each */
#define KEYS			40
#define MOST_VALUES		3000	/* of a key */
#define MOST_NEW		1500
#define STACK_BYTES		(1024 * 1024)
#define LONGEST_RUN		12		/* of the operation, in stop points: the logarithm */
#define MOST_NAMES		100
#define MOST_TIMES		4		/* the writer comes by a name, and goes on */

static const char *path;
static PmhTable *self;			/* of the operation ... */
static PmhTable *others;		/* ... and of the writer */
static uint64_t seed;
static uint64_t file_seed;
static uint64_t first[KEYS];	/* a key has these values ... */
static uint64_t next[KEYS];		/* ... up to this one */

/* The writer. */
static ucontext_t operation_context;
static ucontext_t writer_context;
static bool is_writer;			/* it is running */
static bool is_asleep;			/* it has begun, and is not through */
static bool may_stop;
static const char *names[MOST_NAMES];	/* of stop points that it has come by */
static unsigned nnames;
static const char *stop_at;		/* one of these ... */
static uint64_t writer_countdown;	/* ... after so many times */
static bool sleeps_on;			/* as long as no other waits for it */
static uint64_t locks_asleep;	/* that it holds */

/* The operation. */
static bool listening;
static uint64_t countdown;		/* to where the writer begins, or goes on */
static uint64_t all_asleep;		/* with a lock held */
static uint64_t all_awaited;

static uint64_t
choose(uint64_t n)
{
	return fixture_random(&seed) % n;
}

/* ---- the writer ---- */

static void
insert_some(uint64_t key)
{
	for (uint64_t n = choose(3) == 0 ? 1 : choose(MOST_NEW);
		 n > 0 && next[key] - first[key] < MOST_VALUES; n--)
		REQUIRE(pmh_insert(others, fixture_hash(key), next[key]++, false) == PMH_OK);
}

/* One by one, or all at once. */
static void
delete_some(uint64_t key)
{
	static PmhEntry entry[MOST_VALUES];
	uint64_t	n = next[key] - first[key];
	size_t		removed;

	if (n > 0 && choose(2) == 0)
		n = 1 + choose(n);
	if (choose(2) == 0)
	{
		for (uint64_t i = 0; i < n; i++)
			entry[i] = (PmhEntry) {fixture_hash(key), first[key] + i};
		REQUIRE(pmh_delete_group(others, entry, n, &removed) == PMH_OK && removed == n);
		first[key] += n;
		return;
	}
	for (; n > 0; n--)
		REQUIRE(pmh_delete(others, fixture_hash(key), first[key]++) == PMH_OK);
}

static void
write_some(void)
{
	uint64_t	key = choose(KEYS);

	switch (choose(5))
	{
		case 0:
			REQUIRE(sweep_through(others) == PMH_OK);
			break;
		case 1:
		case 2:
			insert_some(key);
			break;
		default:
			delete_some(key);
	}
	is_asleep = false;
}

/* Leave the writer where it is. */
static void
fall_asleep(void)
{
	locks_asleep = fixture_locks_held();
	all_asleep += locks_asleep > 0;
	is_writer = false;
	REQUIRE(swapcontext(&writer_context, &operation_context) == 0);
}

/* Let it begin, or go on; it stops after some stop points, or ends. */
static void
writer_runs(bool stops)
{
	static uint64_t stack[STACK_BYTES / sizeof(uint64_t)];

	if (!is_asleep)
	{
		REQUIRE(getcontext(&writer_context) == 0);
		writer_context.uc_stack.ss_sp = stack;
		writer_context.uc_stack.ss_size = sizeof(stack);
		writer_context.uc_link = &operation_context;
		makecontext(&writer_context, write_some, 0);
		is_asleep = true;
	}
	may_stop = stops;
	stop_at = nnames > 0 ? names[choose(nnames)] : NULL;
	writer_countdown = 1 + choose(MOST_TIMES);
	sleeps_on = choose(2) == 0;
	is_writer = true;
	REQUIRE(swapcontext(&operation_context, &writer_context) == 0);
	is_writer = false;
	if (!is_asleep)
		locks_asleep = 0;
}

/* ---- the operation ---- */

static void
draw_countdown(void)
{
	countdown = 1 + choose(UINT64_C(1) << choose(LONGEST_RUN));
}

/* Where the writer holds a lock is what we are after. */
static void
writer_comes_by(const char *name)
{
	unsigned	i = 0;

	while (i < nnames && strcmp(names[i], name) != 0)
		i++;
	if (i == nnames && nnames < MOST_NAMES)
		names[nnames++] = name;
	if (may_stop && stop_at != NULL && strcmp(name, stop_at) == 0 &&
		--writer_countdown == 0)
	{
		writer_countdown = 1;
		if (fixture_locks_held() > 0 || choose(8) == 0)
			fall_asleep();
	}
}

void
pmh_stop_point(const char *name)
{
	if (is_writer)
	{
		writer_comes_by(name);
		return;
	}
	if (!listening || --countdown != 0)
		return;
	draw_countdown();
	/* The writer could wait for what the operation holds. */
	if (fixture_locks_held() == locks_asleep && (!is_asleep || !sleeps_on))
		writer_runs(true);
}

/* A process that waits for a lock lets the other one go on until that is free. */
static void
wait_begins(void)
{
	if (is_writer)
		fall_asleep();
	else
	{
		REQUIRE(is_asleep);
		all_awaited++;
		writer_runs(false);
	}
}

static void
check_keys(void)
{
	PmhValues	values = {0};
	uint64_t	wrong = 0;

	for (uint64_t key = 0; key < KEYS; key++)
	{
		REQUIRE(pmh_lookup(self, fixture_hash(key), &values) == PMH_OK);
		wrong += values.n != next[key] - first[key];
		for (size_t i = 0; i < values.n; i++)
			wrong += values.value[i] != first[key] + i;
	}
	pmh_values_free(&values);
	if (!CHECK(wrong == 0) ||
		!CHECK(check_alone(others, fixture_report, NULL) == PMH_OK))
	{
		fprintf(stderr, "  seed %llu: %llu values are wrong: %s\n",
				(unsigned long long) file_seed, (unsigned long long) wrong,
				pmh_error(others)->detail);
		exit(1);
	}
}

static void
one_operation(void)
{
	PmhResult	result;

	draw_countdown();
	if (choose(2) == 0)
		fixture_forget_space(self);
	if (choose(2) == 0)
		writer_runs(true);
	listening = true;
	result = choose(3) == 0 ? fixture_shrink(self, PMH_DEFAULT_FILL) : sweep_through(self);
	listening = false;
	if (!CHECK(result == PMH_OK))
		fprintf(stderr, "  seed %llu: %s\n", (unsigned long long) file_seed,
				pmh_error(self)->detail);
	if (is_asleep)
		writer_runs(false);
	CHECK(!is_asleep && fixture_no_lock_held());
	check_keys();
}

static void
make_table(void)
{
	others = fixture_create(path);
	self = fixture_open(path, 1);
	memset(first, 0, sizeof(first));
	memset(next, 0, sizeof(next));
	for (uint64_t key = 0; key < KEYS; key++)
		insert_some(key);
}

int
main(int argc, char **argv)
{
	static const PmhWaitHooks hooks = {.begin = wait_begins};
	uint64_t	files = argc > 1 ? strtoull(argv[1], NULL, 10) : FILES;
	uint64_t	first_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	path = fixture_path("stop_asleep");
	(void) alarm(600);
	pmh_set_wait_hooks(&hooks);
	for (uint64_t file = 0; file < files; file++)
	{
		seed = file_seed = first_seed + file;
		make_table();
		for (unsigned i = 0; i < OPERATIONS; i++)
			one_operation();
		pmh_close(self);
		pmh_close(others);
	}
	CHECK(all_asleep > files * OPERATIONS / 2 && all_awaited > files * OPERATIONS / 20);
	unlink(path);
	return unit_done("stop_asleep");
}
