/*-------------------------------------------------------------------------
 *
 * stop_fold.c
 *	  The directory is folded, by another handle, while a writer has looked it
 *	  up and is about to publish what became of a segment.
 *
 * The engine is compiled with PMH_STOP_POINTS here.  The directory is doubled
 * beyond what its segments need each time before they may grow or be split, so
 * that there is always something to fold.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "directory.h"
#include "element.h"
#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "pm.h"
#include "stop_point.h"
#include "table.h"
#include "unit.h"

#define KEYS		UINT64_C(20000)
#define TOO_DEEP	3			/* doublings that no segment needs */

static PmhTable *folder;		/* the other handle */
static bool fold_now;
static unsigned folded;

static uint32_t
depth(void)
{
	return pmh_dirword_depth(pm_load(&pmh_live(folder)->dirword));
}

void
pmh_stop_point(const char *name)
{
	uint32_t	before;

	if (!fold_now || strcmp(name, "replace_before_publish") != 0)
		return;
	fold_now = false;			/* the next try is let pass */
	before = depth();
	REQUIRE(pmh_directory_fold(folder, UINT64_MAX) == PMH_OK);
	folded += depth() < before;
}

static void
make_too_deep(PmhTable *t)
{
	for (uint32_t i = 0; i < TOO_DEEP; i++)
	{
		uint32_t	now = depth();
		PmhResult	result;

		do
			result = pmh_directory_double(t, now);
		while (result == PMH_OK && depth() == now);
		REQUIRE(result == PMH_OK);
	}
}

int
main(void)
{
	const char *path = fixture_path("stop_fold");
	PmhEnv		env = fixture_env(1);
	PmhValues	values = {0};
	uint64_t	segments = 0;
	PmhTable   *t;
	PmhError	error;

	REQUIRE(pmh_create(path, NULL, NULL, &env, &t, &error) == PMH_OK);
	REQUIRE(pmh_open(path, &env, &folder, NULL, &error) == PMH_OK);
	for (uint64_t k = 0; k < KEYS; k++)
	{
		const PmhRun *run = pmh_run(t);

		if (k == 0 || segments != pm_load(&run->splits) + pm_load(&run->grows))
			make_too_deep(t);
		segments = pm_load(&run->splits) + pm_load(&run->grows);
		fold_now = true;
		CHECK(pmh_insert(t, fixture_hash(k), k, false) == PMH_OK);
	}
	CHECK(folded > 10);
	for (uint64_t k = 0; k < KEYS; k++)
		CHECK(pmh_lookup(t, fixture_hash(k), &values) == PMH_OK && values.n == 1 &&
			  values.value[0] == k);
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	pmh_values_free(&values);
	pmh_close(folder);
	pmh_close(t);
	unlink(path);
	return unit_done("stop_fold");
}
