/*-------------------------------------------------------------------------
 *
 * published_faults.c
 *	  Faults of published hash tables on persistent memory, looked for here,
 *	  each in a function that names it.  Those that other tests find anyway, or that need
 *	  crashes, threads or a server, are not: test/FAULTS.md has the whole list.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

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

/* Keys 0 .. n - 1, each with its number as its only value. */
static bool
has_keys(PmhTable *t, uint64_t n)
{
	PmhValues	values = {0};
	bool		same = true;

	for (uint64_t key = 0; key < n && same; key++)
		same = pmh_lookup(t, fixture_hash(key), &values) == PMH_OK &&
			values.n == 1 && values.value[0] == key;
	pmh_values_free(&values);
	return same;
}

/* ---- Pea Hash ---- */

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
	dir[i + count - 1] = pmh_elem_seal(elem ^ UINT64_C(3) << PMH_ELEM_STRATEGY_SHIFT);
	t = reopen(t);
	i = shared_segment(t, &dir, &count);
	for (uint64_t k = 0; k < count; k++)
		CHECK(dir[i + k] == elem);
	CLOSE_SOUND(t);
}

/* ---- patterns ---- */

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
		CHECK(pmh_open(path, &env, &t, &error) == PMH_ERR_CORRUPT);
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
	CLOSE_SOUND(t);
}

int
main(void)
{
	path = fixture_path("published_faults");
	TEST(pea_hash_strategy_in_one_replica());
	TEST(pattern_recovery_not_idempotent());
	unlink(path);
	return unit_done("published_faults");
}
