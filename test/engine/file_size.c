/*-------------------------------------------------------------------------
 *
 * file_size.c
 *	  Files with few entries: a partition often has no more.
 *
 * What is loaded takes no more space than what is inserted one by one, and neither much
 * more than it has to.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"
#include "layout.h"
#include "segment.h"
#include "table.h"
#include "unit.h"

static const char *path;

/* n entries of so many keys, in the order of their hashes. */
static PmhEntry *
make_entries(uint64_t n, uint64_t keys)
{
	PmhEntry   *entry = malloc((n + 1) * sizeof(PmhEntry));

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < n; i++)
		entry[i] = (PmhEntry) {fixture_hash(i % keys), i};
	qsort(entry, n, sizeof(PmhEntry), fixture_compare_entries);
	return entry;
}

/* Is all of it there and sound?  Closes the table and gives the file's length. */
static uint64_t
finish(PmhTable *t, uint64_t n, uint64_t keys)
{
	PmhValues	values = {0};
	uint64_t	found = 0;
	uint64_t	bytes;

	for (uint64_t k = 0; k < keys && k < n; k++)
	{
		REQUIRE(pmh_lookup(t, fixture_hash(k), &values) == PMH_OK);
		found += values.n;
	}
	CHECK(found == n);
	pmh_values_free(&values);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	pmh_close(t);
	bytes = fixture_file_size(path);

	/* What recovery finds is the same. */
	t = fixture_open(path, 2);
	CHECK(pmh_check(t, true, fixture_report, NULL, NULL) == PMH_OK);
	pmh_close(t);
	CHECK(fixture_file_size(path) == bytes);
	return bytes;
}

static uint64_t
grown(uint64_t n, uint64_t keys)
{
	PmhTable   *t = fixture_create(path);

	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_insert(t, fixture_hash(i % keys), i, false) == PMH_OK);
	return finish(t, n, keys);
}

static uint64_t
built(uint64_t n, uint64_t keys)
{
	PmhEntry   *entry = make_entries(n, keys);
	PmhTable   *t = fixture_create(path);
	PmhBulk    *bulk;
	uint32_t	depth;

	REQUIRE(pmh_bulk_begin(t, n, PMH_DEFAULT_FILL, &depth, &bulk) == PMH_OK);
	for (uint64_t p = 0, i = 0; p < UINT64_C(1) << depth; p++)
	{
		uint64_t	first = i;

		while (i < n && pmh_hash_prefix(entry[i].hash, depth) == p)
			i++;
		REQUIRE(pmh_bulk_partition(bulk, depth, p, entry + first, i - first) == PMH_OK);
	}
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK);
	free(entry);
	return finish(t, n, keys);
}

static void
few(uint64_t n, uint64_t keys, uint64_t most)
{
	uint64_t	by_inserts = grown(n, keys);
	uint64_t	by_load = built(n, keys);

	printf("# %lu entries of %lu keys: %lu bytes, loaded %lu\n", (unsigned long) n,
		   (unsigned long) keys, (unsigned long) by_inserts, (unsigned long) by_load);
	CHECK(by_load <= by_inserts);
	CHECK(by_inserts <= most);
}

int
main(void)
{
	path = fixture_path("file_size");
	TEST(few(0, 1, 16384));
	TEST(few(1, 1, 16384));
	TEST(few(100, 100, 16384));
	TEST(few(400, 400, 16384));
	TEST(few(600, 600, 16384));
	TEST(few(353, 88, 32768));
	TEST(few(400, 4, 32768));
	TEST(few(1000, 1000, 40960));
	TEST(few(3000, 1, 65536));
	TEST(few(3000, 3000, 81920));
	TEST(few(10000, 500, 163840));
	unlink(path);
	return unit_done("file_size");
}
