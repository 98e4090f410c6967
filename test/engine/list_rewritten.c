/*-------------------------------------------------------------------------
 *
 * list_rewritten.c
 *	  What is under way in a list when a removal rewrites it: sweeps, cursors, removals.
 *	  All by one handle, step by step.  (Segments that are merged: stop_between.)
 *
 *-------------------------------------------------------------------------
 */
#include "bucket.h"
#include "content.h"
#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "rewritten.h"
#include "segment.h"
#include "space.h"
#include "sweeps.h"
#include "table.h"
#include "table_alone.h"
#include "unit.h"

/*
 * A cursor stands in a buffer.  That is rewritten into another one and back again,
 * while values in front are taken out: what the cursor has not read yet is in front of
 * the line where it stands.
 */
static void
test_cursor_and_rewrite(void)
{
	PmhTable   *t = create();
	uint64_t	hash = fixture_hash(1);
	uint8_t    *seen = calloc(LONG_VALUES, 1);
	uint64_t	given[1000];	/* of the buffer where the cursor stands */
	size_t		ngiven = 0;
	PmhCursor	cursor = {0};
	uint64_t	below = 0;
	uint64_t	buffer;
	uint64_t	other;
	PmhResult	result;

	REQUIRE(seen != NULL);
	put_values(t, hash, 0, LONG_VALUES);
	pmh_cursor_open(t, &cursor, hash);
	do
	{
		REQUIRE(pmh_cursor_next(t, &cursor, 50) == PMH_OK);
		if (cursor.at.below != below)
			ngiven = 0;
		below = cursor.at.below;
		for (size_t i = 0; i < cursor.batch.n; i++)
		{
			seen[cursor.batch.value[i]]++;
			if (ngiven < 1000)
				given[ngiven++] = cursor.batch.value[i];
		}
		buffer = cursor.at.met[0];
	} while (cursor.at.line < 30 || below < 2 ||
			 pmh_buffer_count(t, buffer) < pmh_class_capacity(pmh_pointer_class(buffer)));

	other = rewrite_slot(t, hash, below);
	CHECK(other != buffer);
	for (size_t i = 0; i < ngiven; i += 3)
		REQUIRE(pmh_delete(t, hash, given[i]) == PMH_OK);
	REQUIRE(rewrite_slot(t, hash, below) == buffer);

	while ((result = pmh_cursor_next(t, &cursor, 50)) == PMH_OK)
	{
		for (size_t i = 0; i < cursor.batch.n; i++)
			seen[cursor.batch.value[i]]++;
	}
	CHECK(result == PMH_DONE);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
		CHECK(seen[i] == 1);
	pmh_cursor_free(&cursor);
	CHECK_SOUND(t);
	free(seen);
	pmh_close(t);
}

/* The same under a step of a sweep: what it judges dead goes nevertheless. */
static void
test_sweep_and_rewrite(void)
{
	PmhTable   *t = create();
	uint64_t	hash = fixture_hash(1);
	uint64_t	n = 500;
	PmhListPath at;
	PmhPlace	place;
	PmhSweep	sweep;
	PmhValues	values = {0};
	uint8_t    *dead;
	size_t		removed;

	put_values(t, hash, 0, n);
	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	REQUIRE(pmh_sweep_next(t, &sweep) == PMH_OK);
	REQUIRE(sweep.n == n);
	REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
	REQUIRE(pmh_segment_find_list(t, &place, hash, &at));
	pmh_segment_unlock(&place);

	CHECK(rewrite_slot(t, hash, 1) != at.head);
	take_values(t, hash, 0, 7, 1);
	REQUIRE(rewrite_slot(t, hash, 1) == at.head);

	dead = calloc(n, 1);
	REQUIRE(dead != NULL);
	for (size_t i = 0; i < n; i++)
		dead[i] = sweep.entries[i].value % 2 == 0;
	REQUIRE(sweep_remove(t, &sweep, dead, &removed) == PMH_OK);
	CHECK(removed == n / 2 - 4);
	pmh_sweep_end(&sweep);
	free(dead);
	REQUIRE(pmh_lookup(t, hash, &values) == PMH_OK);
	CHECK(values.n == n / 2 - 3);
	for (size_t i = 0; i < values.n; i++)
		CHECK(values.value[i] % 2 == 1);
	pmh_values_free(&values);
	CLOSE_SOUND(t);
}

/* The slot of a buffer further on as large as the one below 'below', and full, or 0. */
static uint64_t
twin_below(PmhTable *t, uint64_t hash, uint64_t below)
{
	PmhListPath path = slot_below(t, hash, below, false);
	uint32_t	class = pmh_pointer_class(path.payload[0]);

	while (path.number > 0)
	{
		path = slot_below(t, hash, path.number, false);
		if (pmh_pointer_class(path.payload[0]) == class)
			return path.number;
	}
	return 0;
}

/*
 * A removal in steps is about to read a buffer when that is rewritten, and a later one into
 * its place.  All that was handed in goes.
 */
static void
test_removal_and_rewrite(void)
{
	PmhTable   *t = create();
	uint64_t	hash = fixture_hash(1);
	PmhEntry   *entry = malloc(LONG_VALUES * sizeof(*entry));
	PmhRemoval	removal;
	uint64_t	below = UINT64_MAX;
	uint64_t	payload;
	size_t		n = 0;
	PmhResult	result;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
	{
		REQUIRE(pmh_insert(t, hash, i, false) == PMH_OK);
		if (i % 3 == 0)
			entry[n++] = (PmhEntry) {hash, i};
	}
	REQUIRE(pmh_removal_begin(t, entry, n, true, &removal) == PMH_OK);
	do
	{
		REQUIRE(pmh_removal_step(t, &removal, 1) == PMH_OK);
		below = slot_below(t, hash, below, false).number;
	} while (twin_below(t, hash, below) == 0);
	payload = buffer_below(t, hash, below);
	REQUIRE(payload != 0 && removal.removed > 0 && removal.removed < n);
	CHECK(rewrite_slot(t, hash, below) != payload);
	REQUIRE(rewrite_slot(t, hash, twin_below(t, hash, below) + 1) == payload);
	while ((result = pmh_removal_step(t, &removal, 1)) == PMH_OK)
		;
	CHECK(result == PMH_DONE && removal.removed == n);
	pmh_removal_end(&removal);
	free(entry);
	CLOSE_SOUND(t);
}

int
main(void)
{
	path = fixture_path("list_rewritten");
	for (int round = 0; round < 2; round++)
	{
		force_pmem = round == 1;
		TEST(test_cursor_and_rewrite());
		TEST(test_sweep_and_rewrite());
		TEST(test_removal_and_rewrite());
	}
	unlink(path);
	return unit_done("list_rewritten");
}
