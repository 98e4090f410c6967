/*-------------------------------------------------------------------------
 *
 * scan_table.c
 *	  What scans and checks of uniqueness see in the table: keys of rows, and walks
 *	  through all of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heapam.h"
#include "access/skey.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/predicate.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "am/scan.h"
#include "cluster/base/relations.h"
#include "cluster/base/tools.h"

/*
 * The key of the row that a TID leads to, for checks of uniqueness.
 *
 * An entry has the hash of a key and not the key.  Whether two rows have equal
 * keys is seen in the rows, by the operator of the index's operator class.
 * Functions of users may run here: in expressions, as operators.  So no lock
 * may be held.
 *
 * The row may be one that no snapshot keeps, as its inserter is in progress.  Then its
 * values in TOAST may go while they are read, which is no error.
 */

/* Get ready to fetch rows of heap, for keys of index. */
void
pmhash_row_begin(PmhashRow *row, Relation heap, Relation index)
{
	MemoryContext old;

	Assert(CheckRelationLockedByMe(heap, AccessShareLock, true));
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
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
	Assert(row->fetch != NULL);
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

typedef struct Computing
{
	PmhashRow  *row;
	Datum	   *values;
	bool	   *isnull;
} Computing;

/* Compute a key, and bring its values from TOAST. */
static void
compute_and_detoast(void *arg)
{
	Computing  *computing = arg;
	Relation	index = computing->row->index;
	MemoryContext old;

	compute_key(computing->row, computing->values, computing->isnull);
	old = MemoryContextSwitchTo(GetPerTupleMemoryContext(computing->row->estate));
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		struct varlena *value = (struct varlena *) DatumGetPointer(computing->values[i]);

		if (!computing->isnull[i] && get_typlen(index->rd_opcintype[i]) == -1)
			computing->values[i] = PointerGetDatum(detoast_external_attr(value));
	}
	MemoryContextSwitchTo(old);
}

/* What TOAST says of a value that is not there, or not all of it. */
static bool
is_data_missing(int sqlstate)
{
	return sqlstate == ERRCODE_DATA_CORRUPTED;
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
	SnapshotData dirty;
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
	InitDirtySnapshot(dirty);
	if (table_tuple_satisfies_snapshot(row->heap, row->slot, &dirty))
		ReThrowError(error);
	FreeErrorData(error);
	return false;
}

/*
 * The key of the row fetched last by a snapshot; good until the next one is fetched.
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
	bool		has_external = row->slot->tts_ops != &TTSOpsBufferHeapTuple ||
		HeapTupleHasExternal(((BufferHeapTupleTableSlot *) row->slot)->base.tuple);

	Assert(!TTS_EMPTY(row->slot));
	if (!TransactionIdIsValid(snapshot->xmin) || !has_external)
		compute_key(row, values, isnull);
	else if (!compute_key_if_there(row, values, isnull))
		memset(isnull, true, n * sizeof(bool));
	return memchr(isnull, true, n) == NULL;
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

/*
 * Scans by which a subscriber finds the row to change (PostgreSQL 18), and those by
 * which logical decoding reads a table.
 *
 * A worker of logical replication looks rows up in the index that is the table's
 * replica identity, or by all columns in any index (REPLICA IDENTITY FULL):
 * execReplication.c, RelationFindReplTupleByIndex.  There are things that it
 * expects of an index and that ours does not do by itself:
 *
 *	- Values that are NULL are looked for too.  Such rows are in no entry if it is
 * the first column, so the scan walks through the table.
 *	- With REPLICA IDENTITY FULL it takes the first index that would do, be it invalid,
 * or not finished or not filled by CREATE INDEX CONCURRENTLY (relation.c,
 * FindUsableIndexForReplicaIdentityFull).  The scan walks through the table.
 *	- It waits for the transaction that has inserted the row, so it has to find rows
 * that are not committed.  Their entries may wait in another session's queue only
 * if the table was in no subscription when that session's statement began
 * (insert.c).  As long as any do, the scan walks through the table.
 *	- It does not heed xs_recheck if the index is the replica identity.  A row with
 * another key of the same hash would be changed.
 *	- It visits the row with SnapshotDirty after we have handed out the TID, which
 * may belong to another row by then.
 *	- From PostgreSQL 19 on (retain_dead_tuples) it looks for a row that is not there once
 * more, by SnapshotAny: has it been deleted?
 *
 * So in such a worker the row of each TID is looked at before it is handed out, and
 * its page stays pinned until the next one is looked at (heapam_handler.c,
 * heapam_index_fetch_tuple).  Beside our pin no page is pruned, so its line pointers
 * stay what they are: VACUUM gives away only those that pruning has made dead.  What
 * the worker finds at the TID is the row that has been looked at, or nothing, if that
 * one has died meanwhile.  From then on the worker's own snapshot keeps a row where it
 * is, for longer than the change takes (worker.c, begin_replication_step).
 *
 * No transaction is waited for.  The worker does that itself, for those that decide about
 * the row that it looks for; without a replica identity it first compares all columns.  If
 * it waited for the inserter of any row that has the key, or that a walk meets, it would
 * stand for as long as strangers please, or deadlock: with a session that waits for its
 * rows, or with a worker that applies a streamed transaction (applyparallelworker.c).
 *
 * Decoding: an output plugin may read a table (user_catalog_table) as of the place in
 * WAL that it has come to.  That may be long past; the slot keeps the rows, but a
 * rebuild, or a build on a standby, leaves them out, and waits for nothing that reads
 * so.  Hence the scan always walks through the table, and needs neither file nor pool.
 * What is to be rechecked is refused there (genam.c, systable_getnext), so the row's key
 * is compared here.
 */

/* Does an output plugin of logical decoding read a table as of a place in WAL? */
bool
pmhash_scan_is_of_decoding(IndexScanDesc scan)
{
	return scan->xs_snapshot->snapshot_type == SNAPSHOT_HISTORIC_MVCC;
}

/* Is what this scan hands out taken as it is, though the index is not exact? */
bool
pmhash_scan_is_taken_as_is(IndexScanDesc scan)
{
	if (PG_VERSION_NUM >= 180000 && (scan->xs_snapshot->snapshot_type == SNAPSHOT_DIRTY ||
									 scan->xs_snapshot->snapshot_type == SNAPSHOT_ANY))
		return IsLogicalWorker();
	return pmhash_scan_is_of_decoding(scan);
}

/*
 * Are there rows that the worker wants and the index has not?  Or decoding.  (A partial
 * index is scanned by workers for checks of exclusion constraints and unique indexes
 * only, to which those rows matter that are in it.)
 */
bool
pmhash_scan_wants_table(IndexScanDesc scan)
{
	Assert(pmhash_scan_is_taken_as_is(scan));
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		if (scan->keyData[i].sk_flags & SK_SEARCHNULL)
			return true;
	}
	return pmhash_scan_is_of_decoding(scan) ||
		(!scan->indexRelation->rd_index->indisvalid &&
		 RelationGetIndexPredicate(scan->indexRelation) == NIL);
}

/*
 * Is there a row for the current element, as the worker sees it, or decoding, and does it
 * fit all keys of the scan?  Its page is pinned then.  Of a HOT chain several members
 * may be visible, with several keys if the index is not built yet.
 */
bool
pmhash_scan_row_fits(IndexScanDesc scan, PmhashScan *so)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	SnapshotData dirty;
	SnapshotType type = scan->xs_snapshot->snapshot_type;
	Snapshot	snapshot = type == SNAPSHOT_DIRTY ? &dirty : scan->xs_snapshot;
	ItemPointerData tid;
	bool		call_again = false;
	bool		all_dead;
	bool		fits;

	Assert(so->is_taken_as_is);
	CHECK_FOR_INTERRUPTS();
	if (so->row == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(so->context);

		so->row = palloc(sizeof(PmhashRow));
		pmhash_row_begin(so->row, scan->heapRelation, scan->indexRelation);
		MemoryContextSwitchTo(old);
	}
	InitDirtySnapshot(dirty);
	/* if it is not set: what is deleted may be of a transaction that has failed */
	dirty.xmin = type == SNAPSHOT_ANY ? FrozenTransactionId : InvalidTransactionId;
	pmhash_value_to_tid(pmhash_scan_value(so), &tid);
	do
	{
		if (!table_index_fetch_tuple(so->row->fetch, &tid, snapshot, so->row->slot,
									 &call_again, &all_dead))
			return false;
		(void) pmhash_row_key(so->row, &dirty, values, isnull);
		fits = true;
		for (int i = 0; fits && i < scan->numberOfKeys; i++)
		{
			ScanKey		key = &scan->keyData[i];
			int			column = key->sk_attno - 1;

			if (key->sk_flags & SK_SEARCHNULL)
				fits = isnull[column];
			else
				fits = !isnull[column] && (key->sk_flags & SK_ISNULL) == 0 &&
					DatumGetBool(FunctionCall2Coll(&key->sk_func, key->sk_collation,
												   values[column], key->sk_argument));
		}
	} while (!fits && call_again);
	PMH_STOP_POINT("scan_row_fits");
	return fits;
}

/*
 * Scans of an index that has become invalid since their plan was made.
 *
 * The planner does not see an invalid index, and cached plans are made anew
 * when one becomes invalid.  What is left is a statement that was planned
 * before and is executed after that.  It gets the root of every HOT chain of
 * the table, to be rechecked: slow, but exact, and no statement fails.
 * Without it each such statement would fail, to be tried again, in the moment in which
 * pmhash.check, or a process that cannot read the file, condemns the index, though
 * its user has done nothing wrong and the table has all rows.
 *
 * Why it is exact: the snapshot was taken before the walk begins, so what it
 * sees is in blocks that exist by then, and each such row is in one HOT chain,
 * whose root is an ordinary tuple that is not heap-only, or a redirecting line
 * pointer, as long as any snapshot sees the row.  A TID that is given to another
 * row between our visit and the executor's leads to a row that the snapshot
 * does not see.  The executor then evaluates the conditions of the index scan
 * for each row (xs_recheck).
 *
 * That is not possible for
 *	- partial indexes: the planner has left out the conditions that the
 * predicate implies;
 *	- index-only scans: there is no index tuple to be rechecked;
 *	- snapshots other than MVCC: checks of exclusion constraints;
 *	- tables that are no heaps;
 *	- nested loops that would walk through a large table again and again.
 * They get the error for invalid indexes, whose SQLSTATE says to try again.
 *
 * Logical decoding always gets such a walk, and a subscriber if the index is invalid or
 * not built yet, if entries of others wait, or if it looks for NULLs, of which an index
 * has no entries.  They have the keys of each row compared before the
 * TID is handed out.  Neither the snapshot nor the size of the table matters then: this
 * is what they would do without the index, by the same snapshot
 * (RelationFindReplTupleSeq, systable_beginscan).
 */

/* Pages that the walks of one scan read, before it is refused another one. */
#define MAX_PAGES	65536

struct PmhashTableWalk
{
	Relation	heap;
	BufferAccessStrategy access;
	BlockNumber next;
	BlockNumber end;
	uint64		pages;			/* read by all walks of this scan */
};

/*
 * Begin to walk through the table of a scan, whose index is invalid, or has
 * no entries for what is looked for.
 *
 * walk is that of an earlier walk of the same scan, or NULL; context is the
 * memory of the scan; is_taken_as_is: see above.  ERROR if such a scan needs
 * the index.  Serializable transactions lock the whole table, as after a sequential
 * scan.
 */
PmhashTableWalk *
pmhash_table_walk(IndexScanDesc scan, PmhashTableWalk *walk, bool invalid,
				  bool is_taken_as_is, MemoryContext context)
{
	bool		partial;

	Assert(invalid || is_taken_as_is);
	if (walk == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		walk = palloc0(sizeof(PmhashTableWalk));
		walk->heap = table_open(scan->indexRelation->rd_index->indrelid, NoLock);
		walk->access = GetAccessStrategy(BAS_BULKREAD);
		MemoryContextSwitchTo(old);
	}
	partial = RelationGetIndexPredicate(scan->indexRelation) != NIL;
	if (invalid &&
		(scan->xs_want_itup || partial || !pmhash_is_heap_table(walk->heap) ||
		 (!is_taken_as_is &&
		  (!IsMVCCSnapshot(scan->xs_snapshot) || walk->pages > MAX_PAGES))))
	{
		PMH_STOP_POINT("walk_before_error");
		pmhash_invalid_error(scan->indexRelation);
	}
	/* a walk for decoding knows of the keys of the scan only, and has none to hand out */
	if (pmhash_scan_is_of_decoding(scan) && (partial || scan->xs_want_itup))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg(partial ? "partial index \"%s\" cannot be used by logical decoding" :
						"index-only scan of index \"%s\" cannot be used by logical decoding",
						RelationGetRelationName(scan->indexRelation))));
	if (!invalid && !pmhash_is_heap_table(walk->heap))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" has not all rows of its table, which is no heap",
						RelationGetRelationName(scan->indexRelation))));
	Assert(pmhash_is_heap_table(walk->heap));
	PredicateLockRelation(walk->heap, scan->xs_snapshot);
	walk->next = 0;
	walk->end = RelationGetNumberOfBlocks(walk->heap);
	return walk;
}

/*
 * The roots of HOT chains of the next page as values into values[MaxHeapTuplesPerPage],
 * ascending.  Returns how many, or -1 at the end of the table.
 */
int
pmhash_table_walk_next(PmhashTableWalk *walk, uint64 *values)
{
	Buffer		buffer;
	Page		page;
	ItemPointerData tid;
	int			n = 0;

	Assert(CheckRelationLockedByMe(walk->heap, AccessShareLock, true));
	if (walk->next >= walk->end)
		return -1;
	buffer = ReadBufferExtended(walk->heap, MAIN_FORKNUM, walk->next, RBM_NORMAL,
								walk->access);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= PageGetMaxOffsetNumber(page);
		 offset++)
	{
		if (!pmhash_is_root(page, offset))
			continue;
		ItemPointerSet(&tid, walk->next, offset);
		values[n++] = pmhash_tid_to_value(&tid);
	}
	UnlockReleaseBuffer(buffer);
	Assert(n <= MaxHeapTuplesPerPage);
	walk->next++;
	walk->pages++;
	return n;
}

/* The scan is over. */
void
pmhash_table_walk_end(PmhashTableWalk *walk)
{
	FreeAccessStrategy(walk->access);
	table_close(walk->heap, NoLock);
}
