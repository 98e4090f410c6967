/*-------------------------------------------------------------------------
 *
 * core_threads.c
 *	  Threads, each with a handle of its own, write and read one file.
 *
 * Every thread owns the keys of its residue class and knows their model; so
 * it can check its own look-ups exactly, and those of the others' keys for
 * being possible.  What never is deleted must always be found.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"
#include "unit.h"

#define WRITERS		3
#define READERS		2
#define PERMANENT	2000		/* keys that are there all the time */

static const char *path;
static uint64_t keys_per_writer;
static bool stop;
static FixtureMedium medium;

static uint64_t
writer_key(unsigned writer, uint64_t k)
{
	return PERMANENT + k * WRITERS + writer;
}

static PmhTable *
open_table(void)
{
	PmhEnv		env = fixture_env_on(medium, 1);
	PmhTable   *t;
	PmhError	error;

	if (pmh_open(path, &env, &t, NULL, &error) != PMH_OK)
	{
		fprintf(stderr, "cannot open: %s\n", error.detail);
		exit(1);
	}
	return t;
}

/* Insert and delete among few enough keys that lists come and go. */
static void *
write_keys(void *arg)
{
	unsigned	writer = (unsigned) (uintptr_t) arg;
	PmhTable   *t = open_table();
	uint32_t   *set = calloc(keys_per_writer, sizeof(uint32_t));
	PmhValues	values = {0};
	uint64_t	seed = writer;

	for (uint64_t i = 0; i < 4 * keys_per_writer; i++)
	{
		uint64_t	k = fixture_random(&seed) % keys_per_writer;
		unsigned	v = (unsigned) (fixture_random(&seed) % (k % 5 == 0 ? 32 : 2));
		uint64_t	hash = fixture_hash(writer_key(writer, k));
		uint64_t	value = writer_key(writer, k) * 32 + v;

		if ((set[k] >> v & 1) == 0)
			CHECK(pmh_insert(t, hash, value, false) == PMH_OK);
		else
			CHECK(pmh_delete(t, hash, value) == PMH_OK);
		set[k] ^= UINT32_C(1) << v;
	}
	for (uint64_t k = 0; k < keys_per_writer; k++)
	{
		uint32_t	found = 0;

		CHECK(pmh_lookup(t, fixture_hash(writer_key(writer, k)), &values) == PMH_OK);
		for (size_t i = 0; i < values.n; i++)
			found |= UINT32_C(1) << values.value[i] % 32;
		CHECK(found == set[k]);
	}
	pmh_values_free(&values);
	free(set);
	pmh_close(t);
	return NULL;
}

typedef struct Count
{
	uint64_t	first;			/* key of hashes[0] */
	uint64_t	n;
	bool		possible;
} Count;

static void
count_found(void *arg, size_t key, uint64_t value)
{
	Count	   *count = arg;

	count->n++;
	if (value != count->first + key)
		count->possible = false;
}

static void *
read_keys(void *arg)
{
	PmhTable   *t = open_table();
	PmhValues	values = {0};
	uint64_t	seed = 77 + (uint64_t) (uintptr_t) arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
	{
		uint64_t	hashes[20];
		Count		count = {fixture_random(&seed) % (PERMANENT - 20), 0, true};
		uint64_t	key = writer_key((unsigned) (fixture_random(&seed) % WRITERS),
									 fixture_random(&seed) % keys_per_writer);
		bool		possible = true;

		for (uint64_t i = 0; i < 20; i++)
			hashes[i] = fixture_hash(count.first + i);
		CHECK(pmh_lookup_group(t, hashes, 20, count_found, &count) == PMH_OK);
		CHECK(count.n == 20 && count.possible);	/* permanent entries */

		CHECK(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		for (size_t i = 0; i < values.n; i++)
			possible = possible && values.value[i] / 32 == key &&
				(i == 0 || values.value[i] > values.value[i - 1]);
		CHECK(possible);
	}
	pmh_values_free(&values);
	pmh_close(t);
	return NULL;
}

static void
run(void)
{
	PmhEnv		env = fixture_env_on(medium, 1);
	pthread_t	writer[WRITERS];
	pthread_t	reader[READERS];
	PmhTable   *t;
	PmhError	error;

	__atomic_store_n(&stop, false, __ATOMIC_RELAXED);
	REQUIRE(pmh_create(path, NULL, NULL, &env, &t, &error) == PMH_OK);
	for (uint64_t k = 0; k < PERMANENT; k++)
		REQUIRE(pmh_insert(t, fixture_hash(k), k, false) == PMH_OK);

	for (uintptr_t i = 0; i < READERS; i++)
		REQUIRE(pthread_create(&reader[i], NULL, read_keys, (void *) i) == 0);
	for (uintptr_t i = 0; i < WRITERS; i++)
		REQUIRE(pthread_create(&writer[i], NULL, write_keys, (void *) i) == 0);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writer[i], NULL);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < READERS; i++)
		pthread_join(reader[i], NULL);

	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	pmh_close(t);
	unlink(path);
}

int
main(void)
{
	path = fixture_path("core_threads");
	keys_per_writer = FIXTURE_SCALE(70000);
	for (int i = 0; i < FIXTURE_MEDIA; i++)
	{
		medium = (FixtureMedium) i;
		run();
	}
	return unit_done("core_threads");
}
