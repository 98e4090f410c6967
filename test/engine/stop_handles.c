/*-------------------------------------------------------------------------
 *
 * stop_handles.c
 *	  What handles share, at the moment when it matters: a file that is cut while
 *	  it is opened.
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
#include "pm.h"
#include "stop_point.h"
#include "table.h"
#include "unit.h"

static const char *path;
static PmhTable *others;
static const char *act_at;		/* NULL: nowhere */
static void (*act) (void);
static unsigned acted;

void
pmh_stop_point(const char *name)
{
	void		(*once) (void) = act;

	if (act_at == NULL || strcmp(act_at, name) != 0)
		return;
	act_at = NULL;
	once();
	acted++;
}

static PmhTable *
make_table(void)
{
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;
	PmhError	error;

	unlink(path);
	REQUIRE(pmh_create(path, NULL, NULL, &env, &t, &error) == PMH_OK);
	return t;
}

/* ---- the end of the file ---- */

#define TAIL		((off_t) 1024 * 1024)

static uint64_t
file_size(void)
{
	struct stat st;

	REQUIRE(stat(path, &st) == 0);
	return (uint64_t) st.st_size;
}

static void
open_others(void)
{
	others = fixture_open(path, 2);
}

/* Two processes open a file that has a tail; the one that comes second cuts it. */
static void
cut_while_opened(void)
{
	PmhTable   *t = make_table();
	uint64_t	length = file_size();

	pmh_close(t);
	REQUIRE(truncate(path, (off_t) length + TAIL) == 0);
	act_at = "open_before_recovery";
	act = open_others;
	acted = 0;
	t = fixture_open(path, 2);
	CHECK(acted == 1 && file_size() == length);
	CHECK(t->file.mapped == length && others->file.mapped == length);
	for (uint64_t i = 0; i < 20000; i++)
		REQUIRE(pmh_insert(i % 2 == 0 ? t : others, fixture_hash(i), i, false) == PMH_OK);
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	pmh_close(others);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("stop_handles");
	TEST(cut_while_opened());
	unlink(path);
	return unit_done("stop_handles");
}
