/*-------------------------------------------------------------------------
 *
 * published_faults.c
 *	  Faults of published hash tables on persistent memory, looked for here,
 *	  each in a function that names it.  Those that need crashes, threads or a
 *	  server are looked for elsewhere: test/FAULTS.md has the whole list.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "table.h"
#include "unit.h"

static const char *path;
static uint64_t instance = 1;

/* ---- what the tests share ---- */

static PmhTable *
make_table(void)
{
	PmhEnv		env = fixture_env(instance);

	return fixture_create_in(path, &env);
}

/* As after a crash of the system: under a new instance. */
static PmhTable *
reopen(PmhTable *t)
{
	pmh_close(t);
	instance++;
	return fixture_open(path, instance);
}

static void
put(PmhTable *t, uint64_t key, uint64_t value)
{
	REQUIRE(pmh_insert(t, fixture_hash(key), value, false) == PMH_OK);
}

/* Does the key have exactly the values first, first + 1, ...? */
static bool
has_values(PmhTable *t, uint64_t key, uint64_t first, size_t n)
{
	PmhValues	values = {0};
	bool		same = fixture_lookup_repeats(t, fixture_hash(key), &values) == PMH_OK &&
		values.n == n;

	if (same)
		pmh_values_finish(&values);
	for (size_t i = 0; same && i < n; i++)
		same = values.n == n && values.value[i] == first + i;
	pmh_values_free(&values);
	return same;
}

/* Keys 0 .. n - 1, each with its number as its value. */
static bool
has_keys(PmhTable *t, uint64_t n)
{
	for (uint64_t key = 0; key < n; key++)
	{
		if (!has_values(t, key, key, 1))
			return false;
	}
	return true;
}

static void
sound(PmhTable *t)
{
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
}

static uint32_t
stash_entries(PmhTable *t)
{
	PmhStats	stats;

	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	return (uint32_t) stats.entries_stash;
}

/* Insert keys 0, 1, ... until some stand in stashes; returns how many keys. */
static uint64_t
fill_stashes(PmhTable *t)
{
	uint64_t	n = 0;

	do
	{
		for (unsigned i = 0; i < 50; i++, n++)
			put(t, n, n);
	} while (stash_entries(t) < 4 && n < 100000);
	REQUIRE(stash_entries(t) >= 4);
	return n;
}

/* ---- Pea Hash ---- */

/* Recovery makes the stash anew, and its keys are lost. */
static void
pea_hash_stash_after_recovery(void)
{
	PmhTable   *t = make_table();
	uint64_t	n = fill_stashes(t);
	uint32_t	before = stash_entries(t);

	t = reopen(t);
	CHECK(stash_entries(t) == before);
	CHECK(has_keys(t, n));
	sound(t);
	pmh_close(t);
}

/*
 * The quick way to insert does not look into the stash, so that a key is there
 * twice and one of them cannot be deleted.  (Pairs may repeat here; but all of
 * a key's values are one set, wherever they stand.)
 */
static void
pea_hash_key_accepted_twice(void)
{
	PmhTable   *t = make_table();
	uint64_t	n = fill_stashes(t);

	for (uint64_t key = 0; key < n; key++)
		put(t, key, key + 1);
	for (uint64_t key = 0; key < n; key++)
		CHECK(has_values(t, key, key, 2));
	for (uint64_t key = 0; key < n; key++)
	{
		CHECK(pmh_delete(t, fixture_hash(key), key + 1) == PMH_OK);
		CHECK(pmh_delete(t, fixture_hash(key), key + 1) == PMH_NOT_FOUND);
	}
	CHECK(has_keys(t, n));
	sound(t);
	pmh_close(t);
}

/* A value buffer that grows is read with the size class of the new one. */
static void
pea_hash_value_buffer_growth(void)
{
	PmhTable   *t = make_table();
	uint64_t	n = 6000;

	for (uint64_t i = 0; i < n; i++)
	{
		put(t, 1, i);
		put(t, 2, i);
		if (i < 700 || i % 100 == 0)
			CHECK(has_values(t, 1, 0, i + 1));
	}
	CHECK(has_values(t, 2, 0, n));
	sound(t);
	pmh_close(t);
}

/* The directory element that looks for a segment with several of them. */
static uint64_t
shared_segment(PmhTable *t, uint64_t **dir, uint64_t *count)
{
	uint64_t	dirword = pmh_live(t)->dirword;
	uint32_t	depth = pmh_dirword_depth(dirword);

	*dir = pmh_at(t, pmh_dirword_offset(dirword));
	for (uint64_t i = 0; i < UINT64_C(1) << depth; i += *count)
	{
		*count = UINT64_C(1) << (depth - pmh_elem_depth((*dir)[i]));
		if (*count > 1)
			return i;
	}
	fprintf(stderr, "no segment has several directory elements\n");
	exit(1);
}

/*
 * A change of strategy is written to one replica of the directory element.
 * Here it is in all of them; and if a crash comes in between, all are made to
 * say what the lowest says, which is stored last.
 */
static void
pea_hash_strategy_in_one_replica(void)
{
	PmhTable   *t = make_table();
	uint64_t	seed = 3;
	uint64_t   *dir;
	uint64_t	count;
	uint64_t	i;
	uint64_t	elem;

	/* A deep corner, so that all other segments have several elements. */
	for (unsigned n = 0; n < 3000; n++)
		REQUIRE(pmh_insert(t, fixture_random(&seed) >> 4, n, false) == PMH_OK);
	i = shared_segment(t, &dir, &count);
	while (pmh_elem_strategy(dir[i]) == PMH_SINGLE)
	{
		uint64_t	hash = i << (64 - pmh_dirword_depth(pmh_live(t)->dirword));

		REQUIRE(pmh_insert(t, hash | fixture_random(&seed) >> 16, 7, false) == PMH_OK);
		i = shared_segment(t, &dir, &count);
	}
	for (uint64_t k = 0; k < count; k++)
		CHECK(dir[i + k] == dir[i]);

	elem = dir[i];
	dir[i + count - 1] = pmh_elem_with_strategy(elem, pmh_elem_strategy(elem) ^ 3);
	t = reopen(t);
	i = shared_segment(t, &dir, &count);
	for (uint64_t k = 0; k < count; k++)
		CHECK(dir[i + k] == elem);
	sound(t);
	pmh_close(t);
}

/* A split that fails half way leaves ghosts of what it had done. */
static void
pea_hash_split_fails_midway(void)
{
	PmhTable   *t = make_table();
	struct rlimit none;
	struct rlimit saved;
	uint64_t	n = 0;
	unsigned	failures = 0;

	(void) signal(SIGXFSZ, SIG_IGN);
	REQUIRE(getrlimit(RLIMIT_FSIZE, &saved) == 0);
	while (failures < 20)
	{
		PmhResult	result;
		struct stat st;

		REQUIRE(stat(path, &st) == 0);
		none = saved;
		none.rlim_cur = (rlim_t) st.st_size;
		REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
		while ((result = pmh_insert(t, fixture_hash(n), n, false)) == PMH_OK)
			n++;
		REQUIRE(setrlimit(RLIMIT_FSIZE, &saved) == 0);
		CHECK(result == PMH_ERR_NO_SPACE);
		CHECK(pmh_error(t)->code == PMH_ERR_NO_SPACE && pmh_error(t)->sys_errno == EFBIG);
		CHECK(has_values(t, n, 0, 0));
		CHECK(has_keys(t, n));
		CHECK(fixture_no_lock_held());
		sound(t);
		failures++;
		put(t, n, n);
		n++;
	}
	CHECK(has_keys(t, n));
	pmh_close(t);
}

/* There is no way to delete one of a key's values. */
static void
pea_hash_delete_one_pair(void)
{
	PmhTable   *t = make_table();

	for (uint64_t n = 1; n <= 1500; n = n * 3 / 2 + 1)
	{
		for (uint64_t i = 0; i < n; i++)
			put(t, n, 100 + i);
		CHECK(pmh_delete(t, fixture_hash(n), 99) == PMH_NOT_FOUND);
		CHECK(pmh_delete(t, fixture_hash(n), 100 + n) == PMH_NOT_FOUND);
		CHECK(pmh_delete(t, fixture_hash(n), 100 + n - 1) == PMH_OK);
		CHECK(has_values(t, n, 100, n - 1));
		for (uint64_t i = 0; i + 1 < n; i++)
		{
			CHECK(pmh_delete(t, fixture_hash(n), 100 + i) == PMH_OK);
			if (i % 16 == 0)
				CHECK(has_values(t, n, 100 + i + 1, n - 2 - i));
		}
		CHECK(has_values(t, n, 0, 0));
	}
	sound(t);
	pmh_close(t);
}

/* Thread ids of 8 bits wrap: the 257th user takes another one's place. */
static void
pea_hash_many_handles(void)
{
	enum
	{
		HANDLES = 300
	};
	PmhTable   *t = make_table();
	PmhTable   *handle[HANDLES];

	for (unsigned i = 0; i < HANDLES; i++)
		handle[i] = fixture_open(path, instance);
	for (unsigned round = 0; round < 8; round++)
	{
		for (unsigned i = 0; i < HANDLES; i++)
			put(handle[i], round * HANDLES + i, round * HANDLES + i);
	}
	for (unsigned i = 0; i < HANDLES; i += 37)
		CHECK(has_keys(handle[i], 8 * HANDLES));
	for (unsigned i = 0; i < HANDLES; i++)
		pmh_close(handle[i]);
	CHECK(has_keys(t, 8 * HANDLES));
	CHECK(fixture_no_lock_held());
	sound(t);
	pmh_close(t);
}

/* ---- CCEH, IcebergHT, P-CLHT, SEPH ---- */

/* 65 equal hashes are split without end. */
static void
cceh_equal_hashes(void)
{
	PmhTable   *t = make_table();
	PmhStats	stats;

	for (uint64_t i = 0; i < 100; i++)
		put(t, 5, i);
	for (uint64_t i = 0; i < 20000; i++)
		put(t, 6, i);
	CHECK(has_values(t, 5, 0, 100));
	CHECK(has_values(t, 6, 0, 20000));
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.global_depth == 0);
	CHECK(stats.segments == 1);
	sound(t);
	pmh_close(t);
}

/*
 * Hashes that no split can part: more than two buckets and a stash hold are refused,
 * there is no endless split, and all else stays.
 */
static void
cceh_hashes_that_cannot_be_parted(void)
{
	PmhTable   *t = make_table();
	PmhStats	stats;
	PmhValues	values = {0};
	unsigned	n = 0;

	for (uint64_t key = 0; key < 500; key++)
		put(t, key, key);
	while (n < 256 && pmh_insert(t, UINT64_C(0x1234567890abcd00) + n, n, false) == PMH_OK)
		n++;
	CHECK(n >= 3 * PMH_SLOTS && n <= 4 * PMH_SLOTS);
	CHECK(pmh_insert(t, UINT64_C(0x1234567890abcdff), n, false) == PMH_ERR_TOO_LARGE);
	CHECK(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == 500 + n && stats.max_depth == PMH_MAX_DEPTH);
	for (unsigned i = 0; i < n; i++)
		CHECK(pmh_lookup(t, UINT64_C(0x1234567890abcd00) + i, &values) == PMH_OK &&
			  values.n == 1 && values.value[0] == i);
	CHECK(has_keys(t, 500));
	CHECK(fixture_no_lock_held());
	sound(t);
	pmh_values_free(&values);
	pmh_close(t);
}

/* Deleting an absent key hangs. */
static void
iceberg_delete_absent(void)
{
	PmhTable   *t = make_table();
	uint64_t	n;

	for (uint64_t key = 0; key < 5000; key++)
		CHECK(pmh_delete(t, fixture_hash(key), 0) == PMH_NOT_FOUND);
	n = fill_stashes(t);
	for (uint64_t i = 0; i < 700; i++)
		put(t, n, i);
	for (uint64_t key = 0; key <= n; key++)
	{
		CHECK(pmh_delete(t, fixture_hash(key), PMH_VALUE_MAX) == PMH_NOT_FOUND);
		CHECK(pmh_delete(t, fixture_hash(1000000 + key), key) == PMH_NOT_FOUND);
	}
	CHECK(has_keys(t, n));
	sound(t);
	pmh_close(t);
}

/* Keys inserted while the table grows are not found; locks are never released. */
static void
clht_keys_missed_in_growth(void)
{
	PmhTable   *t = make_table();
	PmhTable   *reader = fixture_open(path, instance);
	uint64_t	n = 20000;

	for (uint64_t key = 0; key < n; key++)
	{
		put(t, key, key);
		CHECK(has_values(reader, key, key, 1));
		if (key % 1000 == 999)
			CHECK(has_keys(reader, key + 1));
	}
	CHECK(fixture_no_lock_held());
	pmh_close(reader);
	sound(t);
	pmh_close(t);
}

/* Segments that were split, and buffers that have grown, are never freed. */
static void
seph_old_segments_never_freed(void)
{
	PmhTable   *t = make_table();
	PmhStats	first;
	PmhStats	last;

	for (unsigned round = 0; round < 12; round++)
	{
		for (uint64_t key = 0; key < 10000; key++)
			put(t, key, key);
		for (uint64_t i = 0; i < 2000; i++)
			put(t, 100000 + i % 3, i);
		REQUIRE(pmh_stats(t, round == 0 ? &first : &last) == PMH_OK);

		/* What is neither in use nor free would be a finding. */
		sound(t);
		for (uint64_t key = 0; key < 10000; key++)
			REQUIRE(pmh_delete(t, fixture_hash(key), key) == PMH_OK);
		for (uint64_t i = 0; i < 2000; i++)
			REQUIRE(pmh_delete(t, fixture_hash(100000 + i % 3), i) == PMH_OK);
	}
	CHECK(last.file_bytes <= first.file_bytes + first.file_bytes / 4);
	pmh_close(t);
}

/* ---- patterns ---- */

/* After recovery the allocator gives away what is in use. */
static void
pattern_allocator_goes_backwards(void)
{
	PmhTable   *t = make_table();
	uint64_t	lists = 0;

	for (unsigned round = 0; round < 6; round++)
	{
		for (unsigned i = 0; i < 10; i++, lists++)
		{
			for (uint64_t v = 0; v < 40 + 30 * (lists % 7); v++)
				put(t, 1000 + lists, v);
		}
		t = reopen(t);
	}
	for (uint64_t list = 0; list < lists; list++)
		CHECK(has_values(t, 1000 + list, 0, 40 + 30 * (list % 7)));
	sound(t);
	pmh_close(t);
}

/* A recovery that has failed passes as done at the next try. */
static void
pattern_recovery_not_idempotent(void)
{
	PmhTable   *t = make_table();
	PmhEnv		env;
	PmhError	error;
	uint64_t	dirword;
	uint64_t	saved;

	for (uint64_t key = 0; key < 5000; key++)
		put(t, key, key);
	dirword = pmh_live(t)->dirword;
	saved = ((uint64_t *) pmh_at(t, pmh_dirword_offset(dirword)))[1];
	((uint64_t *) pmh_at(t, pmh_dirword_offset(dirword)))[1] = ~UINT64_C(0);
	pmh_close(t);
	env = fixture_env(++instance);
	for (unsigned i = 0; i < 3; i++)
		CHECK(pmh_open(path, &env, &t, NULL, &error) == PMH_ERR_CORRUPT);
	CHECK(fixture_no_lock_held());

	/* Put right, it is recovered under the same instance. */
	{
		FILE	   *file = fopen(path, "r+");

		REQUIRE(file != NULL);
		REQUIRE(fseek(file, (long) pmh_dirword_offset(dirword) + 8, SEEK_SET) == 0);
		REQUIRE(fwrite(&saved, sizeof(saved), 1, file) == 1);
		REQUIRE(fclose(file) == 0);
	}
	t = fixture_open(path, instance);
	CHECK(has_keys(t, 5000));
	sound(t);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("published_faults");
	TEST(pea_hash_stash_after_recovery());
	TEST(pea_hash_key_accepted_twice());
	TEST(pea_hash_value_buffer_growth());
	TEST(pea_hash_strategy_in_one_replica());
	TEST(pea_hash_split_fails_midway());
	TEST(pea_hash_delete_one_pair());
	TEST(pea_hash_many_handles());
	TEST(cceh_equal_hashes());
	TEST(cceh_hashes_that_cannot_be_parted());
	TEST(iceberg_delete_absent());
	TEST(clht_keys_missed_in_growth());
	TEST(seph_old_segments_never_freed());
	TEST(pattern_allocator_goes_backwards());
	TEST(pattern_recovery_not_idempotent());
	unlink(path);
	return unit_done("published_faults");
}
