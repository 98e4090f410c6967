/*-------------------------------------------------------------------------
 *
 * live.h
 *	  The live words that are numbers of blocks, each with its checksum.
 *
 * The length of the file and the newest value region are what recovery and everyone
 * else begins with: were one of them wrong, blocks in use would be taken for free.  So
 * such a word has a checksum in its upper half, and is changed with it by one store.
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

/*
 * The word for a number; 'field' is the offset of the word in PmhLive, so that one does
 * not pass for the other.  No number: 0.
 */
static inline uint64_t
pmh_live_seal(uint64_t number, size_t field)
{
	uint64_t	sealed[2] = {number, field};

	if (number == 0)
		return 0;
	return number | (uint64_t) pmh_crc32c(sealed, sizeof(sealed)) << PMH_LIVE_CRC_SHIFT;
}

/* Is a word what pmh_live_seal has made? */
static inline bool
pmh_live_whole(uint64_t word, size_t field)
{
	return word == pmh_live_seal(pmh_live_number(word), field);
}

#define pmh_seal_blocks(number)	pmh_live_seal(number, offsetof(PmhLive, blocks))
#define pmh_seal_region(number)	pmh_live_seal(number, offsetof(PmhLive, value_region))

/* The length of the file in blocks. */
static inline uint64_t
pmh_blocks(const PmhTable *t)
{
	return pmh_live_number(pm_load_acquire(&pmh_live(t)->blocks));
}

/* The newest value region (block number), or 0. */
static inline uint64_t
pmh_newest_region(const PmhTable *t)
{
	return pmh_live_number(pm_load_acquire(&pmh_live(t)->value_region));
}

#endif							/* PMH_LIVE_H */
