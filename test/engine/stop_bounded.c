/*-------------------------------------------------------------------------
 *
 * stop_bounded.c
 *	  No call goes on for long by itself: it ends, or sees now and then whether the
 *	  process wants to do something else.  Nor does it take much memory, however long the
 *	  list of a key is.
 *
 * The engine is compiled with PMH_STOP_POINTS here, and readings of value buffers
 * are counted.  Memory is counted as malloc hands it out.
 *
 *-------------------------------------------------------------------------
 */
#include <malloc.h>
#include <signal.h>

#include "content.h"
#include "sweeps.h"

#define BUFFERS			100		/* at least, of the long list */
#define LIST_VALUES		(BUFFERS * UINT64_C(2600))
#define GIVEN			(LIST_VALUES / 10 * 9)
#define MOST_BUFFERS	33		/* that a call reads and finds nothing new in ... */
#define MOST_READ		(MOST_BUFFERS * 3 * PMH_MAX_LINES)	/* ... and points in lines */
#define BATCH			64
#define GONE			3000
#define MOST_BYTES		(4 * PMH_STEP_MAX * 40)	/* for LIST_VALUES of them */

static const char *path;
static uint64_t readings;		/* of a buffer, or a part of one */
static uint64_t points_read;	/* three to each line */
static uint64_t spoilt;			/* of so many readings all but the last; 0: none */
static uint64_t *held;			/* a lock that a process has which is stopped */

void
pmh_stop_point(const char *name)
{
	readings += strcmp(name, "list_before_reading") == 0;
	points_read += strcmp(name, "value_between_halves") == 0;
	if (strcmp(name, "list_before_reading") == 0 && spoilt != 0 && readings % spoilt != 0)
		fixture_count_buffers_up();
}

/* One key with a long list. */
static PmhTable *
make_list(void)
{
	PmhTable   *t = fixture_create(path);

	fixture_load_list(t, fixture_hash(0), LIST_VALUES);
	return t;
}

/* ---- memory ---- */

static size_t bytes_before;
static size_t most_bytes;

static size_t
bytes_taken(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static void
begin_counting(void)
{
	bytes_before = bytes_taken();
	most_bytes = 0;
}

static void
count_bytes(void)
{
	size_t		bytes = bytes_taken();

	if (bytes > bytes_before && bytes - bytes_before > most_bytes)
		most_bytes = bytes - bytes_before;
}

static void
check_bytes(void)
{
	if (!CHECK(most_bytes <= MOST_BYTES))
		fprintf(stderr, "  %zu bytes for a list of %zu values\n", most_bytes, (size_t) LIST_VALUES);
}

/* ---- cursors ---- */

static uint8_t given[LIST_VALUES];

/* The values that a reader has got; returns the least. */
static uint64_t
note_given(const uint64_t *value, size_t n)
{
	uint64_t	least = UINT64_MAX;

	for (size_t i = 0; i < n; i++)
	{
		REQUIRE(value[i] < LIST_VALUES);
		given[value[i]]++;
		least = value[i] < least ? value[i] : least;
	}
	return least;
}

/* A reader begins to read the list, ... */
static void
begin_reading(void)
{
	memset(given, 0, sizeof(given));
	begin_counting();
}

/* ... and has got each value once, with little memory. */
static void
each_is_given_once(void)
{
	uint64_t	wrong = 0;

	for (uint64_t v = 0; v < LIST_VALUES; v++)
		wrong += given[v] != 1;
	CHECK(wrong == 0);
	check_bytes();
}

/* Values before this one, more than a buffer holds, go; they count as given. */
static void
take_before(PmhTable *t, uint64_t end)
{
	take_values(t, fixture_hash(0), end - GONE, end, 1);
	memset(given + end - GONE, 1, GONE);
}

static uint64_t
larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* All that is in the buffer where a cursor stands goes; they count as given. */
static void
empty_buffer(PmhTable *t, const PmhCursor *cursor)
{
	static uint64_t value[PMH_STEP_MAX];
	static PmhEntry entry[PMH_STEP_MAX];
	PmhListPosition pos = {.below = cursor->at.below};
	size_t		removed;
	uint32_t	n;

	REQUIRE(pmh_list_next(t, fixture_hash(0), &pos, UINT32_MAX, value, &n) == PMH_OK);
	for (uint32_t i = 0; i < n; i++)
	{
		entry[i] = (PmhEntry) {fixture_hash(0), value[i]};
		given[value[i]] = 1;
	}
	REQUIRE(pmh_delete_group(t, entry, n, &removed) == PMH_OK && removed == n && n > 1000);
}

static size_t
leave_out_most(const void *argument, uint64_t *value, size_t n)
{
	size_t		left = 0;

	for (size_t i = 0; i < n; i++)
	{
		if (value[i] % LIST_VALUES == LIST_VALUES / 2)
			value[left++] = value[i];
	}
	return left;
}

/* A cursor has given most of a list when the buffer goes where it stands: it goes on. */
static void
buffer_goes(void)
{
	PmhTable   *t = make_list();
	PmhCursor	cursor = {0};
	size_t		n = 0;
	uint64_t	most = 0;
	PmhResult	result;

	begin_reading();
	pmh_cursor_open(t, &cursor, fixture_hash(0));
	for (; n < GIVEN; n += cursor.batch.n)
	{
		REQUIRE(pmh_cursor_next(t, &cursor, 1000) == PMH_OK);
		(void) note_given(cursor.batch.value, cursor.batch.n);
		count_bytes();
	}
	empty_buffer(t, &cursor);
	do
	{
		points_read = 0;
		result = pmh_cursor_next(t, &cursor, BATCH);
		most = larger(most, points_read);
		if (result == PMH_OK)
			(void) note_given(cursor.batch.value, cursor.batch.n);
	} while (result == PMH_OK);
	CHECK(result == PMH_DONE && most <= MOST_READ);
	each_is_given_once();
	pmh_cursor_free(&cursor);
	pmh_close(t);
}

/* The caller does not want to see most of what there is. */
static void
most_is_left_out(void)
{
	PmhTable   *t = make_list();
	PmhCursor	cursor = {0};
	size_t		n = 0;
	uint64_t	most = 0;
	PmhResult	result;

	pmh_cursor_open(t, &cursor, fixture_hash(0));
	cursor.leave_out = leave_out_most;
	do
	{
		points_read = 0;
		result = pmh_cursor_next(t, &cursor, BATCH);
		most = larger(most, points_read);
		n += result == PMH_OK ? cursor.batch.n : 0;
	} while (result == PMH_OK);
	CHECK(result == PMH_DONE && n == 1 && most <= MOST_READ);
	pmh_cursor_free(&cursor);
	pmh_close(t);
}

/* ---- sweeps ---- */

#define EMPTY_SEGMENTS	200		/* at least */
#define MOST_STEPS		32		/* of a call that give nothing */
#define SPOILT			150		/* more than the attempts at a buffer in one step */

/* A call comes by some segments that have nothing, not by all of them. */
static void
segments_are_empty(void)
{
	PmhTable   *t = fixture_create(path);
	PmhSweep	sweep;
	PmhStats	stats;
	uint64_t	before = 0;
	uint64_t	most = 0;
	PmhResult	result;

	put_keys(t, 0, EMPTY_SEGMENTS * 2048);
	take_keys(t, 0, EMPTY_SEGMENTS * 2048, 0);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK && stats.segments >= EMPTY_SEGMENTS);
	REQUIRE(pmh_sweep_begin_reading(t, &sweep) == PMH_OK);
	do
	{
		result = pmh_sweep_next(t, &sweep);
		CHECK(sweep.n == 0);
		most = larger(most, sweep.segments_done - before);
		before = sweep.segments_done;
	} while (result == PMH_OK);
	CHECK(result == PMH_DONE && sweep.segments_done == stats.segments);
	CHECK(most <= MOST_STEPS);
	pmh_sweep_end(&sweep);
	pmh_close(t);
}

/* The same for a sweep, when the buffer goes that comes after the one it has just given. */
static void
next_buffer_goes(void)
{
	PmhTable   *t = make_list();
	PmhSweep	sweep;
	size_t		n = 0;
	uint64_t	most = 0;
	PmhResult	result;

	begin_reading();
	REQUIRE(pmh_sweep_begin_reading(t, &sweep) == PMH_OK);
	do
	{
		bool		lose = n < GIVEN;
		uint64_t	least = UINT64_MAX;

		readings = 0;
		result = pmh_sweep_next(t, &sweep);
		count_bytes();
		most = larger(most, readings);
		for (size_t i = 0; result == PMH_OK && i < sweep.n; i++, n++)
		{
			uint64_t	value = note_given(&sweep.entries[i].value, 1);

			least = value < least ? value : least;
		}
		if (lose && n >= GIVEN)
			take_before(t, least);
	} while (result == PMH_OK);
	CHECK(result == PMH_DONE && n >= GIVEN && most <= MOST_STEPS);
	each_is_given_once();
	pmh_sweep_end(&sweep);
	pmh_close(t);
}

/* Each buffer is spoilt more often than a step tries it: no step passes over it. */
static void
readings_are_spoilt(void)
{
	PmhTable   *t = make_list();
	Sweeper		s;
	uint64_t	n = 0;

	readings = 0;
	spoilt = SPOILT;
	sweeper_begin_reading(&s, t);
	while (sweeper_next(&s) != NULL)
		n++;
	spoilt = 0;
	CHECK(sweeper_end(&s) == PMH_OK && n == LIST_VALUES && readings >= BUFFERS * SPOILT);
	pmh_close(t);
}

/* ---- a look-up that gives piece by piece, whose next buffer goes ---- */

typedef struct Reading
{
	PmhTable   *other;			/* handle, by which they go */
	unsigned	pieces;
} Reading;

static void
give_piece(void *arg, const uint64_t *value, size_t n)
{
	Reading    *reading = arg;
	uint64_t	least = note_given(value, n);

	count_bytes();
	if (++reading->pieces == BUFFERS / 2)
		take_before(reading->other, least);
}

/* It goes on. */
static void
pieces_go_on(void)
{
	PmhTable   *t = make_list();
	Reading		reading = {.other = fixture_open(path, 1)};

	begin_reading();
	CHECK(pmh_lookup_repeats(t, fixture_hash(0), give_piece, &reading) == PMH_OK);
	each_is_given_once();
	pmh_close(reading.other);
	pmh_close(t);
}

/* ---- what can be given up ---- */

#define SEGMENTS		100		/* at least, of a large table */
#define GIVEN_UP_AT		4
#define NEW_KEYS		UINT64_C(20000)

static unsigned asked;
static unsigned refuse_at;		/* 0: never */

static bool
cancelled(void)
{
	return ++asked >= refuse_at && refuse_at != 0;
}

static void
be_asked(unsigned at)
{
	static const PmhWaitHooks hooks = {.cancelled = cancelled};

	pmh_set_wait_hooks(&hooks);
	asked = 0;
	readings = 0;
	refuse_at = at;
}

static void
be_left_alone(void)
{
	static const PmhWaitHooks none = {0};

	pmh_set_wait_hooks(&none);
}

static PmhResult
look_up(PmhTable *t)
{
	PmhValues	values = {0};
	PmhResult	result = pmh_lookup(t, fixture_hash(0), &values);

	pmh_values_free(&values);
	return result;
}

static PmhResult
look_up_repeats(PmhTable *t)
{
	PmhValues	values = {0};
	PmhResult	result = fixture_lookup_repeats(t, fixture_hash(0), &values);

	pmh_values_free(&values);
	return result;
}

static PmhResult
read_statistics(PmhTable *t)
{
	PmhStats	stats;

	return pmh_stats(t, &stats);
}

static PmhResult
estimate(PmhTable *t)
{
	uint64_t	entries;

	return pmh_estimate(t, &entries);
}

/* It asks at least so many times, and ends soon when it is to. */
static void
gives_up(PmhTable *t, PmhResult (*call) (PmhTable *t), unsigned least)
{
	be_asked(0);
	CHECK(call(t) == PMH_OK && asked >= least);
	be_asked(GIVEN_UP_AT);
	CHECK(call(t) == PMH_CANCELLED && pmh_error(t)->code == PMH_CANCELLED);
	CHECK(asked == GIVEN_UP_AT && readings <= GIVEN_UP_AT);
	be_left_alone();
	CHECK(fixture_no_lock_held() && call(t) == PMH_OK);
}

/* Nothing disturbs what reads the long list; or no reading holds. */
static void
list_is_given_up(PmhResult (*call) (PmhTable *t))
{
	PmhTable   *t = make_list();

	gives_up(t, call, BUFFERS - 1);
	be_asked(GIVEN_UP_AT);
	spoilt = UINT64_MAX;
	CHECK(call(t) == PMH_CANCELLED && asked == GIVEN_UP_AT && readings < 10);
	spoilt = 0;
	be_left_alone();
	CLOSE_SOUND(t);
}

static void
many_segments_are_given_up(void)
{
	PmhTable   *t = fixture_create(path);

	put_keys(t, 0, SEGMENTS * 2048);
	gives_up(t, read_statistics, SEGMENTS);
	gives_up(t, estimate, SEGMENTS / 2);
	gives_up(t, fixture_begin_shrink, SEGMENTS / 2);
	pmh_close(t);
}

/* ---- waits in which nothing is held ---- */

static bool waiting;
static unsigned waits;

/* It does not see whether to go on: so that the test ends, it gets what it waits for. */
static void
let_go(int number)
{
	pmh_unlock(held);
}

static void
wait_begins(void)
{
	waiting = true;
	waits++;
	(void) signal(SIGALRM, let_go);
	(void) alarm(20);
}

static void
wait_ends(void)
{
	(void) alarm(0);
	waiting = false;
}

static bool
is_waiting(void)
{
	return waiting;
}

/* Nothing of what it has taken until then is lost: see the check at the end. */
static void
wait_is_given_up(PmhTable *t, uint64_t *lock, PmhResult (*call) (PmhTable *t))
{
	static const PmhWaitHooks hooks = {wait_begins, wait_ends, is_waiting};

	held = lock;
	waits = 0;
	REQUIRE(pmh_trylock(lock));
	pmh_set_wait_hooks(&hooks);
	CHECK(call(t) == PMH_CANCELLED && pmh_error(t)->code == PMH_CANCELLED);
	CHECK(waits == 1 && *lock != 0);
	be_left_alone();
	pmh_unlock(lock);
	CHECK(fixture_no_lock_held() && call(t) == PMH_OK);
	CHECK_SOUND(t);
}

static PmhResult
punch_all(PmhTable *t)
{
	uint64_t	block = 0;
	uint64_t	spare = 0;
	PmhResult	result;

	do
		result = pmh_space_punch(t, &block, &spare);
	while (result == PMH_OK);
	return pmh_conclude(t, result == PMH_DONE ? PMH_OK : result);
}

static void
waits_are_given_up(void)
{
	PmhTable   *t = fixture_create(path);
	PmhEntry	entry = {0, 1};
	uint32_t	depth;
	PmhBulk    *bulk;

	/* One segment is so deep that the directory takes a block. */
	REQUIRE(pmh_bulk_begin(t, UINT64_C(4000) << PMH_SMALL_DIR_DEPTH, 90, &depth, &bulk) == PMH_OK);
	REQUIRE(depth > PMH_SMALL_DIR_DEPTH);
	for (unsigned i = 0; i < 2 << PMH_SMALL_DIR_DEPTH; i++)
		REQUIRE(pmh_bulk_partition(bulk, PMH_SMALL_DIR_DEPTH + 1, &entry, i == 0) == PMH_OK);
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK);
	for (uint64_t i = 0; i < LIST_VALUES; i++)
		REQUIRE(pmh_insert(t, fixture_hash(i % SEGMENTS), i, false) == PMH_OK);
	wait_is_given_up(t, &t->file_lock->directory, double_directory);
	wait_is_given_up(t, &t->file_lock->grow, punch_all);
	pmh_close(t);
}

/* Lock or unlock all stripes that no segment has. */
static void
lock_other_stripes(PmhTable *t, bool used[FIXTURE_STRIPES], bool lock)
{
	uint64_t	dirword = pmh_live(t)->dirword;
	const uint64_t *dir = pmh_at(t, pmh_dirword_offset(dirword));

	if (lock)
	{
		memset(used, 0, FIXTURE_STRIPES);
		for (uint64_t i = 0; i < pmh_directory_elements(pmh_dirword_depth(dirword)); i++)
			used[pmh_segment_stripe(t->locks, t->file_id, pmh_elem_main_block(dir[i])) -
				 t->locks->stripe] = true;
	}
	for (unsigned i = 0; i < FIXTURE_STRIPES; i++)
	{
		if (!used[i])
			t->locks->stripe[i].lock = lock;
	}
}

/* Somebody has the stripe that a new segment will have: it is waited for with nothing locked. */
static void
stripe_of_others(void)
{
	static bool used[FIXTURE_STRIPES];
	PmhTable   *t = fixture_create(path);
	unsigned	waited = 0;

	for (uint64_t key = 0; key < NEW_KEYS; key++)
	{
		PmhResult	result;

		be_asked(1);
		lock_other_stripes(t, used, true);
		result = pmh_insert(t, fixture_hash(key), key, false);
		lock_other_stripes(t, used, false);
		be_left_alone();
		CHECK(fixture_no_lock_held());
		if (result == PMH_OK)
			continue;
		CHECK(result == PMH_CANCELLED);
		check_number(t, fixture_hash(key), 0);
		REQUIRE(pmh_insert(t, fixture_hash(key), key, false) == PMH_OK);
		waited++;
	}
	CHECK(waited > 10);
	CLOSE_SOUND(t);
}

/* ---- the load of a key with very many values ---- */

#define LOADED			UINT64_C(400000)
#define ENTRIES_AT_ONCE	32768	/* bulkload.c, sort.c */

static uint64_t loaded_keys = 1;
static bool shuffled;
static uint64_t begun_blocks;	/* for values, when the load was given up */

static PmhResult
load_keys(PmhTable *t)
{
	PmhEntry   *entry = malloc(LOADED * sizeof(*entry));
	uint64_t	seed = 1;
	uint32_t	depth;
	PmhBulk    *bulk;
	PmhResult	result;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < LOADED; i++)
		entry[i] = (PmhEntry) {fixture_hash(i % loaded_keys), i};
	for (uint64_t i = LOADED - 1; shuffled && i > 0; i--)
	{
		uint64_t	other = fixture_random(&seed) % (i + 1);
		PmhEntry	e = entry[i];

		entry[i] = entry[other];
		entry[other] = e;
	}
	REQUIRE(pmh_bulk_begin(t, loaded_keys, 90, &depth, &bulk) == PMH_OK);
	result = pmh_bulk_partition(bulk, 0, entry, LOADED);
	free(entry);
	begun_blocks = pm_load(&pmh_run(t)->value_blocks);
	if (result != PMH_OK)
	{
		pmh_bulk_abandon(bulk);
		return result;
	}
	return pmh_bulk_finish(bulk);
}

/* Each buffer of the list is written once, however often the file grows for it. */
static void
list_is_loaded_once(void)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	n;
	PmhStats	stats;

	REQUIRE(load_keys(t) == PMH_OK);
	CHECK(fixture_count_by_cursor(t, fixture_hash(0), LOADED, &n) == PMH_OK && n == LOADED);
	CHECK(pmh_stats(t, &stats) == PMH_OK && stats.list_bytes > BUFFERS * PMH_BLOCK_SIZE / 2);
	CHECK(pm_load(&pmh_run(t)->value_blocks) <=
		  stats.list_bytes / pmh_class_bytes(PMH_MAX_CLASS) + 3);
	CLOSE_SOUND(t);
}

/* The table is as empty as before then. */
static void
load_is_given_up(unsigned at)
{
	PmhTable   *t = fixture_create(path);
	PmhSweep	sweep;

	be_asked(at);
	CHECK(load_keys(t) == PMH_CANCELLED && pmh_error(t)->code == PMH_CANCELLED);
	CHECK(asked == at);
	be_left_alone();
	CHECK(fixture_no_lock_held());
	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	CHECK(pmh_sweep_next(t, &sweep) == PMH_DONE && sweep.n == 0);
	pmh_sweep_end(&sweep);
	pmh_close(t);
}

/* Has each key what has been loaded? */
static void
has_been_loaded(PmhTable *t)
{
	PmhCursor	cursor = {0};
	uint64_t	wrong = 0;

	for (uint64_t key = 0; key < loaded_keys; key++)
	{
		uint64_t	found = 0;

		pmh_cursor_open(t, &cursor, fixture_hash(key));
		while (pmh_cursor_next(t, &cursor, LOADED) == PMH_OK)
		{
			for (size_t i = 0; i < cursor.batch.n; i++)
				wrong += cursor.batch.value[i] % loaded_keys != key;
			found += cursor.batch.n;
		}
		wrong += found != (LOADED - key + loaded_keys - 1) / loaded_keys;
	}
	CHECK(wrong == 0);
	CHECK_SOUND(t);
	pmh_cursor_free(&cursor);
}

/*
 * To sort so many entries takes several looks at each, before anything is written; in
 * each of these it is asked whether to go on.
 */
static void
sorting_is_given_up(uint64_t keys, bool mixed, unsigned looks)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	most = 0;

	loaded_keys = keys;
	shuffled = mixed;
	REQUIRE(load_keys(t) == PMH_OK);
	has_been_loaded(t);
	pmh_close(t);
	for (unsigned at = 1; at <= looks * (LOADED / ENTRIES_AT_ONCE); at++)
	{
		load_is_given_up(at);
		most = begun_blocks > most ? begun_blocks : most;
	}
	CHECK(most == 0);
	loaded_keys = 1;
	shuffled = false;
}

/* ---- a sample ---- */

#define DEPTH			7		/* more than the sample has points for */
#define VALUES			UINT64_C(20000)

/*
 * All points of a sample meet the same segment: its lists are counted once, and what
 * they stand for is all there is.
 */
static void
sampled_once(void)
{
	PmhTable   *t = fixture_create(path);
	PmhStats	fill;
	PmhStats	stats;
	uint64_t	estimated;

	put_values(t, fixture_hash(1), 0, VALUES);
	for (uint32_t depth = 0; depth < DEPTH; depth++)
		REQUIRE(pmh_conclude(t, pmh_directory_double(t, depth)) == PMH_OK);
	readings = 0;
	REQUIRE(pmh_stats(t, &stats) == PMH_OK && stats.segments == 1);
	CHECK(readings > 2 && stats.list_entries == VALUES);
	readings = 0;
	REQUIRE(pmh_conclude(t, pmh_estimate_fill(t, &fill)) == PMH_OK);
	CHECK(readings == 2 && fill.segments == 1);
	CHECK(fill.slots == stats.slots && fill.used_slots == stats.used_slots);
	readings = 0;
	REQUIRE(pmh_estimate(t, &estimated) == PMH_OK);
	CHECK(readings == 2 && estimated > 0 && estimated < 2 * VALUES);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("stop_bounded");
	TEST(buffer_goes());
	TEST(most_is_left_out());
	TEST(segments_are_empty());
	TEST(next_buffer_goes());
	TEST(readings_are_spoilt());
	TEST(pieces_go_on());
	TEST(list_is_given_up(look_up));
	TEST(list_is_given_up(look_up_repeats));
	TEST(list_is_given_up(read_statistics));
	TEST(list_is_given_up(fixture_check));
	TEST(many_segments_are_given_up());
	TEST(waits_are_given_up());
	TEST(stripe_of_others());
	TEST(list_is_loaded_once());
	TEST(sorting_is_given_up(1, false, 1));
	TEST(sorting_is_given_up(1, true, 4));
	TEST(sorting_is_given_up(20, true, 3));
	TEST(sampled_once());
	unlink(path);
	return unit_done("stop_bounded");
}
