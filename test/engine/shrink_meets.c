/*-------------------------------------------------------------------------
 *
 * shrink_meets.c
 *	  What is under way in a table when a shrink comes by: sweeps, cursors, walks
 *	  along lists, removals, a writer.  All by one handle, step by step.
 *
 *-------------------------------------------------------------------------
 */
#include "buffer.h"
#include "directory.h"
#include "element.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "list_rewrite.h"
#include "list_write.h"
#include "place.h"
#include "segment.h"
#include "segment_resize.h"
#include "sweeps.h"
#include "table.h"
#include "table_alone.h"
#include "rewritten.h"
#include "unit.h"

/* A sweep goes on after segments have been merged past and before it. */
static void
test_sweep_and_merge(void)
{
	PmhTable   *t = create();
	uint8_t    *seen = calloc(UNIQUE_KEYS, 1);
	uint8_t    *dead = NULL;
	uint64_t	removed_all = 0;
	unsigned	steps = 0;
	PmhSweep	sweep;

	REQUIRE(seen != NULL);
	insert_unique(t, 0, UNIQUE_KEYS);
	sweep_out(t, 16);
	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	while (pmh_sweep_next(t, &sweep) == PMH_OK)
	{
		size_t		removed;

		/* In the middle of a step, where left buddies have been seen. */
		if (++steps == 7)
			CHECK(shrink_all(t, PMH_DEFAULT_FILL));
		dead = realloc(dead, sweep.n + 1);
		REQUIRE(dead != NULL);
		for (size_t i = 0; i < sweep.n; i++)
		{
			seen[sweep.entries[i].value]++;
			dead[i] = sweep.entries[i].value % 32 != 0;
		}
		REQUIRE(sweep_remove(t, &sweep, dead, &removed) == PMH_OK);
		removed_all += removed;
	}
	pmh_sweep_end(t, &sweep);
	CHECK(steps > 7);
	for (uint64_t key = 0; key < UNIQUE_KEYS; key++)
		CHECK(seen[key] == (key % 16 == 0));
	CHECK(removed_all == (UNIQUE_KEYS + 15) / 16 - (UNIQUE_KEYS + 31) / 32);
	check(t);
	check_unique(t, UNIQUE_KEYS, 32);
	free(seen);
	free(dead);
	pmh_close(t);
}

/*
 * A cursor stands in a buffer.  The list is rewritten into another one and back
 * again, while values in front are taken out: what the cursor has not read yet
 * is in front of the line where it stands.
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
	uint64_t	buffer = 0;
	uint64_t	other;
	PmhResult	result;

	REQUIRE(seen != NULL);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
		REQUIRE(pmh_insert(t, hash, i, false) == PMH_OK);
	pmh_cursor_open(t, &cursor, hash);
	do
	{
		REQUIRE(pmh_cursor_next(t, &cursor, 50) == PMH_OK);
		if (cursor.chunk != buffer)
			ngiven = 0;
		buffer = cursor.chunk;
		for (size_t i = 0; i < cursor.batch.n; i++)
		{
			seen[cursor.batch.value[i]]++;
			if (ngiven < 1000)
				given[ngiven++] = cursor.batch.value[i];
		}
	} while (cursor.line < 30 || pmh_buffer_next(t, buffer) == 0 ||
			 pmh_buffer_count(t, buffer) < pmh_class_capacity(pmh_pointer_class(buffer)));

	other = rewrite_buffer(t, hash, buffer);
	CHECK(other != buffer);
	for (size_t i = 0; i < ngiven; i += 3)
		REQUIRE(pmh_delete(t, hash, given[i]) == PMH_OK);
	REQUIRE(rewrite_buffer(t, hash, other) == buffer);

	while ((result = pmh_cursor_next(t, &cursor, 50)) == PMH_OK)
	{
		for (size_t i = 0; i < cursor.batch.n; i++)
			seen[cursor.batch.value[i]]++;
	}
	CHECK(result == PMH_DONE);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
		CHECK(seen[i] == 1);
	pmh_cursor_free(&cursor);
	check(t);
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
	PmhListSlot at;
	PmhPlace	place;
	PmhSweep	sweep;
	PmhValues	values = {0};
	uint8_t    *dead;
	uint64_t	other;
	size_t		removed;

	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_insert(t, hash, i, false) == PMH_OK);
	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	REQUIRE(pmh_sweep_next(t, &sweep) == PMH_OK);
	REQUIRE(sweep.n == n);
	REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
	REQUIRE(pmh_segment_find_list(t, &place, hash, &at));
	pmh_segment_unlock(&place);

	other = rewrite_buffer(t, hash, at.payload);
	for (uint64_t i = 0; i < 7; i++)
		REQUIRE(pmh_delete(t, hash, i) == PMH_OK);
	REQUIRE(rewrite_buffer(t, hash, other) == at.payload);

	dead = calloc(n, 1);
	REQUIRE(dead != NULL);
	for (size_t i = 0; i < n; i++)
		dead[i] = sweep.entries[i].value % 2 == 0;
	REQUIRE(sweep_remove(t, &sweep, dead, &removed) == PMH_OK);
	CHECK(removed == n / 2 - 4);
	pmh_sweep_end(t, &sweep);
	free(dead);
	REQUIRE(pmh_lookup(t, hash, &values) == PMH_OK);
	CHECK(values.n == n / 2 - 3);
	for (size_t i = 0; i < values.n; i++)
		CHECK(values.value[i] % 2 == 1);
	pmh_values_free(&values);
	check(t);
	pmh_close(t);
}

/* The first buffer of the list of a key. */
static uint64_t
list_head(PmhTable *t, uint64_t hash)
{
	PmhListSlot at;
	PmhPlace	place;

	REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
	REQUIRE(pmh_segment_find_list(t, &place, hash, &at));
	pmh_segment_unlock(&place);
	return at.payload;
}

/* A buffer further on than the next one, full and as large as 'payload', or 0. */
static uint64_t
twin_after(PmhTable *t, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint64_t	p = pmh_buffer_next(t, payload);

	if (p != 0)
		p = pmh_buffer_next(t, p);
	while (p != 0 && (pmh_pointer_class(p) != class ||
					  pmh_buffer_count(t, p) < pmh_class_capacity(class)))
		p = pmh_buffer_next(t, p);
	return p;
}

/*
 * A walk goes along a list, and has let go of the segment after a buffer.
 * This is rewritten into another one, and a later part of the list into its old
 * place: what lies in between has not been seen.
 */
static void
test_walk_and_rewrite(void)
{
	PmhTable   *t = create();
	uint64_t	hash = fixture_hash(1);
	PmhListWalk walk = {0};
	uint64_t	head;
	uint64_t	payload;
	uint64_t	twin;

	for (uint64_t i = 0; i < LONG_VALUES; i++)
		REQUIRE(pmh_insert(t, hash, i, false) == PMH_OK);
	head = list_head(t, hash);
	walk.before = pmh_buffer_next(t, head);
	while (walk.before != 0 && twin_after(t, walk.before) == 0)
		walk.before = pmh_buffer_next(t, walk.before);
	REQUIRE(walk.before != 0);
	pmh_list_pause(t, &walk);
	REQUIRE(pmh_list_resume(t, hash, head, &walk, &payload) == PMH_OK);
	CHECK(payload == pmh_buffer_next(t, walk.before));

	/* What others do to the buffer does not matter as long as it stays there. */
	pmh_buffer_bump(t, pmh_pointer_offset(walk.before));
	CHECK(pmh_list_resume(t, hash, head, &walk, &payload) == PMH_RETRY);
	REQUIRE(pmh_list_search(t, hash, &walk) == PMH_OK && walk.before != 0);
	REQUIRE(pmh_list_resume(t, hash, head, &walk, &payload) == PMH_OK);
	CHECK(payload == pmh_buffer_next(t, walk.before));

	pmh_list_pause(t, &walk);
	twin = twin_after(t, walk.before);
	CHECK(rewrite_buffer(t, hash, walk.before) != walk.before);
	REQUIRE(rewrite_buffer(t, hash, twin) == walk.before);
	CHECK(pmh_list_resume(t, hash, head, &walk, &payload) == PMH_RETRY);
	REQUIRE(pmh_list_search(t, hash, &walk) == PMH_OK);
	REQUIRE(pmh_list_resume(t, hash, head, &walk, &payload) == PMH_OK);
	CHECK(walk.before == 0 && payload == head);
	check(t);
	pmh_close(t);
}

/* The buffer of a list that a removal reads in its n-th step (the first: 1). */
static uint64_t
buffer_of_step(PmhTable *t, uint64_t head, unsigned n)
{
	uint32_t	lines = 0;
	uint64_t	p = head;

	/* The first step sees to the first lines while the segment is locked. */
	while (p != 0 && (lines += pmh_class_lines(pmh_pointer_class(p))) <= PMH_LOCKED_LINES)
		p = pmh_buffer_next(t, p);
	for (unsigned i = 2; p != 0 && i < n; i++)
		p = pmh_buffer_next(t, p);
	return p;
}

/*
 * The same under a removal in steps: it is about to read a buffer when this is
 * rewritten, and a later one into its place.  All that was handed in goes.
 */
static void
test_removal_and_rewrite(void)
{
	PmhTable   *t = create();
	uint64_t	hash = fixture_hash(1);
	PmhEntry   *entry = malloc(LONG_VALUES * sizeof(*entry));
	PmhRemoval	removal;
	uint64_t	head;
	uint64_t	payload;
	uint64_t	twin;
	size_t		n = 0;
	unsigned	steps = 1;
	PmhResult	result;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
	{
		REQUIRE(pmh_insert(t, hash, i, false) == PMH_OK);
		if (i % 3 == 0)
			entry[n++] = (PmhEntry) {hash, i};
	}
	head = list_head(t, hash);
	REQUIRE(pmh_removal_begin(t, entry, n, true, &removal) == PMH_OK);
	REQUIRE(pmh_removal_step(t, &removal, 1) == PMH_OK);
	payload = buffer_of_step(t, head, steps + 1);
	while (payload != 0 && twin_after(t, payload) == 0)
	{
		REQUIRE(pmh_removal_step(t, &removal, 1) == PMH_OK);
		payload = buffer_of_step(t, head, ++steps + 1);
	}
	REQUIRE(payload != 0 && removal.removed > 0 && removal.left > 0);
	twin = twin_after(t, payload);
	CHECK(rewrite_buffer(t, hash, payload) != payload);
	REQUIRE(rewrite_buffer(t, hash, twin) == payload);
	while ((result = pmh_removal_step(t, &removal, 1)) == PMH_OK)
		;
	CHECK(result == PMH_DONE && removal.removed == n && removal.left == 0);
	pmh_removal_end(&removal);
	free(entry);
	check(t);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("shrink_meets");
	for (int round = 0; round < 2; round++)
	{
		force_pmem = round == 1;
		TEST(test_sweep_and_merge());
		TEST(test_cursor_and_rewrite());
		TEST(test_sweep_and_rewrite());
		TEST(test_walk_and_rewrite());
		TEST(test_removal_and_rewrite());
	}
	unlink(path);
	return unit_done("shrink_meets");
}
