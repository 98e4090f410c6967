/*-------------------------------------------------------------------------
 *
 * stop_handles.c
 *	  What handles share, at the moment when it matters: the length of a file that has a
 *	  tail when it is opened; the version words of value buffers, which those of other files
 *	  count up as well.
 *
 * The engine is compiled with PMH_STOP_POINTS here.  At a named point of one
 * handle others act through a second one.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>
#include <sys/stat.h>

#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "lock.h"
#include "pm.h"
#include "segment.h"
#include "space.h"
#include "stop_point.h"
#include "sweeps.h"
#include "table.h"
#include "unit.h"

#define BUFFERS			40		/* at least, of the long list */
#define LIST_VALUES		(BUFFERS * UINT64_C(2600))
#define NEW_KEYS		UINT64_C(20000)
#define MOST_READINGS	20000	/* of a buffer that do not come to an end otherwise */

static const char *path;
static PmhTable *others;
static void (*script) (const char *name);	/* NULL, or called at each point */
static const char *spoil_at;	/* there all versions of buffers are counted up ... */
static uint64_t spoil_every;	/* ... each time, or one time of so many */
static uint64_t readings;		/* of a buffer ... */
static uint64_t spoilt;			/* ... so many of which are spoilt ... */
static uint64_t last_spoilt;	/* ... and which was the last one */

/* As other files do that free a buffer with the same version word. */
static void
count_all_versions_up(void)
{
	PmhLocks   *locks = fixture_locks();
	uint64_t   *version = (uint64_t *) (void *) &locks->stripe[locks->nstripes];

	for (uint64_t i = 0; i < locks->nstripes; i++)
		pmh_version_bump_shared(&version[i]);
	spoilt++;
}

void
pmh_stop_point(const char *name)
{
	readings += strcmp(name, "list_before_reading") == 0;
	if (spoil_at != NULL && strcmp(spoil_at, name) == 0 && readings < MOST_READINGS &&
		readings % spoil_every == spoil_every - 1 && readings != last_spoilt)
	{
		last_spoilt = readings;
		count_all_versions_up();
	}
	if (script != NULL)
		script(name);
}

static void
spoil(const char *name, uint64_t every)
{
	spoil_at = name;
	spoil_every = every;
	readings = 0;
	spoilt = 0;
	last_spoilt = 0;
}

/* ---- the end of the file ---- */

#define TAIL		((off_t) 1024 * 1024)

static void
open_others(const char *name)
{
	if (strcmp(name, "open_before_recovery") != 0)
		return;
	script = NULL;
	others = fixture_open(path, 2);
}

/* Two processes open a file that has a tail: neither takes that for a part of it. */
static void
tail_when_opened(void)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	length = fixture_file_size(path);

	pmh_close(t);
	REQUIRE(truncate(path, (off_t) length + TAIL) == 0);
	script = open_others;
	t = fixture_open(path, 2);
	CHECK(script == NULL && fixture_file_size(path) == length + (uint64_t) TAIL);
	CHECK(t->file.bound == length && others->file.bound == length);
	for (uint64_t i = 0; i < 20000; i++)
		REQUIRE(pmh_insert(i % 2 == 0 ? t : others, fixture_hash(i), i, false) == PMH_OK);
	CHECK_SOUND(t);
	pmh_close(others);
	pmh_close(t);
}

/* ---- version words ---- */

static PmhValues values;

static PmhResult
look_up(PmhTable *t)
{
	PmhResult	result = pmh_lookup(t, fixture_hash(0), &values);

	CHECK(values.n == LIST_VALUES);
	return result;
}

static PmhResult
look_up_repeats(PmhTable *t)
{
	PmhResult	result = fixture_lookup_repeats(t, fixture_hash(0), &values);

	CHECK(values.n == LIST_VALUES);
	return result;
}

static PmhResult
read_statistics(PmhTable *t)
{
	PmhStats	stats;
	PmhResult	result = pmh_stats(t, &stats);

	CHECK(stats.entries == LIST_VALUES && stats.lists == 1);
	return result;
}

static PmhResult
check_alone(PmhTable *t)
{
	return pmh_check(t, true, fixture_report, NULL, NULL);
}

/* All buffers of the list are read, and none much more often than it is spoilt. */
static void
goes_on(PmhTable *t, PmhResult (*read) (PmhTable *t), const char *at)
{
	spoil(at, 2);
	CHECK(read(t) == PMH_OK);
	CHECK(readings >= BUFFERS && readings < 4 * BUFFERS && spoilt > 0);
	spoil_at = NULL;
}

/*
 * Of all buffers of a list, each reading but every other one is spoilt by the buffers
 * of other files: what reads all of it goes on where it was.
 */
static void
versions_of_others(const char *at)
{
	PmhTable   *t = fixture_create(path);

	fixture_load_list(t, fixture_hash(0), LIST_VALUES);
	goes_on(t, look_up, at);
	goes_on(t, look_up_repeats, at);
	goes_on(t, read_statistics, at);
	goes_on(t, fixture_begin_shrink, at);
	goes_on(t, fixture_check, at);
	goes_on(t, check_alone, at);
	pmh_close(t);
}

/* Of the buffer that a walk reads last. */
static PmhBufferHeader *
last_header(PmhTable *t)
{
	PmhProbe	probe;
	uint64_t	payload;

	REQUIRE(pmh_probe(t, fixture_hash(0), &probe) == PMH_OK);
	for (payload = probe.list; pmh_pointer_level(payload) > 0;)
		payload = *pmh_index_slot(t, payload, 0) & PMH_SLOT_POINTER;
	return pmh_buffer_header(t, payload);
}

/* The check finds what is damaged at the end of such a list. */
static void
damage_beside_others(void)
{
	PmhTable   *t = fixture_create(path);

	fixture_load_list(t, fixture_hash(0), LIST_VALUES);
	pm_store64(&last_header(t)->hash, 1);
	spoil("list_before_reading", 2);
	CHECK(pmh_check(t, false, NULL, NULL, NULL) == PMH_ERR_CORRUPT);
	spoil_at = NULL;
	pmh_close(t);
}

static unsigned asked;

static bool
cancelled(void)
{
	return ++asked > 3;
}

/* Each reading is spoilt: it goes on for as long as the caller wants it to. */
static void
given_up(PmhTable *t, PmhResult (*read) (PmhTable *t))
{
	static const PmhWaitHooks hooks = {.cancelled = cancelled};
	static const PmhWaitHooks none = {0};

	pmh_set_wait_hooks(&hooks);
	asked = 0;
	spoil("list_before_validation", 1);
	CHECK(read(t) == PMH_CANCELLED);
	CHECK(pmh_error(t)->code == PMH_CANCELLED && asked == 4 && readings < 10);
	spoil_at = NULL;
	pmh_set_wait_hooks(&none);
}

static PmhResult
look_up_any(PmhTable *t)
{
	return pmh_lookup(t, fixture_hash(0), &values);
}

static PmhResult
look_up_repeats_any(PmhTable *t)
{
	return fixture_lookup_repeats(t, fixture_hash(0), &values);
}

static PmhResult
read_statistics_any(PmhTable *t)
{
	PmhStats	stats;

	return pmh_stats(t, &stats);
}

static void
nothing_holds(void)
{
	PmhTable   *t = fixture_create(path);

	fixture_load_list(t, fixture_hash(0), LIST_VALUES);
	given_up(t, look_up_any);
	given_up(t, look_up_repeats_any);
	given_up(t, read_statistics_any);
	given_up(t, fixture_begin_shrink);
	given_up(t, fixture_check);
	CLOSE_SOUND(t);
}

/* ---- new segments ---- */

static bool
always(void)
{
	return true;
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
	static const PmhWaitHooks hooks = {.cancelled = always};
	static const PmhWaitHooks none = {0};
	static bool used[FIXTURE_STRIPES];
	PmhTable   *t = fixture_create(path);
	unsigned	waited = 0;

	pmh_set_wait_hooks(&hooks);
	for (uint64_t key = 0; key < NEW_KEYS; key++)
	{
		PmhResult	result;

		lock_other_stripes(t, used, true);
		result = pmh_insert(t, fixture_hash(key), key, false);
		lock_other_stripes(t, used, false);
		CHECK(fixture_no_lock_held());
		if (result == PMH_OK)
			continue;
		CHECK(result == PMH_CANCELLED);
		CHECK(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK && values.n == 0);
		REQUIRE(pmh_insert(t, fixture_hash(key), key, false) == PMH_OK);
		waited++;
	}
	pmh_set_wait_hooks(&none);
	CHECK(waited > 10);
	CLOSE_SOUND(t);
}

int
main(void)
{
	path = fixture_path("stop_handles");
	TEST(tail_when_opened());
	TEST(versions_of_others("list_before_reading"));
	TEST(versions_of_others("list_before_validation"));
	TEST(versions_of_others("list_before_span"));
	TEST(damage_beside_others());
	TEST(nothing_holds());
	TEST(stripe_of_others());
	pmh_values_free(&values);
	unlink(path);
	return unit_done("stop_handles");
}
