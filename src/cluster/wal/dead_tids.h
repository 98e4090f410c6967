/*-------------------------------------------------------------------------
 *
 * dead_tids.h
 *	  The TIDs of dead rows that VACUUM has found, as it sweeps with them and as they are
 *	  in WAL (wal_record.h, DEAD).
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DEAD_TIDS_H
#define PMHASH_DEAD_TIDS_H

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "storage/block.h"

#include "cluster/base/tid_value.h"

typedef struct PmhashDeadTids
{
	BlockNumber first;			/* blocks from this one on, ... */
	uint32		nblocks;		/* ... so many, may have dead rows */
	uint32	   *at;				/* of each: where its piece is in pieces; 0: it has none */
	const uint8 *pieces;

	/* of a set that is being made */
	StringInfoData made;		/* its pieces */
	BlockNumber last;			/* that has one */
	List	   *records;		/* where each of the records begins that it makes */
	uint64		ndead;
} PmhashDeadTids;

/* Is it in the set? */
static inline bool
pmhash_is_dead(const PmhashDeadTids *set, uint64 value)
{
	uint32		block = pmhash_value_to_block(value) - set->first;
	OffsetNumber offset = pmhash_value_to_offset(value);
	const uint8 *piece;

	if (block >= set->nblocks || set->at[block] == 0)
		return false;
	piece = set->pieces + set->at[block];
	return offset / 8 < piece[0] && (piece[1 + offset / 8] & (1 << (offset % 8))) != 0;
}

extern void pmhash_dead_tids_add(PmhashDeadTids *set, BlockNumber block, OffsetNumber offset);
extern bool pmhash_remove_dead(PmhTable *table, const uint8 *pieces, uint32 size,
							   void (*pause) (void), char *reason);

#endif							/* PMHASH_DEAD_TIDS_H */
