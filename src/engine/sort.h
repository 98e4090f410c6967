/*-------------------------------------------------------------------------
 *
 * sort.h
 *	  Sorting numbers and entries (sort.c).  Plain C11.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_SORT_H
#define PMH_SORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "table.h"

/*
 * Sort n numbers, where they stand and without memory of its own.  No errors, no locks.
 * Numbers that are in order already cost one look at each.  stop, unless it is NULL, is
 * asked before many of them and after each 32,768 that were looked at or moved; if it says so
 * the result is false, and they are in another order, all of them.  It must not longjmp.
 */
extern bool pmh_sort_numbers(uint64_t *number, size_t n, bool (*stop) (void));

/* Sort entries by hash and value, as pmh_sort_numbers. */
extern bool pmh_sort_entries(PmhEntry *entry, size_t n, bool (*stop) (void));

/*
 * Deal entries out by 'bits' bits of the hash, from bit 'shift' on, where they stand;
 * start[d] .. start[d + 1] are those of digit d.  False: stopped.
 */
#define PMH_DEAL_BITS	8
#define PMH_DEAL_DIGITS	(1 << PMH_DEAL_BITS)
extern bool pmh_deal_entries(PmhEntry *entry, size_t n, uint32_t shift, uint32_t bits,
							 size_t *start, bool (*stop) (void));

#endif							/* PMH_SORT_H */
