/*-------------------------------------------------------------------------
 *
 * table_alone.h
 *	  A table of one handle, for tests of what makes it smaller: unique keys, or
 *	  lists; what is to be there of them; recovery, sweeps, shrinks.
 *
 * To be set by the test: path; force_pmem if it likes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_TABLE_ALONE_H
#define PMH_TABLE_ALONE_H

#include "content.h"
#include "sweeps.h"

#define UNIQUE_KEYS		((uint64_t) FIXTURE_SCALE(200000))
#define LIST_KEYS		((uint64_t) FIXTURE_SCALE(2000))
#define LIST_VALUES		300
#define LONG_KEYS		3
#define LONG_VALUES		((uint64_t) FIXTURE_SCALE(60000))

static const char *path;
static uint64_t instance = 1;
static bool force_pmem;

static inline PmhTable *
create(void)
{
	PmhEnv		env = fixture_env_on(force_pmem, instance);

	return fixture_create_in(path, &env);
}

/* Open under another instance: recovery. */
static inline PmhTable *
reopen(PmhTable *t)
{
	PmhEnv		env = fixture_env_on(force_pmem, instance++);

	return fixture_recover(path, t, &env);
}

static inline uint64_t
file_bytes(PmhTable *t)
{
	PmhStats	stats;

	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	return stats.file_bytes;
}

/* Shrink to the end; returns false if it does not pay. */
static inline bool
shrink_all(PmhTable *t, int fill_percent)
{
	PmhShrink	shrink;
	PmhResult	result = pmh_shrink_begin(t, fill_percent, &shrink);

	if (result == PMH_DONE)
		return false;
	REQUIRE(result == PMH_OK);
	while ((result = pmh_shrink_step(t, &shrink)) == PMH_OK)
		;
	CHECK(result == PMH_DONE);
	CHECK(shrink.bytes_after == file_bytes(t));
	/* However many lists there are: some walks along the file are what it costs. */
	CHECK(shrink.bytes_seen <= 20 * shrink.bytes_before);
	return true;
}

/* Take every pair out whose value is not 0 modulo 'keep' (0: all). */
static inline void
sweep_out(PmhTable *t, uint64_t keep)
{
	Sweeper		s;
	const PmhEntry *pair;

	sweeper_begin(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		if (keep == 0 || pair->value % keep != 0)
			sweeper_take_out(&s);
	}
	CHECK(sweeper_end(&s) == PMH_OK);
}

/* Load the keys below n. */
static inline void
load_unique(PmhTable *t, uint64_t n, int fill_percent)
{
	PmhEntry   *entries = malloc(n * sizeof(PmhEntry));

	REQUIRE(entries != NULL);
	for (uint64_t key = 0; key < n; key++)
		entries[key] = (PmhEntry) {fixture_hash(key), key};
	fixture_load(t, entries, n, n, fill_percent);
	free(entries);
}

/* ---- lists ---- */

static inline uint64_t
values_of(uint64_t key)
{
	return key < LONG_KEYS ? LONG_VALUES : LIST_VALUES;
}

static inline void
insert_lists(PmhTable *t)
{
	for (uint64_t key = 0; key < LIST_KEYS; key++)
		put_values(t, fixture_hash(key), 0, values_of(key));
}

static inline void
check_lists(PmhTable *t, uint64_t keep)
{
	PmhValues	values = {0};

	for (uint64_t key = 0; key < LIST_KEYS; key++)
	{
		uint64_t	n = keep == 0 ? 0 : (values_of(key) + keep - 1) / keep;

		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		CHECK(values.n == n);
		for (uint64_t i = 0; i < n && i < values.n; i++)
			CHECK(values.value[i] == i * keep);
	}
	pmh_values_free(&values);
}

#endif							/* PMH_TABLE_ALONE_H */
