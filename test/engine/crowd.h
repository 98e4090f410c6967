/*-------------------------------------------------------------------------
 *
 * crowd.h
 *	  Keys that overflow, for engine tests: hashes that agree in all but eight
 *	  bits have the same buckets, whatever the table does.
 *
 * While the crowd is there its buckets are full, and what is added to a key that
 * has no list in the primary table goes to the overflow table.  When it has gone
 * there is room again.  So a key may be given long lists in both.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CROWD_H
#define PMH_CROWD_H

#include "element.h"
#include "error.h"
#include "fixture.h"
#include "layout.h"
#include "lookup.h"
#include "overflow.h"
#include "table.h"
#include "unit.h"

/* Keys 0 .. CROWD_FIRST - 1 are the test's, the others the crowd. */
#define CROWD_FIRST		150
#define CROWD_KEYS		100

_Static_assert(CROWD_KEYS > 4 * PMH_SLOTS && CROWD_FIRST + CROWD_KEYS <= 256,
			   "a crowd is more than four buckets hold, and 256 hashes at the most");

static inline uint64_t
crowd_hash(uint64_t where, uint64_t i)
{
	return (fixture_hash(where) & ~UINT64_C(0xff)) | i;
}

/* One of a crowd of any size: hashes with the same 40 bits. */
static inline uint64_t
crowd_of_many_hash(uint64_t where, uint64_t i)
{
	return (fixture_hash(where) & ~UINT64_C(0xffffff)) | (i * 11 & 0xffffff);
}

/* So many entries are in the overflow table. */
static inline uint64_t
crowd_overflowed(PmhTable *t)
{
	PmhStats	stats;

	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	return stats.entries_overflow;
}

static inline void
crowd_comes(PmhTable *t, uint64_t where, uint64_t value)
{
	for (uint64_t i = 0; i < CROWD_KEYS; i++)
		REQUIRE(pmh_insert(t, crowd_hash(where, CROWD_FIRST + i), value, false) == PMH_OK);
}

static inline void
crowd_goes(PmhTable *t, uint64_t where, uint64_t value)
{
	PmhEntry	entry[CROWD_KEYS];
	size_t		removed;

	for (uint64_t i = 0; i < CROWD_KEYS; i++)
		entry[i] = (PmhEntry) {crowd_hash(where, CROWD_FIRST + i), value};
	REQUIRE(pmh_delete_group(t, entry, CROWD_KEYS, &removed) == PMH_OK);
	CHECK(removed == CROWD_KEYS);
}

/* Has a key a list in this table? */
static inline bool
crowd_has_list(PmhTable *t, PmhSide side, uint64_t hash)
{
	PmhProbe	probe;

	REQUIRE(pmh_probe_in(t, side, pmh_side_hash(t, side, hash), &probe) == PMH_OK);
	return probe.list != 0;
}

#endif							/* PMH_CROWD_H */
