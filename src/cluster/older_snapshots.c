/*-------------------------------------------------------------------------
 *
 * older_snapshots.c
 *	  Waiting for transactions that have an older snapshot (refill.c, step 4).
 *
 * WaitForOlderSnapshots (indexcmds.c) looks once which have one.  But a snapshot may be
 * handed on while we wait (pg_export_snapshot, SET TRANSACTION SNAPSHOT), to a
 * transaction that has had none.  So each that is about to take one over says so first,
 * in shared memory, and when all are over that were there at first, we look for those,
 * until there is none.  (Their parallel workers end before them.)  All others that have
 * come since have a snapshot of their own, which is new.  These can't be told by their
 * xmin: while some transaction with an older id is open, all new snapshots have that one.
 *
 * A transaction that takes a snapshot over looks for the one that has it, and says that
 * it has it itself, under ProcArrayLock, which some servers have it share (18.6; not
 * 15.20 and 17.12: procarray.c, ProcArrayInstallImportedXmin).  The other one may end
 * without that lock, in between as well, and no look that shares it, too, sees either of
 * them then.  Hence ours excludes it: one that comes later finds one that is there all
 * through our look.
 *
 * A logical slot that is being made is waited for before: its process hands out a
 * snapshot as of a place in WAL that may be long past by then (snapbuild.c,
 * SnapBuildExportSnapshot), and until then no transaction shows it.
 *
 * Some are not waited for (NOT_WAITED_FOR), and may hand a snapshot on when the index is
 * valid.  CREATE INDEX CONCURRENTLY waits neither for them, nor for slots, nor for a
 * session that takes a snapshot over meanwhile (indexcmds.c, WaitForOlderSnapshots).  So
 * each of these compares its snapshots with index and file, when it plans and when it
 * begins a scan (file_open.c, serves_older).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "replication/slot.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/backend_progress.h"
#include "utils/guc.h"

#include "cluster/clock.h"
#include "cluster/function_worker.h"
#include "cluster/older_snapshots.h"
#include "cluster/versions.h"
#include "cluster/wait_events.h"

#define SLOT_PAUSE		100		/* milliseconds between looks at the slots */

/*
 * VACUUM and concurrent builds of other indexes do not read the index, but functions
 * may that they call: ANALYZE for expressions, BRIN for ranges that are not summarized
 * yet, and event triggers, in the last transaction of CREATE INDEX CONCURRENTLY.  (Those
 * in the worker for users' functions have no index of ours: function_worker.c.)
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

/*
 * This transaction is about to take a snapshot over.  It is seen by whoever sees that it
 * has one: in between it gets ProcArrayLock.
 */
void
pmhash_snapshot_is_imported(void)
{
	ptrdiff_t	number = MyProc - ProcGlobal->allProcs;

	if (importer != NULL && number < MaxBackends)
		GET_VXID_FROM_PGPROC(importer[number], *MyProc);
}

/* Has the transaction of this process taken its snapshot over? */
static bool
has_imported(const PGPROC *proc)
{
	ptrdiff_t	number = proc - ProcGlobal->allProcs;
	VirtualTransactionId own;

	GET_VXID_FROM_PGPROC(own, *proc);
	return importer != NULL && number < MaxBackends &&
		VirtualTransactionIdIsValid(own) &&
		VirtualTransactionIdEquals(own, importer[number]);
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
 *		May this transaction have a snapshot that an index has become valid without?
 *
 * A parallel worker has that of its leader, whatever that is.  A process that makes a
 * logical slot may take its snapshot itself (CREATE_REPLICATION_SLOT ... USE_SNAPSHOT).
 */
bool
pmhash_snapshot_may_be_older(void)
{
	const PGPROC *leader;

	if (MyProc == NULL)
		return false;
	leader = MyProc->lockGroupLeader ? MyProc->lockGroupLeader : MyProc;
	return (leader->statusFlags & NOT_WAITED_FOR) != 0 || is_walsender(leader) ||
		has_imported(leader);
}

/* Is this snapshot's xmin the limit, or older?  Invalid limit: all are. */
static bool
is_older(TransactionId xmin, TransactionId limit)
{
	return TransactionIdIsValid(xmin) &&
		(!TransactionIdIsValid(limit) || TransactionIdPrecedesOrEquals(xmin, limit));
}

/* Those of this database that have taken over an older one. */
static VirtualTransactionId *
list_importers(TransactionId limit, int *n)
{
	VirtualTransactionId *list = palloc(mul_size(MaxBackends, sizeof(*list)));

	*n = 0;
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	for (int i = 0; i < MaxBackends; i++)
	{
		const PGPROC *proc = &ProcGlobal->allProcs[i];
		VirtualTransactionId own;

		GET_VXID_FROM_PGPROC(own, *proc);
		if (proc->databaseId == MyDatabaseId && has_imported(proc) &&
			is_older(proc->xmin, limit))
			list[(*n)++] = own;
	}
	LWLockRelease(ProcArrayLock);
	return list;
}

/* Those that have an older one now, and are waited for. */
static VirtualTransactionId *
list_older(TransactionId limit, int *n)
{
	return GetCurrentVirtualXIDs(limit, true, false, NOT_WAITED_FOR, n);
}

/* How long all that is to be waited for may take: what lock_timeout was at first. */
typedef struct Deadline
{
	int64		begun;			/* pmhash_clock_ms */
	int			timeout;		/* ms, or 0 */
} Deadline;

/* ERROR past the deadline: other databases need the rebuilder. */
static void
check_deadline(const Deadline *deadline, const char *waits_for)
{
	if (deadline->timeout > 0 && pmhash_clock_past(deadline->begun, deadline->timeout))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("lock timeout while waiting for %s", waits_for)));
}

/* Until the transaction ends lock_timeout is what is left now. */
static void
set_lock_timeout(const Deadline *deadline)
{
	char		value[16];
	int64		left = deadline->begun + deadline->timeout - pmhash_clock_ms();

	if (deadline->timeout == 0)
		return;
	snprintf(value, sizeof(value), "%d", (int) Max(left, 1));
	(void) set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
}

/* Wait until they are over.  Frees the list; returns how many that were. */
static int
wait_for(VirtualTransactionId *list, int n, const Deadline *deadline)
{
	int			waited = 0;

	pgstat_progress_update_param(PROGRESS_WAITFOR_TOTAL, n);
	for (int i = 0; i < n; i++)
	{
		if (!pmhash_is_function_worker(list[i]))
		{
			check_deadline(deadline, "transactions with older snapshots");
			set_lock_timeout(deadline);
			(void) VirtualXactLock(list[i], true);
			waited++;
		}
		pgstat_progress_update_param(PROGRESS_WAITFOR_DONE, i + 1);
	}
	pfree(list);
	return waited;
}

/*
 * Is a logical slot being made from which an older snapshot may come?  Such a slot has an
 * xmin in shared memory, which goes when its process has the snapshot, and none that is
 * kept (slot.c, ReplicationSlotRelease).  Before that it has its place in WAL, but no
 * catalog_xmin (logical.c, CreateInitDecodingContext).  Then it gets the xmin that is to
 * keep away snapshots of before; but that is of another slot, if one has an older one.
 */
static bool
is_being_made(const ReplicationSlot *slot, TransactionId limit)
{
	if (!TransactionIdIsValid(slot->data.catalog_xmin))
		return pmhash_slot_has_process(slot);
	return !TransactionIdIsValid(slot->data.xmin) &&
		is_older(slot->effective_xmin, limit);
}

/* Is there such a slot of this database? */
static bool
slot_may_export(TransactionId limit)
{
	bool		may = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots && !may; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		if (!slot->in_use)
			continue;
		SpinLockAcquire(&slot->mutex);
		may = slot->data.database == MyDatabaseId && is_being_made(slot, limit);
		SpinLockRelease(&slot->mutex);
	}
	LWLockRelease(ReplicationSlotControlLock);
	return may;
}

/*
 * Wait until there is no such slot: it is not made as long as transactions with an id are
 * open, which may be prepared ones.
 */
static void
wait_for_slots(TransactionId limit, const Deadline *deadline)
{
	while (slot_may_export(limit))
	{
		check_deadline(deadline, "a logical slot to be made");
		pmhash_sleep(SLOT_PAUSE, pmhash_wait_event(PMHASH_WAIT_SLOT));
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * pmhash_wait_for_older_snapshots
 *		Wait until no transaction of this database has a snapshot with this xmin, or an
 *		older one, that was taken before now.
 *
 * In a transaction without a snapshot.  ERROR if that takes longer than lock_timeout, in
 * all: those that end one after the other would else have that time each.
 */
void
pmhash_wait_for_older_snapshots(TransactionId limit)
{
	const Deadline deadline = {pmhash_clock_ms(), LockTimeout};
	VirtualTransactionId *list;
	int			n;

	wait_for_slots(limit, &deadline);
	list = list_older(limit, &n);
	(void) wait_for(list, n, &deadline);
	do
		list = list_importers(limit, &n);
	while (wait_for(list, n, &deadline) > 0);
}
