/*-------------------------------------------------------------------------
 *
 * counters.c
 *	  Cumulative counters of indexes and of the server, in shared memory.
 *
 * What a process counts stands in the handle of the file (cluster.h, counts), where
 * counting is an addition to memory of its own.  At the end of each transaction, while
 * the locks on the indexes are still held, it is added to what all see: the sums of
 * the server, which are always there, and the row of the index, by database and OID.
 *
 * Rows have a fixed number, pmhash.tracked_indexes: at the end of a transaction there must
 * be no error for want of memory.  An index that finds no row is counted in the sums, and
 * each time in not_tracked, which the view shows.
 *
 * Rows of indexes that have gone are removed by a worker in their database, and with
 * the database.  Until then they are not shown, as the view is about indexes that exist.
 *
 * Additions are atomic and hold the lock shared; rows come, go and are set to zero
 * under the exclusive one.  That there is no room for a row is seen under the shared
 * one: with more indexes than rows it is so at the end of each transaction.
 *
 * All begin at zero with each start of the server.  They are not kept in the header of
 * the index's file, where they would outlive it: a store to a clean page of a mapped file
 * asks its file system, so look-ups would wait while that is frozen for a snapshot, and be
 * SIGBUS where it has become read-only or, copying on write, is full.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "cluster/base/counters.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "engine/stop_point.h"

StaticAssertDecl(PMHASH_NCOUNTERS <= 32, "PmhashFile.counted has a bit for each");

typedef struct RowKey
{
	Oid			database;
	Oid			index;
} RowKey;

typedef struct Row
{
	RowKey		key;
	TimestampTz since;
	pg_atomic_uint64 n[PMHASH_NCOUNTERS];
} Row;

static Row *sums = NULL;		/* of the server, no index's; NULL unless preloaded */
static HTAB *rows = NULL;		/* the same */

/* ---- shared memory ---- */

/* Bytes of shared memory. */
Size
pmhash_counters_size(void)
{
	return add_size(MAXALIGN(sizeof(Row)),
					hash_estimate_size(Max(pmhash_tracked_indexes, 1), sizeof(Row)));
}

/* Set a row to zero.  The lock keeps out all that count but pmhash_counters_lock_wait. */
static void
clear_row(Row *row)
{
	row->since = GetCurrentTimestamp();
	for (int i = 0; i < PMHASH_NCOUNTERS; i++)
		pg_atomic_init_u64(&row->n[i], 0);
}

/* As shared memory is made: all are zero. */
void
pmhash_counters_init(void)
{
	HASHCTL		ctl;
	bool		found;

	sums = ShmemInitStruct("pmhash counters", sizeof(Row), &found);
	clear_row(sums);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(RowKey);
	ctl.entrysize = sizeof(Row);
	rows = pmhash_shared_hash("pmhash counters of indexes",
							  Max(pmhash_tracked_indexes, 1), &ctl, HASH_ELEM | HASH_BLOBS);
}

/* The row of an index, or NULL. */
static Row *
find_row(Oid database, Oid index)
{
	RowKey		key = {database, index};

	Assert(LWLockHeldByMe(pmhash_lwlock(PMHASH_COUNTERS_LOCK)));
	return hash_search(rows, &key, HASH_FIND, NULL);
}

/* Is there no room for one more? */
static bool
rows_are_full(void)
{
	Assert(LWLockHeldByMe(pmhash_lwlock(PMHASH_COUNTERS_LOCK)));
	return hash_get_num_entries(rows) >= pmhash_tracked_indexes;
}

/* The row; it is made if there is room for it. */
static Row *
make_row(Oid database, Oid index)
{
	RowKey		key = {database, index};
	bool		found;
	Row		   *row = find_row(database, index);

	Assert(LWLockHeldByMeInMode(pmhash_lwlock(PMHASH_COUNTERS_LOCK), LW_EXCLUSIVE));
	if (row != NULL || rows_are_full())
		return row;
	row = hash_search(rows, &key, HASH_ENTER_NULL, &found);
	if (row != NULL)
		clear_row(row);
	return row;
}

/* ---- counting ---- */

/* Add those counts whose bits are set. */
static void
add_to(pg_atomic_uint64 *n, const PmhashCounts *counts, uint32 bits)
{
	for (; bits != 0; bits &= bits - 1)
	{
		int			i = pg_rightmost_one_pos32(bits);

		pg_atomic_fetch_add_u64(&n[i], counts->n[i]);
	}
}

/* Add to the sums, and to the row of an index of this database.  Raises no error. */
static void
add_counts(Oid index, const PmhashCounts *counts, uint32 bits)
{
	Row		   *row;

	add_to(sums->n, counts, bits);
	LWLockAcquire(pmhash_lwlock(PMHASH_COUNTERS_LOCK), LW_SHARED);
	row = find_row(MyDatabaseId, index);
	if (unlikely(row == NULL) && !rows_are_full())
	{
		LWLockRelease(pmhash_lwlock(PMHASH_COUNTERS_LOCK));
		LWLockAcquire(pmhash_lwlock(PMHASH_COUNTERS_LOCK), LW_EXCLUSIVE);
		row = make_row(MyDatabaseId, index);
	}
	if (row != NULL)
		add_to(row->n, counts, bits);
	else
		pg_atomic_fetch_add_u64(&sums->n[PMHASH_NOT_TRACKED], 1);
	LWLockRelease(pmhash_lwlock(PMHASH_COUNTERS_LOCK));
}

/*
 * Add what this process has counted in a handle, and what the engine has, to what
 * all see, and begin anew.  At the end of a transaction, and before the handle goes.
 * Raises no error.
 */
void
pmhash_counters_flush(PmhashFile *file)
{
	PmhCounts	engine;

	if (pmh_take_counts(file->table, &engine))
	{
		pmhash_count(file, PMHASH_SPLITS, engine.splits);
		pmhash_count(file, PMHASH_GROWS, engine.grows);
		pmhash_count(file, PMHASH_DOUBLINGS, engine.doublings);
	}
	if (file->counted == 0 || sums == NULL)
		return;
	add_counts(file->index, &file->counts, file->counted);
	for (; file->counted != 0; file->counted &= file->counted - 1)
		file->counts.n[pg_rightmost_one_pos32(file->counted)] = 0;
}

/* What is rare, or has no file, is added at once.  Raises no error. */
void
pmhash_counters_add(Oid index, PmhashCounter counter, uint64 n)
{
	PmhashCounts counts = {{0}};

	Assert(counter < PMHASH_INDEX_COUNTERS);
	if (sums == NULL)
		return;
	counts.n[counter] = n;
	add_counts(index, &counts, UINT32_C(1) << counter);
}

/* A process waits for a lock of the engine.  It may hold others: atomics only. */
void
pmhash_counters_lock_wait(void)
{
	if (sums != NULL)
		pg_atomic_fetch_add_u64(&sums->n[PMHASH_LOCK_WAITS], 1);
}

/* ---- reading ---- */

static void
read_row(Row *row, PmhashCountersRow *to)
{
	to->index = row->key.index;
	to->since = row->since;
	for (int i = 0; i < PMHASH_NCOUNTERS; i++)
		to->counts.n[i] = pg_atomic_read_u64(&row->n[i]);
}

/* The rows of a database, palloc'd; *n: how many. */
PmhashCountersRow *
pmhash_counters_rows(Oid database, int *n)
{
	PmhashCountersRow *result;
	HASH_SEQ_STATUS status;
	Row		   *row;

	*n = 0;
	if (rows == NULL)
		return palloc(sizeof(PmhashCountersRow));
	LWLockAcquire(pmhash_lwlock(PMHASH_COUNTERS_LOCK), LW_SHARED);
	result = palloc_extended((Size) (hash_get_num_entries(rows) + 1) *
							 sizeof(PmhashCountersRow), MCXT_ALLOC_HUGE);
	hash_seq_init(&status, rows);
	while ((row = hash_seq_search(&status)) != NULL)
	{
		if (row->key.database == database)
			read_row(row, &result[(*n)++]);
	}
	LWLockRelease(pmhash_lwlock(PMHASH_COUNTERS_LOCK));
	return result;
}

/* The sums of the server, as one look at them finds them; returns how many rows there are. */
int64
pmhash_counters_server(PmhashCountersRow *server)
{
	int64		n;

	LWLockAcquire(pmhash_lwlock(PMHASH_COUNTERS_LOCK), LW_SHARED);
	PMH_STOP_POINT("counters_read");
	read_row(sums, server);
	n = hash_get_num_entries(rows);
	LWLockRelease(pmhash_lwlock(PMHASH_COUNTERS_LOCK));
	return n;
}

/* ---- setting to zero, and forgetting ---- */

/*
 * Set the counters of an index of a database to 0, or (index InvalidOid) of all of its, or
 * (database InvalidOid) the sums of the server.
 */
void
pmhash_counters_reset(Oid database, Oid index)
{
	HASH_SEQ_STATUS status;
	Row		   *row;

	if (rows == NULL)
		return;
	LWLockAcquire(pmhash_lwlock(PMHASH_COUNTERS_LOCK), LW_EXCLUSIVE);
	if (!OidIsValid(database))
		clear_row(sums);
	else if (OidIsValid(index))
	{
		row = make_row(database, index);	/* to note when */
		if (row != NULL)
			clear_row(row);
	}
	else
	{
		hash_seq_init(&status, rows);
		while ((row = hash_seq_search(&status)) != NULL)
		{
			if (row->key.database == database)
				clear_row(row);
		}
	}
	LWLockRelease(pmhash_lwlock(PMHASH_COUNTERS_LOCK));
}

/*
 * Forget the indexes of a database that is not there any more, or those of this one that
 * are not.
 *
 * A row is made by the transaction that creates its index after that has become
 * visible (xact.c, CommitTransaction calls ProcArrayEndTransaction before the
 * callbacks), so a snapshot taken after we have seen the row sees the index.
 */
void
pmhash_counters_forget_dropped(Oid database)
{
	int			n;
	PmhashCountersRow *known = pmhash_counters_rows(database, &n);

	/* one that has dropped an index may bring it back */
	Assert(database != MyDatabaseId || !TransactionIdIsValid(GetTopTransactionIdIfAny()));
	InvalidateCatalogSnapshot();
	for (int i = 0; i < n; i++)
	{
		RowKey		key = {database, known[i].index};

		if (database == MyDatabaseId &&
			SearchSysCacheExists1(RELOID, ObjectIdGetDatum(known[i].index)))
			continue;
		LWLockAcquire(pmhash_lwlock(PMHASH_COUNTERS_LOCK), LW_EXCLUSIVE);
		(void) hash_search(rows, &key, HASH_REMOVE, NULL);
		LWLockRelease(pmhash_lwlock(PMHASH_COUNTERS_LOCK));
	}
	pfree(known);
}
