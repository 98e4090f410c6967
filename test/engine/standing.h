/*-------------------------------------------------------------------------
 *
 * standing.h
 *	  Pairs that stay in a table while others come and go: (key, 2 * id), for
 *	  keys with one value, a few, many, and the first ones with very many.
 *
 * To be defined before: KEYS, LONG_KEYS (how many of them have very many
 * values) and LONG_VALUES (how many these have).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_STANDING_H
#define PMH_STANDING_H

#include "fixture.h"
#include "unit.h"

static inline uint64_t
values_of_key(uint64_t key)
{
	if (key < LONG_KEYS)
		return LONG_VALUES;
	if (key % 50 == 0)
		return 5 + key % 700;
	return key % 5 == 0 ? 3 : 1;
}

/* Fill the table; returns how many ids there are. */
static inline uint64_t
fill(PmhTable *t)
{
	uint64_t	id = 0;

	for (uint64_t key = 0; key < KEYS; key++)
	{
		for (uint64_t i = 0; i < values_of_key(key); i++)
			REQUIRE(pmh_insert(t, fixture_hash(key), 2 * id++, false) == PMH_OK);
	}
	return id;
}

#endif							/* PMH_STANDING_H */
