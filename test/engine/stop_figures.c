/*-------------------------------------------------------------------------
 *
 * stop_figures.c
 *	  What is in use of a file, of its length and what is free in it, though other
 *	  processes let it grow between the two loads.
 *
 * The engine is compiled with PMH_STOP_LOADS here: whenever the number of free units
 * is loaded for the first time, another handle lets the file grow at that moment.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "pm.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"
#include "unit.h"

#define GROWTH		1000		/* blocks */

static PmhTable *watched;		/* NULL: let all go by */
static PmhTable *other;			/* another handle of its file */
static const char *within;		/* this function */
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

	if (t == NULL || addr != &pmh_run(t)->free_units ||
		strcmp(function, within) != 0)
		return;
	watched = NULL;
	other->need.blocks = GROWTH;
	other->need.seen = pmh_blocks(other);
	REQUIRE(pmh_provide(other) == PMH_OK);
	growths++;
}

static void
statistics(PmhTable *t)
{
	PmhStats	stats;

	watched = t;
	growths = 0;
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(growths == 1);
	CHECK(stats.used_bytes > 0 && stats.used_bytes <= stats.file_bytes);
}

int
main(void)
{
	const char *path = fixture_path("stop_figures");
	PmhTable   *t = fixture_create(path);
	uint64_t	n = 60000;

	within = "pmh_space_figures";
	other = fixture_open(path, 1);
	statistics(t);
	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_insert(t, fixture_hash(i), i, false) == PMH_OK);
	statistics(t);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	pmh_close(other);
	pmh_close(t);
	unlink(path);
	return unit_done("stop_figures");
}
