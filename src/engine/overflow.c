/*-------------------------------------------------------------------------
 *
 * overflow.c
 *	  The overflow table: where entries go that no larger segment would make
 *	  room for.
 *
 * Hashes that agree in the bits which choose segment and buckets (an enemy may
 * find such keys, or a type's hash function be a bad one) cannot be parted by
 * splits.  They have a table of their own in the second half of the directory,
 * where an entry stands under another hash: a permutation of the first one that
 * is keyed with a secret of the file.  So different hashes are as if drawn at
 * random there, whatever they have in common.  Everything below the directory is
 * the same in both tables.  See src/README, "Overflow".
 *
 * The permutation is three rounds of a product with a secret odd number, each
 * of which sends the low bits up, and a shift that brings the high ones down.
 * One that does not know the key and does not see what comes of it (nothing that
 * a caller gets is in the order of these hashes but for sweeps) can do no better
 * than chance.
 *
 *-------------------------------------------------------------------------
 */
#include "directory.h"
#include "element.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "overflow.h"
#include "place.h"
#include "table.h"

#define SHIFT_OUTER		32
#define SHIFT_INNER		29

/* The finisher of SplitMix64: from a key to as many numbers as are needed. */
static uint64_t
draw(const uint64_t key[2], uint64_t i)
{
	uint64_t	x = key[i & 1] + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* The inverse of an odd number modulo 2^64: each step doubles the right bits. */
static uint64_t
inverse(uint64_t odd)
{
	uint64_t	x = odd;		/* right in the lowest three */

	for (unsigned bits = 3; bits < 64; bits *= 2)
		x *= 2 - odd * x;
	return x;
}

void
pmh_permutation_make(PmhPermutation *p, const uint64_t key[2])
{
	for (unsigned i = 0; i < 2; i++)
		p->flip[i] = draw(key, i);
	for (unsigned i = 0; i < 3; i++)
	{
		p->multiplier[i] = draw(key, 2 + i) | 1;
		p->inverse[i] = inverse(p->multiplier[i]);
	}
}

uint64_t
pmh_permute(const PmhPermutation *p, uint64_t hash)
{
	uint64_t	x = (hash ^ p->flip[0]) * p->multiplier[0];

	x ^= x >> SHIFT_OUTER;
	x *= p->multiplier[1];
	x ^= x >> SHIFT_INNER;
	x = (x ^ p->flip[1]) * p->multiplier[2];
	return x ^ (x >> SHIFT_OUTER);
}

uint64_t
pmh_permute_back(const PmhPermutation *p, uint64_t hash)
{
	uint64_t	x = hash ^ (hash >> SHIFT_OUTER);

	x = (x * p->inverse[2]) ^ p->flip[1];
	x ^= (x >> SHIFT_INNER) ^ (x >> (2 * SHIFT_INNER));
	x *= p->inverse[1];
	x ^= x >> SHIFT_OUTER;
	return (x * p->inverse[0]) ^ p->flip[0];
}

PmhResult
pmh_side_exists(PmhTable *t, PmhSide side, bool *exists)
{
	PmhPlace	place;
	PmhResult	result;

	*exists = true;
	if (side == PMH_PRIMARY)
		return PMH_OK;
	while ((result = pmh_locate_in(t, side, 0, &place)) == PMH_NEED)
	{
		result = pmh_provide(t);
		if (result != PMH_OK)
			return result;
	}
	*exists = result != PMH_NOT_FOUND;
	return result == PMH_NOT_FOUND ? PMH_OK : result;
}

PmhResult
pmh_position_advance(PmhTable *t, PmhPosition *position, uint32_t depth)
{
	bool		exists;
	PmhResult	result;

	position->next = pmh_segment_end(position->next, depth);
	if (position->next != 0)
		return PMH_OK;
	position->through = true;
	if (position->side == PMH_OVERFLOW)
		return PMH_OK;
	result = pmh_side_exists(t, PMH_OVERFLOW, &exists);
	if (result == PMH_OK && exists)
	{
		position->side = PMH_OVERFLOW;
		position->through = false;
	}
	return result;
}
