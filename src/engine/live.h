/*-------------------------------------------------------------------------
 *
 * live.h
 *	  The live word with the length of the file, which has a checksum.
 *
 * Recovery and everyone else begins with it: were it wrong, blocks in use would be taken
 * for free.  So it has a checksum in its upper half, and is changed with it by one store.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_LIVE_H
#define PMH_LIVE_H

#include <stdbool.h>

#include "crc.h"
#include "handle.h"
#include "layout.h"
#include "pm.h"

_Static_assert(PMH_MAX_BLOCKS_SHIFT < PMH_LIVE_CRC_SHIFT,
			   "the number of a block would reach into its checksum");

/* The number of blocks, or of a block, in a live word. */
static inline uint64_t
pmh_live_number(uint64_t word)
{
	return word & ((UINT64_C(1) << PMH_LIVE_CRC_SHIFT) - 1);
}

/* The word for a number; 0 for none. */
static inline uint64_t
pmh_seal_blocks(uint64_t number)
{
	if (number == 0)
		return 0;
	return number | (uint64_t) pmh_crc32c(&number, sizeof(number)) << PMH_LIVE_CRC_SHIFT;
}

/* Is a word what pmh_seal_blocks has made? */
static inline bool
pmh_live_whole(uint64_t word)
{
	return word == pmh_seal_blocks(pmh_live_number(word));
}

/* The length of the file in blocks. */
static inline uint64_t
pmh_blocks(const PmhTable *t)
{
	return pmh_live_number(pm_load_acquire(&pmh_live(t)->blocks));
}

#endif							/* PMH_LIVE_H */
