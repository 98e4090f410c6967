/*-------------------------------------------------------------------------
 *
 * build.c
 *	  Filling a segment in private memory.
 *
 * Entries go home as long as there is room there; what is left over goes to
 * alternative buckets, and what is left then to the stash.  So a segment
 * starts with the simplest strategy that holds it, and with the fewest
 * entries away from home.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "build.h"

PmhBuild *
pmh_build_alloc(const PmhTable *t)
{
	PmhBuild   *build = calloc(1, sizeof(PmhBuild));

	if (build == NULL)
		return NULL;
	build->bucket = aligned_alloc(PMH_LINE, pmh_max_segment_size(t));
	build->fill = malloc(2 * (size_t) t->segment_buckets);
	if (build->bucket == NULL || build->fill == NULL)
	{
		pmh_build_free(build);
		return NULL;
	}
	return build;
}

void
pmh_build_free(PmhBuild *build)
{
	if (build == NULL)
		return;
	free(build->bucket);
	free(build->fill);
	free(build);
}

void
pmh_build_begin(const PmhTable *t, PmhBuild *build, uint32_t units)
{
	size_t		buckets = t->segment_buckets + units * t->unit_buckets;

	build->in_main = t->segment_buckets - PMH_STASH_BUCKETS;
	build->units = units;
	build->hashing = build->in_main + units * t->unit_buckets;
	build->entries = 0;
	build->strategy = PMH_SINGLE;

	/* Where flushes count, inserts to come should find line 0 free. */
	build->first_slot = t->file.persist ? PMH_LINE0_SLOTS : 0;
	memset(build->bucket, 0, buckets * PMH_BUCKET_SIZE);
	memset(build->fill, 0, buckets);
}

/* Put an entry into the stash; false if that is full. */
static bool
put_in_stash(PmhBuild *build, PmhBucket *home, const PmhItem *item)
{
	for (uint32_t i = 0; i < PMH_STASH_BUCKETS; i++)
	{
		uint32_t	bucket = build->hashing + i;

		if (build->fill[bucket] < PMH_SLOTS)
		{
			pmh_build_put(build, bucket, item->hash, item->payload);
			*(uint32_t *) home->bytes |= PMH_STATE_STASHED;
			build->strategy = PMH_STASH;
			return true;
		}
	}
	return false;
}

bool
pmh_build_overflow(PmhBuild *build, const PmhItem *item, size_t n)
{
	for (size_t i = 0; i < n; i++)
	{
		uint64_t	hash = item[i].hash;
		uint32_t	home = pmh_home_bucket(hash, build->hashing);
		uint32_t	alt = pmh_alt_bucket(hash, build->hashing, home);
		PmhBucket  *home_bucket = pmh_build_bucket(build, home);

		if (build->fill[alt] < PMH_SLOTS)
		{
			pmh_build_put(build, alt, hash, item[i].payload);
			*(uint32_t *) home_bucket->bytes |= pmh_filter_bit(hash);
			if (build->strategy == PMH_SINGLE)
				build->strategy = PMH_TWO_CHOICE;
		}
		else if (!put_in_stash(build, home_bucket, &item[i]))
			return false;
	}
	return true;
}

void
pmh_build_store(PmhTable *t, const PmhBuild *build, uint64_t main_offset,
				uint64_t ext_offset)
{
	pm_copy(&t->file, pmh_at(t, main_offset), build->bucket, pmh_block_size(t));
	if (build->units > 0)
		pm_copy(&t->file, pmh_at(t, ext_offset),
				&build->bucket[build->in_main + PMH_STASH_BUCKETS],
				build->units * pmh_unit_size(t));
}
