/*-------------------------------------------------------------------------
 *
 * failed_writes.c
 *	  The kernel is asked for failed writes: how, when, and by which process; the pool loses
 *	  its trust in a running server, and gets a new nonce.
 *
 * When: after a checkpoint, or restartpoint on a standby, as writing back our files is
 * part of the cost of that; the first time some minutes after the start, as the last server
 * life may not have had the time to ask.  Not while a checkpoint writes: if it is on the same
 * file system, the answer takes as long.  (A restartpoint moves what GetRedoRecPtr tells as a
 * checkpoint does, before it writes: xlog.c, CreateRestartPoint.)
 *
 * By the launcher, that of a standby in recovery.  Where there is none, by the first process
 * that uses an index after that.  At a start also by the postmaster (pool_life.c,
 * ask_before_server), and at the end.
 *
 * A server that is killed in the middle of a question trusts nothing afterwards
 * (trust.c), and syncfs() may take a second.  So it is not asked again before 2,000
 * times as long has passed, or an hour, whoever asks for checkpoints: of 2,000 kills one at
 * the most meets a question that takes less than two seconds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/lwlock.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/trust/trust.h"

/*
 * Renew the nonce of pool and data directory later in the server life.  If that
 * fails, it is tried again the next time; until then both the old and the new
 * one count.  Not once the pool has been given up: that may have removed the token,
 * and what shared memory has of the control file are the eras of files that have lost
 * pages.
 */
void
pmhash_renew_nonce(void)
{
	PmhashControl control;
	char		reason[PMHASH_REASON_SIZE];

	Assert(!RecoveryInProgress());
	LWLockAcquire(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE);
	if (pmhash_shared->usable)
	{
		control = pmhash_shared->control;
		if (!pmhash_pool_renew_nonce(&control, reason))
			ereport(LOG, (errmsg("pmhash: %s", reason)));
		pmhash_shared->control = control;
	}
	LWLockRelease(pmhash_lwlock(PMHASH_POOL_LOCK));
}

/*
 * What is in the index files cannot be believed any more.  Those made from now
 * on can: the eras are renewed, and all backends look at their files again; on a standby
 * all files are given up.  If that cannot be written this server life does without pmhash,
 * and the token goes.
 */
static void
distrust(const char *why)
{
	PmhashControl control;
	char		reason[PMHASH_REASON_SIZE];
	bool		written;

	Assert(!LWLockHeldByMe(pmhash_lwlock(PMHASH_POOL_LOCK)));
	if (pmhash_standby_distrust(ERRCODE_IO_ERROR, why))
	{
		if (pmhash_shared->usable)	/* else the pool has been given up by that */
			pmhash_restore_witness();
		return;
	}
	LWLockAcquire(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE);
	control = pmhash_shared->control;
	pmhash_trust_none(&control, PMHASH_REASON_WRITE_FAILED, why);
	written = pmhash_pool_is_present() ?
		pmhash_pool_write_control(&control, reason) :
		pmhash_fail(reason, "directory \"%s\" has been unmounted, removed or replaced",
					pmhash_pool_path());
	if (written)
		pmhash_shared->control = control;
	pmhash_stub_changed();
	LWLockRelease(pmhash_lwlock(PMHASH_POOL_LOCK));
	if (!written)
	{
		pmhash_disable(reason);
		pmhash_refuse_trust();
	}
	else
		pmhash_restore_witness();
}

#define LOOK_EVERY		100		/* ms: how often a backend looks for a checkpoint */
#define ASKING_SHARE	2000	/* one part in so many of the time is spent asking ... */
#define LONGEST_REST	3600000 /* ms: ... if that takes less than two seconds */

/* The first thing that could not be written back, until that is written down. */
static char failed[PMHASH_REASON_SIZE];

/* ms for which the witness has been away this time: of each question one more */
static int64 asking;

/*
 * Has the kernel written back what it should: of an open file, or, without a path, of the
 * file system that the lock file is on?  It says so once.  So the witness is away until the
 * answer has been written down, for the case that this process dies meanwhile, and an
 * immediate shutdown has to wait that long, for which this process would have to wait
 * anyway while the kernel writes.  Index files should have been written back before
 * (pmhash_pool_write_back_or_ask): syncfs() does not end until all of the file system has been,
 * and nothing can cut it short.
 *
 * What a file has said is written down when the file system is asked: all files are asked
 * before, so that what each says is taken once.  False: it was not asked, and is to be
 * asked again.
 */
static bool
ask_kernel(int fd, const char *path)
{
	sigset_t	quit;
	sigset_t	before;
	int64		begun = pmhash_clock_ms();
	bool		unknown;
	bool		written;
	volatile bool asked = false;

	if (failed[0] == '\0' && (ShutdownRequestPending || ProcDiePending))
		return false;			/* that asks as well, and may be ended by force */
	if (!LWLockConditionalAcquire(pmhash_lwlock(PMHASH_ASK_LOCK), LW_EXCLUSIVE))
		return false;
	sigemptyset(&quit);
	sigaddset(&quit, SIGQUIT);
	sigprocmask(SIG_BLOCK, &quit, &before);
	PG_TRY();
	{
		unknown = pmhash_witness_is_withdrawn(); /* a file has failed, or a process */
		asked = pmhash_withdraw_witness();
		written = asked && (path != NULL ? fsync(fd) == 0 : pmhash_pool_sync());
		if (asked && !written && failed[0] == '\0')
			pmhash_fail(failed, path != NULL ? "the kernel has failed to write file \"%s\" back: %s" :
						"the file system of directory \"%s\" has failed to write something back: %s",
						path != NULL ? path : pmhash_pool_path(), strerror(errno));
		PMH_STOP_POINT("asked_for_failed_writes");
		if (written && failed[0] == '\0' && !unknown)
		{
			if (pmhash_shared->usable)	/* else the pool has been given up meanwhile */
				pmhash_restore_witness();
		}
		else if (asked && path == NULL)
			distrust(failed[0] != '\0' ? failed : "a process failed while it asked for failed writes");
	}
	PG_FINALLY();
	{
		sigprocmask(SIG_SETMASK, &before, NULL);
	}
	PG_END_TRY();
	if (asked && path == NULL)
		failed[0] = '\0';
	asking += pmhash_clock_ms() - begun + 1;
	LWLockRelease(pmhash_lwlock(PMHASH_ASK_LOCK));
	return asked;
}

/*
 * Is the kernel to be asked, *redo: because of which checkpoint?  That is the last one which
 * is over, as pg_control has it.
 */
static bool
is_due(XLogRecPtr *redo)
{
	XLogRecPtr	last = pg_atomic_read_u64(&pmhash_shared->asked_redo);
	int64		from = (int64) pg_atomic_read_u64(&pmhash_shared->ask_from);
	ControlFileData server;
	char		reason[PMHASH_REASON_SIZE];

	*redo = GetRedoRecPtr();
	if (*redo == last ||
		(failed[0] == '\0' && pmhash_clock_ms() < from))
		return false;
	if (pmhash_read_pg_control(&server, reason))
		*redo = server.checkPointCopy.redo;
	return *redo > last;
}

/*
 * pmhash_notice_failed_writes
 *		The part of the launcher, once in each of its rounds.
 *
 * Index files are written back before it asks, so that it is soon over, or each is asked, where
 * syncfs does not speak for it; only that can be interrupted.  go_on: what cannot wait until it
 * is done (pmhash_pool_write_back_or_ask).
 *
 * Also if the pool directory is not where it was: what processes have mapped, and the
 * file that they ask by, are the same still.
 */
void
pmhash_notice_failed_writes(PmhashGoOn go_on)
{
	uint64		device;
	XLogRecPtr	redo;

	Assert(!LWLockHeldByMe(pmhash_lwlock(PMHASH_ASK_LOCK)));
	if (!is_due(&redo))
		return;
	device = pmhash_device_of_syncfs();
	asking = 0;
	if (!pmhash_pool_write_back_or_ask(device, NULL, go_on) && failed[0] == '\0')
		return;
	/* once more: syncfs() has to wait for what has been stored meanwhile */
	if ((pmhash_pool_write_back_or_ask(device, ask_kernel, go_on) || failed[0] != '\0') &&
		ask_kernel(-1, NULL))
		pg_atomic_write_u64(&pmhash_shared->asked_redo, redo);
	pg_atomic_write_u64(&pmhash_shared->ask_from,
						pmhash_clock_ms() + Min(asking * ASKING_SHARE, LONGEST_REST));
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
 * be cancelled, a later use of an index asks.  Does nothing in recovery.  The caller
 * holds none of our locks.
 */
void
pmhash_notice_for_launcher(void)
{
	static int64 looked = 0;

	if (likely(pmhash_launcher_is_there()) || RecoveryInProgress() ||
		!pmhash_shared->usable || !pmhash_clock_past(looked, LOOK_EVERY))
		return;
	looked = pmhash_clock_ms();
	pmhash_notice_failed_writes(is_not_interrupted);
	CHECK_FOR_INTERRUPTS();
}
