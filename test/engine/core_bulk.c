/*-------------------------------------------------------------------------
 *
 * core_bulk.c
 *	  Bulk load: unique keys, few and many duplicates, skewed hashes, empty
 *	  partitions; what is loaded is found, and the table lives on.  The size of small files.
 *
 *-------------------------------------------------------------------------
 */
#include "fixture.h"

/* The i-th of n entries of a kind of data; 0 <= i < n. */
typedef PmhEntry (*Generate) (uint64_t i, uint64_t n);

static PmhEntry
unique_keys(uint64_t i, uint64_t n)
{
	PmhEntry	e = {fixture_hash(i), i};

	return e;
}

/* Key k has one to forty values. */
static PmhEntry
some_duplicates(uint64_t i, uint64_t n)
{
	PmhEntry	e = {fixture_hash(i / (1 + i / 1000 % 40)), i};

	return e;
}

/* A hundred keys share everything. */
static PmhEntry
many_duplicates(uint64_t i, uint64_t n)
{
	PmhEntry	e = {fixture_hash(i % 100), i};

	return e;
}

/* All hashes lie in a 64th of the range; the other partitions are empty. */
static PmhEntry
skewed(uint64_t i, uint64_t n)
{
	PmhEntry	e = {fixture_hash(i) >> 6 | UINT64_C(5) << 58, i};

	return e;
}

/* Hand the sorted entries over. */
static void
load(PmhTable *t, const PmhEntry *sorted, uint64_t n, uint64_t expected, int fill)
{
	PmhBulk    *bulk;
	uint32_t	depth;
	uint32_t	bits;
	PmhEntry   *copy = malloc(n * sizeof(PmhEntry) + 1);
	uint64_t	at = 0;
	uint64_t	seed = 99;

	memcpy(copy, sorted, n * sizeof(PmhEntry));
	REQUIRE(pmh_bulk_begin(t, expected, fill, &depth, &bulk) == PMH_OK);
	bits = depth < 5 ? depth : 5;
	for (uint64_t p = 0; p < UINT64_C(1) << bits; p++)
	{
		uint64_t	end = at;

		while (end < n && (bits == 0 || copy[end].hash >> (64 - bits) == p))
			end++;
		/* The order within a partition is free. */
		for (uint64_t i = at; i < end; i++)
		{
			uint64_t	k = at + fixture_random(&seed) % (end - at);
			PmhEntry	e = copy[i];

			copy[i] = copy[k];
			copy[k] = e;
		}
		REQUIRE(pmh_bulk_partition(bulk, bits, copy + at, end - at) == PMH_OK);
		at = end;
	}
	CHECK(at == n);
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK);
	free(copy);
}

/* Every hash of the sorted entries has exactly its values. */
static void
check_found(PmhTable *t, const PmhEntry *sorted, uint64_t n)
{
	PmhValues	values = {0};
	uint64_t	end;

	for (uint64_t i = 0; i < n; i = end)
	{
		bool		same = true;

		for (end = i; end < n && sorted[end].hash == sorted[i].hash; end++)
			;
		REQUIRE(pmh_lookup(t, sorted[i].hash, &values) == PMH_OK);
		CHECK(values.n == end - i);
		for (uint64_t k = 0; k < values.n && k < end - i; k++)
			same = same && values.value[k] == sorted[i + k].value;
		CHECK(same);
	}
	for (uint64_t i = 0; i < 1000; i++)
	{
		REQUIRE(pmh_lookup(t, fixture_hash(~i), &values) == PMH_OK);
		CHECK(values.n == 0);
	}
	pmh_values_free(&values);
}

static void
run(const char *name, Generate generate, uint64_t n, uint64_t expected, int fill,
	double most_bytes)
{
	const char *path = fixture_path("core_bulk");
	PmhEnv		env = fixture_env(1);
	PmhEntry   *entry = malloc(2 * n * sizeof(PmhEntry) + 1);
	PmhTable   *t = fixture_create_in(path, &env);
	PmhStats	stats;
	uint64_t	more = n / 2;

	for (uint64_t i = 0; i < n; i++)
		entry[i] = generate(i, n);
	qsort(entry, n, sizeof(PmhEntry), fixture_compare_entries);
	load(t, entry, n, expected, fill);
	check_found(t, entry, n);
	CHECK_SOUND(t);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == n);
	printf("%s, %lu entries: %.2f bytes each, %.2f of the slots used in %lu segments (%lu/%lu/%lu)\n",
		   name, (unsigned long) n, (double) stats.used_bytes / (n ? n : 1),
		   stats.load_factor, (unsigned long) stats.segments,
		   (unsigned long) stats.segments_single,
		   (unsigned long) stats.segments_two_choice,
		   (unsigned long) stats.segments_stash);
	if (most_bytes > 0)
		CHECK(stats.used_bytes <= most_bytes * n);

	/* It recovers, and takes more entries and deletions. */
	t = fixture_recover(path, t, &env);
	for (uint64_t i = 0; i < more; i++)
	{
		entry[n + i] = generate(i, n);
		entry[n + i].value = n + i;
		REQUIRE(pmh_insert(t, entry[n + i].hash, n + i, false) == PMH_OK);
	}
	for (uint64_t i = 0; i < more; i++)
		REQUIRE(pmh_delete(t, entry[i].hash, entry[i].value) == PMH_OK);
	qsort(entry + more, n, sizeof(PmhEntry), fixture_compare_entries);
	check_found(t, entry + more, n);
	CLOSE_SOUND(t);
	unlink(path);
	free(entry);
}

/* ---- files with few entries: a partition often has no more ---- */

/* Its length in bytes with n entries of so many keys, inserted one by one or loaded. */
static uint64_t
bytes_with(PmhEntry *entry, uint64_t n, uint64_t keys, bool loaded)
{
	const char *path = fixture_path("core_bulk");
	PmhEnv		env = fixture_env(1);
	PmhTable   *t = fixture_create_in(path, &env);
	uint64_t	bytes;

	for (uint64_t i = 0; i < n; i++)
	{
		entry[i] = (PmhEntry) {fixture_hash(i % keys), i};
		REQUIRE(loaded || pmh_insert(t, entry[i].hash, i, false) == PMH_OK);
	}
	qsort(entry, n, sizeof(PmhEntry), fixture_compare_entries);
	if (loaded)
		load(t, entry, n, n, PMH_DEFAULT_FILL);
	check_found(t, entry, n);
	CHECK_SOUND(t);
	bytes = fixture_file_size(path);

	/* What recovery finds is the same. */
	t = fixture_recover(path, t, &env);
	CHECK_SOUND(t);
	CHECK(fixture_file_size(path) == bytes);
	pmh_close(t);
	unlink(path);
	return bytes;
}

/*
 * What is loaded takes no more space than what is inserted one by one, and neither much
 * more than it has to.
 */
static void
few(uint64_t n, uint64_t keys, uint64_t most)
{
	PmhEntry   *entry = malloc((n + 1) * sizeof(PmhEntry));
	uint64_t	by_inserts = bytes_with(entry, n, keys, false);
	uint64_t	by_load = bytes_with(entry, n, keys, true);

	printf("# %lu entries of %lu keys: %lu bytes, loaded %lu\n", (unsigned long) n,
		   (unsigned long) keys, (unsigned long) by_inserts, (unsigned long) by_load);
	CHECK(by_load <= by_inserts);
	CHECK(by_inserts <= pmh_whole_pages(most));
	free(entry);
}

int
main(void)
{
	TEST(run("unique", unique_keys, FIXTURE_SCALE(300000), FIXTURE_SCALE(300000), 94, 16.0));
	TEST(run("unique, fill 70", unique_keys, FIXTURE_SCALE(100000), FIXTURE_SCALE(100000), 70, 22.0));
	TEST(run("more than expected", unique_keys, FIXTURE_SCALE(200000), 1000, 94, 17.0));
	TEST(run("fewer than expected", unique_keys, FIXTURE_SCALE(100000), FIXTURE_SCALE(10000000), 94, 0));
	TEST(run("few duplicates", some_duplicates, FIXTURE_SCALE(300000), FIXTURE_SCALE(300000), 94, 0));
	TEST(run("many duplicates", many_duplicates, FIXTURE_SCALE(300000), FIXTURE_SCALE(300000), 94, 0));
	TEST(run("skewed", skewed, FIXTURE_SCALE(200000), FIXTURE_SCALE(200000), 94, 0));
	TEST(run("none", unique_keys, 0, 0, 94, 0));
	TEST(run("one", unique_keys, 1, 1, 10, 0));
	TEST(few(0, 1, 16384));
	TEST(few(1, 1, 16384));
	TEST(few(100, 100, 16384));
	TEST(few(400, 400, 16384));
	TEST(few(600, 600, 16384));
	TEST(few(353, 88, 32768));
	TEST(few(400, 4, 32768));
	TEST(few(1000, 1000, 40960));
	TEST(few(3000, 1, 65536));
	TEST(few(3000, 3000, 81920));
	TEST(few(10000, 500, 163840));
	return unit_done("core_bulk");
}
