/*-------------------------------------------------------------------------
 *
 * stop_figures.c
 *	  The length of a file and what is free in it are of one moment, though other
 *	  processes let it grow and cut it.
 *
 * The engine is compiled with PMH_STOP_LOADS here: whenever the number of free units
 * is loaded without the space lock, another handle lets the file grow at that moment.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "error.h"
#include "file_size.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "pm.h"
#include "shrink.h"
#include "stop_point.h"
#include "table.h"
#include "unit.h"

#define GROWTH		1000		/* blocks */

static PmhTable *watched;		/* NULL: let all go by */
static PmhTable *other;			/* another handle of its file */
static int	loads;				/* of the free units */
static int	growths;

void
pmh_stop_point(const char *name)
{
	(void) name;
}

void
pmh_stop_load(const char *function, const void *addr)
{
	PmhTable   *t = watched;

	(void) function;
	if (t == NULL || addr != &pmh_run(t)->free_units)
		return;
	loads++;
	if (__atomic_load_n(&t->file_lock->space, __ATOMIC_RELAXED) != 0)
		return;
	watched = NULL;
	other->need.blocks = GROWTH;
	REQUIRE(pmh_provide(other) == PMH_OK);
	growths++;
	watched = t;
}

/* What has been watched has met growth nowhere, and it has loaded what was watched. */
static void
of_one_moment(const char *what)
{
	watched = NULL;
	if (!CHECK(loads > 0 && growths == 0))
		fprintf(stderr, "  %s: %d of %d loads without the lock\n", what, growths, loads);
	loads = growths = 0;
}

static void
statistics(PmhTable *t)
{
	PmhStats	stats;

	watched = t;
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	of_one_moment("statistics");
	CHECK(stats.used_bytes > 0 && stats.used_bytes <= stats.file_bytes);
}

/* What is deleted makes the shrink look at the figures: does it pay, how far to cut. */
static void
shrink(PmhTable *t, uint64_t n)
{
	PmhShrink	shrink;
	PmhResult	result;
	uint64_t	before = pmh_live(t)->blocks;

	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_delete(t, fixture_hash(i), i) == PMH_OK);
	watched = t;
	REQUIRE(pmh_shrink_begin(t, PMH_DEFAULT_FILL, &shrink) == PMH_OK);
	while ((result = pmh_shrink_step(t, &shrink)) == PMH_OK)
		continue;
	of_one_moment("shrink");
	REQUIRE(result == PMH_DONE);
	pmh_shrink_end(t, &shrink);
	CHECK(pmh_live(t)->blocks < before);
}

int
main(void)
{
	const char *path = fixture_path("stop_figures");
	PmhEnv		env = fixture_env(1);
	PmhError	error;
	PmhTable   *t;
	uint64_t	n = 60000;

	unlink(path);
	REQUIRE(pmh_create(path, NULL, NULL, &env, &t, &error) == PMH_OK);
	REQUIRE(pmh_open(path, &env, &other, NULL, &error) == PMH_OK);
	statistics(t);
	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_insert(t, fixture_hash(i), i, false) == PMH_OK);
	statistics(t);
	shrink(t, n - 10);
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	pmh_close(other);
	pmh_close(t);
	unlink(path);
	return unit_done("stop_figures");
}
