/*-------------------------------------------------------------------------
 *
 * stop_generation.c
 *	  The number of a directory's generation comes round, while a handle is idle.
 *
 * The engine is compiled with PMH_STOP_LOADS here.  A handle that knows a directory
 * sleeps; the table is shrunk and grows again, 2^17 doublings and folds in all (most of
 * them are only added to the number).  It looks up a key just when one more doubling
 * gives a directory with the same place, depth and number: what it finds there is
 * an element from before, of a segment that the key has left.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "bucket.h"
#include "directory.h"
#include "element.h"
#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "home.h"
#include "layout.h"
#include "place.h"
#include "pm.h"
#include "shrink.h"
#include "stop_point.h"
#include "table.h"
#include "unit.h"

#define DEPTH		6
#define KEYS		64

static PmhTable *reader;
static PmhTable *writer;
static uint32_t loads;			/* of the directory word, by the reader */
static uint32_t double_at;		/* 0: nowhere */

void
pmh_stop_point(const char *name)
{
	(void) name;
}

void
pmh_stop_load(const char *function, const void *addr)
{
	(void) function;
	if (double_at == 0 || addr != &pmh_live(reader)->dirword)
		return;
	if (++loads != double_at)
		return;
	double_at = 0;
	REQUIRE(pmh_directory_double(writer, DEPTH - 1) == PMH_OK);
}

static uint32_t
depth_now(void)
{
	return pmh_dirword_depth(pm_load(&pmh_live(writer)->dirword));
}

static void
grow_by_one(void)
{
	REQUIRE(pmh_directory_double(writer, depth_now()) == PMH_OK);
}

/* Keys in the upper half of the directory: smaller ones do not overwrite that. */
static uint64_t
key(uint64_t i)
{
	return fixture_hash(i) | UINT64_C(1) << 63;
}

static uint64_t
block_of(uint64_t hash)
{
	PmhPlace	place;

	REQUIRE(pmh_locate(writer, hash, &place) == PMH_OK);
	return pmh_elem_main_block(place.elem);
}

/* Keys from KEYS on, until the directory has its depth; how many there are. */
static uint64_t
fill(void)
{
	uint64_t	n = KEYS;

	for (uint64_t i = 0; i < KEYS; i++)
		REQUIRE(pmh_insert(writer, key(i), i, false) == PMH_OK);
	for (; depth_now() < DEPTH; n++)
		REQUIRE(pmh_insert(writer, fixture_hash(n), n, false) == PMH_OK);
	return n;
}

/* All of these go, and the directory becomes small. */
static void
empty(uint64_t n)
{
	PmhShrink	shrink;
	PmhResult	result;

	for (uint64_t i = KEYS; i < n; i++)
		REQUIRE(pmh_delete(writer, fixture_hash(i), i) == PMH_OK);
	REQUIRE(pmh_shrink_begin(writer, PMH_DEFAULT_FILL, &shrink) == PMH_OK);
	while ((result = pmh_shrink_step(writer, &shrink)) == PMH_OK)
		continue;
	REQUIRE(result == PMH_DONE);
	pmh_shrink_end(&shrink);
	REQUIRE(depth_now() + 3 < DEPTH);
}

/* The directory that the next doubling gives is where it was, and has its number. */
static void
come_round(uint64_t seen)
{
	uint64_t	dirword;
	uint64_t	number = (seen >> PMH_DIRWORD_GEN_SHIFT) - 1;

	/* each change puts it into the other one of two places */
	if (((DEPTH - depth_now()) % 2 == 0) !=
		(pmh_dirword_offset(pm_load(&pmh_live(writer)->dirword)) == pmh_dirword_offset(seen)))
	{
		grow_by_one();
		grow_by_one();
		REQUIRE(pmh_directory_fold(writer, 0) == PMH_OK);
	}
	while (depth_now() < DEPTH - 1)
		grow_by_one();
	dirword = pm_load(&pmh_live(writer)->dirword);
	dirword &= (UINT64_C(1) << PMH_DIRWORD_GEN_SHIFT) - 1;
	pm_store64(&pmh_live(writer)->dirword, dirword | number << PMH_DIRWORD_GEN_SHIFT);
}

/* Would a look-up by what the reader has seen end at the home bucket of a key? */
static bool
ends_at_home(uint64_t hash)
{
	PmhHome		home;
	uint32_t	state;

	REQUIRE(pmh_home_find(reader, hash, &home));
	state = pmh_bucket_state(home.bucket);
	return (state & PMH_STATE_STASHED) == 0 &&
		(state >> pmh_filter_shift(hash) & 1) == 0;
}

/* Such a key whose segment has moved, the more entries there are. */
static uint64_t
move_segments(uint64_t from, const uint64_t *old)
{
	for (uint64_t n = from;; n++)
	{
		for (uint64_t i = 0; i < KEYS; i++)
		{
			if (block_of(key(i)) != old[i] && ends_at_home(key(i)))
				return i;
		}
		REQUIRE(pmh_insert(writer, fixture_hash(n), n, false) == PMH_OK);
	}
}

/*
 * One round: the reader looks up a key that has another value by now, with the
 * doubling at its n-th load of the directory word.  False if it had no such load.
 */
static bool
round_trip(const char *path, uint32_t n)
{
	PmhEnv		env = fixture_env(1);
	uint64_t	old[KEYS];
	uint64_t	seen;
	uint64_t	keys;
	uint64_t	moved;
	PmhValues	values = {0};
	PmhError	error;
	bool		there;

	unlink(path);
	REQUIRE(pmh_create(path, NULL, &env, &writer, &error) == PMH_OK);
	REQUIRE(pmh_open(path, &env, &reader, NULL, &error) == PMH_OK);
	keys = fill();
	REQUIRE(pmh_lookup(reader, key(0), &values) == PMH_OK && values.n == 1);
	seen = reader->seen_dirword;
	empty(keys);
	for (uint64_t i = 0; i < KEYS; i++)
		old[i] = block_of(key(i));
	come_round(seen);
	moved = move_segments(keys, old);
	REQUIRE(pmh_delete(writer, key(moved), moved) == PMH_OK);
	REQUIRE(pmh_insert(writer, key(moved), KEYS + moved, false) == PMH_OK);
	REQUIRE(depth_now() == DEPTH - 1 && reader->seen_dirword == seen);
	loads = 0;
	double_at = n;
	CHECK(pmh_lookup(reader, key(moved), &values) == PMH_OK && values.n == 1 &&
		  values.value[0] == KEYS + moved);
	there = double_at == 0;
	CHECK(!there || pm_load(&pmh_live(writer)->dirword) == seen);
	double_at = 0;
	CHECK(pmh_check(writer, true, fixture_report, NULL) == PMH_OK);
	pmh_close(reader);
	pmh_close(writer);
	unlink(path);
	return there;
}

int
main(void)
{
	const char *path = fixture_path("stop_generation");
	uint32_t	n = 1;

	while (round_trip(path, n))
		n++;
	CHECK(n > 1);
	return unit_done("stop_generation");
}
