/*-------------------------------------------------------------------------
 *
 * sort_entries.h
 *	  Sorting entries, with a look at interrupts (sort_entries.c).
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_SORT_ENTRIES_H
#define PMHASH_SORT_ENTRIES_H

#include "engine/table.h"

extern int	pmhash_compare_entries(const void *a, const void *b);
extern void pmhash_sort_entries(PmhEntry *entry, size_t n);
extern void pmhash_sort_numbers(uint64 *number, size_t n);

#endif							/* PMHASH_SORT_ENTRIES_H */
