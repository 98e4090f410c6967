/*-------------------------------------------------------------------------
 *
 * verify.h
 *	  What pmhash_check asks the heap.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_VERIFY_H
#define PMHASH_VERIFY_H

#include "storage/buf.h"
#include "utils/snapshot.h"

#include "am/keys.h"

/* What an entry has to do with the row that it names. */
typedef enum PmhashEntryCheck
{
	ENTRY_FITS,
	ENTRY_BEYOND_END,
	ENTRY_WITHOUT_ROW,
	ENTRY_HEAP_ONLY,
	ENTRY_OTHER_KEY
} PmhashEntryCheck;

typedef struct PmhashHeapCheck PmhashHeapCheck;

extern PmhashHeapCheck *pmhash_heap_check_begin(Relation heap, Relation index,
												PmhashKeys *keys,
												Snapshot snapshot);
extern Buffer pmhash_check_read_page(PmhashHeapCheck *check,
									 const PmhEntry *entry, size_t n);
extern PmhashEntryCheck pmhash_check_entry(PmhashHeapCheck *check,
										   const PmhEntry *entry);
extern void pmhash_heap_check_end(PmhashHeapCheck *check);

#endif							/* PMHASH_VERIFY_H */
