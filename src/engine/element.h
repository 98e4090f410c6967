/*-------------------------------------------------------------------------
 *
 * element.h
 *	  Directory word and directory elements, taken apart.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_ELEMENT_H
#define PMH_ELEMENT_H

#include <stdbool.h>

#include "layout.h"

static inline uint64_t
pmh_dirword_offset(uint64_t dirword)
{
	return (dirword & ((UINT64_C(1) << PMH_DIRWORD_DEPTH_SHIFT) - 1)) * 64;
}

static inline uint32_t
pmh_dirword_depth(uint64_t dirword)
{
	return (uint32_t) (dirword >> PMH_DIRWORD_DEPTH_SHIFT) & 31;
}

/* Elements and bytes of a directory. */
static inline uint64_t
pmh_directory_elements(uint32_t depth)
{
	return UINT64_C(1) << depth;
}

static inline uint64_t
pmh_directory_size(uint32_t depth)
{
	return pmh_directory_elements(depth) * sizeof(uint64_t);
}

static inline uint64_t
pmh_elem_main_block(uint64_t elem)
{
	return elem & ((UINT64_C(1) << PMH_ELEM_MAIN_BITS) - 1);
}

/* In units; 0 in what is no element. */
static inline uint32_t
pmh_elem_size(uint64_t elem)
{
	return (uint32_t) (elem >> PMH_ELEM_SIZE_SHIFT) & ((1 << PMH_ELEM_SIZE_BITS) - 1);
}

static inline bool
pmh_elem_has_main(uint64_t elem)
{
	return pmh_elem_size(elem) >= PMH_UNITS_PER_BLOCK;
}

/* Units besides the main part: the extension, or all of a small segment. */
static inline uint32_t
pmh_elem_units(uint64_t elem)
{
	return pmh_elem_size(elem) % PMH_UNITS_PER_BLOCK;
}

/* The first of these units. */
static inline uint64_t
pmh_elem_ext_unit(uint64_t elem)
{
	return ((elem >> PMH_ELEM_EXT_SHIFT) & ((UINT64_C(1) << PMH_ELEM_EXT_BITS) - 1)) -
		(pmh_elem_has_main(elem) ? 0 : PMH_SMALL_SHIFT);
}

static inline uint32_t
pmh_elem_depth(uint64_t elem)
{
	return (uint32_t) (elem >> PMH_ELEM_DEPTH_SHIFT) & 31;
}

static inline PmhStrategy
pmh_elem_strategy(uint64_t elem)
{
	return (PmhStrategy) ((elem >> PMH_ELEM_STRATEGY_SHIFT) &
						  ((1 << PMH_ELEM_STRATEGY_BITS) - 1));
}

/*
 * What a strategy means; a new one is to be decided here.  An element has room for one
 * that is none: such a file is damaged.
 */
static inline bool
pmh_strategy_exists(PmhStrategy strategy)
{
	switch (strategy)
	{
		case PMH_SINGLE:
		case PMH_TWO_CHOICE:
		case PMH_STASH:
			return true;
	}
	return false;
}

/* May an entry be in its alternative bucket? */
static inline bool
pmh_strategy_has_alternative(PmhStrategy strategy)
{
	switch (strategy)
	{
		case PMH_SINGLE:
			return false;
		case PMH_TWO_CHOICE:
		case PMH_STASH:
			return true;
	}
	return false;
}

/* May it be in the stash? */
static inline bool
pmh_strategy_has_stash(PmhStrategy strategy)
{
	switch (strategy)
	{
		case PMH_SINGLE:
		case PMH_TWO_CHOICE:
			return false;
		case PMH_STASH:
			return true;
	}
	return false;
}

/* The parity of the even bits of a word, and that of the odd ones: two bits. */
static inline uint64_t
pmh_parities(uint64_t word)
{
	word ^= word >> 32;
	word ^= word >> 16;
	word ^= word >> 8;
	word ^= word >> 4;
	return (word ^ word >> 2) & 3;
}

/* An element with its parity right, whatever that was.  That of 0 is 0. */
static inline uint64_t
pmh_elem_seal(uint64_t elem)
{
	elem &= (UINT64_C(1) << PMH_ELEM_PARITY_SHIFT) - 1;
	return elem | pmh_parities(elem) << PMH_ELEM_PARITY_SHIFT;
}

/* Is its parity right? */
static inline bool
pmh_elem_whole(uint64_t elem)
{
	return pmh_parities(elem) == 0;
}

/* A segment of 'size' units has a main part (else main_block is 0) if they are 8. */
static inline uint64_t
pmh_make_elem(uint64_t main_block, uint64_t ext_unit, uint32_t size,
			  uint32_t depth, PmhStrategy strategy)
{
	if (size < PMH_UNITS_PER_BLOCK)
		ext_unit += PMH_SMALL_SHIFT;
	return pmh_elem_seal(main_block | ext_unit << PMH_ELEM_EXT_SHIFT |
						 (uint64_t) size << PMH_ELEM_SIZE_SHIFT |
						 (uint64_t) depth << PMH_ELEM_DEPTH_SHIFT |
						 (uint64_t) strategy << PMH_ELEM_STRATEGY_SHIFT);
}

/* The same element with another strategy. */
static inline uint64_t
pmh_elem_with_strategy(uint64_t elem, PmhStrategy strategy)
{
	uint64_t	mask = ((UINT64_C(1) << PMH_ELEM_STRATEGY_BITS) - 1)
		<< PMH_ELEM_STRATEGY_SHIFT;

	return pmh_elem_seal((elem & ~mask) |
						 (uint64_t) strategy << PMH_ELEM_STRATEGY_SHIFT);
}

/* Do two elements say the same, but for the strategy (and the parity)? */
static inline bool
pmh_elem_same_segment(uint64_t a, uint64_t b)
{
	return ((a ^ b) & ((UINT64_C(1) << PMH_ELEM_STRATEGY_SHIFT) - 1)) == 0;
}

#endif							/* PMH_ELEMENT_H */
