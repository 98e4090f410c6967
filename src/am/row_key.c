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
 * The row may be one that no snapshot keeps, as its inserter is in progress.  Then its
 * values in TOAST may go while they are read, which is no error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "cluster/try.h"
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
	row->fetch = pmhash_index_fetch_begin(heap);
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

/* Compute the key of the row fetched last, in memory that lasts until the next one. */
static void
compute_key(PmhashRow *row, Datum *values, bool *isnull)
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
}

/* ---- values that may be going away ---- */

/* May the row fetched last have values in TOAST? */
static bool
has_external(const PmhashRow *row)
{
	return row->slot->tts_ops != &TTSOpsBufferHeapTuple ||
		HeapTupleHasExternal(((BufferHeapTupleTableSlot *) row->slot)->base.tuple);
}

/* Bring the values of a key from TOAST. */
static void
detoast_key(PmhashRow *row, Datum *values, const bool *isnull)
{
	MemoryContext old = MemoryContextSwitchTo(GetPerTupleMemoryContext(row->estate));

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(row->index); i++)
	{
		struct varlena *value = (struct varlena *) DatumGetPointer(values[i]);

		if (!isnull[i] && get_typlen(row->index->rd_opcintype[i]) == -1)
			values[i] = PointerGetDatum(detoast_external_attr(value));
	}
	MemoryContextSwitchTo(old);
}

typedef struct Computing
{
	PmhashRow  *row;
	Datum	   *values;
	bool	   *isnull;
} Computing;

static void
compute_and_detoast(void *arg)
{
	Computing  *computing = arg;

	compute_key(computing->row, computing->values, computing->isnull);
	detoast_key(computing->row, computing->values, computing->isnull);
}

/* What TOAST says of a value that is not there, or not all of it. */
static bool
is_data_missing(int sqlstate)
{
	return sqlstate == ERRCODE_DATA_CORRUPTED;
}

/* Is the row fetched last still one that SnapshotDirty sees? */
static bool
is_still_there(PmhashRow *row)
{
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	return table_tuple_satisfies_snapshot(row->heap, row->slot, &dirty);
}

/*
 * Compute the key of a row whose inserter was in progress when it was fetched.  False
 * if the row is no more: its values in TOAST may have gone then, which nothing keeps that
 * we could hold.
 *
 * A row of ON CONFLICT that core kills takes them with it at once (heapam.c,
 * heap_abort_speculative), and those of a transaction that has aborted are invisible from
 * then on (heapam_visibility.c, HeapTupleSatisfiesToast).  In both cases the row is dead
 * first.  So an error that says that data is missing stands only if the row is
 * still there.  (A row whose inserter has committed keeps them: our snapshot takes
 * the transaction that deletes it for running.)
 */
static bool
compute_key_if_there(PmhashRow *row, Datum *values, bool *isnull)
{
	Computing	computing = {row, values, isnull};
	ErrorData  *error;

	PMH_STOP_POINT("row_key_in_progress");
	if (row->estate != NULL)
		FreeExecutorState(row->estate);
	row->estate = NULL;
	row->info = NULL;
	error = pmhash_try(compute_and_detoast, &computing, is_data_missing);
	if (error == NULL)
		return true;

	/* What the executor held has gone with the subtransaction. */
	row->estate = NULL;
	row->info = NULL;
	if (is_still_there(row))
		ReThrowError(error);
	FreeErrorData(error);
	return false;
}

/* ---- keys ---- */

/*
 * pmhash_row_key
 *		The key of the row fetched last by a snapshot; good until the next one is fetched.
 *
 * False if a column is NULL: such a key equals none.  If the snapshot is SnapshotDirty
 * and the row is no more, as its inserter has not got to its end, all columns are NULL.
 * ERROR as index expressions raise.
 */
bool
pmhash_row_key(PmhashRow *row, const SnapshotData *snapshot, Datum *values,
			   bool *isnull)
{
	int			n = IndexRelationGetNumberOfKeyAttributes(row->index);

	if (!TransactionIdIsValid(snapshot->xmin) || !has_external(row))
		compute_key(row, values, isnull);
	else if (!compute_key_if_there(row, values, isnull))
		memset(isnull, true, n * sizeof(bool));
	for (int i = 0; i < n; i++)
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
