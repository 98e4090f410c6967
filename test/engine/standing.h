/*-------------------------------------------------------------------------
 *
 * standing.h
 *	  Pairs that stay in a table while others come and go: (key, 2 * id), for
 *	  keys with one value, a few, many, and the first ones with very many; and
 *	  the pairs of workers, which have odd values.
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

/* A worker's i-th value; workers are numbered from 0 to 15. */
static inline uint64_t
own_value(uint64_t i, int number)
{
	return 2 * (i * 16 + (uint64_t) number) + 1;
}

/* Take a pair out, if it is one, and put another in: a key that stays, or not. */
static inline void
replace_own(PmhTable *t, PmhEntry *own, uint64_t value, uint64_t *seed)
{
	if (own->value != 0)
		CHECK(pmh_delete(t, own->hash, own->value) == PMH_OK);
	switch (fixture_random(seed) % 4)
	{
		case 0:
			own->hash = fixture_hash(fixture_random(seed) % LONG_KEYS);
			break;
		case 1:
			own->hash = fixture_hash(fixture_random(seed) % KEYS);
			break;
		default:
			own->hash = fixture_hash(fixture_random(seed) | UINT64_C(1) << 63);
			break;
	}
	own->value = value;
	REQUIRE(pmh_insert(t, own->hash, own->value, false) == PMH_OK);
}

static inline void
take_out_own(PmhTable *t, const PmhEntry *own, size_t n)
{
	for (size_t i = 0; i < n; i++)
	{
		if (own[i].value != 0)
			CHECK(pmh_delete(t, own[i].hash, own[i].value) == PMH_OK);
	}
}

#endif							/* PMH_STANDING_H */
