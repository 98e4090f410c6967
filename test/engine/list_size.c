/*-------------------------------------------------------------------------
 *
 * list_size.c
 *	  A list whose values come at one end and go at the other, or come and go at the same
 *	  one, does not become larger: its buffers are as small as those of a short list, and
 *	  the slots of its index are used again.  pmh_estimate counts what is there.
 *
 *-------------------------------------------------------------------------
 */
#include <unistd.h>

#include "content.h"
#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "pm.h"
#include "rewritten.h"
#include "segment.h"
#include "table.h"
#include "unit.h"

#define LIVE		UINT64_C(1000)
#define MOST_LIVE	(4 * LIVE)
#define PASSED		FIXTURE_SCALE(UINT64_C(50000))
#define GROUP		50
#define TURNS		(PASSED / LIVE / 2)
#define MOST_INDEX_BYTES	256

static const char *path;
static const uint64_t hash = UINT64_C(0x123456789abcdef1);
static uint64_t first;			/* the values first .. next - 1 are there */
static uint64_t next;

static PmhTable *
make_table(void)
{
	PmhTable   *t = fixture_create(path);

	first = next = 0;
	return t;
}

static void
append(PmhTable *t, uint64_t n)
{
	put_values(t, hash, next, next + n);
	next += n;
}

/* The values from 'from' on go: one by one, or in one walk. */
static void
take_out(PmhTable *t, uint64_t from, uint64_t n, bool walk)
{
	for (uint64_t i = 0; i < n; i++)
	{
		if (!walk)
			REQUIRE(pmh_delete(t, hash, from + i) == PMH_OK);
		else if (i % GROUP == 0)
			take_values(t, hash, from + i, from + i + GROUP, 1);
	}
}

/* No buffer is larger than it should be, and the index is not much longer than it has to be. */
static void
check_size(PmhTable *t)
{
	uint64_t	entries;
	uint64_t	below = UINT64_MAX;
	uint64_t	n = 0;
	PmhProbe	probe;

	while (below > 0)
	{
		PmhListPath path = slot_below(t, hash, below, false);

		if (path.payload[0] == 0)
			break;
		CHECK(pmh_pointer_class(path.payload[0]) <= PMH_CHUNK_CLASS);
		below = path.number;
		n++;
	}
	REQUIRE(pmh_probe(t, hash, &probe) == PMH_OK && probe.list != 0);
	CHECK(list_bytes(t, probe.list) <= n * pmh_class_bytes(PMH_CHUNK_CLASS) + MOST_INDEX_BYTES);
	CHECK(pmh_estimate(t, &entries) == PMH_OK);
	CHECK(entries >= (next - first) / 3 && entries <= 3 * MOST_LIVE);
}

static void
end(PmhTable *t)
{
	check_size(t);
	CLOSE_SOUND(t);
}

/* What comes first goes first. */
static void
test_queue(bool walk)
{
	PmhTable   *t = make_table();

	append(t, LIVE);
	while (next < PASSED)
	{
		append(t, GROUP);
		take_out(t, first, GROUP, walk);
		first += GROUP;
	}
	end(t);
}

/*
 * In turns: values come, the oldest go, and the newest go too, so that the first
 * buffer is one that was the first when older ones were there.
 */
static void
test_both_ends(bool walk)
{
	PmhTable   *t = make_table();

	append(t, LIVE);
	for (uint64_t i = 0; i < TURNS; i++)
	{
		append(t, 3 * LIVE);
		take_out(t, first, LIVE, walk);
		first += LIVE;
		check_size(t);
		take_out(t, next - 2 * LIVE, 2 * LIVE, walk);
		next -= 2 * LIVE;
		check_size(t);
	}
	end(t);
}

int
main(void)
{
	path = fixture_path("list_size");
	TEST(test_queue(false));
	TEST(test_queue(true));
	TEST(test_both_ends(false));
	TEST(test_both_ends(true));
	unlink(path);
	return unit_done("list_size");
}
