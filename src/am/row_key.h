/*-------------------------------------------------------------------------
 *
 * row_key.h
 *	  The key of the row that a TID leads to, for checks of uniqueness.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_ROW_KEY_H
#define PMHASH_ROW_KEY_H

#include "executor/tuptable.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* Fetches rows of a table one by one. */
typedef struct PmhashRow
{
	Relation	heap;
	Relation	index;
	MemoryContext context;		/* all memory, gone with pmhash_row_end */
	struct IndexFetchTableData *fetch;
	TupleTableSlot *slot;
	struct IndexInfo *info;		/* NULL until a key is wanted */
	struct EState *estate;
} PmhashRow;

extern void pmhash_row_begin(PmhashRow *row, Relation heap, Relation index);
extern bool pmhash_row_fetch(PmhashRow *row, uint64 value, Snapshot snapshot,
							 bool *all_dead);
extern bool pmhash_row_key(PmhashRow *row, const SnapshotData *snapshot, Datum *values,
						   bool *isnull);
extern void pmhash_row_end(PmhashRow *row);
extern bool pmhash_keys_equal(Relation index, const Datum *a, const Datum *b);

#endif							/* PMHASH_ROW_KEY_H */
