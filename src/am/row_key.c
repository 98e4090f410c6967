/*-------------------------------------------------------------------------
 *
 * row_key.c
 *	  The key of the row that a TID leads to, for checks of uniqueness.
 *
 * An entry has the hash of a key and not the key.  Whether two rows have equal
 * keys is seen in the rows, by the operator of the index's operator class.
 * Functions of users may run here: in expressions, as operators.  So no lock
 * may be held.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "keys.h"
#include "row_key.h"

/* Get ready to fetch rows of heap, for keys of index. */
void
pmhash_row_begin(PmhashRow *row, Relation heap, Relation index)
{
	MemoryContext old;

	row->heap = heap;
	row->index = index;
	row->context = AllocSetContextCreate(CurrentMemoryContext, "pmhash row",
										 ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(row->context);
	row->slot = table_slot_create(heap, NULL);
	row->fetch = table_index_fetch_begin(heap);
	row->info = NULL;
	row->estate = NULL;
	MemoryContextSwitchTo(old);
}

/*
 * Fetch the member of the HOT chain at a TID that the snapshot sees.  False if
 * it sees none; then *all_dead tells whether all are dead to every snapshot.
 */
bool
pmhash_row_fetch(PmhashRow *row, uint64 value, Snapshot snapshot, bool *all_dead)
{
	ItemPointerData tid;
	bool		call_again = false;

	pmhash_value_to_tid(value, &tid);
	*all_dead = false;
	return table_index_fetch_tuple(row->fetch, &tid, snapshot, row->slot,
								   &call_again, all_dead);
}

/*
 * The key of the row fetched last; good until the next one is fetched.  False if
 * a column is NULL: such a key equals none.
 */
bool
pmhash_row_key(PmhashRow *row, Datum *values, bool *isnull)
{
	MemoryContext old = MemoryContextSwitchTo(row->context);

	if (row->info == NULL)
	{
		row->info = BuildIndexInfo(row->index);
		row->estate = CreateExecutorState();
	}
	ResetPerTupleExprContext(row->estate);
	GetPerTupleExprContext(row->estate)->ecxt_scantuple = row->slot;
	MemoryContextSwitchTo(GetPerTupleMemoryContext(row->estate));
	FormIndexDatum(row->info, row->slot, row->estate, values, isnull);
	MemoryContextSwitchTo(old);
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(row->index); i++)
	{
		if (isnull[i])
			return false;
	}
	return true;
}

/* No more rows. */
void
pmhash_row_end(PmhashRow *row)
{
	if (row->estate != NULL)
		FreeExecutorState(row->estate);
	table_index_fetch_end(row->fetch);
	ExecDropSingleTupleTableSlot(row->slot);
	MemoryContextDelete(row->context);
}

/* Are two keys equal that have no NULLs? */
bool
pmhash_keys_equal(Relation index, const Datum *a, const Datum *b)
{
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		Oid			type = index->rd_opcintype[i];
		Oid			equal = get_opfamily_member(index->rd_opfamily[i], type, type,
												PMHASH_EQUAL_STRATEGY);

		if (!OidIsValid(equal))
			elog(ERROR, "missing operator %d(%u,%u) in opfamily %u",
				 PMHASH_EQUAL_STRATEGY, type, type, index->rd_opfamily[i]);
		if (!DatumGetBool(OidFunctionCall2Coll(get_opcode(equal),
											   index->rd_indcollation[i], a[i], b[i])))
			return false;
	}
	return true;
}
