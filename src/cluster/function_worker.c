/*-------------------------------------------------------------------------
 *
 * function_worker.c
 *	  The worker that runs users' functions, and reads no index of ours.
 *
 * It rebuilds indexes with expressions (PMHASH_BUILD_EXPRESSIONS), which may take for
 * ever, with a snapshot.  Rebuilds of others, which have to wait until no session reads
 * their index by a snapshot that is too old for it (refill.c, step 4), need not wait for
 * this one: plans of what its functions query have no index of ours.  The same of its
 * parallel workers, which are in its lock group.
 *
 * There is one at a time, also if the launcher that started it has ended and another one
 * starts the next.  Its process id stands in shared memory from before its first
 * snapshot until it is about to end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"

#include "cluster/function_worker.h"
#include "cluster/shared.h"
#include "cluster/versions.h"

static void
function_worker_exit(int code, Datum arg)
{
	pg_atomic_write_u32(&pmhash_shared->function_worker, 0);
}

/*
 * This process is to be it.  To be called before it has a snapshot.  False: another one
 * is, and would not be any more, with a snapshot that plain rebuilds have not waited for.
 */
bool
pmhash_function_worker_begins(void)
{
	uint32		none = 0;

	if (!pg_atomic_compare_exchange_u32(&pmhash_shared->function_worker, &none,
										(uint32) MyProcPid))
		return false;
	before_shmem_exit(function_worker_exit, (Datum) 0);
	return true;
}

/* Is it the worker, or in its lock group? */
static bool
is_of_worker(const PGPROC *process)
{
	const PGPROC *leader = process->lockGroupLeader;
	uint32		worker = pg_atomic_read_u32(&pmhash_shared->function_worker);

	if (leader == NULL)
		leader = process;
	return worker != 0 && (uint32) leader->pid == worker;
}

/* Is this process one that reads no index of ours? */
bool
pmhash_in_function_worker(void)
{
	return pmhash_shared != NULL && MyProc != NULL && is_of_worker(MyProc);
}

/*
 * Is this a transaction of one?  If not, it may have ended by now; a process that has
 * come in its place runs another one.
 */
bool
pmhash_is_function_worker(VirtualTransactionId transaction)
{
	const PGPROC *process = pmhash_proc_of(transaction);

	return process != NULL && is_of_worker(process);
}
