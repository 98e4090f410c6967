/*-------------------------------------------------------------------------
 *
 * stop_between.c
 *	  A search: what an operation does while others do as they like between any
 *	  two of its steps.
 *
 * The engine is compiled with PMH_STOP_POINTS here.  One handle reads, or puts values
 * of its own in and takes them out.  When it comes by a stop point and no lock is held,
 * or pauses between two batches, others act, through a second handle that maps
 * more of the file or less: lists grow and are emptied, so that their buffers
 * are freed and come back to them or go to other lists; keys come
 * by the thousand and go again; segments are moved; the file is shrunk.  Some pairs stay.  The
 * operation has to find each of these once, and nothing of other keys; what it was
 * to take out must be gone; and nothing on this sound file may be called damaged.
 *
 * Besides, other files change beside some operations, all the while: they count up the
 * version words that they share with this one, those of buffers also while locks
 * are held.  That costs the operation some readings, but not without an end.
 *
 * All of it is decided by random numbers from a seed:
 *
 *	stop_between					some episodes
 *	stop_between EPISODES SEED		as many, from this seed on
 *
 *-------------------------------------------------------------------------
 */
#include "content.h"
#include "sweeps.h"

#define EPISODES		25
#define OPERATIONS		24		/* of an episode */
#define LIST_KEYS		14
#define PLAIN_KEYS		1200
#define KEYS			(LIST_KEYS + PLAIN_KEYS)
#define MOST_STANDING	900		/* values of a key that stay */
#define MOST_OTHERS		4000	/* that come and go ... */
#define FIRST_OTHER		1000	/* ... with numbers from here on */
#define OWN_VALUES		40		/* that the operation takes out */
#define ROUNDS			6		/* of inserts and deletes, in one operation */
#define COLD_KEYS		UINT64_C(40000)	/* at a time */
#define OTHER_LISTS		64
#define MOST_ACTIONS	4		/* of others beside one operation */
#define LONG_KEY		(UINT64_C(1) << 52)
#define LONG_VALUES		UINT64_C(60000)	/* that stay, some twenty buffers */
#define MOST_READINGS	UINT64_C(50000)	/* of a buffer, in one operation */

/* A value tells its key, its number and whose it is. */
typedef enum Kind
{
	STANDING,
	OTHER,
	OWN
} Kind;

static uint64_t
value_of(uint64_t key, uint64_t number, Kind kind)
{
	return key << 24 | number << 2 | (uint64_t) kind;
}

static const char *path;
static PmhTable *self;			/* the handle under test ... */
static PmhTable *others;		/* ... and that of the others */
static uint64_t seed;
static uint64_t episode_seed;
static const char *doing = "nothing";
static uint64_t standing[KEYS];	/* how many values of a key stay ... */
static uint64_t first_other[KEYS];	/* ... and which of the others are there */
static uint64_t next_other[KEYS];
static uint64_t first_cold;
static uint64_t next_cold;
static uint64_t other_lists;
static uint64_t focus;			/* the key that is being read */
static bool listening;			/* others may act at stop points ... */
static uint64_t countdown;		/* ... after so many of them */
static unsigned actions;		/* that they have done beside this operation */
static uint64_t all_actions;
static uint64_t all_shrinks;

/* How other files change beside an operation. */
typedef enum Noise
{
	QUIET,
	BUFFERS,					/* often, beside readings of buffers */
	ALL							/* now and then, anywhere, and segments too */
} Noise;

static Noise noise;
static Noise drawn;
static uint64_t noise_seed;
static uint64_t readings;		/* of a buffer, in this operation */
static uint64_t all_noise;

static uint64_t
choose(uint64_t n)
{
	return fixture_random(&seed) % n;
}

static bool
ok(PmhTable *t, PmhResult result, PmhResult expected)
{
	if (CHECK(result == expected))
		return true;
	fprintf(stderr, "  seed %llu: %s: result %d: %s\n", (unsigned long long) episode_seed,
			doing, (int) result, pmh_error(t)->detail);
	return false;
}

static uint64_t
cold_hash(uint64_t i)
{
	return fixture_hash(i + (UINT64_C(1) << 40));
}

/* ---- the others ---- */

static uint64_t
some_key(void)
{
	return choose(4) != 0 ? focus : choose(LIST_KEYS);
}

static void
lists_grow(void)
{
	uint64_t	key = some_key();
	uint64_t	n = choose(3) == 0 ? 1 : choose(1500);

	while (n-- > 0 && next_other[key] - first_other[key] < MOST_OTHERS)
		REQUIRE(pmh_insert(others, fixture_hash(key), value_of(key, next_other[key]++, OTHER), false) == PMH_OK);
}

/* What there is of other values of a key goes, in one of three ways. */
static void
list_empties(uint64_t key, uint64_t keep)
{
	PmhEntry	entry[MOST_OTHERS];
	uint64_t	to = next_other[key] - keep;
	size_t		n = 0;
	size_t		removed = 0;
	unsigned	way = (unsigned) choose(3);

	for (uint64_t i = first_other[key]; i < to; i++)
		entry[n++] = (PmhEntry) {fixture_hash(key), value_of(key, i, OTHER)};
	if (way == 0)
		(void) ok(others, pmh_delete_group(others, entry, n, &removed), PMH_OK);
	for (size_t i = 0; way > 0 && i < n; i++)
	{
		const PmhEntry *e = &entry[way == 1 ? i : n - 1 - i];

		removed += ok(others, pmh_delete(others, e->hash, e->value), PMH_OK);
	}
	CHECK(removed == n);
	first_other[key] = to;
}

static void
lists_empty(void)
{
	uint64_t	key = some_key();
	uint64_t	n = next_other[key] - first_other[key];

	list_empties(key, choose(2) == 0 ? 0 : n / 2);
}

/* It comes back to a buffer that it has had, if that is the next one given out. */
static void
list_breathes(void)
{
	uint64_t	key = some_key();

	list_empties(key, 0);
	REQUIRE(pmh_insert(others, fixture_hash(key), value_of(key, next_other[key]++, OTHER), false) == PMH_OK);
}

/* Short lists of other keys take what buffers are free. */
static void
other_lists_come(void)
{
	for (uint64_t n = choose(OTHER_LISTS); n > 0; n--)
	{
		uint64_t	hash = fixture_hash(other_lists + (UINT64_C(1) << 50));
		uint64_t	values = 8 + choose(300);

		for (uint64_t v = 0; v < values; v++)
			REQUIRE(pmh_insert(others, hash, value_of(KEYS, v, OTHER), false) == PMH_OK);
		other_lists++;
	}
}

static void
keys_come(void)
{
	uint64_t	n = choose(4) == 0 ? choose(COLD_KEYS) : choose(COLD_KEYS / 20);

	for (; n > 0 && next_cold - first_cold < COLD_KEYS; n--, next_cold++)
		REQUIRE(pmh_insert(others, cold_hash(next_cold), value_of(KEYS, next_cold & 0xffff, OTHER), false) == PMH_OK);
}

static void
keys_go(void)
{
	PmhEntry   *entry = malloc(COLD_KEYS * sizeof(*entry));
	size_t		n = 0;
	size_t		removed;

	REQUIRE(entry != NULL);
	for (; first_cold < next_cold; first_cold++)
		entry[n++] = (PmhEntry) {cold_hash(first_cold), value_of(KEYS, first_cold & 0xffff, OTHER)};
	(void) ok(others, pmh_delete_group(others, entry, n, &removed), PMH_OK);
	CHECK(removed == n);
	free(entry);
}

static void
file_shrinks(void)
{
	PmhShrink	shrink;
	PmhResult	result = pmh_shrink_begin(others, PMH_DEFAULT_FILL, &shrink);

	if (result == PMH_DONE)
		return;
	while (result == PMH_OK)
		result = pmh_shrink_step(others, &shrink);
	(void) ok(others, result, PMH_DONE);
	all_shrinks++;
}

static void
all_goes_and_file_shrinks(void)
{
	keys_go();
	file_shrinks();
}

static void
segment_moves(void)
{
	move_segment(others, choose(2) == 0 ? fixture_hash(focus) : fixture_random(&seed));
}

static void
sweep_takes_out(void)
{
	Sweeper		s;
	const PmhEntry *pair;

	sweeper_begin(&s, others);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		if (pair->value >> 24 < KEYS && (pair->value & 3) == OTHER)
			sweeper_take_out(&s);
	}
	(void) ok(others, sweeper_end(&s), PMH_OK);
	memcpy(first_other, next_other, sizeof(first_other));
}

static void
others_act(void)
{
	static void (*const action[]) (void) = {
		lists_grow, lists_grow, lists_empty, list_breathes, list_breathes,
		other_lists_come, keys_come, keys_go, file_shrinks,
		all_goes_and_file_shrinks, segment_moves, segment_moves, sweep_takes_out
	};
	bool		listened = listening;

	listening = false;
	for (uint64_t n = 1 + choose(3); n > 0; n--)
		action[choose(sizeof(action) / sizeof(action[0]))] ();
	all_actions++;
	listening = listened;
}

/* ---- other files ---- */

/* Stripes that are locked are those of segments that no other file can change now. */
static void
count_segments_up(PmhLocks *locks)
{
	for (uint64_t i = 0; i < locks->nstripes; i++)
	{
		if (!pmh_trylock(&locks->stripe[i].lock))
			continue;
		for (unsigned v = 0; v < PMH_VERSIONS; v++)
			pmh_version_bump(&locks->stripe[i].version[v]);
		pmh_unlock(&locks->stripe[i].lock);
	}
}

/*
 * Every other reading of a buffer is spoilt, or one in so many steps of any kind, but
 * for those that readings of buffers make at each value.
 */
#define STEPS_BETWEEN	256

static void
other_files_act(const char *name)
{
	bool		reading = strcmp(name, "list_before_reading") == 0;
	bool		act;

	if (strcmp(name, "value_between_halves") == 0)
		return;
	act = noise == BUFFERS ? reading && fixture_random(&noise_seed) % 2 == 0 :
		fixture_random(&noise_seed) % STEPS_BETWEEN == 0;
	readings += reading;
	if (readings == MOST_READINGS)
		noise = QUIET;
	if (noise == QUIET || !act)
		return;
	all_noise++;
	fixture_count_buffers_up();
	if (noise == ALL)
		count_segments_up(fixture_locks());
}

static void
draw_countdown(void)
{
	countdown = 1 + choose(UINT64_C(1) << choose(12));
}

void
pmh_stop_point(const char *name)
{
	if (listening)
		other_files_act(name);
	if (!listening || actions >= MOST_ACTIONS || --countdown != 0)
		return;
	if (!fixture_no_lock_held())
	{
		countdown = 1;
		return;
	}
	actions++;
	others_act();
	draw_countdown();
}

/* ---- what is found ---- */

typedef struct Found
{
	uint8_t    *count;			/* of each standing value of a key */
	bool		strange;
} Found;

static void
found_value(Found *found, uint64_t key, uint64_t value)
{
	uint64_t	number = (value & 0xffffff) >> 2;

	if (value >> 24 != key)
		found->strange = true;
	else if ((value & 3) == STANDING && number < standing[key] &&
			 found->count[key * MOST_STANDING + number] < UINT8_MAX)
		found->count[key * MOST_STANDING + number]++;
	else if ((value & 3) == STANDING)
		found->strange = true;
}

static void
check_found(const Found *found, uint64_t from, uint64_t to)
{
	uint64_t	wrong = 0;

	for (uint64_t key = from; key < to; key++)
	{
		for (uint64_t i = 0; i < standing[key]; i++)
			wrong += found->count[key * MOST_STANDING + i] != 1;
	}
	if (!CHECK(wrong == 0 && !found->strange))
		fprintf(stderr, "  seed %llu: %s: %llu standing values are not found once%s\n",
				(unsigned long long) episode_seed, doing, (unsigned long long) wrong,
				found->strange ? ", and something else is" : "");
}

/* ---- operations ---- */

static void
look_up(Found *found)
{
	PmhValues	values = {0};
	uint64_t	key = focus;

	if (!ok(self, pmh_lookup(self, fixture_hash(key), &values), PMH_OK))
		return;
	for (size_t i = 0; i < values.n; i++)
		found_value(found, key, values.value[i]);
	check_found(found, key, key + 1);
	pmh_values_free(&values);
}

/* All of the long list, at once. */
static void
look_up_long(Found *found)
{
	PmhValues	values = {0};
	uint64_t	hash = fixture_hash(LONG_KEY);

	if (!ok(self, choose(2) == 0 ? pmh_lookup(self, hash, &values) :
			fixture_lookup_repeats(self, hash, &values), PMH_OK))
		return;
	if (!CHECK(values.n == LONG_VALUES))
		fprintf(stderr, "  seed %llu: %s: %zu values\n", (unsigned long long) episode_seed,
				doing, values.n);
	pmh_values_free(&values);
}

static void
group_found(void *arg, size_t key, uint64_t value)
{
	found_value(arg, key, value);
}

static void
look_up_group(Found *found)
{
	uint64_t	hashes[KEYS];

	for (uint64_t key = 0; key < KEYS; key++)
		hashes[key] = fixture_hash(key);
	if (ok(self, fixture_lookup_group(self, hashes, KEYS, group_found, found), PMH_OK))
		check_found(found, 0, KEYS);
}

static void
read_by_cursor(Found *found)
{
	PmhCursor	cursor = {0};
	size_t		want = choose(2) == 0 ? 50 : 1 + choose(400);
	uint64_t	key = focus;
	unsigned	pauses = 0;
	PmhResult	result;

	pmh_cursor_open(self, &cursor, fixture_hash(key));
	while ((result = pmh_cursor_next(self, &cursor, want)) == PMH_OK)
	{
		for (size_t i = 0; i < cursor.batch.n; i++)
			found_value(found, key, cursor.batch.value[i]);
		if (choose(3) == 0 && pauses++ < MOST_ACTIONS)
			others_act();
	}
	if (ok(self, result, PMH_DONE))
		check_found(found, key, key + 1);
	pmh_cursor_free(&cursor);
}

static void
sweep(Found *found)
{
	Sweeper		s;
	const PmhEntry *pair;

	sweeper_begin_reading(&s, self);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		uint64_t	key = pair->value >> 24;

		if (key < KEYS && pair->hash == fixture_hash(key))
			found_value(found, key, pair->value);
		else if (key != KEYS)
			found->strange = true;
	}
	if (ok(self, sweeper_end(&s), PMH_OK))
		check_found(found, 0, KEYS);
}

static void
count_all(Found *found)
{
	PmhStats	stats;
	uint64_t	entries;

	(void) ok(self, pmh_stats(self, &stats), PMH_OK);
	(void) ok(self, pmh_estimate(self, &entries), PMH_OK);
}

static void
check_all(Found *found)
{
	(void) ok(self, pmh_check(self, fixture_report, NULL), PMH_OK);
}

/* Of a key's values those that stay are there, and none of our own. */
static void
check_own_gone(Found *found, uint64_t key)
{
	PmhValues	values = {0};

	if (!ok(self, pmh_lookup(self, fixture_hash(key), &values), PMH_OK))
		return;
	memset(&found->count[key * MOST_STANDING], 0, MOST_STANDING);
	for (size_t i = 0; i < values.n; i++)
	{
		CHECK((values.value[i] & 3) != OWN);
		found_value(found, key, values.value[i]);
	}
	check_found(found, key, key + 1);
	pmh_values_free(&values);
}

/*
 * Plain entries of our own come and go the short way: what it has seen without a lock is
 * worth nothing once it has the lock, as the key has got a list, or its segment has moved.
 */
static void
put_and_take(Found *found)
{
	for (unsigned round = 0; round < ROUNDS; round++)
	{
		uint64_t	n = 1 + choose(PMH_INLINE_MAX);

		focus = LIST_KEYS + choose(PLAIN_KEYS);
		actions = MOST_ACTIONS - 1;
		countdown = 1 + choose(2 * n);
		for (uint64_t i = 0; i < n; i++)
			(void) ok(self, pmh_insert(self, fixture_hash(focus), value_of(focus, i, OWN),
									   choose(2) == 0), PMH_OK);
		for (uint64_t i = 0; i < n; i++)
			(void) ok(self, pmh_delete(self, fixture_hash(focus), value_of(focus, i, OWN)), PMH_OK);
		check_own_gone(found, focus);
	}
}

/* Values of our own go in, and out again in steps, with pauses between these. */
static void
put_in_and_take_out(Found *found)
{
	PmhEntry	entry[OWN_VALUES];
	uint64_t	key = focus % LIST_KEYS;
	size_t		n = 1 + choose(OWN_VALUES);
	PmhRemoval	removal;
	PmhResult	result;

	for (size_t i = 0; i < n; i++)
	{
		entry[i] = (PmhEntry) {fixture_hash(key), value_of(key, i, OWN)};
		(void) ok(self, pmh_insert(self, entry[i].hash, entry[i].value, false), PMH_OK);
	}
	others_act();
	REQUIRE(pmh_removal_begin(self, entry, n, choose(2) == 0, &removal) == PMH_OK);
	while ((result = pmh_removal_step(self, &removal, 1 + choose(3))) == PMH_OK)
	{
		if (choose(4) == 0 && actions++ < MOST_ACTIONS)
			others_act();
	}
	(void) ok(self, result, PMH_DONE);
	if (!CHECK(removal.removed == n))
		fprintf(stderr, "  seed %llu: %s: %zu of %zu values taken out\n",
				(unsigned long long) episode_seed, doing, removal.removed, n);
	pmh_removal_end(&removal);
	check_own_gone(found, key);
}

/* ---- episodes ---- */

/* What stays is loaded: lists of one buffer, of two, and of several. */
static void
make_table(void)
{
	PmhEntry   *entry = malloc((KEYS * MOST_STANDING + LONG_VALUES) * sizeof(*entry));
	size_t		n = 0;

	REQUIRE(entry != NULL);
	others = fixture_create(path);
	for (uint64_t key = 0; key < KEYS; key++)
	{
		standing[key] = key >= LIST_KEYS ? 1 + key % 3 :
			key % 2 == 0 ? pmh_class_capacity(PMH_CHUNK_CLASS - 1) : 5 + choose(MOST_STANDING - 5);
		first_other[key] = next_other[key] = FIRST_OTHER;
		for (uint64_t i = 0; i < standing[key]; i++)
			entry[n++] = (PmhEntry) {fixture_hash(key), value_of(key, i, STANDING)};
		/* Some of the others come with them, and are in the newest buffer. */
		while (key < LIST_KEYS && next_other[key] < FIRST_OTHER + 40)
			entry[n++] = (PmhEntry) {fixture_hash(key), value_of(key, next_other[key]++, OTHER)};
	}
	for (uint64_t i = 0; i < LONG_VALUES; i++)
		entry[n++] = (PmhEntry) {fixture_hash(LONG_KEY), value_of(KEYS, i, OTHER)};
	fixture_load(others, entry, n, n, 90);
	free(entry);
	first_cold = next_cold = 0;
}

static void
one_operation(Found *found)
{
	static const struct
	{
		const char *name;
		void		(*run) (Found *found);
	}			operation[] = {
		{"look-up", look_up}, {"look-up in a group", look_up_group},
		{"look-up of a long list", look_up_long},
		{"cursor", read_by_cursor}, {"cursor", read_by_cursor},
		{"cursor", read_by_cursor}, {"sweep", sweep}, {"statistics", count_all},
		{"check", check_all}, {"insert or delete", put_and_take},
		{"removal", put_in_and_take_out}, {"removal", put_in_and_take_out}
	};
	size_t		which = choose(sizeof(operation) / sizeof(operation[0]));

	if (choose(3) == 0)
	{
		/* It does not map what comes now. */
		pmh_close(self);
		all_goes_and_file_shrinks();
		self = fixture_open(path, 1);
		keys_come();
		lists_grow();
	}
	doing = operation[which].name;
	focus = choose(4) == 0 ? choose(KEYS) : choose(LIST_KEYS);
	memset(found->count, 0, KEYS * MOST_STANDING);
	found->strange = false;
	actions = 0;
	readings = 0;
	noise = drawn = (Noise) choose(3);
	noise_seed = seed;
	draw_countdown();
	if (choose(2) == 0)
		lists_grow();
	listening = true;
	operation[which].run(found);
	listening = false;
	if (!CHECK(readings < MOST_READINGS))
		fprintf(stderr, "  seed %llu: %s: %llu readings of buffers, noise %d\n",
				(unsigned long long) episode_seed, doing, (unsigned long long) readings, (int) drawn);
}

int
main(int argc, char **argv)
{
	uint64_t	episodes = argc > 1 ? strtoull(argv[1], NULL, 10) : EPISODES;
	uint64_t	first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	Found		found = {malloc(KEYS * MOST_STANDING), false};

	REQUIRE(found.count != NULL);
	path = fixture_path("stop_between");
	for (uint64_t e = 0; e < episodes; e++)
	{
		seed = episode_seed = first + e;
		make_table();
		self = fixture_open(path, 1);
		for (unsigned i = 0; i < OPERATIONS; i++)
			one_operation(&found);
		doing = "check at the end";
		(void) ok(others, check_alone(others, fixture_report, NULL), PMH_OK);
		pmh_close(self);
		pmh_close(others);
	}
	CHECK(all_actions > episodes && all_shrinks > episodes / 4 && all_noise > episodes);
	unlink(path);
	free(found.count);
	return unit_done("stop_between");
}
