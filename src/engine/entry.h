/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  Insert and delete one entry (entry.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_ENTRY_H
#define PMH_ENTRY_H

#include "error.h"
#include "table.h"

/* For qsort: pairs by hash, then by value. */
static inline int
pmh_compare_entries(const void *a, const void *b)
{
	const PmhEntry *x = a;
	const PmhEntry *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return (x->value > y->value) - (x->value < y->value);
}

/* As pmh_insert, but for pmh_conclude.  No lock may be held. */
extern PmhResult pmh_insert_one(PmhTable *t, uint64_t hash, uint64_t value,
								bool fence_first);

#endif							/* PMH_ENTRY_H */
