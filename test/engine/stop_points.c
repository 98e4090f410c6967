/*-------------------------------------------------------------------------
 *
 * stop_points.c
 *	  A writer that stands still at each named point of the engine, in each
 *	  kind of work that comes by it: readers are right and never wait,
 *	  writers of other segments go on; then it goes on, or is killed and the
 *	  file recovered.
 *
 * The engine is compiled with PMH_STOP_POINTS here.  A process stops itself
 * (SIGSTOP) at the n-th time it comes by a point.  Others, each with a mapping
 * of its own, know what the table must hold: everything but the operation in
 * flight, which may have taken effect or not, and if one reader has seen it,
 * all later ones do, also after a crash.
 *
 *	stop_points			the first, a middle and the last time
 *	stop_points N		N times each, spread over all
 *
 *-------------------------------------------------------------------------
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bucket.h"
#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "segment.h"
#include "space.h"
#include "stop_point.h"
#include "sweeps.h"
#include "table.h"
#include "unit.h"

#define COLD_KEYS		2600	/* one value each, anywhere */
#define CROWDED_KEYS	1500	/* one value each, in a 64th of the hash space */
#define LIST_KEYS		24		/* with lists of one buffer */
#define LIST_VALUES		30
#define CHAIN_KEYS		2
#define CHAIN_VALUES	3000	/* several chained buffers */
#define SPARE_KEYS		16		/* with short lists, for readers to take out */
#define SPARE_VALUES	8
#define NEW_KEYS		4000	/* not there in the beginning */
#define GROWING_KEYS	4		/* not there either: values one by one */
#define GROWING_VALUES	1200
#define BULK_KEYS		16000	/* for shrinks only: one value each */
#define HUGE_KEYS		1		/* likewise, with a list of many buffers */
#define HUGE_VALUES		8000

#define FIRST_CROWDED	COLD_KEYS
#define FIRST_LIST		(FIRST_CROWDED + CROWDED_KEYS)
#define FIRST_CHAIN		(FIRST_LIST + LIST_KEYS)
#define FIRST_SPARE		(FIRST_CHAIN + CHAIN_KEYS)
#define FIRST_NEW		(FIRST_SPARE + SPARE_KEYS)
#define FIRST_GROWING	(FIRST_NEW + NEW_KEYS)
#define FIRST_BULK		(FIRST_GROWING + GROWING_KEYS)
#define FIRST_HUGE		(FIRST_BULK + BULK_KEYS)
#define KEYS			(FIRST_HUGE + HUGE_KEYS)

#define GROUP_PAIRS		24		/* of a group operation */
#define PATIENCE		20		/* seconds: a reader that takes longer waits */
#define MAX_POINTS		96
#define NO_OPERATION	UINT32_MAX

/*
 * A pair is its number; that is its value too.  The pairs of key k are
 * first_pair[k] .. first_pair[k + 1] - 1.
 */
static uint32_t first_pair[KEYS + 1];
static uint32_t npairs;
static uint16_t *key_of;

typedef enum State
{
	ABSENT,
	PRESENT,
	EITHER						/* in flight, and not looked at yet */
} State;

static uint8_t *model;			/* State of each pair */
static uint8_t *taken_out;		/* by a reader of this case */

/* What the writer does: a list of operations. */
typedef enum Kind
{
	INSERT,
	DELETE,
	INSERT_GROUP,				/* GROUP_PAIRS from 'pair' on */
	DELETE_GROUP,
	SWEEP,						/* take all pairs of sweep_dead[] out */
	SHRINK						/* give space back: no pair changes */
} Kind;

typedef struct Operation
{
	Kind		kind;
	uint32_t	pair;
} Operation;

static Operation *operation;
static uint32_t noperations;
static uint8_t *sweep_dead;

/* What writer and test share. */
typedef struct Stage
{
	uint32_t	current;		/* operation in flight */
	uint32_t	npoints;
	struct
	{
		char		name[32];
		uint32_t	hits;
	}			point[MAX_POINTS];
} Stage;

static Stage *stage;
static const char *path;
static uint64_t instance;		/* 2 if the table has been through a crash */

/* In the writer: where to stop.  NULL: count only. */
static const char *stop_at;
static uint32_t stop_countdown;

static uint64_t taken_out_values;	/* in all cases */
static uint64_t changed_beside_shrinks; /* keys, likewise */
static uint64_t changed_beside_groups;
static const char *now_testing = "nothing";
static pid_t writer;

/* ---- the hook ---- */

void
pmh_stop_point(const char *name)
{
	uint32_t	i = 0;

	if (stop_at == NULL)
	{
		while (i < stage->npoints && strcmp(stage->point[i].name, name) != 0)
			i++;
		REQUIRE(i < MAX_POINTS && strlen(name) < sizeof(stage->point[i].name));
		if (i == stage->npoints)
		{
			strcpy(stage->point[i].name, name);
			stage->npoints++;
		}
		stage->point[i].hits++;
	}
	else if (strcmp(stop_at, name) == 0 && --stop_countdown == 0)
		raise(SIGSTOP);
}

static void
on_alarm(int signo)
{
	static const char message[] = ": a reader or another writer waits\n";

	(void) signo;
	(void) !write(STDERR_FILENO, now_testing, strlen(now_testing));
	(void) !write(STDERR_FILENO, message, sizeof(message) - 1);
	(void) kill(writer, SIGKILL);
	_exit(1);
}

/* ---- keys and the model ---- */

static uint64_t
hash_of(uint32_t key)
{
	uint64_t	hash = fixture_hash(key);

	if (key >= FIRST_CROWDED && key < FIRST_LIST)
		hash >>= 6;
	return hash;
}

static uint32_t
values_of(uint32_t key)
{
	if (key < FIRST_LIST)
		return 1;
	if (key < FIRST_CHAIN)
		return LIST_VALUES;
	if (key < FIRST_SPARE)
		return CHAIN_VALUES;
	if (key < FIRST_NEW)
		return SPARE_VALUES;
	if (key < FIRST_GROWING)
		return 1;
	if (key < FIRST_BULK)
		return GROWING_VALUES;
	return key < FIRST_HUGE ? 1 : HUGE_VALUES;
}

static void
make_pairs(void)
{
	for (uint32_t key = 0; key < KEYS; key++)
	{
		first_pair[key] = npairs;
		npairs += values_of(key);
	}
	first_pair[KEYS] = npairs;
	key_of = calloc(npairs, sizeof(*key_of));
	model = calloc(npairs, 1);
	taken_out = calloc(npairs, 1);
	sweep_dead = calloc(npairs, 1);
	operation = calloc(npairs, sizeof(*operation));
	REQUIRE(key_of != NULL && model != NULL && taken_out != NULL && sweep_dead != NULL && operation != NULL);
	for (uint32_t key = 0; key < KEYS; key++)
	{
		for (uint32_t pair = first_pair[key]; pair < first_pair[key + 1]; pair++)
			key_of[pair] = (uint16_t) key;
	}
}

/* How many pairs an operation names, from op->pair on. */
static uint32_t
pairs_named(const Operation *op)
{
	if (op->kind == INSERT || op->kind == DELETE)
		return 1;
	return op->kind == INSERT_GROUP || op->kind == DELETE_GROUP ? GROUP_PAIRS : 0;
}

static bool
is_insert(const Operation *op)
{
	return op->kind == INSERT || op->kind == INSERT_GROUP;
}

static void
apply_to_model(const Operation *op)
{
	for (uint32_t i = 0; i < pairs_named(op); i++)
		model[op->pair + i] = is_insert(op) ? PRESENT : ABSENT;
	for (uint32_t pair = 0; op->kind == SWEEP && pair < npairs; pair++)
	{
		if (sweep_dead[pair])
			model[pair] = ABSENT;
	}
}

/* The model when operation 'current' is in flight. */
static void
set_model(uint32_t current)
{
	for (uint32_t pair = 0; pair < npairs; pair++)
		model[pair] = pair < first_pair[FIRST_NEW] && !taken_out[pair] ? PRESENT : ABSENT;
	for (uint32_t i = 0; i < noperations && i < current; i++)
		apply_to_model(&operation[i]);
	if (current >= noperations)
		return;
	for (uint32_t i = 0; i < pairs_named(&operation[current]); i++)
		model[operation[current].pair + i] = EITHER;
	for (uint32_t pair = 0; operation[current].kind == SWEEP && pair < npairs; pair++)
	{
		if (sweep_dead[pair])
			model[pair] = EITHER;
	}
}

/* ---- kinds of work: each makes a list of operations ---- */

static void
add_operation(Kind kind, uint32_t pair)
{
	operation[noperations++] = (Operation) {kind, pair};
}

/* New keys: strategies change, segments grow and are split, the file grows. */
static void
plan_new_keys(void)
{
	for (uint32_t pair = first_pair[FIRST_NEW]; pair < first_pair[FIRST_GROWING]; pair++)
		add_operation(INSERT, pair);
}

/* The same in groups, and then the first of the old keys go in groups. */
static void
plan_groups(void)
{
	for (uint32_t pair = first_pair[FIRST_NEW]; pair + GROUP_PAIRS <= first_pair[FIRST_GROWING];
		 pair += GROUP_PAIRS)
		add_operation(INSERT_GROUP, pair);
	for (uint32_t pair = 0; pair + GROUP_PAIRS <= first_pair[FIRST_LIST]; pair += 5 * GROUP_PAIRS)
		add_operation(DELETE_GROUP, pair);
}

/* Keys get many values, in turns: lists are made, copied, and chained. */
static void
plan_growing_lists(void)
{
	for (uint32_t i = 0; i < GROWING_VALUES; i++)
	{
		for (uint32_t key = FIRST_GROWING; key < FIRST_BULK; key++)
			add_operation(INSERT, first_pair[key] + i);
	}
}

/* Old lists lose all they have, from the oldest value on. */
static void
plan_deletes(void)
{
	for (uint32_t key = FIRST_LIST; key < FIRST_SPARE; key++)
	{
		for (uint32_t pair = first_pair[key]; pair < first_pair[key + 1]; pair++)
			add_operation(DELETE, pair);
	}
	for (uint32_t key = 0; key < COLD_KEYS; key += 7)
		add_operation(DELETE, first_pair[key]);
}

/* The same from the newest value on. */
static void
plan_deletes_backwards(void)
{
	for (uint32_t key = FIRST_LIST; key < FIRST_SPARE; key++)
	{
		for (uint32_t pair = first_pair[key + 1]; pair-- > first_pair[key];)
			add_operation(DELETE, pair);
	}
}

/*
 * A sweep that takes out a third of everything, whole lists, and the first, a
 * middle and the last stretch of long ones: chained buffers vanish.
 */
static void
plan_sweep(void)
{
	for (uint32_t pair = 0; pair < first_pair[FIRST_SPARE]; pair++)
	{
		uint32_t	key = key_of[pair];
		uint32_t	i = pair - first_pair[key];

		if (key >= FIRST_CHAIN)
			sweep_dead[pair] = i < 700 || (i > 750 && i < 2000) || i > 2050;
		else
			sweep_dead[pair] = key >= FIRST_LIST && key % 2 == 0 ? 1 : pair % 3 == 0;
	}
	add_operation(SWEEP, 0);
}

static void
plan_growth_and_sweep(void)
{
	plan_growing_lists();
	plan_sweep();
}

/* Does a shrink find this pair, or has it been taken out before? */
static bool
left_for_shrink(uint32_t pair)
{
	uint32_t	key = key_of[pair];
	uint32_t	i = pair - first_pair[key];

	if (key < FIRST_CROWDED)
		return pair % 2 == 0;
	if (key < FIRST_LIST || (key >= FIRST_NEW && key < FIRST_GROWING))
		return pair % 10 == 0;
	if (key >= FIRST_SPARE && key < FIRST_NEW)
		return true;
	if (key >= FIRST_BULK && key < FIRST_HUGE)
		return pair % 20 == 0;
	return i % 300 < 20 || (key >= FIRST_HUGE && i > HUGE_VALUES - 2500);
}

/*
 * Most pairs below 'end' are taken out again: of lists something is left in each buffer, of
 * a long one all of the newest.  Then the table is shrunk.
 */
static void
plan_death_and_shrink(uint32_t end)
{
	for (uint32_t pair = 0; pair < end; pair++)
		sweep_dead[pair] = !left_for_shrink(pair);
	add_operation(SWEEP, 0);
	add_operation(SHRINK, 0);
}

/* The table grows to several times its size before. */
static void
plan_shrink(void)
{
	plan_new_keys();
	plan_growing_lists();
	for (uint32_t pair = first_pair[FIRST_BULK]; pair < npairs; pair++)
		add_operation(INSERT, pair);
	plan_death_and_shrink(npairs);
}

/* The table is shrunk in between: later inserts take the punched blocks. */
static void
plan_growth_after_shrink(void)
{
	uint32_t	half = first_pair[FIRST_BULK + BULK_KEYS / 2];

	plan_new_keys();
	for (uint32_t pair = first_pair[FIRST_BULK]; pair < half; pair++)
		add_operation(INSERT, pair);
	plan_death_and_shrink(half);
	for (uint32_t pair = half; pair < npairs; pair++)
		add_operation(INSERT, pair);
}

/* Each kind of work, and the points it must come by. */
typedef struct Work
{
	const char *name;
	bool		recovered;		/* on a table that has been through a crash */
	void		(*plan) (void);
	const char *points;
} Work;

static const Work work[] = {
	{"new keys", false, plan_new_keys,
		"put_before_commit put_after_commit "
		"replace_before_publish elements_before_first elements_between "
		"replace_before_retire retire_before_versions retire_before_free "
		"retire_after_free double_before_dirword double_after_dirword "
		"grow_before_blocks"},
	{"groups", false, plan_groups,
		"put_before_announcing put_before_commit put_after_commit "
		"replace_before_publish clear_before_commit clear_after_commit"},
	{"growing lists", false, plan_growing_lists,
		"put_before_commit put_after_commit compact_before_word compact_after_word "
		"append_before_state append_after_state repoint_before_word "
		"repoint_after_word list_before_publish list_before_free "
		"value_free_locked grow_before_blocks"},
	{"deletes", false, plan_deletes,
		"clear_before_commit clear_after_commit line_clear_before_state "
		"line_clear_after_state slot_before_store slot_after_store "
		"unpoint_after_clear list_before_free value_free_locked"},
	{"deletes backwards", false, plan_deletes_backwards,
		"line_clear_before_state line_clear_after_state slot_before_store "
		"slot_after_store unpoint_after_clear list_before_free "
		"value_free_locked"},
	{"sweep", false, plan_sweep,
		"clear_before_commit clear_after_commit "
		"line_clear_before_state line_clear_after_state slot_before_store "
		"slot_after_store unpoint_after_clear list_before_free value_free_locked"},
	{"growing lists, then a sweep, after a crash", true, plan_growth_and_sweep,
		"compact_before_word repoint_before_word value_free_locked "
		"value_walk_settles line_clear_before_state "
		"slot_after_store"},
	{"shrink", false, plan_shrink,
		"replace_before_publish replace_before_retire "
		"elements_before_first elements_between "
		"retire_before_versions retire_before_free retire_after_free "
		"rewrite_before_publish "
		"rewrite_before_retire slot_before_store slot_after_store "
		"repoint_before_word repoint_after_word list_before_free "
		"value_free_locked value_block_before_free punch_before_hole"},
	{"shrink after a crash", true, plan_shrink,
		"replace_before_publish "
		"rewrite_before_publish punch_before_hole"},
	{"growth after a shrink", false, plan_growth_after_shrink,
		"punch_before_hole grow_before_blocks unpunch_before_free"},
};

/* ---- tables ---- */

static PmhTable *
open_table(void)
{
	fixture_shift_addresses();
	return fixture_open(path, instance);
}

/* All go down: new locks, a new instance. */
static PmhTable *
reopen_after_crash(void)
{
	pmh_locks_init(fixture_locks(), FIXTURE_STRIPES);
	instance++;
	return open_table();
}

/* The table all work starts from. */
static PmhTable *
make_table(bool recovered)
{
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;

	memset(taken_out, 0, npairs);
	instance = 1;
	pmh_locks_init(env.locks, FIXTURE_STRIPES);
	t = fixture_create_in(path, &env);
	for (uint32_t pair = 0; pair < first_pair[FIRST_NEW]; pair++)
		REQUIRE(pmh_insert(t, hash_of(key_of[pair]), pair, false) == PMH_OK);
	if (recovered)
	{
		pmh_close(t);
		t = reopen_after_crash();
	}
	return t;
}

/* ---- the writer ---- */

/* Sweep as VACUUM does.  is_dead tells of each pair whether it is to go. */
static void
take_out_dead(PmhTable *t, const uint8_t *is_dead)
{
	Sweeper		s;
	const PmhEntry *pair;

	sweeper_begin(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		if (is_dead != NULL && is_dead[pair->value])
			sweeper_take_out(&s);
	}
	REQUIRE(sweeper_end(&s) == PMH_OK);
}

/* Shrink as VACUUM does; false if that does not pay. */
static bool
shrink_table(PmhTable *t)
{
	PmhShrink	shrink;
	PmhResult	result = pmh_shrink_begin(t, PMH_DEFAULT_FILL, &shrink);

	if (result == PMH_DONE)
		return false;
	while (result == PMH_OK)
		result = pmh_shrink_step(t, &shrink);
	REQUIRE(result == PMH_DONE);
	REQUIRE(shrink.bytes_after < shrink.bytes_before);
	pmh_shrink_end(&shrink);
	return true;
}

/* Insert or delete several pairs; if some may be done already, the others. */
static void
do_group(PmhTable *t, const Operation *op, bool again)
{
	PmhEntry	entry[GROUP_PAIRS];
	size_t		n = 0;
	size_t		done;

	for (uint32_t pair = op->pair; pair < op->pair + GROUP_PAIRS; pair++)
	{
		if (!again || model[pair] != (is_insert(op) ? PRESENT : ABSENT))
			entry[n++] = (PmhEntry) {hash_of(key_of[pair]), pair};
	}
	if (is_insert(op))
		REQUIRE(pmh_insert_group(t, entry, n, false, &done) == PMH_OK);
	else
		REQUIRE(pmh_delete_group(t, entry, n, &done) == PMH_OK);
	REQUIRE(done == n);
}

/* An operation; if it may be in already ('again'), whatever there is to do. */
static void
do_operation(PmhTable *t, const Operation *op, bool again)
{
	uint64_t	hash = hash_of(key_of[op->pair]);

	if (op->kind == SWEEP)
		take_out_dead(t, sweep_dead);
	else if (op->kind == SHRINK)
		REQUIRE(shrink_table(t) || again);
	else if (pairs_named(op) > 1)
		do_group(t, op, again);
	else if (op->kind == DELETE)
	{
		PmhResult	result = pmh_delete(t, hash, op->pair);

		REQUIRE(result == PMH_OK || (again && result == PMH_NOT_FOUND));
	}
	else if (!again || model[op->pair] != PRESENT)
		REQUIRE(pmh_insert(t, hash, op->pair, false) == PMH_OK);
}

static void
write_all(void)
{
	PmhTable   *t = open_table();

	for (uint32_t i = 0; i < noperations; i++)
	{
		__atomic_store_n(&stage->current, i, __ATOMIC_RELAXED);
		do_operation(t, &operation[i], false);
	}
	__atomic_store_n(&stage->current, NO_OPERATION, __ATOMIC_RELAXED);
	pmh_close(t);
}

/* A writer that stops at the n-th time at a point (NULL: nowhere). */
static void
start_writer(const char *name, uint32_t n)
{
	fflush(stdout);
	stage->current = NO_OPERATION;
	writer = fork();
	REQUIRE(writer >= 0);
	if (writer == 0)
	{
		alarm(0);
		unit_failed = 0;
		stop_at = name;
		stop_countdown = n;
		write_all();
		_exit(unit_failed != 0);
	}
}

static void
await_writer(void)
{
	int			status;

	REQUIRE(waitpid(writer, &status, 0) == writer);
	REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- readers ---- */

/* A reader has found a pair, or has not: is that right?  It counts from now on. */
static bool
agrees(uint32_t pair, bool found)
{
	if (model[pair] == EITHER)
		model[pair] = found ? PRESENT : ABSENT;
	return model[pair] == (found ? PRESENT : ABSENT);
}

/* What a reader has found of all keys: how often each pair. */
typedef struct Seen
{
	uint8_t    *count;
	uint32_t	base;			/* key of hashes[0] */
	bool		strange;		/* a value of another key, or of none */
} Seen;

static void
see(Seen *seen, uint32_t key, uint64_t value)
{
	if (value >= npairs || key_of[value] != key)
		seen->strange = true;
	else if (seen->count[value] < UINT8_MAX)
		seen->count[value]++;
}

static void
see_found(void *arg, size_t i, uint64_t value)
{
	Seen	   *seen = arg;

	see(seen, seen->base + (uint32_t) i, value);
}

static void
check_seen(const Seen *seen, const char *reader)
{
	uint32_t	wrong = 0;

	for (uint32_t pair = 0; pair < npairs; pair++)
		wrong += seen->count[pair] > 1 || !agrees(pair, seen->count[pair] != 0);
	if (!CHECK(wrong == 0 && !seen->strange))
		fprintf(stderr, "  %s: %s: %u pairs are wrong\n", now_testing, reader, wrong);
}

static void
read_by_lookup(PmhTable *t, Seen *seen)
{
	PmhValues	values = {0};

	for (uint32_t key = 0; key < KEYS; key++)
	{
		REQUIRE(pmh_lookup(t, hash_of(key), &values) == PMH_OK);
		for (size_t i = 0; i < values.n; i++)
			see(seen, key, values.value[i]);
	}
	pmh_values_free(&values);
}

static void
read_by_group(PmhTable *t, Seen *seen)
{
	uint64_t	hashes[100];

	for (uint32_t key = 0; key < KEYS; key += 100)
	{
		uint32_t	n = KEYS - key < 100 ? KEYS - key : 100;

		for (uint32_t i = 0; i < n; i++)
			hashes[i] = hash_of(key + i);
		seen->base = key;
		REQUIRE(fixture_lookup_group(t, hashes, n, see_found, seen) == PMH_OK);
	}
}

static void
read_by_cursor(PmhTable *t, Seen *seen)
{
	PmhCursor	cursor = {0};

	for (uint32_t key = 0; key < KEYS; key++)
	{
		PmhResult	result;

		pmh_cursor_open(t, &cursor, hash_of(key));
		while ((result = pmh_cursor_next(t, &cursor, key % 2 == 0 ? 40 : 0)) == PMH_OK)
		{
			for (size_t i = 0; i < cursor.batch.n; i++)
				see(seen, key, cursor.batch.value[i]);
		}
		REQUIRE(result == PMH_DONE);
	}
	pmh_cursor_free(&cursor);
}

static void
read_by_sweep(PmhTable *t, Seen *seen)
{
	Sweeper		s;
	const PmhEntry *pair;

	sweeper_begin_reading(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		if (pair->value < npairs && pair->hash == hash_of(key_of[pair->value]))
			see(seen, key_of[pair->value], pair->value);
		else
			seen->strange = true;
	}
	REQUIRE(sweeper_end(&s) == PMH_OK);
}

typedef void (*Reader) (PmhTable *t, Seen *seen);

static void
read_all(PmhTable *t)
{
	static const struct
	{
		const char *name;
		Reader		read;
	}			reader[] = {
		{"look-up", read_by_lookup},
		{"group look-up", read_by_group},
		{"cursor", read_by_cursor},
		{"sweep", read_by_sweep},
	};
	Seen		seen = {.count = malloc(npairs)};

	REQUIRE(seen.count != NULL);
	for (size_t i = 0; i < sizeof(reader) / sizeof(reader[0]); i++)
	{
		memset(seen.count, 0, npairs);
		seen.strange = false;
		reader[i].read(t, &seen);
		check_seen(&seen, reader[i].name);
	}
	free(seen.count);
}

/* Statistics keep no process waiting and do not wait. */
static void
check_statistics(PmhTable *t)
{
	PmhStats	stats;
	uint64_t	entries;
	uint64_t	bytes;
	uint64_t	least = 0;
	uint64_t	most = 0;

	for (uint32_t pair = 0; pair < npairs; pair++)
	{
		least += model[pair] == PRESENT;
		most += model[pair] != ABSENT;
	}
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	if (!CHECK(stats.entries >= least && stats.entries <= most))
		fprintf(stderr, "  %s: %llu entries are counted, not %llu\n", now_testing,
				(unsigned long long) stats.entries, (unsigned long long) most);
	CHECK(pmh_estimate(t, &entries, &bytes) == PMH_OK);
}

/*
 * Readers take out what they find dead, as far as they need not wait for
 * a lock: all of the spare keys but those that are in a locked segment, and
 * all but their last values if the space lock is held.
 */
static void
take_out_spare(PmhTable *t)
{
	for (uint32_t key = FIRST_SPARE; key < FIRST_NEW; key++)
	{
		PmhValues	values = {0};
		PmhEntry	entry[SPARE_VALUES];
		size_t		removed;

		for (uint32_t i = 0; i < SPARE_VALUES; i++)
		{
			entry[i] = (PmhEntry) {hash_of(key), first_pair[key] + i};
			taken_out[first_pair[key] + i] = 1;
			model[first_pair[key] + i] = ABSENT;
		}
		REQUIRE(fixture_delete_nowait(t, entry, SPARE_VALUES, &removed) == PMH_OK);
		REQUIRE(pmh_lookup(t, hash_of(key), &values) == PMH_OK);
		CHECK(values.n == SPARE_VALUES - removed);
		for (size_t i = 0; i < values.n; i++)
		{
			taken_out[values.value[i]] = 0;
			model[values.value[i]] = PRESENT;
		}
		taken_out_values += removed;
		pmh_values_free(&values);
	}
}

/* ---- other writers ---- */

/* Is the segment of a key locked, by the writer that stands still? */
static bool
is_locked(PmhTable *t, uint32_t key)
{
	PmhPlace	place;
	PmhResult	result;

	while ((result = pmh_locate(t, hash_of(key), &place)) == PMH_NEED)
		REQUIRE(pmh_map_all(t) == PMH_OK);
	REQUIRE(result == PMH_OK);
	return __atomic_load_n(&place.stripe->lock, __ATOMIC_RELAXED) != 0;
}

/*
 * Delete and insert again what stands in segments that are not locked; most
 * are, unless the last two of a small table are being merged, or a group has
 * locked one for each of its entries.  Each finds room where it was: nothing is
 * needed that the sleeping process may hold besides.
 */
static void
write_elsewhere(PmhTable *t, Kind kind)
{
	uint32_t	n = 0;

	for (uint32_t key = 0; key < COLD_KEYS; key++)
	{
		uint32_t	pair = first_pair[key];

		if (model[pair] != PRESENT || is_locked(t, key))
			continue;
		REQUIRE(pmh_delete(t, hash_of(key), pair) == PMH_OK);
		REQUIRE(pmh_insert(t, hash_of(key), pair, false) == PMH_OK);
		n++;
	}
	if (kind == SHRINK)
		changed_beside_shrinks += n;
	else if (kind == INSERT_GROUP || kind == DELETE_GROUP)
		changed_beside_groups += n;
	else if (!CHECK(n > COLD_KEYS / 3))
		fprintf(stderr, "  %s: only %u keys could be changed\n", now_testing, n);
}

/* ---- the cases ---- */

/* The writer goes on to its end; all must be as if it had not been held. */
static void
let_go_on(PmhTable *t)
{
	REQUIRE(kill(writer, SIGCONT) == 0);
	await_writer();
	set_model(noperations);
	read_all(t);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
}

/*
 * The writer and the system go down.  What readers have seen stays; the table
 * can do what was left undone, and a sweep finds what space is free.
 */
static void
let_crash(uint32_t current)
{
	PmhTable   *t;
	PmhStats	stats;

	REQUIRE(kill(writer, SIGKILL) == 0);
	REQUIRE(waitpid(writer, NULL, 0) == writer);
	t = reopen_after_crash();
	read_all(t);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);

	do_operation(t, &operation[current], true);
	for (uint32_t i = current + 1; i < noperations; i++)
		do_operation(t, &operation[i], false);
	set_model(noperations);
	take_out_dead(t, NULL);
	read_all(t);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.value_space_known);
	pmh_close(t);
}

static void
test_stop(const Work *w, const char *name, uint32_t n, bool crash)
{
	char		label[160];
	PmhTable   *old = make_table(w->recovered);
	PmhTable   *fresh;
	uint32_t	current;
	int			status;

	snprintf(label, sizeof(label), "%s, %s, time %u%s", w->name, name, n,
			 crash ? ", crash" : "");
	now_testing = label;
	start_writer(name, n);
	REQUIRE(waitpid(writer, &status, WUNTRACED) == writer);
	REQUIRE(WIFSTOPPED(status));
	current = __atomic_load_n(&stage->current, __ATOMIC_RELAXED);
	REQUIRE(current < noperations);
	set_model(current);

	alarm(PATIENCE);
	fresh = open_table();
	check_statistics(fresh);
	read_all(fresh);
	read_all(old);				/* this one has to map further */
	take_out_spare(fresh);
	write_elsewhere(fresh, operation[current].kind);
	read_all(old);
	alarm(0);

	if (crash)
		let_crash(current);
	else
		let_go_on(fresh);
	pmh_close(fresh);
	pmh_close(old);
	now_testing = "nothing";
}

/* Run without stopping; counts how often each point is met. */
static void
count_points(bool recovered)
{
	PmhTable   *t = make_table(recovered);

	memset(stage, 0, sizeof(*stage));
	start_writer(NULL, 0);
	await_writer();
	pmh_close(t);
}

static uint32_t
hits_of(const char *name)
{
	for (uint32_t i = 0; i < stage->npoints; i++)
	{
		if (strcmp(stage->point[i].name, name) == 0)
			return stage->point[i].hits;
	}
	return 0;
}

static void
test_work(const Work *w, uint32_t times)
{
	char		points[1024];
	char	   *save;

	noperations = 0;
	w->plan();
	count_points(w->recovered);
	snprintf(points, sizeof(points), "%s", w->points);
	for (char *name = strtok_r(points, " ", &save); name != NULL; name = strtok_r(NULL, " ", &save))
	{
		uint32_t	hits = hits_of(name);
		uint32_t	last = 0;

		if (!CHECK(hits > 0))
		{
			fprintf(stderr, "  %s never comes by %s\n", w->name, name);
			continue;
		}
		for (uint32_t i = 0; i < times; i++)
		{
			uint32_t	n = 1 + (uint32_t) ((uint64_t) i * (hits - 1) / (times - 1));

			if (n == last)
				continue;
			test_stop(w, name, n, false);
			test_stop(w, name, n, true);
			last = n;
		}
	}
}

int
main(int argc, char **argv)
{
	uint32_t	times = argc > 1 ? (uint32_t) atoi(argv[1]) : 3;

	REQUIRE(times >= 2);
	stage = mmap(NULL, sizeof(Stage), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(stage != MAP_FAILED);
	path = fixture_path("stop_points");
	signal(SIGALRM, on_alarm);
	make_pairs();
	stop_at = "none";			/* here no process stops, or counts */
	for (size_t i = 0; i < sizeof(work) / sizeof(work[0]); i++)
		test_work(&work[i], times);
	CHECK(taken_out_values > 0 && changed_beside_shrinks > 0 && changed_beside_groups > 0);
	unlink(path);
	return unit_done("stop_points");
}
