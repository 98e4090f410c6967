/*-------------------------------------------------------------------------
 *
 * scan_replica.c
 *	  Scans by which a subscriber finds the row to change (PostgreSQL 18).
 *
 * A worker of logical replication looks rows up in the index that is the table's
 * replica identity, or by all columns in any index (REPLICA IDENTITY FULL):
 * execReplication.c, RelationFindReplTupleByIndex.  There are three things that it
 * expects of an index and that ours does not do by itself:
 *
 *	- Values that are NULL are looked for too.  Such rows are in no entry if it is
 *	  the first column, so the scan walks through the table.
 *	- It does not heed xs_recheck if the index is the replica identity.  A row with
 *	  another key of the same hash would be changed.
 *	- It visits the row with SnapshotDirty after we have handed out the TID, which
 *	  may belong to another row by then.
 *
 * So in such a worker the row of each TID is looked at before it is handed out,
 * and again by its key: a row that is alive then keeps its TID as long as the worker's
 * own snapshot stands, which is longer than the change takes (worker.c,
 * begin_replication_step); and one whose inserter has not committed is waited for
 * here, as the worker would.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/skey.h"
#include "fmgr.h"
#include "replication/logicalworker.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "row_key.h"
#include "scan.h"

/* Is NULL among what is looked for? */
bool
pmhash_scan_wants_null(IndexScanDesc scan)
{
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		if (scan->keyData[i].sk_flags & SK_SEARCHNULL)
			return true;
	}
	return false;
}

/* Is what this scan hands out taken as it is, though the index is not exact? */
bool
pmhash_scan_is_taken_as_is(IndexScanDesc scan)
{
	return scan->xs_snapshot->snapshot_type == SNAPSHOT_DIRTY && IsLogicalWorker();
}

/* Does a key of the scan fit a value of a row? */
static bool
key_fits(ScanKey key, Datum value, bool isnull)
{
	if (key->sk_flags & SK_SEARCHNULL)
		return isnull;
	return !isnull && !(key->sk_flags & SK_ISNULL) &&
		DatumGetBool(FunctionCall2Coll(&key->sk_func, key->sk_collation, value,
									   key->sk_argument));
}

/*
 * Fetch the row of the current element, as SnapshotDirty sees it; false if it is
 * dead.  Waits until its inserter has ended.
 */
static bool
fetch_settled(PmhashScan *so)
{
	for (;;)
	{
		SnapshotData dirty;
		bool		all_dead;

		InitDirtySnapshot(dirty);
		if (!pmhash_row_fetch(so->row, pmhash_scan_value(so), &dirty, &all_dead))
			return false;
		if (!TransactionIdIsValid(dirty.xmin))
			return true;
		XactLockTableWait(dirty.xmin, NULL, NULL, XLTW_None);
	}
}

/* Does the row of the current element fit all keys of the scan? */
bool
pmhash_scan_row_fits(IndexScanDesc scan, PmhashScan *so)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	if (so->row == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(so->context);

		so->row = palloc(sizeof(PmhashRow));
		pmhash_row_begin(so->row, scan->heapRelation, scan->indexRelation);
		MemoryContextSwitchTo(old);
	}
	if (!fetch_settled(so))
		return false;
	(void) pmhash_row_key(so->row, values, isnull);
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		int			column = scan->keyData[i].sk_attno - 1;

		if (!key_fits(&scan->keyData[i], values[column], isnull[column]))
			return false;
	}
	return true;
}
