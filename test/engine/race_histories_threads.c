/*-------------------------------------------------------------------------
 *
 * race_histories_threads.c
 *	  Linearizability: several writers and readers at a few hot keys, while
 *	  cold ones make the segments grow and split, others are taken out, and the
 *	  table is shrunk; then their histories are checked.
 *
 * Every operation is recorded with the time before and after it, from one
 * clock.  A pair (hash, value) is a register with two states.  Its history is
 * right if there is an order of the operations, each at a moment between its
 * begin and its end, in which each gives what it gave: an insert needs the
 * pair to be absent, a delete tells whether it was there, a look-up, group
 * look-up, cursor or sweep gives a pair if and only if it is there (the last
 * two: at some moment of their time).  For keys that are too small to become
 * lists all values together are one register: a look-up or cursor gives one state
 * of the key.  Of the keys that a worker has for itself its sweeps give each pair once.
 *
 * The search (Wing and Gong; Lowe, just-in-time linearization) keeps the set
 * of all possible configurations (state; which of the operations in progress
 * have taken effect already) and is exact.
 *
 * It is run a second time with the engine's stop points: there processes now and then let
 * others go first, that is in the middle of what they do.
 *
 *	race_histories_threads			some rounds
 *	race_histories_threads SECONDS	as many as fit
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>

#include "fixture.h"
#include "sweeps.h"

#define WORKERS			4
#define ROUNDS			(2 + FIXTURE_SCALE(40) / 10)
#define STEPS			3000	/* of a worker in a round */
#define MAX_OPERATIONS	(32 * (size_t) STEPS)

#define HOT_KEYS		8
#define MAX_HOT_VALUES	8		/* of one key */
#define PERMANENT		10000	/* values from here on are never taken out ... */
#define FILLER			20000	/* ... and those from here on are, but not noted */

/*
 * What the table loses in a round: keys of each worker, and values of the last
 * hot key, all over its list; so many at a time.
 */
#define BULK_KEYS		6000
#define FILLERS			6000
#define LOST_FILLERS	5600
#define SPREAD			2657	/* has no divisor in common with FILLERS */
#define BULK_LOT		10

/*
 * Hot keys: their pairs that come and go, values that always are there, and
 * fillers, most of which go one after the other.  The first have so few that
 * they never become lists.
 */
static const struct
{
	unsigned	hot;
	unsigned	permanent;
	unsigned	filler;
}			hot_key[HOT_KEYS] = {
	{2, 0, 0}, {2, 0, 0}, {1, 1, 0}, {2, 0, 0}, {6, 0, 0}, {8, 3, 0}, {8, 60, 0},
	{8, 1500, FILLERS}
};

#define SMALL_KEYS		4		/* these */
#define CROWD			60		/* keys with the same buckets as the small ones */

#ifdef PMH_STOP_POINTS

/*
 * The point between two halves of a value line is come by seven times as often as all
 * others together.  With as many pauses as they have there the test would do little but
 * wait, on a busy machine for many minutes.
 */
#define SELDOM			"value_between_halves"
#define SELDOM_SHARE	16

void
pmh_stop_point(const char *name)
{
	static uint64_t seed;
	uint64_t	r = fixture_random(&seed);

	if (r >> 48 >= UINT64_C(0x10000) / SELDOM_SHARE && strcmp(name, SELDOM) == 0)
		return;
	if (r % 32 == 0)
		sched_yield();
	else if (r % 1024 == 1)
		usleep((useconds_t) (r >> 32) % 1000);
}

#endif

/* ---- what the workers share ---- */

typedef enum Kind
{
	INSERT,						/* value */
	DELETE,						/* value; result: 1 if it was there */
	READ						/* result: the values found, as a mask */
} Kind;

/* By which function, for messages. */
typedef enum How
{
	ALONE,
	GROUP,
	NOWAIT,
	CURSOR,
	SWEEP,
	HOWS
} How;

typedef struct Operation
{
	uint64_t	begin;
	uint64_t	end;
	uint8_t		kind;
	uint8_t		key;
	uint8_t		value;
	uint8_t		result;
	uint8_t		how;
} Operation;

typedef struct Shared
{
	uint64_t	clock;
	unsigned	ready;			/* workers that have begun */
	uint8_t		token[HOT_KEYS][MAX_HOT_VALUES];	/* 1: absent, may be inserted */
	uint8_t		present[HOT_KEYS];	/* in the beginning, a mask */
	size_t		n[WORKERS];
	Operation	log[WORKERS][MAX_OPERATIONS];
} Shared;

static Shared *shared;
static const char *path;
static uint64_t hot_hash[HOT_KEYS];
static unsigned round_number;
static uint64_t merges;			/* in all rounds */
static uint64_t list_rewrites;	/* likewise */

/*
 * Times must not be moved over the operations they stand around; but a clock
 * that all go to must not look like a lock to ThreadSanitizer.
 */
static uint64_t
now(void)
{
	uint64_t	time;

	__asm__ __volatile__("" ::: "memory");
	time = __atomic_fetch_add(&shared->clock, 1, __ATOMIC_RELAXED);
	__asm__ __volatile__("" ::: "memory");
	return time;
}

static void
record(int worker, uint64_t begin, Kind kind, How how, unsigned key, unsigned value,
	   unsigned result)
{
	size_t		n = shared->n[worker];

	REQUIRE(n < MAX_OPERATIONS);
	shared->log[worker][n] = (Operation) {
		begin, now(), (uint8_t) kind, (uint8_t) key, (uint8_t) value, (uint8_t) result,
		(uint8_t) how
	};
	shared->n[worker] = n + 1;
}

/* ---- workers ---- */

/* One worker: its handle, and its own cold keys. */
typedef struct Self
{
	int			number;
	PmhTable   *t;
	uint64_t	seed;
	PmhValues	values;
	PmhCursor	cursor;
	uint32_t	cold;			/* has put in cold keys 0 .. cold - 1 ... */
	uint8_t    *gone;			/* ... and taken some out again */
	uint64_t	bulk;			/* has taken out so many of its bulk keys ... */
	uint64_t	filler;			/* ... and of its fillers */
} Self;

static unsigned
choose(Self *self, unsigned n)
{
	return (unsigned) (fixture_random(&self->seed) % n);
}

/* Cold keys are in the same part of the hash space as the hot ones. */
static uint64_t
cold_hash(const Self *self, uint32_t i)
{
	return fixture_hash(((uint64_t) round_number << 40) + ((uint64_t) i + 1) * WORKERS +
						(uint64_t) self->number) >> 8;
}

static uint64_t
cold_value(const Self *self, uint32_t i)
{
	return ((uint64_t) i + 1) * WORKERS + (uint64_t) self->number;
}

/* Most are where the hot keys are, so that these come by in merges. */
static uint64_t
bulk_hash(uint64_t i)
{
	uint64_t	hash = fixture_hash(((uint64_t) round_number << 40 | UINT64_C(1) << 39) + i);

	return i % 16 == 0 ? hash : hash >> 8;
}

/* A hot value that may be inserted is ours now, or false. */
static bool
take_token(unsigned key, unsigned value)
{
	uint8_t		absent = 1;

	return __atomic_compare_exchange_n(&shared->token[key][value], &absent, 0, false,
									   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void
give_token(unsigned key, unsigned value)
{
	__atomic_store_n(&shared->token[key][value], 1, __ATOMIC_RELAXED);
}

static void
hot_insert(Self *self, unsigned key, unsigned value)
{
	uint64_t	begin;

	if (!take_token(key, value))
		return;
	begin = now();
	REQUIRE(pmh_insert(self->t, hot_hash[key], value, choose(self, 2) == 0) == PMH_OK);
	record(self->number, begin, INSERT, ALONE, key, value, 0);
}

static void
hot_delete(Self *self, unsigned key, unsigned value)
{
	uint64_t	begin = now();
	PmhResult	result = pmh_delete(self->t, hot_hash[key], value);

	REQUIRE(result == PMH_OK || result == PMH_NOT_FOUND);
	record(self->number, begin, DELETE, ALONE, key, value, result == PMH_OK);
	if (result == PMH_OK)
		give_token(key, value);
}

/* One hot value of each key that can be had, as a group. */
static void
hot_insert_group(Self *self)
{
	PmhEntry	entry[HOT_KEYS];
	uint8_t		key[HOT_KEYS];
	size_t		n = 0;
	size_t		done;
	uint64_t	begin;

	for (unsigned k = 0; k < HOT_KEYS; k++)
	{
		unsigned	value = choose(self, hot_key[k].hot);

		if (choose(self, 2) == 0 || !take_token(k, value))
			continue;
		key[n] = (uint8_t) k;
		entry[n++] = (PmhEntry) {hot_hash[k], value};
	}
	begin = now();
	REQUIRE(pmh_insert_group(self->t, entry, n, false, &done) == PMH_OK && done == n);
	for (size_t i = 0; i < n; i++)
		record(self->number, begin, INSERT, GROUP, key[i], (unsigned) entry[i].value, 0);
}

/* A hot value and some cold ones of our own, as a group. */
static void
hot_delete_group(Self *self, unsigned key, unsigned value)
{
	PmhEntry	entry[3] = {{hot_hash[key], value}};
	size_t		n = 1;
	size_t		removed;
	uint64_t	begin;

	while (n < 3 && self->cold > 0)
	{
		uint32_t	i = choose(self, self->cold);

		if (self->gone[i])
			break;
		self->gone[i] = 1;
		entry[n++] = (PmhEntry) {cold_hash(self, i), cold_value(self, i)};
	}
	begin = now();
	REQUIRE(pmh_delete_group(self->t, entry, n, &removed) == PMH_OK);
	REQUIRE(removed == n || removed == n - 1);
	record(self->number, begin, DELETE, GROUP, key, value, removed == n);
	if (removed == n)
		give_token(key, value);
}

/* What readers do with dead entries; that nothing was removed tells nothing. */
static void
hot_delete_nowait(Self *self, unsigned key, unsigned value)
{
	PmhEntry	entry = {hot_hash[key], value};
	uint64_t	begin = now();
	size_t		removed;

	REQUIRE(fixture_delete_nowait(self->t, &entry, 1, &removed) == PMH_OK);
	if (removed == 0)
		return;
	record(self->number, begin, DELETE, NOWAIT, key, value, 1);
	give_token(key, value);
}

/* What a reader has found of a key. */
typedef struct Found
{
	unsigned	mask;			/* of hot values */
	unsigned	permanent;
	bool		strange;		/* something else, or the same again */
} Found;

static void
found_value(Found *found, unsigned key, uint64_t value)
{
	if (value >= FILLER && value < FILLER + hot_key[key].filler)
		return;
	if (value >= PERMANENT && value < PERMANENT + hot_key[key].permanent)
		found->permanent++;
	else if (value >= hot_key[key].hot || (found->mask >> value & 1) != 0)
		found->strange = true;
	else
		found->mask |= 1u << value;
}

static void
record_read(Self *self, uint64_t begin, How how, unsigned key, const Found *found)
{
	record(self->number, begin, READ, how, key, 0, found->mask);
	CHECK(!found->strange && found->permanent == hot_key[key].permanent);
}

static void
hot_lookup(Self *self, unsigned key)
{
	Found		found = {0};
	uint64_t	begin = now();

	REQUIRE(pmh_lookup(self->t, hot_hash[key], &self->values) == PMH_OK);
	for (size_t i = 0; i < self->values.n; i++)
		found_value(&found, key, self->values.value[i]);
	record_read(self, begin, ALONE, key, &found);
}

static void
found_in_group(void *arg, size_t key, uint64_t value)
{
	found_value((Found *) arg + key, (unsigned) key, value);
}

static void
hot_lookup_group(Self *self)
{
	Found		found[HOT_KEYS] = {{0}};
	uint64_t	begin = now();

	REQUIRE(fixture_lookup_group(self->t, hot_hash, HOT_KEYS, found_in_group, found) == PMH_OK);
	for (unsigned key = 0; key < HOT_KEYS; key++)
		record_read(self, begin, GROUP, key, &found[key]);
}

static void
hot_cursor(Self *self, unsigned key)
{
	static const size_t wants[] = {SIZE_MAX, 1, 30, 400};
	size_t		want = wants[choose(self, 4)];
	Found		found = {0};
	uint64_t	begin = now();
	PmhResult	result;

	pmh_cursor_open(self->t, &self->cursor, hot_hash[key]);
	self->cursor.start = choose(self, 2) * (uint32_t) fixture_random(&self->seed);
	while ((result = pmh_cursor_next(self->t, &self->cursor, want)) == PMH_OK)
	{
		for (size_t i = 0; i < self->cursor.batch.n; i++)
		{
			uint64_t	value = self->cursor.batch.value[i];

			/* From a list it may come twice, if it was taken out and put in again (table.h). */
			if (key < SMALL_KEYS || value >= hot_key[key].hot || (found.mask >> value & 1) == 0)
				found_value(&found, key, value);
		}
	}
	REQUIRE(result == PMH_DONE);
	record_read(self, begin, CURSOR, key, &found);
}

/* The hot key of a hash, or HOT_KEYS. */
static unsigned
key_of_hash(uint64_t hash)
{
	unsigned	key = 0;

	while (key < HOT_KEYS && hot_hash[key] != hash)
		key++;
	return key;
}

/* What a sweep gives of the pairs that no other worker touches: how often each. */
typedef struct Seen
{
	uint8_t		cold[STEPS];
	uint8_t		bulk[BULK_KEYS];
} Seen;

static void
note_own(const Self *self, const PmhEntry *pair, Seen *seen)
{
	uint64_t	i = pair->value / WORKERS;

	if (pair->value % WORKERS != (uint64_t) self->number)
		return;
	if (i < BULK_KEYS && pair->hash == bulk_hash(pair->value))
		seen->bulk[i]++;
	if (i > 0 && i <= self->cold && pair->hash == cold_hash(self, (uint32_t) i - 1))
		seen->cold[i - 1]++;
}

/* Each once, or not at all if it has been taken out. */
static void
check_own(const Self *self, const Seen *seen)
{
	uint64_t	wrong = 0;

	for (uint64_t i = 0; i < self->cold; i++)
		wrong += seen->cold[i] != !self->gone[i];
	for (uint64_t i = 0; i < BULK_KEYS; i++)
		wrong += seen->bulk[i] != (i >= self->bulk);
	CHECK(wrong == 0);
}

/*
 * A sweep may give a value twice that was taken out and put in again: in a
 * read that counts once.
 */
static void
sweep_reading(Self *self)
{
	Found		found[HOT_KEYS] = {{0}};
	Seen	   *seen = calloc(1, sizeof(*seen));
	Sweeper		s;
	const PmhEntry *pair;
	uint64_t	begin = now();

	REQUIRE(seen != NULL);
	sweeper_begin_reading(&s, self->t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		unsigned	key = key_of_hash(pair->hash);
		uint64_t	value = pair->value;

		note_own(self, pair, seen);
		if (key < HOT_KEYS && (value >= PERMANENT || (found[key].mask >> value & 1) == 0))
			found_value(&found[key], key, value);
	}
	REQUIRE(sweeper_end(&s) == PMH_OK);
	check_own(self, seen);
	free(seen);
	for (unsigned key = 0; key < HOT_KEYS; key++)
		record_read(self, begin, SWEEP, key, &found[key]);
}

/*
 * Take entry i of a step out.  That nothing was removed only tells that the
 * entry as the sweep has seen it is gone; so it is not recorded.
 */
static void
sweep_remove_one(Self *self, PmhSweep *sweep, uint8_t *dead, size_t i)
{
	unsigned	key = key_of_hash(sweep->entries[i].hash);
	uint64_t	value = sweep->entries[i].value;
	uint64_t	begin = now();
	size_t		removed;

	dead[i] = 1;
	REQUIRE(sweep_remove(self->t, sweep, dead, &removed) == PMH_OK);
	dead[i] = 0;
	if (removed == 0)
		return;
	record(self->number, begin, DELETE, SWEEP, key, (unsigned) value, 1);
	give_token(key, (unsigned) value);
}

static void
sweep_removing(Self *self)
{
	PmhSweep	sweep;
	PmhResult	result;

	REQUIRE(pmh_sweep_begin(self->t, &sweep) == PMH_OK);
	while ((result = pmh_sweep_next(self->t, &sweep)) == PMH_OK)
	{
		uint8_t    *dead = calloc(sweep.n, 1);

		REQUIRE(dead != NULL);
		for (size_t i = 0; i < sweep.n; i++)
		{
			if (key_of_hash(sweep.entries[i].hash) < HOT_KEYS &&
				sweep.entries[i].value < PERMANENT && choose(self, 2) == 0)
				sweep_remove_one(self, &sweep, dead, i);
		}
		free(dead);
	}
	REQUIRE(result == PMH_DONE);
	pmh_sweep_end(&sweep);
}

static void
cold_insert(Self *self)
{
	uint32_t	i = self->cold++;

	REQUIRE(pmh_insert(self->t, cold_hash(self, i), cold_value(self, i), false) == PMH_OK);
}

/* No other thread touches our cold keys: what we find must be exact. */
static void
cold_lookup(Self *self, uint32_t i)
{
	size_t		n = self->gone[i] ? 0 : 1;

	REQUIRE(pmh_lookup(self->t, cold_hash(self, i), &self->values) == PMH_OK);
	CHECK(self->values.n == n && (n == 0 || self->values.value[0] == cold_value(self, i)));
}

static void
cold_delete(Self *self, uint32_t i)
{
	PmhResult	result = pmh_delete(self->t, cold_hash(self, i), cold_value(self, i));

	CHECK(result == (self->gone[i] ? PMH_NOT_FOUND : PMH_OK));
	self->gone[i] = 1;
}

/* ---- less and less ---- */

/* The next of our bulk keys and fillers go; the last of them stay. */
static void
lose_some(Self *self)
{
	PmhEntry	entry[2 * BULK_LOT];
	size_t		n = 0;
	size_t		removed;

	for (unsigned i = 0; i < BULK_LOT && self->bulk < BULK_KEYS - BULK_KEYS / 20; i++)
	{
		uint64_t	key = self->bulk++ * WORKERS + (uint64_t) self->number;

		entry[n++] = (PmhEntry) {bulk_hash(key), key};
	}
	for (unsigned i = 0; i < BULK_LOT && self->filler < LOST_FILLERS / WORKERS; i++)
	{
		uint64_t	value = self->filler++ * WORKERS + (uint64_t) self->number;

		entry[n++] = (PmhEntry) {hot_hash[HOT_KEYS - 1], FILLER + value * SPREAD % FILLERS};
	}
	REQUIRE(pmh_delete_group(self->t, entry, n, &removed) == PMH_OK);
	CHECK(removed == n);
}

static void
shrink(Self *self)
{
	if (!CHECK(fixture_shrink(self->t, PMH_DEFAULT_FILL) == PMH_OK))
		fprintf(stderr, "%s\n", pmh_error(self->t)->detail);
}

static void
step(Self *self)
{
	unsigned	key = choose(self, HOT_KEYS);
	unsigned	value = choose(self, hot_key[key].hot);
	unsigned	what = choose(self, 100);

	if (what < 18)
		hot_insert(self, key, value);
	else if (what < 30)
		hot_delete(self, key, value);
	else if (what < 50)
		hot_lookup(self, key);
	else if (what < 54)
		hot_cursor(self, key);
	else if (what < 58)
		hot_lookup_group(self);
	else if (what < 61)
		hot_insert_group(self);
	else if (what < 63)
		hot_delete_group(self, key, value);
	else if (what < 66)
		hot_delete_nowait(self, key, value);
	else if (what < 90 || self->cold == 0)
		cold_insert(self);
	else if (what < 97)
		cold_lookup(self, choose(self, self->cold));
	else
		cold_delete(self, choose(self, self->cold));
	if (choose(self, 200) == 0)
		sweep_reading(self);
	if (choose(self, 200) == 0)
		sweep_removing(self);
	if (choose(self, 2) == 0)
		lose_some(self);
	if (choose(self, 200) == 0)
		shrink(self);
}

/* Every other round the file is flushed; in the others it has been recovered. */
static PmhEnv
round_env(bool created)
{
	bool		flushed = round_number % 2 != 0;

	return fixture_env_on(flushed, created || flushed ? 1 : 2);
}

static PmhTable *
open_table(void)
{
	PmhEnv		env = round_env(false);

	return fixture_open_in(path, &env);
}

static void *
work(void *arg)
{
	int			number = (int) (intptr_t) arg;
	Self		self = {
		.number = number,
		.t = open_table(),
		.seed = ((uint64_t) round_number << 32) + (uint64_t) number,
		.gone = calloc(STEPS, 1)
	};

	REQUIRE(self.gone != NULL);
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&shared->ready, __ATOMIC_RELAXED) < WORKERS)
		sched_yield();
	for (uint32_t i = 0; i < STEPS; i++)
		step(&self);
	for (uint32_t i = 0; i < self.cold; i++)
		cold_lookup(&self, i);
	pmh_values_free(&self.values);
	pmh_cursor_free(&self.cursor);
	free(self.gone);
	pmh_close(self.t);
	return NULL;
}

/* All of them: processes, or under ThreadSanitizer, which only sees one process, threads. */
static void
run_workers(void)
{
	shared->ready = 0;
#ifdef __SANITIZE_THREAD__
	pthread_t	thread[WORKERS];

	for (intptr_t i = 0; i < WORKERS; i++)
		REQUIRE(pthread_create(&thread[i], NULL, work, (void *) i) == 0);
	for (int i = 0; i < WORKERS; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
#else
	pid_t		pid[WORKERS];
	int			status;

	fflush(stdout);
	for (intptr_t i = 0; i < WORKERS; i++)
	{
		REQUIRE((pid[i] = fork()) >= 0);
		if (pid[i] != 0)
			continue;
		unit_failed = 0;
		(void) work((void *) i);
		_exit(unit_failed != 0);
	}
	for (int i = 0; i < WORKERS; i++)
	{
		REQUIRE(waitpid(pid[i], &status, 0) == pid[i]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
#endif
}

/* ---- the check of a history ---- */

/* An operation as the search sees it: what it does to the register. */
typedef struct Event
{
	uint64_t	time;
	const Operation *operation;
	uint8_t		worker;
	bool		is_end;
} Event;

static Event *event;			/* of one key, by time */
static size_t nevents;

static int
compare_events(const void *a, const void *b)
{
	uint64_t	x = ((const Event *) a)->time;
	uint64_t	y = ((const Event *) b)->time;

	return (x > y) - (x < y);
}

static void
gather_events(unsigned key)
{
	nevents = 0;
	for (int worker = 0; worker < WORKERS; worker++)
	{
		for (size_t i = 0; i < shared->n[worker]; i++)
		{
			const Operation *op = &shared->log[worker][i];

			if (op->key != key)
				continue;
			event[nevents++] = (Event) {op->begin, op, (uint8_t) worker, false};
			event[nevents++] = (Event) {op->end, op, (uint8_t) worker, true};
		}
	}
	qsort(event, nevents, sizeof(*event), compare_events);
}

/*
 * The values of 'mask' as one register.  Let the operation take effect in
 * 'state'; false if it can't have.
 */
static bool
apply(const Operation *op, unsigned mask, unsigned *state)
{
	unsigned	bit = 1u << op->value;

	if (op->kind == READ)
		return (op->result & mask) == *state;
	if (op->kind == INSERT)
	{
		if ((*state & bit) != 0)
			return false;
		*state |= bit;
		return true;
	}
	if (((*state & bit) != 0) != (op->result != 0))
		return false;
	*state &= ~bit;
	return true;
}

/*
 * A sweep reads the two tables at different times: of each pair it tells right, but
 * not of several together.
 */
static bool
concerns(const Operation *op, unsigned mask)
{
	if (op->kind == READ && op->how == SWEEP && (mask & (mask - 1)) != 0)
		return false;
	return op->kind == READ || (mask >> op->value & 1) != 0;
}

/*
 * Configurations: possible[state][done], 'done' being the workers whose
 * operation in progress has taken effect.
 */
typedef struct Search
{
	unsigned	mask;
	const Operation *open[WORKERS];
	bool		possible[1 << MAX_HOT_VALUES][1 << WORKERS];
} Search;

/* Let operations in progress take effect in every order. */
static void
extend(Search *s)
{
	for (unsigned done = 0; done < 1 << WORKERS; done++)
	{
		for (unsigned state = 0; state <= s->mask; state++)
		{
			if (!s->possible[state][done])
				continue;
			for (unsigned w = 0; w < WORKERS; w++)
			{
				unsigned	next = state;

				if ((done >> w & 1) == 0 && s->open[w] != NULL &&
					apply(s->open[w], s->mask, &next))
					s->possible[next][done | 1u << w] = true;
			}
		}
	}
}

/* A worker's operation has ended: it has taken effect.  False: it can't have. */
static bool
finish(Search *s, unsigned worker)
{
	unsigned	bit = 1u << worker;
	bool		any = false;

	extend(s);
	for (unsigned state = 0; state <= s->mask; state++)
	{
		for (unsigned done = 0; done < 1 << WORKERS; done++)
		{
			if ((done & bit) != 0)
				continue;
			s->possible[state][done] = s->possible[state][done | bit];
			s->possible[state][done | bit] = false;
			any = any || s->possible[state][done];
		}
	}
	s->open[worker] = NULL;
	return any;
}

/*
 * Is the history of these values of the key in event[] possible?  If not,
 * *impossible is the first operation that cannot have given what it gave.
 */
static bool
is_linearizable(unsigned key, unsigned mask, const Operation **impossible)
{
	static Search s;

	memset(&s, 0, sizeof(s));
	s.mask = mask;
	s.possible[shared->present[key] & mask][0] = true;
	for (size_t i = 0; i < nevents; i++)
	{
		const Event *e = &event[i];

		if (!concerns(e->operation, mask))
			continue;
		if (!e->is_end)
			s.open[e->worker] = e->operation;
		else if (!finish(&s, e->worker))
		{
			*impossible = e->operation;
			return false;
		}
	}
	return true;
}

static void
check_values(unsigned key, unsigned mask)
{
	static const char *const how_name[HOWS] = {"alone", "group", "nowait", "cursor", "sweep"};
	const Operation *op;

	if (CHECK(is_linearizable(key, mask, &op)))
		return;
	fprintf(stderr, "  round %u, key %u, values %x: the %s (%s) of value %u from %llu to %llu that gave %x is impossible\n",
			round_number, key, mask,
			op->kind == INSERT ? "insert" : op->kind == DELETE ? "delete" : "read",
			how_name[op->how],
			op->value, (unsigned long long) op->begin, (unsigned long long) op->end, op->result);
}

static void
check_histories(void)
{
	for (unsigned key = 0; key < HOT_KEYS; key++)
	{
		gather_events(key);
		CHECK(nevents > 0);
		for (unsigned value = 0; value < hot_key[key].hot; value++)
			check_values(key, 1u << value);
		if (key < SMALL_KEYS)
			check_values(key, (1u << hot_key[key].hot) - 1);
	}
}

/* Can the check fail?  A look-up that has missed what was there all the time. */
static void
test_checker(void)
{
	static const Operation right[] = {
		{0, 1, INSERT, 0, 0, 0, ALONE}, {2, 5, READ, 0, 0, 1, ALONE}, {3, 4, DELETE, 0, 0, 1, ALONE},
		{6, 7, READ, 0, 0, 0, ALONE}
	};
	static const Operation wrong[] = {
		{0, 1, INSERT, 0, 0, 0, ALONE}, {2, 5, READ, 0, 0, 0, ALONE}, {6, 7, READ, 0, 0, 1, ALONE}
	};
	static const Operation torn[] = {	/* 0 goes before 1 comes */
		{0, 1, INSERT, 0, 0, 0, ALONE}, {2, 7, READ, 0, 0, 3, ALONE}, {3, 4, DELETE, 0, 0, 1, ALONE},
		{5, 6, INSERT, 0, 1, 0, ALONE}
	};
	static const struct
	{
		const Operation *operation;
		size_t		n;
		unsigned	mask;
		bool		possible;
	}			history[] = {
		{right, 4, 1, true}, {wrong, 3, 1, false}, {torn, 4, 1, true},
		{torn, 4, 2, true}, {torn, 4, 3, false}
	};

	for (size_t h = 0; h < sizeof(history) / sizeof(history[0]); h++)
	{
		const Operation *op;

		memset(shared->n, 0, sizeof(shared->n));
		for (size_t i = 0; i < history[h].n; i++)
		{
			int			w = (int) (i % WORKERS);

			shared->log[w][shared->n[w]++] = history[h].operation[i];
		}
		gather_events(0);
		CHECK(is_linearizable(0, history[h].mask, &op) == history[h].possible);
	}
}

/* ---- rounds ---- */

/*
 * Hashes of the hot keys: all in a 256th of the hash space.  Those of the small
 * ones and of a crowd besides differ in the fingerprint and in bits that only a deep
 * directory looks at, so that they compete for two buckets and the stash.
 */
static uint64_t
crowded_hash(uint64_t i)
{
	return ((fixture_hash(round_number) >> 8) & ~UINT64_C(0x00ff0000000000ff)) | i << 48 | i;
}

/* Loaded, so that the last buffers of their lists are full. */
static void
make_table(void)
{
	PmhEnv		env = round_env(true);
	PmhTable   *t = fixture_create_in(path, &env);
	PmhEntry	first = {0, PERMANENT};
	PmhBulk    *bulk;
	uint32_t	depth;

	/* The 256th is a segment of its own: one that nearly all hashes share could not be split. */
	REQUIRE(pmh_bulk_begin(t, UINT64_C(1) << 20, PMH_DEFAULT_FILL, &depth, &bulk) == PMH_OK &&
			depth > 8);
	for (unsigned i = 0; i < 256; i++)
		REQUIRE(pmh_bulk_partition(bulk, 8, &first, i == 0) == PMH_OK);
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK && pmh_delete(t, 0, PERMANENT) == PMH_OK);
	memset(shared->n, 0, sizeof(shared->n));
	for (unsigned key = 0; key < HOT_KEYS; key++)
	{
		hot_hash[key] = key < SMALL_KEYS ? crowded_hash(key) :
			fixture_hash(((uint64_t) round_number << 32) + key) >> 8;
		for (unsigned i = 0; i < hot_key[key].permanent; i++)
			REQUIRE(pmh_insert(t, hot_hash[key], PERMANENT + i, false) == PMH_OK);
		shared->present[key] = 0;
		for (unsigned i = 0; i < hot_key[key].hot; i++)
		{
			shared->token[key][i] = i % 2;
			if (i % 2 != 0)
				continue;
			REQUIRE(pmh_insert(t, hot_hash[key], i, false) == PMH_OK);
			shared->present[key] |= (uint8_t) (1u << i);
		}
	}
	for (uint64_t i = 0; i < WORKERS * BULK_KEYS; i++)
		REQUIRE(pmh_insert(t, bulk_hash(i), i, false) == PMH_OK);
	for (unsigned key = 0; key < HOT_KEYS; key++)
	{
		for (unsigned i = 0; i < hot_key[key].filler; i++)
			REQUIRE(pmh_insert(t, hot_hash[key], FILLER + i, false) == PMH_OK);
	}
	for (uint64_t i = 0; i < CROWD; i++)
		REQUIRE(pmh_insert(t, crowded_hash(100 + i), PERMANENT, false) == PMH_OK);
	/* In each second round there is room again. */
	for (uint64_t i = 0; i < CROWD && round_number % 2 == 0; i += 4)
		REQUIRE(pmh_delete(t, crowded_hash(100 + i), PERMANENT) == PMH_OK);
	/* In others the first sweep finds out what is free. */
	if (round_number % 4 < 2)
		fixture_forget_space(t);
	pmh_close(t);
}

/* Add what has happened to the table. */
static void
check_table(PmhStats *sum)
{
	PmhTable   *t = open_table();
	PmhStats	stats;

	/* (Of value space the check says only then whether any is lost.) */
	CHECK(sweep_through(t) == PMH_OK && pmh_value_space_is_known(t));
	CHECK_SOUND(t);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	sum->splits += stats.splits;
	sum->grows += stats.grows;
	sum->doublings += stats.doublings;
	sum->compactions += stats.compactions;
	sum->strategy_changes += stats.strategy_changes;
	sum->entries_stash += stats.entries_stash;
	merges += pm_load(&pmh_run(t)->merges);
	list_rewrites += pm_load(&pmh_run(t)->list_rewrites);
	pmh_close(t);
}

/* Has all happened that histories are to be of? */
static bool
was_worth_it(const PmhStats *sum)
{
	return sum->splits > 0 && sum->grows > 0 && sum->doublings > 0 &&
		sum->compactions > 0 && sum->strategy_changes > 0 && sum->entries_stash > 0 &&
		merges > 0 && list_rewrites > 0;
}

static uint64_t
seconds(void)
{
	struct timespec ts;

	(void) clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t) ts.tv_sec;
}

int
main(int argc, char **argv)
{
	uint64_t	until = argc > 1 ? seconds() + (uint64_t) atoll(argv[1]) : 0;
	PmhStats	sum = {0};

	shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	REQUIRE(shared != MAP_FAILED);
	event = calloc(2 * WORKERS * MAX_OPERATIONS, sizeof(*event));
	REQUIRE(event != NULL);
	path = fixture_path("race_histories");
	test_checker();
	/* On a busy machine threads may run one after the other for some rounds. */
	for (round_number = 1; round_number <= ROUNDS || seconds() < until ||
		 (!was_worth_it(&sum) && round_number <= 20 * ROUNDS); round_number++)
	{
		make_table();
		run_workers();
		check_histories();
		check_table(&sum);
	}
	CHECK(was_worth_it(&sum));
	unlink(path);
	return unit_done("race_histories_threads");
}
