/*-------------------------------------------------------------------------
 *
 * stop_bounded.c
 *	  No call goes on for long by itself: it ends, or sees now and then whether the
 *	  process wants to do something else.
 *
 * The engine is compiled with PMH_STOP_POINTS here, and readings of value buffers
 * are counted.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "crowd.h"
#include "cursor.h"
#include "directory.h"
#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list_read.h"
#include "list_write.h"
#include "overflow.h"
#include "stop_point.h"
#include "table.h"
#include "unit.h"

#define BUFFERS			100		/* at least, of the long list */
#define LIST_VALUES		(BUFFERS * UINT64_C(2600))
#define GIVEN			(LIST_VALUES / 10 * 9)
#define MOST_READINGS	33		/* of a call that finds nothing new */
#define BATCH			64

static const char *path;
static uint64_t readings;		/* of a buffer */

void
pmh_stop_point(const char *name)
{
	readings += strcmp(name, "list_before_reading") == 0;
}

/* One key with a long list. */
static PmhTable *
make_list(void)
{
	PmhTable   *t = fixture_create(path);
	PmhEntry   *entry = malloc(LIST_VALUES * sizeof(*entry));
	uint32_t	depth;
	PmhBulk    *bulk;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < LIST_VALUES; i++)
		entry[i] = (PmhEntry) {fixture_hash(0), i};
	REQUIRE(pmh_bulk_begin(t, LIST_VALUES, 90, &depth, &bulk) == PMH_OK);
	REQUIRE(pmh_bulk_partition(bulk, 0, 0, entry, LIST_VALUES) == PMH_OK);
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK);
	free(entry);
	return t;
}

/* ---- cursors ---- */

static uint8_t given[LIST_VALUES];

/* Note what a batch has. */
static void
note_batch(const PmhCursor *cursor)
{
	for (size_t i = 0; i < cursor->batch.n; i++)
	{
		REQUIRE(cursor->batch.value[i] < LIST_VALUES);
		given[cursor->batch.value[i]]++;
	}
}

/* All that is in the buffer where a cursor stands goes; they count as given. */
static void
empty_buffer(PmhTable *t, const PmhCursor *cursor)
{
	static uint64_t value[PMH_STEP_MAX];
	static PmhEntry entry[PMH_STEP_MAX];
	PmhListPosition pos = pmh_list_at(t, cursor->chunk, cursor->chunk_version);
	size_t		removed;
	uint32_t	n;

	REQUIRE(pmh_list_step(t, fixture_hash(0), &pos, PMH_STEP_MAX, value, NULL, &n) == PMH_OK);
	for (uint32_t i = 0; i < n; i++)
	{
		entry[i] = (PmhEntry) {fixture_hash(0), value[i]};
		given[value[i]] = 1;
	}
	REQUIRE(pmh_delete_group(t, entry, n, &removed) == PMH_OK && removed == n && n > 1000);
}

static size_t
leave_out_most(const void *argument, uint64_t *value, size_t n)
{
	size_t		left = 0;

	(void) argument;
	for (size_t i = 0; i < n; i++)
	{
		if (value[i] % LIST_VALUES == LIST_VALUES / 2)
			value[left++] = value[i];
	}
	return left;
}

/*
 * A cursor has given most of a list when it loses its place.  It comes by all that
 * again, but not in one call.
 */
static void
place_is_lost(void)
{
	PmhTable   *t = make_list();
	PmhCursor	cursor = {0};
	size_t		n = 0;
	uint64_t	empty = 0;
	uint64_t	most = 0;
	uint64_t	wrong = 0;
	PmhResult	result;

	memset(given, 0, sizeof(given));
	pmh_cursor_open(t, &cursor, fixture_hash(0));
	for (; n < GIVEN; n += cursor.batch.n)
	{
		REQUIRE(pmh_cursor_next(t, &cursor, 1000) == PMH_OK);
		note_batch(&cursor);
	}
	empty_buffer(t, &cursor);
	do
	{
		readings = 0;
		result = pmh_cursor_next(t, &cursor, BATCH);
		if (readings > most)
			most = readings;
		empty += result == PMH_OK && cursor.batch.n == 0;
		if (result == PMH_OK)
			note_batch(&cursor);
	} while (result == PMH_OK);
	CHECK(result == PMH_DONE && most <= MOST_READINGS && empty >= BUFFERS / 2 / MOST_READINGS);
	for (uint64_t v = 0; v < LIST_VALUES; v++)
		wrong += given[v] != 1;
	CHECK(wrong == 0);
	pmh_cursor_free(&cursor);
	pmh_close(t);
}

/* The caller does not want to see most of what there is. */
static void
most_is_left_out(void)
{
	PmhTable   *t = make_list();
	PmhCursor	cursor = {0};
	size_t		n = 0;
	uint64_t	most = 0;
	PmhResult	result;

	pmh_cursor_open(t, &cursor, fixture_hash(0));
	cursor.leave_out = leave_out_most;
	do
	{
		readings = 0;
		result = pmh_cursor_next(t, &cursor, BATCH);
		if (readings > most)
			most = readings;
		n += result == PMH_OK ? cursor.batch.n : 0;
	} while (result == PMH_OK);
	CHECK(result == PMH_DONE && n == 1 && most <= MOST_READINGS + 1);
	pmh_cursor_free(&cursor);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("stop_bounded");
	TEST(place_is_lost());
	TEST(most_is_left_out());
	unlink(path);
	return unit_done("stop_bounded");
}
