/*-------------------------------------------------------------------------
 *
 * core_basic.c
 *	  One handle: inserts, look-ups and deletes against a model, through all
 *	  steps of growth, what reopening finds, and what statistics say.
 *
 *-------------------------------------------------------------------------
 */
#include "content.h"

/*
 * The model: for key k a set of values, as a bit mask over the values
 * k * VALUES + 0 .. VALUES - 1.
 */
#define VALUES	64

typedef struct Model
{
	uint64_t	keys;
	uint64_t   *set;
	uint64_t	pairs;
} Model;

/* Compare what the table says of key k with the model. */
static void
check_key(PmhTable *t, const Model *m, uint64_t k, PmhValues *values)
{
	uint64_t	set = 0;
	bool		ascending = true;

	REQUIRE(pmh_lookup(t, fixture_hash(k), values) == PMH_OK);
	for (size_t i = 0; i < values->n; i++)
	{
		CHECK(values->value[i] / VALUES == k);
		set |= UINT64_C(1) << (values->value[i] % VALUES);
		ascending = ascending && (i == 0 || values->value[i] > values->value[i - 1]);
	}
	CHECK(set == m->set[k]);
	CHECK(ascending);
	CHECK(values->n == (size_t) __builtin_popcountll(set));
}

static void
check_all(PmhTable *t, const Model *m)
{
	PmhValues	values = {0};

	for (uint64_t k = 0; k < m->keys; k++)
		check_key(t, m, k, &values);
	for (uint64_t k = m->keys; k < m->keys + 100000; k++)
	{
		REQUIRE(pmh_lookup(t, fixture_hash(k), &values) == PMH_OK);
		CHECK(values.n == 0);
	}
	pmh_values_free(&values);
}

/* One random step: insert a pair that is absent or delete one. */
static void
step(PmhTable *t, Model *m, uint64_t *seed, unsigned insert_percent)
{
	uint64_t	k = fixture_random(seed) % m->keys;
	unsigned	v;

	/* Low keys get many values, high keys few. */
	v = (unsigned) (fixture_random(seed) % (k % 97 == 0 ? VALUES : k % 7 == 0 ? 8 : 1));
	if (fixture_random(seed) % 100 < insert_percent)
	{
		if ((m->set[k] >> v & 1) != 0)
			return;
		REQUIRE(pmh_insert(t, fixture_hash(k), k * VALUES + v, false) == PMH_OK);
		m->set[k] |= UINT64_C(1) << v;
		m->pairs++;
	}
	else
	{
		PmhResult	want = (m->set[k] >> v & 1) != 0 ? PMH_OK : PMH_NOT_FOUND;

		CHECK(pmh_delete(t, fixture_hash(k), k * VALUES + v) == want);
		if (want == PMH_OK)
			m->pairs--;
		m->set[k] &= ~(UINT64_C(1) << v);
	}
}

/* Statistics are exact, and fit each other; estimates are near. */
static void
check_structure(PmhTable *t, const Model *m)
{
	uint64_t	guess;
	PmhStats	s;

	CHECK_SOUND(t);
	REQUIRE(pmh_stats(t, &s) == PMH_OK);
	CHECK(s.entries == m->pairs);
	CHECK(s.segments == s.segments_single + s.segments_two_choice + s.segments_stash);
	CHECK(s.min_depth <= s.max_depth && s.max_depth <= s.global_depth);
	CHECK(s.used_slots == s.entries - s.list_entries + s.lists);
	CHECK(s.load_factor == (double) s.used_slots / (double) s.slots);
	CHECK(s.entries_stash <= s.entries_elsewhere && s.entries_elsewhere <= s.used_slots);
	CHECK(s.list_bytes >= s.list_entries * 6);
	CHECK(s.list_bytes <= s.value_bytes && s.value_bytes <= s.used_bytes);
	CHECK(s.used_bytes <= s.file_bytes);
	CHECK(s.used_bytes >= s.slots / PMH_SLOTS * PMH_BUCKET_SIZE + s.value_bytes);
	REQUIRE(pmh_estimate(t, &guess) == PMH_OK);
	CHECK(guess >= s.entries - s.entries / 5 && guess <= s.entries + s.entries / 5);
}

static void
run(const char *path, bool flushed, uint64_t keys)
{
	PmhEnv		env = fixture_env_on(flushed, 1);
	PmhError	error;
	PmhTable   *t = fixture_create_in(path, &env);
	Model		m = {keys, calloc(keys, sizeof(uint64_t)), 0};
	uint64_t	seed = 12345;

	for (uint64_t i = 0; i < 3 * keys; i++)
		step(t, &m, &seed, 85);
	check_all(t, &m);
	check_structure(t, &m);

	/* Another handle of the same run: no recovery. */
	pmh_close(t);
	REQUIRE(pmh_open(path, &env, &t, &error) == PMH_OK);
	for (uint64_t i = 0; i < keys; i++)
		step(t, &m, &seed, 40);
	check_all(t, &m);
	check_structure(t, &m);

	/* The next run of the system: recovery, then go on. */
	t = fixture_recover(path, t, &env);
	check_all(t, &m);
	check_structure(t, &m);
	for (uint64_t i = 0; i < keys; i++)
		step(t, &m, &seed, 70);
	check_all(t, &m);
	check_structure(t, &m);
	pmh_close(t);

	unlink(path);
	free(m.set);
}

/* What pmh_lookup_group is expected to find, key by key. */
typedef struct Expect
{
	const uint64_t *key;
	const Model *model;
	size_t		last_key;
	uint64_t	last_value;
	uint64_t	n;
} Expect;

static void
compare_found(void *arg, size_t i, uint64_t value)
{
	Expect	   *x = arg;

	CHECK(i >= x->last_key);
	CHECK(i > x->last_key || x->n == 0 || value > x->last_value);
	CHECK(value / VALUES == x->key[i]);
	CHECK((x->model->set[x->key[i]] >> value % VALUES & 1) != 0);
	x->last_key = i;
	x->last_value = value;
	x->n++;
}

#define BATCH	500

/* The group operations: batches of all sizes, keys more than once in a batch. */
static void
run_groups(const char *path, bool flushed, uint64_t keys)
{
	PmhEnv		env = fixture_env_on(flushed, 1);
	PmhTable   *t = fixture_create_in(path, &env);
	Model		m = {keys, calloc(keys, sizeof(uint64_t)), 0};
	PmhEntry	entry[BATCH];
	uint64_t	key[BATCH];
	uint64_t	hash[BATCH];
	uint64_t	seed = 31;

	for (uint64_t round = 0; round < keys / 50; round++)
	{
		size_t		n = fixture_random(&seed) % BATCH;
		size_t		done;
		size_t		used = 0;
		uint64_t	values = 0;
		uint64_t	removed = 0;
		Expect		expect = {key, &m, 0, 0, 0};

		/* Insert pairs that are absent. */
		for (size_t i = 0; i < n; i++)
		{
			uint64_t	k = fixture_random(&seed) % keys;
			unsigned	v = (unsigned) (fixture_random(&seed) % (k % 31 == 0 ? VALUES : 2));

			if ((m.set[k] >> v & 1) != 0)
				continue;
			m.set[k] |= UINT64_C(1) << v;
			entry[used].hash = fixture_hash(k);
			entry[used++].value = k * VALUES + v;
		}
		CHECK(pmh_insert_group(t, entry, used, round % 2 == 0, &done) == PMH_OK);
		CHECK(done == used);

		/* Look keys up. */
		for (size_t i = 0; i < n; i++)
		{
			key[i] = fixture_random(&seed) % keys;
			hash[i] = fixture_hash(key[i]);
			values += (uint64_t) __builtin_popcountll(m.set[key[i]]);
		}
		CHECK(pmh_lookup_group(t, hash, n, compare_found, &expect) == PMH_OK);
		CHECK(expect.n == values);

		/* Delete pairs, some of them absent. */
		for (size_t i = 0; i < n / 2; i++)
		{
			uint64_t	k = fixture_random(&seed) % keys;
			unsigned	v = (unsigned) (fixture_random(&seed) % 4);

			entry[i].hash = fixture_hash(k);
			entry[i].value = k * VALUES + v;
			removed += m.set[k] >> v & 1;
			m.set[k] &= ~(UINT64_C(1) << v);
		}
		CHECK(pmh_delete_group(t, entry, n / 2, &done) == PMH_OK);
		CHECK(done == removed);
	}
	for (uint64_t k = 0; k < keys; k++)
		m.pairs += (uint64_t) __builtin_popcountll(m.set[k]);
	check_all(t, &m);
	check_structure(t, &m);
	pmh_close(t);
	unlink(path);
	free(m.set);
}

/* What pmh_lookup_group has said of each key: values, or so many. */
#define SHORT_KEYS	200
#define SHORT_MOST	310			/* values of a list that is always read */
#define LONG_LEAST	640			/* and of one that never is */

typedef struct Said
{
	size_t		n[SHORT_KEYS];
	size_t		many[SHORT_KEYS];
} Said;

static void
note_said(void *arg, size_t i, uint64_t value)
{
	Said	   *said = arg;

	REQUIRE(i < SHORT_KEYS);
	if (value == PMH_VALUE_MANY)
		said->many[i]++;
	else
		said->n[i]++;
}

/*
 * Key i has i * i / 4 values, inserted or loaded.  Short lists are read, of long ones it is
 * said that they are, once, also when they have been shortened again.
 */
static void
run_short(const char *path, bool loaded)
{
	PmhTable   *t = fixture_create(path);
	PmhEntry   *entry = malloc(sizeof(PmhEntry) * SHORT_KEYS * SHORT_KEYS * SHORT_KEYS);
	uint64_t	hash[SHORT_KEYS];
	Said		said = {0};
	size_t		nmany = 0;
	size_t		n = 0;

	REQUIRE(entry != NULL);
	for (size_t i = 0; i < SHORT_KEYS; i++)
	{
		hash[i] = fixture_hash(i);
		for (size_t v = 0; v < i * i / 4; v++)
			entry[n++] = (PmhEntry) {hash[i], v};
	}
	if (loaded)
		fixture_load(t, entry, n, SHORT_KEYS, PMH_DEFAULT_FILL);
	for (size_t i = 0; i < n && !loaded; i++)
		REQUIRE(pmh_insert(t, entry[i].hash, entry[i].value, false) == PMH_OK);
	CHECK(pmh_lookup_group(t, hash, SHORT_KEYS, note_said, &said) == PMH_OK);
	for (size_t i = 0; i < SHORT_KEYS; i++)
	{
		n = i * i / 4;
		CHECK(said.many[i] == 0 ? said.n[i] == n : said.many[i] == 1 && said.n[i] == 0);
		CHECK(loaded || n > SHORT_MOST || said.many[i] == 0);
		CHECK(n < LONG_LEAST || said.many[i] == 1);
		nmany += said.many[i];
	}
	CHECK(nmany > 0 && nmany < SHORT_KEYS);
	pmh_close(t);
	free(entry);
	unlink(path);
}

/*
 * Hashes that first splits do not part: one half gets nearly all.
 */
static void
run_alike(const char *path)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	seed = 3;

	for (unsigned n = 0; n < 10000; n++)
		REQUIRE(pmh_insert(t, fixture_random(&seed) >> (n < 3000 ? 4 : 16), n, false) == PMH_OK);
	seed = 3;
	for (unsigned n = 0; n < 10000; n++)
		check_number(t, fixture_random(&seed) >> (n < 3000 ? 4 : 16), 1);
	CLOSE_SOUND(t);
	unlink(path);
}

/*
 * Hashes that no split can part: more than two buckets and a stash hold are refused,
 * there is no endless split, and all else stays.
 */
static void
run_not_to_be_parted(const char *path)
{
	PmhTable   *t = fixture_create(path);
	PmhStats	stats;
	PmhValues	values = {0};
	uint64_t	n = 0;

	for (uint64_t key = 0; key < 500; key++)
		REQUIRE(pmh_insert(t, fixture_hash(key), key, false) == PMH_OK);
	while (n < 256 && pmh_insert(t, UINT64_C(0x1234567890abcd00) + n, n, false) == PMH_OK)
		n++;
	CHECK(n >= 3 * PMH_SLOTS && n <= 4 * PMH_SLOTS);
	CHECK(pmh_insert(t, UINT64_C(0x1234567890abcdff), n, false) == PMH_ERR_TOO_LARGE);
	CHECK(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == 500 + n && stats.max_depth == PMH_MAX_DEPTH);
	for (uint64_t i = 0; i < 500 + n; i++)
	{
		uint64_t	hash = i < n ? UINT64_C(0x1234567890abcd00) + i : fixture_hash(i - n);

		CHECK(pmh_lookup(t, hash, &values) == PMH_OK &&
			  values.n == 1 && values.value[0] == (i < n ? i : i - n));
	}
	CHECK(fixture_no_lock_held());
	pmh_values_free(&values);
	CLOSE_SOUND(t);
	unlink(path);
}

int
main(void)
{
	const char *path = fixture_path("core_basic");

	run(path, false, FIXTURE_SCALE(400000));
	run(path, true, FIXTURE_SCALE(100000));
	run_groups(path, false, FIXTURE_SCALE(100000));
	run_groups(path, true, FIXTURE_SCALE(50000));
	run_short(path, false);
	run_short(path, true);
	run_alike(path);
	run_not_to_be_parted(path);
	return unit_done("core_basic");
}
