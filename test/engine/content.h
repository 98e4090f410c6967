/*-------------------------------------------------------------------------
 *
 * content.h
 *	  What tests put into a table, take out, and look for: keys, each with its number as
 *	  its only value, and values of one hash.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CONTENT_H
#define PMH_CONTENT_H

#include "fixture.h"

/* The values from .. to - 1 of a hash. */
static inline void
put_values(PmhTable *t, uint64_t hash, uint64_t from, uint64_t to)
{
	for (uint64_t v = from; v < to; v++)
		REQUIRE(pmh_insert(t, hash, v, false) == PMH_OK);
}

/* Every step-th of them is taken out at once, as VACUUM does. */
static inline void
take_values(PmhTable *t, uint64_t hash, uint64_t from, uint64_t to, uint64_t step)
{
	PmhEntry   *entry = malloc((to - from + 1) * sizeof(*entry));
	size_t		n = 0;
	size_t		removed;

	REQUIRE(entry != NULL);
	for (uint64_t v = from; v < to; v += step)
		entry[n++] = (PmhEntry) {hash, v};
	REQUIRE(pmh_delete_group(t, entry, n, &removed) == PMH_OK && removed == n);
	free(entry);
}

static inline void
put_keys(PmhTable *t, uint64_t from, uint64_t to)
{
	for (uint64_t key = from; key < to; key++)
		REQUIRE(pmh_insert(t, fixture_hash(key), key, false) == PMH_OK);
}

/* The keys from .. to - 1 but those that 'keep' divides (0: none). */
static inline void
take_keys(PmhTable *t, uint64_t from, uint64_t to, uint64_t keep)
{
	PmhEntry   *entry = malloc((to - from + 1) * sizeof(*entry));
	size_t		n = 0;
	size_t		removed;

	REQUIRE(entry != NULL);
	for (uint64_t key = from; key < to; key++)
	{
		if (keep == 0 || key % keep != 0)
			entry[n++] = (PmhEntry) {fixture_hash(key), key};
	}
	REQUIRE(pmh_delete_group(t, entry, n, &removed) == PMH_OK && removed == n);
	free(entry);
}

/* Of the keys below n just those are there that 'keep' divides (0: none). */
static inline void
check_keys(PmhTable *t, uint64_t n, uint64_t keep)
{
	PmhValues	values = {0};

	for (uint64_t key = 0; key < n; key++)
	{
		bool		there = keep != 0 && key % keep == 0;

		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		CHECK(values.n == (there ? 1 : 0) && (!there || values.value[0] == key));
	}
	pmh_values_free(&values);
}

/* A hash has so many values. */
static inline void
check_number(PmhTable *t, uint64_t hash, size_t n)
{
	PmhValues	values = {0};

	CHECK(pmh_lookup(t, hash, &values) == PMH_OK && values.n == n);
	pmh_values_free(&values);
}

/* The segment of a hash is copied to other space, as what replaces segments does. */
static inline void
move_segment(PmhTable *t, uint64_t hash)
{
	PmhResult	result;

	do
	{
		PmhBuild   *build = &pmh_workspace[0];
		PmhPlace	place;

		REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
		pmh_build_begin(t, build, pmh_elem_size(place.elem));
		build->strategy = pmh_elem_strategy(place.elem);
		for (uint32_t i = 0; i < place.buckets; i++)
			memcpy(&build->bucket[i], pmh_bucket(t, &place, i), PMH_BUCKET_SIZE);
		result = pmh_segment_replace(t, &place, NULL, 1);
		pmh_segment_unlock(&place);
	} while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	REQUIRE(result == PMH_OK);
}

#endif							/* PMH_CONTENT_H */
