/*-------------------------------------------------------------------------
 *
 * overflow.h
 *	  The overflow table, and walks over both tables (overflow.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_OVERFLOW_H
#define PMH_OVERFLOW_H

#include "element.h"
#include "error.h"
#include "handle.h"
#include "table.h"

/* Is there anything to walk through in this table? */
extern PmhResult pmh_side_exists(PmhTable *t, PmhSide side, bool *exists);

/* Make the permutation of a file from the key in its header. */
extern void pmh_permutation_make(PmhPermutation *p, const uint64_t key[2]);

/*
 * From the hash of a key to that under which a table has it, and back.  (That
 * of the overflow table is a keyed permutation of the first one.)
 */
extern uint64_t pmh_permute(const PmhPermutation *p, uint64_t hash);
extern uint64_t pmh_permute_back(const PmhPermutation *p, uint64_t hash);

static inline uint64_t
pmh_side_hash(const PmhTable *t, PmhSide side, uint64_t hash)
{
	return side == PMH_PRIMARY ? hash : pmh_permute(&t->permutation, hash);
}

static inline uint64_t
pmh_key_hash(const PmhTable *t, PmhSide side, uint64_t side_hash)
{
	return side == PMH_PRIMARY ? side_hash :
		pmh_permute_back(&t->permutation, side_hash);
}

/*
 * A position in a walk over all segments: the primary table in the order of
 * hashes, then the overflow table in that of its own.  Zero-initialise.
 */
typedef struct PmhPosition
{
	PmhSide		side;
	uint64_t	next;			/* where the next segment begins */
	bool		through;		/* there is none */
} PmhPosition;

/*
 * Go on past the segment, of this depth, that has position->next.  PMH_OK or
 * a real error.
 */
extern PmhResult pmh_position_advance(PmhTable *t, PmhPosition *position,
									  uint32_t depth);

#endif							/* PMH_OVERFLOW_H */
