/*-------------------------------------------------------------------------
 *
 * tid_value.h
 *	  TIDs as values of the engine: 32 bits of block, 15 of offset, heap order.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_CLUSTER_TID_VALUE_H
#define PMHASH_CLUSTER_TID_VALUE_H

#include "storage/itemptr.h"
#include "storage/off.h"

#include "engine/table.h"

#define PMHASH_OFFSET_BITS		15

StaticAssertDecl(MaxOffsetNumber < 1 << PMHASH_OFFSET_BITS,
				 "an offset fits in its bits");
StaticAssertDecl(32 + PMHASH_OFFSET_BITS <= PMH_VALUE_BITS,
				 "a TID fits in a value");

/*
 * Can this TID be stored?  Those of heap can.  Other table access methods may use all 16
 * bits of an offset.
 */
static inline bool
pmhash_tid_fits(ItemPointer tid)
{
	return (uint16) (ItemPointerGetOffsetNumberNoCheck(tid) - 1) <
		(1 << PMHASH_OFFSET_BITS) - 1;
}

/* The caller knows that it fits. */
static inline uint64
pmhash_tid_to_value(ItemPointer tid)
{
	return ((uint64) ItemPointerGetBlockNumberNoCheck(tid) << PMHASH_OFFSET_BITS) |
		(uint64) ItemPointerGetOffsetNumberNoCheck(tid);
}

static inline BlockNumber
pmhash_value_to_block(uint64 value)
{
	return (BlockNumber) (value >> PMHASH_OFFSET_BITS);
}

static inline OffsetNumber
pmhash_value_to_offset(uint64 value)
{
	return (OffsetNumber) (value & ((1 << PMHASH_OFFSET_BITS) - 1));
}

static inline void
pmhash_value_to_tid(uint64 value, ItemPointer tid)
{
	ItemPointerSet(tid, pmhash_value_to_block(value),
				   pmhash_value_to_offset(value));
}

#endif							/* PMHASH_CLUSTER_TID_VALUE_H */
