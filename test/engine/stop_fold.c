/*-------------------------------------------------------------------------
 *
 * stop_fold.c
 *	  The directory is folded, by another handle, while a writer has looked it
 *	  up and is about to publish what became of a segment, or while a check has read
 *	  a part of it.
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

#define DEEP		13			/* elements of a half of this depth are two pieces */

static PmhTable *folder;		/* the other handle */
static const char *fold_at = "replace_before_publish";
static unsigned passes;			/* of that point, before it is folded there */
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

	if (!fold_now || strcmp(name, fold_at) != 0 || passes-- != 0)
		return;
	fold_now = false;			/* the next try is let pass */
	passes = 0;
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

static void
test_writer(const char *path)
{
	PmhTable   *t = fixture_create(path);
	PmhValues	values = {0};
	uint64_t	segments = 0;

	folder = fixture_open(path, 1);
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
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	pmh_values_free(&values);
	pmh_close(folder);
	pmh_close(t);
}

/* A table with a segment as deep as that, and one level more that none needs. */
static PmhTable *
make_deep(const char *path)
{
	PmhTable   *t = fixture_create(path);
	PmhEntry	entry = {0, 1};
	uint32_t	expected;
	PmhBulk    *bulk;

	REQUIRE(pmh_bulk_begin(t, UINT64_C(2000) << DEEP, PMH_DEFAULT_FILL, &expected, &bulk) == PMH_OK);
	REQUIRE(expected >= DEEP);
	REQUIRE(pmh_bulk_partition(bulk, DEEP, 0, &entry, 1) == PMH_OK);
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK);
	folder = fixture_open(path, 1);
	REQUIRE(depth() == DEEP);
	REQUIRE(pmh_directory_double(t, DEEP) == PMH_OK && depth() == DEEP + 1);
	return t;
}

/*
 * A check reads the directory in pieces, and after one of them the directory is folded:
 * the next one may begin past its end.
 */
static void
test_check(const char *path, unsigned pieces)
{
	PmhTable   *t = make_deep(path);

	fold_at = "check_before_elements";
	passes = pieces - 1;
	folded = 0;
	fold_now = true;
	CHECK(fixture_check(t) == PMH_OK);
	CHECK(folded == 1 && depth() == DEEP);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	pmh_close(folder);
	pmh_close(t);
}

int
main(void)
{
	const char *path = fixture_path("stop_fold");

	TEST(test_writer(path));
	for (unsigned pieces = 1; pieces <= 4; pieces++)
		TEST(test_check(path, pieces));
	unlink(path);
	return unit_done("stop_fold");
}
