/*-------------------------------------------------------------------------
 *
 * stop_readers.c
 *	  A reader that stands still in the middle of a look-up, while what it
 *	  reads is taken away, given to others and written anew: it notices.
 *
 * The engine is compiled with PMH_STOP_POINTS here.  The reader is a child
 * that stops itself (SIGSTOP); it goes on as soon as the space that it is
 * about to read has another use.
 *
 *-------------------------------------------------------------------------
 */
#include <signal.h>
#include <sys/wait.h>

#include "content.h"
#include "sweeps.h"

#define TRIALS		15
#define PATIENCE	60			/* seconds a reader gets */

static const char *path;
static const char *stop_at;		/* in the reader; NULL: nowhere */
static const char *stop_again;	/* as soon as it goes on: there next */
static uint64_t stop_countdown = 1;

void
pmh_stop_point(const char *name)
{
	if (stop_at != NULL && strcmp(stop_at, name) == 0 && --stop_countdown == 0)
	{
		stop_at = stop_again;
		stop_again = NULL;
		stop_countdown = 1;
		raise(SIGSTOP);
	}
}

static PmhTable *
make_table(bool force_pmem)
{
	PmhEnv		env = fixture_env_on(force_pmem, 1);
	PmhTable   *t = fixture_create_in(path, &env);

	/* One segment of a block, as hash_at takes it to be. */
	for (uint32_t size = 0; size < PMH_UNITS_PER_BLOCK;)
	{
		PmhPlace	place;
		PmhResult	result;

		REQUIRE(pmh_segment_lock(t, 0, &place) == PMH_OK);
		size = pmh_elem_size(place.elem);
		result = size < PMH_UNITS_PER_BLOCK ? pmh_segment_enlarge(t, &place) : PMH_RETRY;
		pmh_segment_unlock(&place);
		REQUIRE(result == PMH_RETRY || (result == PMH_NEED && pmh_provide(t) == PMH_OK));
	}
	REQUIRE(pmh_conclude(t, PMH_OK) == PMH_OK);
	return t;
}

/* What another process does with a pair: a reader tells whether it has found what it may. */
typedef PmhResult (*Change) (PmhTable *t, uint64_t hash, uint64_t value);

static void
put(PmhTable *t, uint64_t hash, uint64_t value)
{
	REQUIRE(pmh_insert(t, hash, value, false) == PMH_OK);
}

static PmhResult
insert_pair(PmhTable *t, uint64_t hash, uint64_t value)
{
	return pmh_insert(t, hash, value, false);
}

static PmhResult
check_all(PmhTable *t, uint64_t hash, uint64_t value)
{
	return fixture_check(t);
}

/* Start it, and stop the n-th time at a point. */
static pid_t
start_change(Change change, const char *point, uint64_t n, uint64_t hash, uint64_t value)
{
	int			status;
	pid_t		pid = fork();

	REQUIRE(pid >= 0);
	if (pid == 0)
	{
		PmhTable   *t = fixture_open(path, 1);
		PmhValues	values = {0};

		(void) alarm(PATIENCE);
		/* The first look-up finds the directory out; what comes next knows it. */
		REQUIRE(pmh_lookup(t, hash, &values) == PMH_OK);
		stop_at = point;
		stop_countdown = n;
		_exit(change(t, hash, value) == PMH_OK ? 0 : 1);
	}
	REQUIRE(waitpid(pid, &status, WUNTRACED) == pid);
	REQUIRE(WIFSTOPPED(status));
	return pid;
}

/* A reader finds 'least' to 'most' values, none below 'first' and none beyond 'last'. */
typedef struct Expected
{
	size_t		least;
	size_t		most;
	uint64_t	first;
	uint64_t	last;
} Expected;

static Expected expected;

static PmhResult
look_up(PmhTable *t, uint64_t hash, uint64_t value)
{
	PmhValues	values = {0};
	PmhResult	result = pmh_lookup(t, hash, &values);

	return result != PMH_OK || (values.n >= expected.least && values.n <= expected.most &&
								values.value[0] >= expected.first &&
								values.value[values.n - 1] <= expected.last) ? result : PMH_ERR_CORRUPT;
}

static pid_t
start_reader(const char *point, uint64_t n, uint64_t hash, size_t least, size_t most,
			 uint64_t first, uint64_t last)
{
	expected = (Expected) {least, most, first, last};
	return start_change(look_up, point, n, hash, 0);
}

/* Goes on; true if it stops once more, false if it has ended (*well). */
static bool
stops_again(pid_t pid, bool *well)
{
	int			status;

	REQUIRE(kill(pid, SIGCONT) == 0);
	REQUIRE(waitpid(pid, &status, WUNTRACED) == pid);
	if (WIFSTOPPED(status))
		return true;
	*well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	return false;
}

/* Let it go on; did it end well? */
static bool
goes_on_well(pid_t pid)
{
	bool		well;

	return !stops_again(pid, &well) && well;
}

/* Keys that no test asks for. */
static uint64_t
other_hash(void)
{
	static uint64_t next = 1000000;

	return fixture_hash(next++);
}

/* The same with some keys of a table. */
static void
with_some_keys(void (*story) (PmhTable *t, uint64_t hash), bool force_pmem)
{
	PmhTable   *t = make_table(force_pmem);

	for (uint64_t trial = 0; trial < TRIALS; trial++)
		story(t, fixture_hash(trial));
	CLOSE_SOUND(t);
}

/* The segment is replaced, and its block becomes another segment's. */
static void
segment_given_away(PmhTable *t, uint64_t hash)
{
	PmhPlace	place;
	PmhPlace	now;
	pid_t		reader;

	put(t, hash, 5);
	for (unsigned i = 0; i < 300; i++)
		put(t, other_hash(), i);
	REQUIRE(pmh_locate(t, hash, &place) == PMH_OK);
	reader = start_reader("probe_before_reading", 1, hash, 1, 1, 5, 5);
	do
	{
		put(t, other_hash(), 7);
		REQUIRE(pmh_locate(t, hash, &now) == PMH_OK);
	} while (now.main == place.main ||
			 pm_load(pmh_space_map(t, place.main >> PMH_BLOCK_SHIFT)) == 0);
	CHECK(goes_on_well(reader));
}

/* The list grows by copy, and its buffer becomes another list's. */
static void
buffer_given_away(PmhTable *t, uint64_t hash)
{
	uint64_t	last = 1000;
	pid_t		reader;

	put_values(t, hash, 0, 9);
	reader = start_reader("list_before_reading", 1, hash, 9, 14, 0, last);
	put_values(t, hash, 9, 14);
	for (unsigned list = 0; list < 4; list++)
		put_values(t, other_hash(), last + 1, last + 9);
	CHECK(goes_on_well(reader));
}

/* So many keys get the home and alternative of this one. */
static void
put_beside(PmhTable *t, uint64_t hash, unsigned n)
{
	uint64_t	home_mask = UINT64_C(0xffff) << 8;

	while (n-- > 0)
		put(t, (other_hash() & ~home_mask) | (hash & home_mask), 9);
}

/* The entry is moved inside of its bucket, and its slot becomes another's. */
static void
slot_given_away(PmhTable *t, uint64_t hash)
{
	pid_t		reader;

	put(t, hash, 5);
	reader = start_reader("probe_before_slots", 1, hash, 1, 1, 5, 5);
	put_beside(t, hash, 8);
	CHECK(goes_on_well(reader));
}

/*
 * A key has two values, and the reader has seen in which slots.  It gets a third;
 * the two are taken out, and their slots become other keys'.  There was a value all
 * the time.
 */
static void
slots_of_two_given_away(PmhTable *t, uint64_t hash)
{
	pid_t		reader;

	put_values(t, hash, 5, 7);
	reader = start_reader("probe_before_slots", 1, hash, 1, 3, 5, 7);
	put(t, hash, 7);
	take_values(t, hash, 5, 7, 1);
	put_beside(t, hash, 2);
	CHECK(goes_on_well(reader));
}

/*
 * A value of a list is taken out and its cell given to another between the
 * two halves of its reading, which begins when the deletion has counted the version
 * up: no insert has ever put the one half and the other together.
 */
static void
cell_given_away(PmhTable *t, uint64_t hash)
{
	uint64_t	old_value = UINT64_C(1) << 32 | UINT32_MAX;
	uint64_t	new_value = UINT64_C(4) << 32;
	pid_t		deleter;
	pid_t		reader;

	/* It is in the third cell then, whose halves are in two words of the line. */
	put_values(t, hash, (UINT64_C(3) << 32) + 1, (UINT64_C(3) << 32) + 3);
	put(t, hash, old_value);
	put_values(t, hash, (UINT64_C(3) << 32) + 3, (UINT64_C(3) << 32) + 9);
	deleter = start_change(pmh_delete, "line_clear_before_state", 1, hash, old_value);
	reader = start_reader("value_between_halves", 2, hash, 8, 9, old_value, new_value);
	CHECK(goes_on_well(deleter));
	put(t, hash, new_value);
	CHECK(goes_on_well(reader));
}

/* Values of a list whose oldest buffer is far from the head, and of that one. */
#define FAR_VALUES		20000
#define OLDEST_VALUES	635

/*
 * Two take out the same value, far down a list.  One has it in its hands while the
 * other, that walks without the lock, comes by; then that buffer becomes the head,
 * and another value gets the cell: it is not what the second one has found.
 */
static void
value_taken_out_twice(void)
{
	PmhTable   *t = make_table(false);
	uint64_t	hash = fixture_hash(1);
	bool		well;
	pid_t		first;
	pid_t		second;

	put_values(t, hash, 0, FAR_VALUES);
	stop_again = "drain_before_lock";
	second = start_change(pmh_delete, "list_before_validation", 1, hash, 0);
	stop_again = NULL;
	first = start_change(pmh_delete, "line_clear_before_state", 1, hash, 0);
	REQUIRE(stops_again(second, &well));
	CHECK(goes_on_well(first));
	take_values(t, hash, OLDEST_VALUES, FAR_VALUES, 1);
	put(t, hash, FAR_VALUES);
	CHECK(!goes_on_well(second));	/* it has found nothing to take out */
	expected = (Expected) {OLDEST_VALUES, OLDEST_VALUES, 1, FAR_VALUES};
	CHECK(look_up(t, hash, 0) == PMH_OK);
	CLOSE_SOUND(t);
}

/*
 * Would a new key be put into its alternative bucket, a later one than its
 * home, whose filter does not show such an entry yet?  Gives how many buckets a walk
 * has read when it has read the home.
 */
static bool
is_to_be_announced(PmhTable *t, uint64_t hash, uint64_t *read)
{
	PmhPlace	place;
	PmhPlace	walk;
	uint64_t	next = 0;
	uint32_t	home;
	uint32_t	alt;
	uint32_t	state;
	uint32_t	alt_state;

	REQUIRE(pmh_locate(t, hash, &place) == PMH_OK);
	home = pmh_home_bucket(hash, place.hashing);
	alt = pmh_alt_bucket(hash, place.hashing, home);
	state = pmh_bucket_state(pmh_bucket(t, &place, home));
	alt_state = pmh_bucket_state(pmh_bucket(t, &place, alt));
	if (pmh_elem_strategy(place.elem) == PMH_SINGLE || alt < home ||
		(state & pmh_filter_bit(hash)) != 0 || !pmh_state_full(state) ||
		pmh_state_full(alt_state))
		return false;
	*read = home + 1;
	REQUIRE(pmh_locate(t, 0, &walk) == PMH_OK);
	while (walk.main != place.main)
	{
		uint32_t	depth = pmh_elem_depth(walk.elem);

		*read += walk.buckets;
		next = (pmh_hash_prefix(next, depth) + 1) << (64 - depth);
		REQUIRE(pmh_locate(t, next, &walk) == PMH_OK);
	}
	return true;
}

/*
 * A put has counted its version up and not yet set the filter bit of the home; a
 * check copies the home; the put goes on; the check copies the other bucket.
 */
static void
announced_meanwhile(void)
{
	PmhTable   *t = make_table(false);
	unsigned	trials = 0;

	for (uint64_t key = 0; trials < TRIALS && key < 200000; key++)
	{
		uint64_t	hash = fixture_hash(key);
		uint64_t	read;
		pid_t		writer;
		pid_t		checker;

		if (!is_to_be_announced(t, hash, &read))
		{
			put(t, hash, 3);
			continue;
		}
		writer = start_change(insert_pair, "put_before_announcing", 1, hash, 3);
		checker = start_change(check_all, "segment_between_buckets", read, 0, 0);
		CHECK(goes_on_well(writer));
		CHECK(goes_on_well(checker));
		trials++;
	}
	CHECK(trials == TRIALS);
	CLOSE_SOUND(t);
}

/* ---- several buckets, one state ---- */

/*
 * A hash with these buckets among the hashing ones of a table with one segment
 * of one block: 'number' tells such hashes apart.
 */
static uint64_t
hash_at(uint64_t home, uint64_t alt, uint64_t number)
{
	uint64_t	home_bits = (home * 65536 + PMH_IN_MAIN - 1) / PMH_IN_MAIN;
	uint64_t	alt_bits = (alt * 65536 + PMH_IN_MAIN - 2) / (PMH_IN_MAIN - 1);

	return number << 40 | alt_bits << 24 | home_bits << 8 | (number & 0xff);
}

/* Insert (hash, value) and then (hash, value + 1). */
static PmhResult
insert_two(PmhTable *t, uint64_t hash, uint64_t value)
{
	PmhResult	result = pmh_insert(t, hash, value, false);

	return result == PMH_OK ? pmh_insert(t, hash, value + 1, false) : result;
}

/* Values 1, 2, ... were put in one after the other: is none left out? */
static PmhResult
none_left_out(PmhTable *t, uint64_t hash, uint64_t value)
{
	PmhValues	values = {0};
	PmhResult	result = pmh_lookup(t, hash, &values);

	return result == PMH_OK && values.n > 0 && values.value[values.n - 1] != values.n ?
		PMH_ERR_CORRUPT : result;
}

/*
 * A writer has counted the version of the home up, and not yet committed value 2
 * there; a reader reads the home; the writer goes on, and puts 3 into the
 * alternative bucket.  A reader that finds 3 there must not miss 2.
 */
static void
later_value_elsewhere(void)
{
	PmhTable   *t = make_table(false);
	uint64_t	hash = hash_at(10, 20, 500);
	pid_t		writer;
	pid_t		reader;

	for (uint64_t i = 0; i < PMH_SLOTS; i++)
		put(t, hash_at(10, 30, i), 1000 + i);
	put(t, hash, 1);
	for (uint64_t i = 0; i < 5; i++)
		REQUIRE(pmh_delete(t, hash_at(10, 30, i), 1000 + i) == PMH_OK);
	writer = start_change(insert_two, "put_before_commit", 1, hash, 2);
	reader = start_change(none_left_out, "probe_before_elsewhere", 1, hash, 0);
	CHECK(goes_on_well(writer));
	CHECK(goes_on_well(reader));
	CLOSE_SOUND(t);
}

/*
 * A bucket without pointers is copied: its first line; then a group of its
 * entries becomes a list, by a writer that had counted the version up before;
 * then the line with the pointer.  The pointer is no value.
 */
static PmhResult
sweep_small_values(PmhTable *t, uint64_t hash, uint64_t least)
{
	Sweeper		s;
	const PmhEntry *pair;
	uint64_t	n = 0;
	bool		strange = false;

	sweeper_begin_reading(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		strange = strange || pair->value > 1000;
		n++;
	}
	return sweeper_end(&s) == PMH_OK && !strange && n >= least ? PMH_OK : PMH_ERR_CORRUPT;
}

static void
list_comes_while_copied(Change reading)
{
	PmhTable   *t = make_table(false);
	uint64_t	hash = hash_at(10, 20, 500);
	pid_t		writer;
	pid_t		reader;

	for (uint64_t i = 0; i < PMH_LINE0_SLOTS; i++)
		put(t, hash_at(10, 30, i), i);
	put_values(t, hash, 100, 100 + PMH_INLINE_MAX);
	writer = start_change(insert_pair, "compact_before_telling", 1, hash, 200);
	reader = start_change(reading, "segment_between_lines", 1, hash,
						  PMH_LINE0_SLOTS + PMH_INLINE_MAX);
	CHECK(goes_on_well(writer));
	CHECK(goes_on_well(reader));
	CLOSE_SOUND(t);
}

/*
 * Value 1 was taken out, and then value 2 out of a bucket further on: does a sweep
 * find the first without the second?
 */
static PmhResult
sweep_in_order(PmhTable *t, uint64_t hash, uint64_t value)
{
	Sweeper		s;
	const PmhEntry *pair;
	bool		found[3] = {false};

	sweeper_begin_reading(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
		found[pair->value] = true;
	return sweeper_end(&s) == PMH_OK && (found[2] || !found[1]) ? PMH_OK : PMH_ERR_CORRUPT;
}

/*
 * A segment is being copied; what has been copied is taken out, and then what has
 * not been: the copy is of no moment, if deletes do not count a version up.
 */
static void
deleted_while_copied(void)
{
	PmhTable   *t = make_table(false);
	uint64_t	first = hash_at(10, 30, 500);
	uint64_t	second = hash_at(20, 30, 501);
	pid_t		reader;

	put(t, first, 1);
	put(t, second, 2);
	reader = start_change(sweep_in_order, "segment_between_buckets", 15, first, 0);
	REQUIRE(pmh_delete(t, first, 1) == PMH_OK);
	REQUIRE(pmh_delete(t, second, 2) == PMH_OK);
	CHECK(goes_on_well(reader));
	CLOSE_SOUND(t);
}

/* Values of a list that has an index. */
#define LONG_LIST		1000

/*
 * A sweep has given the values of a key that are plain entries in its home; its list, which
 * hangs on the alternative bucket, is to be streamed.  That list goes, and those entries
 * become one: they do not come once more.
 */
static void
given_values_become_list(void)
{
	PmhTable   *t = make_table(false);
	uint64_t	hash = hash_at(10, 20, 500);
	uint64_t	given[2] = {0};
	PmhProbe	probe;
	Sweeper		s;
	const PmhEntry *pair;

	put_values(t, hash, 0, 2);
	for (uint64_t i = 2; i <= PMH_SLOTS; i++)
		put(t, hash_at(10, 30, i), i);
	put_values(t, hash, 2, LONG_LIST);
	REQUIRE(pmh_probe(t, hash, &probe) == PMH_OK && probe.n == 2 &&
			pmh_pointer_level(probe.list) > 0);
	sweeper_begin_reading(&s, t);
	pair = sweeper_next(&s);
	take_values(t, hash, 2, LONG_LIST, 1);
	for (uint64_t i = 2; i < PMH_SLOTS; i++)
		REQUIRE(pmh_delete(t, hash_at(10, 30, i), i) == PMH_OK);
	put_values(t, hash, 2, PMH_INLINE_MAX + 1);
	REQUIRE(pmh_probe(t, hash, &probe) == PMH_OK && probe.n == 0 && probe.list != 0);
	for (; pair != NULL; pair = sweeper_next(&s))
	{
		if (pair->hash == hash && pair->value < 2)
			given[pair->value]++;
	}
	CHECK(sweeper_end(&s) == PMH_OK && given[0] == 1 && given[1] == 1);
	CLOSE_SOUND(t);
}

/* ---- a segment that is moved away and comes back ---- */

static PmhResult
move_it(PmhTable *t, uint64_t hash, uint64_t value)
{
	move_segment(t, 0);
	return PMH_OK;
}

static PmhResult
look_up_twice_stopped(PmhTable *t, uint64_t hash, uint64_t most)
{
	stop_again = "probe_between_checks";
	expected = (Expected) {most, most, 1, most};
	return look_up(t, hash, 0);
}

static PmhResult
sweep_first_values(PmhTable *t, uint64_t hash, uint64_t most)
{
	Sweeper		s;
	const PmhEntry *pair;
	uint64_t	n = 0;
	bool		strange = false;

	sweeper_begin_reading(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		if (pair->hash != hash)
			continue;
		n++;
		strange = strange || pair->value > most;
	}
	return sweeper_end(&s) == PMH_OK && n == most && !strange ? PMH_OK : PMH_ERR_CORRUPT;
}

static PmhResult
sweep_twice_stopped(PmhTable *t, uint64_t hash, uint64_t most)
{
	stop_again = "current_between_checks";
	return sweep_first_values(t, hash, most);
}

/*
 * A reader has read the pointer to a list, and stops before it loads the version
 * of the buffer.  The segment is moved; the one that moves it has not counted the versions
 * of the old place up yet; the list grows out of its buffer, which another key
 * gets.  The reader goes on as far as between its two checks; the versions are
 * counted up, and the segment is moved back.  What the reader checks first must be
 * whether the place is current.
 */
static void
segment_comes_back(Change reading, const char *point)
{
	PmhTable   *t = make_table(false);
	uint64_t	hash = fixture_hash(1);
	uint64_t	other = fixture_hash(2);
	PmhPlace	before;
	PmhPlace	after;
	pid_t		mover;
	pid_t		reader;
	bool		well = false;

	put_values(t, hash, 1, 9);
	REQUIRE(pmh_locate(t, hash, &before) == PMH_OK);
	reader = start_change(reading, point, 1, hash, 8);
	mover = start_change(move_it, "retire_before_versions", 1, hash, 0);
	put_values(t, hash, 9, 12);
	take_values(t, hash, 9, 12, 1);
	put_values(t, other, 5001, 5009);
	if (stops_again(reader, &well))
	{
		CHECK(goes_on_well(mover));
		move_segment(t, 0);
		REQUIRE(pmh_locate(t, hash, &after) == PMH_OK);
		CHECK(after.elem == before.elem);
		well = goes_on_well(reader);
	}
	else
		CHECK(goes_on_well(mover));
	CHECK(well);
	CLOSE_SOUND(t);
}

int
main(void)
{
	path = fixture_path("stop_readers");
	TEST(later_value_elsewhere());
	TEST(list_comes_while_copied(sweep_small_values));
	TEST(list_comes_while_copied(check_all));
	TEST(deleted_while_copied());
	TEST(given_values_become_list());
	TEST(segment_comes_back(look_up_twice_stopped, "probe_before_slots"));
	TEST(segment_comes_back(sweep_twice_stopped, "sweep_before_list"));
	TEST(with_some_keys(segment_given_away, false));
	TEST(with_some_keys(buffer_given_away, false));
	TEST(with_some_keys(slot_given_away, true));
	TEST(with_some_keys(slots_of_two_given_away, false));
	TEST(with_some_keys(cell_given_away, false));
	TEST(value_taken_out_twice());
	TEST(announced_meanwhile());
	unlink(path);
	return unit_done("stop_readers");
}
