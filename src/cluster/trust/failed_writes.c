/*-------------------------------------------------------------------------
 *
 * failed_writes.c
 *	  When the kernel is asked for failed writes, and by which process.
 *
 * When: after each checkpoint, or restartpoint on a standby, as writing back our files is
 * part of the cost of that; and once half a minute after the start, as the last server life
 * may not have had the time to ask.  Not while a checkpoint writes: if it is on the same
 * file system, the answer takes as long, and if the server is killed meanwhile no file is
 * trusted.  (A restartpoint moves what GetRedoRecPtr tells as a
 * checkpoint does, before it writes: xlog.c, CreateRestartPoint.)
 *
 * By the launcher, that of a standby in recovery.  Where there is none
 * (max_worker_processes is too small, single-user mode), by the first process that uses
 * an index after that.  At a start also by the postmaster (pool_start.c, ask_before_server),
 * and at the end.
 *
 * A server that is killed in the middle of a question trusts nothing afterwards
 * (witness.c), and syncfs() may take a second.  So it is not asked again before 2,000
 * times as long has passed, however often checkpoints come: of 2,000 kills one at the
 * most meets a question.  A CHECKPOINT that a user says has it asked at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "storage/lwlock.h"

#include "cluster/base/clock.h"
#include "cluster/base/data_directory.h"
#include "cluster/base/shared.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/requests.h"
#include "cluster/trust/trust.h"

#define LOOK_EVERY		100		/* ms: how often a backend looks for a checkpoint */
#define ASKING_SHARE	2000	/* one part in so many of the time is spent asking ... */
#define LONGEST_REST	300000	/* ms: ... if that takes less than a third of a second */
#define ASKED_NOW		1		/* ask_from while it is asked: long ago, and not what a user sets */
#define SHORT_PASS		100		/* ms: little has been written meanwhile, then */
#define MOST_PASSES		4

/* What a file has said that could not be written back, until that is written down. */
static char failed[PMHASH_REASON_SIZE];

/* Is the kernel to be asked, *redo: because of which checkpoint? */
static bool
is_due(XLogRecPtr *redo)
{
	XLogRecPtr	last = pg_atomic_read_u64(&pmhash_shared->asked_redo);
	XLogRecPtr	under_way = pg_atomic_read_u64(&pmhash_shared->asked_under_way);
	int64		from = (int64) pg_atomic_read_u64(&pmhash_shared->ask_from);
	ControlFileData server;
	char		reason[PMHASH_REASON_SIZE];

	*redo = GetRedoRecPtr();
	if (*redo == last ||
		(failed[0] == '\0' && pmhash_clock_ms() < from))
		return false;
	/* One that the next has followed is over, or has failed. */
	if (last == InvalidXLogRecPtr ||
		(under_way != InvalidXLogRecPtr && under_way != *redo) ||
		!pmhash_read_pg_control(&server, reason) || server.checkPointCopy.redo == *redo)
		return true;
	pg_atomic_write_u64(&pmhash_shared->asked_under_way, *redo);
	return false;
}

/*
 * Write index files back, and what has been stored in them meanwhile, until that is
 * little: syncfs() has to wait for what is left.  False if go_on says so.
 */
static bool
write_back(uint64 device, PmhashGoOn go_on)
{
	for (int i = 0; i < MOST_PASSES; i++)
	{
		int64		begun = pmhash_clock_ms();

		if (!pmhash_pool_write_back(device, go_on))
			return false;
		if (!pmhash_clock_past(begun, SHORT_PASS))
			break;
	}
	return true;
}

static bool
ask_file(int fd, const char *path)
{
	bool		asked;

	if (!LWLockConditionalAcquire(pmhash_lwlock(PMHASH_ASK_LOCK), LW_EXCLUSIVE))
		return false;
	asked = pmhash_ask_for_failed_file(fd, path, failed);
	LWLockRelease(pmhash_lwlock(PMHASH_ASK_LOCK));
	return asked;
}

/* It has been asked since then, unless a user has said CHECKPOINT meanwhile. */
static void
rest_from(int64 begun)
{
	int64		now = pmhash_clock_ms();
	int64		rest = Min((now - begun + 1) * ASKING_SHARE, LONGEST_REST);
	uint64		from = ASKED_NOW;

	pg_atomic_compare_exchange_u64(&pmhash_shared->ask_from, &from, now + rest);
}

/*
 * Ask, because of the checkpoint with this redo pointer, unless another process does or
 * has done so.  Index files are written back before, so that it is soon over, or each is
 * asked, where syncfs does not speak for it; only that can be interrupted.
 */
static void
ask(XLogRecPtr redo, PmhashGoOn go_on)
{
	uint64		device = pmhash_device_of_syncfs();
	XLogRecPtr	asked;
	int64		begun;
	bool		complete;

	pg_atomic_write_u64(&pmhash_shared->ask_from, ASKED_NOW);
	if (!write_back(device, go_on) && failed[0] == '\0')
		return;
	begun = pmhash_clock_ms();
	complete = pmhash_pool_ask_files(device, ask_file, go_on) || failed[0] != '\0';
	if (!complete ||
		!LWLockConditionalAcquire(pmhash_lwlock(PMHASH_ASK_LOCK), LW_EXCLUSIVE))
	{
		rest_from(begun);
		return;
	}
	asked = pg_atomic_read_u64(&pmhash_shared->asked_redo);
	if ((asked < redo || failed[0] != '\0') && pmhash_ask_for_failed_writes(failed))
	{
		failed[0] = '\0';
		pg_atomic_write_u64(&pmhash_shared->asked_under_way, InvalidXLogRecPtr);
		pg_atomic_write_u64(&pmhash_shared->asked_redo, Max(asked, redo));
	}
	LWLockRelease(pmhash_lwlock(PMHASH_ASK_LOCK));
	rest_from(begun);
}

/*
 * pmhash_ask_soon
 *		A user has said CHECKPOINT.
 */
void
pmhash_ask_soon(void)
{
	pg_atomic_write_u64(&pmhash_shared->ask_from, 0);
}

/*
 * pmhash_notice_failed_writes
 *		The part of the launcher, once in each of its rounds.
 *
 * Also if the pool directory is not where it was: what processes have mapped, and the
 * file that they ask by, are the same still.  go_on: what cannot wait until all index
 * files are written back (pmhash_pool_write_back).
 */
void
pmhash_notice_failed_writes(PmhashGoOn go_on)
{
	XLogRecPtr	redo;

	if (is_due(&redo))
		ask(redo, go_on);
}

/* Nothing waits for this process, except to be cancelled, or as for all processes. */
static bool
is_not_interrupted(void)
{
	return !InterruptPending;
}

/*
 * pmhash_notice_for_launcher
 *		The same where there is no launcher: by a process that is about to use an index.
 *
 * Takes as long as it takes to write everything back.  If it is interrupted, but not to
 * be cancelled, the next use of an index asks.  Does nothing in recovery.  The caller
 * holds none of our locks.
 */
void
pmhash_notice_for_launcher(void)
{
	static int64 looked = 0;
	XLogRecPtr	redo;

	if (likely(pmhash_has_launcher) || RecoveryInProgress() ||
		!pmhash_shared->usable || !pmhash_clock_past(looked, LOOK_EVERY))
		return;
	looked = pmhash_clock_ms();
	if (is_due(&redo))
		ask(redo, is_not_interrupted);
	CHECK_FOR_INTERRUPTS();
}
