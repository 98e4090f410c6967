/*-------------------------------------------------------------------------
 *
 * older_snapshots.c
 *	  Transactions that may have a snapshot which nobody waits for.
 *
 * On a standby, redo waits for snapshots that see rows whose entries it removes, or cancels
 * them; CREATE INDEX CONCURRENTLY waits for those that see rows which it has left out.  Both
 * list once who has such a one.  But a snapshot may be handed on meanwhile
 * (pg_export_snapshot, SET TRANSACTION SNAPSHOT), to a transaction that has had none; and a
 * process that makes a logical slot hands one out as of a place in WAL that may be long past
 * by then (snapbuild.c, SnapBuildExportSnapshot), which no transaction has shown until then.
 * CONCURRENTLY does not wait for some others either (NOT_WAITED_FOR).  So each of these
 * compares its snapshots with index and file, when it plans and when it begins a scan
 * (file_open.c, serves; standby.c, file_fits).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "cluster/base/shared.h"

/*
 * VACUUM and concurrent builds of other indexes do not read the index, but functions
 * may that they call: ANALYZE for expressions, BRIN for ranges that are not summarized
 * yet, and event triggers, in the last transaction of CREATE INDEX CONCURRENTLY.
 */
#define NOT_WAITED_FOR	(PROC_IS_AUTOVACUUM | PROC_IN_VACUUM | PROC_IN_SAFE_IC)

/*
 * The last transaction of each process, by its number in the array of core, that has
 * wanted to take a snapshot over.  NULL unless preloaded.
 */
static VirtualTransactionId *importer = NULL;

/* Bytes of shared memory. */
Size
pmhash_imports_size(void)
{
	return mul_size(MaxBackends, sizeof(VirtualTransactionId));
}

/* As shared memory is made. */
void
pmhash_imports_init(void)
{
	bool		found;

	importer = ShmemInitStruct("pmhash imports", pmhash_imports_size(), &found);
	for (int i = 0; i < MaxBackends; i++)
		SetInvalidVirtualTransactionId(importer[i]);
}

/* This transaction is about to take a snapshot over. */
void
pmhash_snapshot_is_imported(void)
{
	ptrdiff_t	number = MyProc - ProcGlobal->allProcs;

	if (importer != NULL && number < MaxBackends)
		GET_VXID_FROM_PGPROC(importer[number], *MyProc);
}

/* Does the leader of our parallel workers, or of us, send WAL? */
static bool
is_walsender(const PGPROC *leader)
{
	if (leader == MyProc)
		return am_walsender;
	for (int i = 0; i < max_wal_senders; i++)
	{
		if (WalSndCtl->walsnds[i].pid == leader->pid)
			return true;
	}
	return false;
}

/*
 * pmhash_snapshot_may_be_older
 *		May this transaction have a snapshot that was not waited for?
 *
 * A parallel worker has that of its leader, whatever that is.  A process that makes a
 * logical slot may take its snapshot itself (CREATE_REPLICATION_SLOT ... USE_SNAPSHOT).
 */
bool
pmhash_snapshot_may_be_older(void)
{
	const PGPROC *leader;
	ptrdiff_t	number;
	VirtualTransactionId own;

	if (MyProc == NULL)
		return false;
	leader = MyProc->lockGroupLeader ? MyProc->lockGroupLeader : MyProc;
	if ((leader->statusFlags & NOT_WAITED_FOR) != 0 || is_walsender(leader))
		return true;

	/* has it taken its snapshot over? */
	number = leader - ProcGlobal->allProcs;
	GET_VXID_FROM_PGPROC(own, *leader);
	return importer != NULL && number < MaxBackends &&
		VirtualTransactionIdIsValid(own) &&
		VirtualTransactionIdEquals(own, importer[number]);
}
