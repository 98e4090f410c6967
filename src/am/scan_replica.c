/*-------------------------------------------------------------------------
 *
 * scan_replica.c
 *	  Scans by which a subscriber finds the row to change (PostgreSQL 18), and those by
 *	  which logical decoding reads a table.
 *
 * A worker of logical replication looks rows up in the index that is the table's
 * replica identity, or by all columns in any index (REPLICA IDENTITY FULL):
 * execReplication.c, RelationFindReplTupleByIndex.  There are things that it
 * expects of an index and that ours does not do by itself:
 *
 *	- Values that are NULL are looked for too.  Such rows are in no entry if it is
 *	  the first column, so the scan walks through the table.
 *	- With REPLICA IDENTITY FULL it takes the first index that would do, be it invalid,
 *	  or one that CREATE INDEX CONCURRENTLY has not finished, or not begun to fill
 *	  (relation.c, FindUsableIndexForReplicaIdentityFull, asks neither the planner nor
 *	  for indisvalid).  The scan walks through the table.
 *	- It waits for the transaction that has inserted the row, so it has to find rows
 *	  that are not committed.  Their entries may wait in another session's queue only
 *	  if the table was in no subscription when that session's statement began
 *	  (insert_queue.c).  As long as any do, the scan walks through the table.
 *	- It does not heed xs_recheck if the index is the replica identity.  A row with
 *	  another key of the same hash would be changed.
 *	- It visits the row with SnapshotDirty after we have handed out the TID, which
 *	  may belong to another row by then.
 *
 * So in such a worker the row of each TID is looked at before it is handed out, and
 * its page stays pinned until the next one is looked at (heapam_handler.c,
 * heapam_index_fetch_tuple).  Beside our pin no page is pruned, so its line pointers
 * stay what they are: VACUUM gives away only those that pruning has made dead.  What
 * the worker finds at the TID is the row that has been looked at, or nothing, if that
 * one has died meanwhile.  From then on the worker's own snapshot keeps a row where it
 * is, for longer than the change takes (worker.c, begin_replication_step).
 *
 * No transaction is waited for.  The worker does that itself, for those that decide
 * about the row that it is looking for; unless the index is the replica identity, it
 * first compares all columns.  If it waited for the inserter of any row that has the
 * key, or that is met in a walk through the table, it would stand for as long as
 * strangers please, or deadlock: with a session that waits for the worker's rows, or
 * with a worker that applies a streamed transaction, which goes on when its leader does
 * (applyparallelworker.c).
 *
 * Decoding: an output plugin may read a table (user_catalog_table) as of the place in
 * WAL that it has come to.  That may be long past; the slot keeps the rows, but a
 * rebuild, or a build on a standby, leaves them out, and waits for nothing that reads
 * so.  Hence the scan always walks through the table, and needs neither file nor pool.
 * What is to be rechecked is refused there (genam.c, systable_getnext), so the row's key
 * is compared here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/skey.h"
#include "access/tableam.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "row_key.h"
#include "scan.h"

/* Is NULL among what is looked for? */
static bool
wants_null(IndexScanDesc scan)
{
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		if (scan->keyData[i].sk_flags & SK_SEARCHNULL)
			return true;
	}
	return false;
}

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
	if (PG_VERSION_NUM >= 180000 && scan->xs_snapshot->snapshot_type == SNAPSHOT_DIRTY)
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
	return pmhash_scan_is_of_decoding(scan) || wants_null(scan) ||
		(!scan->indexRelation->rd_index->indisvalid &&
		 RelationGetIndexPredicate(scan->indexRelation) == NIL);
}

/*
 * May there be rows that the worker wants and whose entries are not in the file yet?
 * This session's own queues have been applied.  Entries of a constraint never wait.
 */
bool
pmhash_scan_misses_queued(IndexScanDesc scan, const PmhashScan *so)
{
	Form_pg_index index = scan->indexRelation->rd_index;

	return pmhash_any_queue(so->file) && !index->indisunique && !index->indisexclusion;
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

static bool
keys_fit(IndexScanDesc scan, const Datum *values, const bool *isnull)
{
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		int			column = scan->keyData[i].sk_attno - 1;

		if (!key_fits(&scan->keyData[i], values[column], isnull[column]))
			return false;
	}
	return true;
}

/*
 * Is there a row for the current element, as SnapshotDirty sees it, or decoding, and does
 * it fit all keys of the scan?  Its page is pinned then.  Of a HOT chain several members
 * may be visible, with several keys if the index is not built yet.
 */
bool
pmhash_scan_row_fits(IndexScanDesc scan, PmhashScan *so)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	SnapshotData dirty;
	Snapshot	snapshot = pmhash_scan_is_of_decoding(scan) ? scan->xs_snapshot : &dirty;
	ItemPointerData tid;
	bool		call_again = false;
	bool		all_dead;
	bool		fits;

	CHECK_FOR_INTERRUPTS();
	if (so->row == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(so->context);

		so->row = palloc(sizeof(PmhashRow));
		pmhash_row_begin(so->row, scan->heapRelation, scan->indexRelation);
		MemoryContextSwitchTo(old);
	}
	InitDirtySnapshot(dirty);
	dirty.xmin = InvalidTransactionId;	/* if decoding leaves it as it is */
	pmhash_value_to_tid(pmhash_scan_value(so), &tid);
	do
	{
		if (!table_index_fetch_tuple(so->row->fetch, &tid, snapshot, so->row->slot,
									 &call_again, &all_dead))
			return false;
		(void) pmhash_row_key(so->row, &dirty, values, isnull);
		fits = keys_fit(scan, values, isnull);
	} while (!fits && call_again);
	PMH_STOP_POINT("scan_row_fits");
	return fits;
}
