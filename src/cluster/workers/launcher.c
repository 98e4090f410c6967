/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The launcher: one process that has the others started and does what comes
 *	  round by round: notes in the journal how far WAL is flushed, renews the nonce,
 *	  flushes what scans wait for, asks whether the kernel has written back what it
 *	  should, and has cleaners and rebuilders started.
 *
 * It starts as soon as there can be queries: on a standby when that is consistent, and it
 * goes on when that is promoted.  On a primary it first completes the undo of the last
 * server life, so that usually no user has to.  It is connected to no database (only to
 * shared catalogs, like autovacuum's launcher), so it keeps no database from being
 * dropped or copied.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "cluster/base/clock.h"
#include "cluster/base/data_directory.h"
#include "cluster/base/durable.h"
#include "cluster/base/shared.h"
#include "cluster/base/versions.h"
#include "cluster/base/wait_events.h"
#include "cluster/cluster.h"
#include "cluster/file/file_cache.h"
#include "cluster/open/open.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/requests.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/undo_journal.h"
#include "cluster/workers/workers.h"
#define NOTE_FLUSHED_EVERY	1000	/* ms, while WAL is written */
#define NOTE_IDLE			5000	/* ms, while none is */
#define NOTE_CHECKPOINT		100 /* ms, while one is under way */
#define LOOK_AROUND			100 /* ms, while scans want WAL to be flushed */
#define LOOK_FOR_RECOVERY	5000	/* ms: its restartpoints, and its end */

/*
 * ms from the launcher's start to the first look at all indexes, which takes as
 * long as opening them all: the first users of a server come then, and what they
 * meet that has to be looked at they request.
 */
#define SETTLE_TIME			2000

PGDLLEXPORT void pmhash_launcher_main(Datum arg);

/* ---- its end ---- */

static volatile sig_atomic_t server_stops = false;

/*
 * SIGTERM: the postmaster sends it when the server is shut down, others
 * (pg_terminate_backend) when they want the launcher started afresh.
 */
static void
note_termination(int signo, siginfo_t *info, void *context)
{
	int			saved_errno = errno;

	if (info->si_pid == PostmasterPid)
		server_stops = true;
	ShutdownRequestPending = true;
	SetLatch(MyLatch);
	errno = saved_errno;
}

static void
catch_termination(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = note_termination;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGTERM, &action, NULL) != 0)
		elog(ERROR, "could not set the handler of SIGTERM: %m");
}

/*
 * To be called between the launcher's steps, outside transactions.  Ends it
 * without a word if the server is being shut down; an exit code of 1 has the
 * postmaster start it again after RESTART_AFTER.
 */
void
pmhash_launcher_interrupts(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ShutdownRequestPending)
		proc_exit(server_stops ? 0 : 1);
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

static void
launcher_exit(int code, Datum arg)
{
	pmhash_set_launcher(NULL);
}

/* ---- its rounds ---- */

/*
 * Keep the note of flushed WAL fresh also while there are no inserts and no
 * vacuum.  Where WAL ends now is the end of a record; by the next round it is
 * flushed.  Returns milliseconds until there may be something to note again: a
 * server that writes nothing is seldom woken.
 */
static long
note_flushed(void)
{
	static XLogRecPtr seen = InvalidXLogRecPtr;
	static XLogRecPtr noted = InvalidXLogRecPtr;
	XLogRecPtr	end = pmhash_insert_end();

	if (seen > noted && seen <= GetFlushRecPtr(NULL))
	{
		pmhash_journal_note_flushed(seen);
		noted = seen;
	}
	if (seen <= noted)
		seen = end;				/* else it is flushed some time, however often we look */
	return noted == end ? NOTE_IDLE : NOTE_FLUSHED_EVERY;
}

/*
 * A crash within the first seconds after a checkpoint must not cost the indexes:
 * the journal has to say that WAL past its redo pointer was flushed by this
 * server life (undo_journal.c, undo_doubt).  Once pg_control has the checkpoint, its
 * record is flushed (xlog.c, CreateCheckPoint), and every replay reads it: so
 * replay ends past where that begins, *reached.  False if pg_control has not got it yet.
 */
static bool
checkpoint_is_there(XLogRecPtr redo, XLogRecPtr *reached)
{
	ControlFileData server;
	char		reason[PMHASH_REASON_SIZE];

	if (!pmhash_read_pg_control(&server, reason) || server.checkPointCopy.redo != redo)
		return false;
	*reached = server.checkPoint + 1;
	return true;
}

/*
 * pmhash_checkpoint_made
 *		A session has executed CHECKPOINT: note it, before its user is told.
 *
 * What has been made by now is no reason to fail, so an error is left to those that
 * depend on the journal.  If there has been another checkpoint since, the launcher
 * notes that.
 */
void
pmhash_checkpoint_made(void)
{
	XLogRecPtr	reached;

	if (pmhash_shared == NULL)
		return;
	pmhash_ask_soon();
	if (pmhash_shared->usable && pg_atomic_read_u32(&pmhash_shared->ready) != 0 &&
		checkpoint_is_there(GetRedoRecPtr(), &reached))
		pmhash_journal_try_note_flushed(reached);
	pmhash_wake_launcher();
}

/*
 * The launcher's part: checkpoints are looked for only from when a checkpoint
 * begins, which shared memory shows, until it is in pg_control, or WAL past its
 * redo pointer has been noted anyway, as it is in one that takes long.  Returns
 * milliseconds until the next look.
 */
static long
note_checkpoint(void)
{
	static XLogRecPtr last = InvalidXLogRecPtr;
	XLogRecPtr	redo = GetRedoRecPtr();
	XLogRecPtr	reached;

	if (redo == last)
		return NOTE_IDLE;
	if (checkpoint_is_there(redo, &reached))
		pmhash_journal_note_flushed(reached);
	else if (!pmhash_journal_is_past(redo))
		return NOTE_CHECKPOINT;
	last = redo;
	return NOTE_IDLE;
}

/*
 * Called again and again while index files are written back, which may take minutes: what
 * others wait for goes on.  All processes have to take note of each ProcSignalBarrier
 * (DROP DATABASE, DROP TABLESPACE, and their replay).  False if the launcher is to end.
 */
static bool
go_on_writing(void)
{
	static int64 last = 0;

	CHECK_FOR_INTERRUPTS();
	if (pg_atomic_read_u32(&pmhash_shared->ready) != 0 &&
		pmhash_clock_past(last, LOOK_AROUND))
	{
		(void) note_flushed();
		(void) note_checkpoint();
		(void) pmhash_flush_for_scans();
		last = pmhash_clock_ms();
	}
	return !ShutdownRequestPending;
}

/*
 * Renew the nonce if something has been written since it was renewed, but not
 * more often than orphans are looked for.
 */
static void
renew_nonce_now_and_then(void)
{
	static int64 last = 0;
	static XLogRecPtr last_end = InvalidXLogRecPtr;
	XLogRecPtr	end = pmhash_insert_end();

	if (end == last_end || !pmhash_pool_is_present() ||
		!pmhash_clock_past(last, pmhash_cleaner_naptime * INT64CONST(1000)))
		return;
	last = pmhash_clock_ms();
	last_end = end;
	pmhash_renew_nonce();
}

/*
 * Wait until there may be something to do, timeout milliseconds at most.
 * Meanwhile flush what scans ask for; while they do, which may be all the time,
 * what else there is to do is looked for every LOOK_AROUND milliseconds.
 */
static void
rest(long timeout)
{
	int64		begun = pmhash_clock_ms();
	long		flush_in;

	do
	{
		flush_in = pmhash_flush_for_scans();
		pmhash_sleep(flush_in < 0 ? timeout : Min(timeout, flush_in),
					 pmhash_wait_event(PMHASH_WAIT_LAUNCHER));
		pmhash_launcher_interrupts();
	} while ((flush_in >= 0 ||
			  pg_atomic_read_u64(&pmhash_shared->flush_wanted) != InvalidXLogRecPtr) &&
			 !pmhash_clock_past(begun, LOOK_AROUND));
}

/*
 * The pool can't be used in this server life.  Not the end: a background worker that
 * exits in peace is not started again by this postmaster, and a crash of a backend begins
 * another life, in which the pool may be used.  Nothing is written to the pool or
 * its token meanwhile.
 */
pg_noreturn static void
wait_for_another_life(void)
{
	pmhash_set_launcher(NULL);
	for (;;)
	{
		pmhash_sleep(-1, pmhash_wait_event(PMHASH_WAIT_POOL));
		pmhash_launcher_interrupts();
	}
}

/* A round on a standby.  Returns milliseconds until the next one. */
static long
standby_round(void)
{
	int64		next;

	if (!pmhash_standby_is_active())
		return LOOK_FOR_RECOVERY;
	pmhash_notice_failed_writes(go_on_writing);
	next = pmhash_see_to_databases(true);
	return pmhash_clock_until(next, LOOK_FOR_RECOVERY);
}

/* The same on a primary; settled: it has been one for some time. */
static long
primary_round(bool settled)
{
	long		timeout = note_flushed();
	long		other = note_checkpoint();
	int64		next;

	timeout = Min(timeout, other);
	renew_nonce_now_and_then();
	pmhash_notice_failed_writes(go_on_writing);
	next = pmhash_see_to_databases(settled);
	if (!settled)
		timeout = Min(timeout, SETTLE_TIME / 4);
	return pmhash_clock_until(next, timeout);
}

/*
 * What a standby has left of its time as a primary is removed at once: files of past eras
 * are of no use.  No stub is looked at.
 */
static void
remove_distrusted(void)
{
	ListCell   *lc;

	foreach(lc, pmhash_databases_in_pool())
		pmhash_remove_distrusted(lfirst_oid(lc));
}

/*
 * The launcher.
 */
void
pmhash_launcher_main(Datum arg)
{
	MemoryContext round;
	int64		primary_since = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	catch_termination();
	BackgroundWorkerUnblockSignals();
	if (pmhash_shared == NULL)
		proc_exit(0);
	if (!pmhash_shared->usable)
		wait_for_another_life();
	pmhash_no_transaction_timeout();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	SetConfigOption("default_transaction_isolation", "read committed",
					PGC_SUSET, PGC_S_OVERRIDE);

	before_shmem_exit(launcher_exit, (Datum) 0);
	pmhash_set_launcher(MyLatch);
	round = AllocSetContextCreate(TopMemoryContext, "pmhash launcher round",
								  ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(round);
	if (RecoveryInProgress() && pmhash_standby_is_active())
		remove_distrusted();
	for (;;)
	{
		long		timeout;

		if (!pmhash_shared->usable)
			wait_for_another_life();	/* given up */
		MemoryContextReset(round);
		MemoryContextSwitchTo(round);
		if (RecoveryInProgress())
			timeout = standby_round();
		else
		{
			if (primary_since == 0)
			{
				pmhash_pool_ready();
				primary_since = pmhash_clock_ms();
			}
			timeout = primary_round(pmhash_clock_past(primary_since, SETTLE_TIME));
		}
		rest(timeout);
	}
}
