/*-------------------------------------------------------------------------
 *
 * failed_writes.c
 *	  The kernel is asked for failed writes: how, when, and by which process; the pool loses
 *	  its trust in a running server, and gets a new nonce.
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
 * (trust.c), and syncfs() may take a second.  So it is not asked again before 2,000
 * times as long has passed, however often checkpoints come: of 2,000 kills one at the
 * most meets a question.  A CHECKPOINT that a user says has it asked at once.
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
#include "engine/stop_point.h"

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
		pmhash_see_redo(&control);
		if (!pmhash_pool_renew_nonce(&control, reason))
			ereport(LOG, (errmsg("pmhash: %s", reason)));
		pmhash_shared->control = control;
	}
	LWLockRelease(pmhash_lwlock(PMHASH_POOL_LOCK));
}

/*
 * What is in the index files cannot be believed any more.  Those made from now
 * on can: the eras are renewed, and all backends look at their files again.  If
 * that cannot be written this server life does without pmhash, and the token
 * goes.
 */
static void
distrust_all(const char *why)
{
	PmhashControl control;
	char		reason[PMHASH_REASON_SIZE];
	bool		written;

	Assert(!LWLockHeldByMe(pmhash_lwlock(PMHASH_POOL_LOCK)));
	LWLockAcquire(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE);
	control = pmhash_shared->control;
	pmhash_renew_eras(&control, PMHASH_ALL_FILES, PMHASH_REASON_WRITE_FAILED);
	written = pmhash_pool_is_present() ?
		pmhash_pool_write_control(&control, reason) :
		pmhash_fail(reason, "directory \"%s\" has been unmounted, removed or replaced",
					pmhash_pool_path());
	if (written)
		pmhash_shared->control = control;
	pmhash_stub_changed();
	LWLockRelease(pmhash_lwlock(PMHASH_POOL_LOCK));
	ereport(LOG,
			(errmsg("pmhash: index files in \"%s\" are not trusted: %s",
					pmhash_pool_path(), why)));
	if (!written)
	{
		pmhash_disable(reason);
		pmhash_refuse_trust();
	}
	else
		pmhash_restore_witness();
}

/* What is in the index files cannot be believed, on a primary or on a standby. */
static void
distrust(const char *why)
{
	if (pmhash_standby_distrust(why))
		pmhash_restore_witness();
	else
		distrust_all(why);
}

/* An immediate shutdown has to wait until an answer of the kernel is written down. */
static void
hold_quit(sigset_t *before)
{
	sigset_t	quit;

	sigemptyset(&quit);
	sigaddset(&quit, SIGQUIT);
	sigprocmask(SIG_BLOCK, &quit, before);
}

/*
 * Has the kernel written back what it should of this open file?  The witness is away
 * meanwhile.  If not, it stays away, and failed (PMHASH_REASON_SIZE) says why, for
 * pmhash_ask_for_failed_writes, which is to follow: it may be that all files are asked
 * before, so that what each says is taken once.  False: it was not asked.  Raises no
 * error.  Under the lock "ask".
 */
bool
pmhash_ask_for_failed_file(int fd, const char *path, char *failed)
{
	sigset_t	before;
	bool		unknown;
	bool		asked;

	Assert(LWLockHeldByMeInMode(pmhash_lwlock(PMHASH_ASK_LOCK), LW_EXCLUSIVE));
	if (ShutdownRequestPending || ProcDiePending)
		return false;			/* that asks as well, and may be ended by force */
	hold_quit(&before);
	unknown = pmhash_witness_is_withdrawn(); /* another failed, or died of it */
	asked = pmhash_withdraw_witness();
	if (asked && fsync(fd) != 0)
		pmhash_fail(failed, "the kernel has failed to write file \"%s\" back: %s",
					path, strerror(errno));
	else if (asked && !unknown)
		pmhash_restore_witness();
	sigprocmask(SIG_SETMASK, &before, NULL);
	return asked;
}

/*
 * Has the kernel written back what it should?  It says so once.  So the witness is
 * away until the answer has been written down, for the case that this process dies
 * meanwhile, and an immediate shutdown has to wait that long, for which this process
 * would have to wait anyway while the kernel writes.  Index files should have been
 * written back before (pmhash_pool_write_back): syncfs() does not end until all of
 * the file system has been, and nothing can cut it short.  failed: what a file has said
 * before (pmhash_ask_for_failed_file), or empty.  False: it was not asked, and is to be
 * asked again.
 */
bool
pmhash_ask_for_failed_writes(const char *failed)
{
	char		reason[PMHASH_REASON_SIZE];
	sigset_t	before;
	bool		unknown;
	bool		written;
	volatile bool asked = false;

	Assert(LWLockHeldByMeInMode(pmhash_lwlock(PMHASH_ASK_LOCK), LW_EXCLUSIVE));
	if (failed[0] == '\0' && (ShutdownRequestPending || ProcDiePending))
		return false;			/* that asks as well, and may be ended by force */
	hold_quit(&before);
	PG_TRY();
	{
		unknown = pmhash_witness_is_withdrawn(); /* an ERROR, and another asks */
		asked = pmhash_withdraw_witness();
		written = asked &&
			(pmhash_pool_sync() ||
			 pmhash_fail(reason, "the file system of directory \"%s\" has failed to write something back: %s",
						 pmhash_pool_path(), strerror(errno)));
		PMH_STOP_POINT("asked_for_failed_writes");
		if (asked && failed[0] != '\0')
			distrust(failed);
		else if (asked && unknown)
			distrust("a process failed while it asked for failed writes");
		else if (written)
			pmhash_restore_witness();
		else if (asked)
			distrust(reason);
	}
	PG_FINALLY();
	{
		sigprocmask(SIG_SETMASK, &before, NULL);
	}
	PG_END_TRY();
	return asked;
}

/* ==== when ==== */

#define LOOK_EVERY		100		/* ms: how often a backend looks for a checkpoint */
#define ASKING_SHARE	2000	/* one part in so many of the time is spent asking ... */
#define LONGEST_REST	300000	/* ms: ... if that takes less than a third of a second */
#define ASKED_NOW		1		/* ask_from while it is asked: long ago, and not what a user sets */

/* What a file has said that could not be written back, until that is written down. */
static char failed[PMHASH_REASON_SIZE];

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

	Assert(!LWLockHeldByMe(pmhash_lwlock(PMHASH_ASK_LOCK)));
	pg_atomic_write_u64(&pmhash_shared->ask_from, ASKED_NOW);
	/* once more: syncfs() has to wait for what has been stored meanwhile */
	if ((!pmhash_pool_write_back(device, go_on) ||
		 !pmhash_pool_write_back(device, go_on)) && failed[0] == '\0')
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
