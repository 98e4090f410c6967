/*-------------------------------------------------------------------------
 *
 * startup.c
 *	  Setting up shared memory, and recovery in its order.
 *
 * postmaster	shared memory comes up (at start, and again after a crash of a
 *				child): a new instance number; the pool is taken into use
 * startup		at the end of replay, before anything new is written to WAL:
 *				its end is saved in the control file
 * first user	(usually our worker): the undo journal, once; then each file by
 *				the engine when it is opened first
 * postmaster	at exit: sync and clean mark
 *
 * The server always starts: if the pool can't be used, that is logged; indexes
 * are then invalid, and what can't do without one is an ERROR that says why.
 * If the pool is ours and only could not be written, the launcher goes on trying; not
 * that of a standby, which can't begin in the middle of replay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/rmgr.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "cluster/cluster.h"
#include "cluster/control_file.h"
#include "cluster/counters.h"
#include "cluster/data_directory.h"
#include "cluster/dead_list.h"
#include "cluster/disabled.h"
#include "cluster/durable.h"
#include "cluster/engine_hooks.h"
#include "cluster/gucs.h"
#include "cluster/idle_sessions.h"
#include "cluster/invalid.h"
#include "cluster/pool.h"
#include "cluster/shared.h"
#include "cluster/standby_state.h"
#include "cluster/startup.h"
#include "cluster/syncfs.h"
#include "cluster/trust.h"
#include "cluster/undo.h"
#include "cluster/undo_journal.h"
#include "cluster/wait_events.h"
#include "cluster/witness.h"
#define TRANCHE_NAME	"pmhash"
#define KEY_TRANCHE_NAME "pmhash_keys"

/*
 * From an old checkpoint to past what a start with nothing to replay writes:
 * two checkpoint records of some 120 bytes, full_page_writes, page headers.
 */
#define SHORT_REPLAY	1024

PmhashShared *pmhash_shared = NULL;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

/* In the postmaster: which server life this is, and whether the pool was refused. */
static uint64 current_instance;
static bool pool_refused;

/* ---- shared memory ---- */

static uint64
journal_records(void)
{
	return (uint64) pmhash_journal_size * 1024 / sizeof(PmhashJournalRecord);
}

static Size
journal_lsn_size(void)
{
	return mul_size(journal_records(), sizeof(pg_atomic_uint64));
}

/* The engine wants 64-byte alignment. */
static Size
lock_table_size(void)
{
	return add_size(pmh_locks_size(pmhash_lock_stripes), PG_CACHE_LINE_SIZE);
}

static void
request_shared_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(sizeof(PmhashShared));
	RequestAddinShmemSpace(lock_table_size());
	RequestAddinShmemSpace(journal_lsn_size());
	RequestAddinShmemSpace(pmhash_standby_shmem_size());
	RequestAddinShmemSpace(pmhash_dead_lists_size());
	RequestAddinShmemSpace(pmhash_counters_size());
	RequestAddinShmemSpace(pmhash_idle_sessions_size());
	RequestNamedLWLockTranche(TRANCHE_NAME, PMHASH_NLOCKS);
	RequestNamedLWLockTranche(KEY_TRANCHE_NAME, PMHASH_KEY_LOCKS);
}

/* A number that no other server life has had: never 0. */
static uint64
new_instance(void)
{
	uint64		instance = 0;

	while (instance == 0 || instance == current_instance)
	{
		if (!pg_strong_random(&instance, sizeof(instance)))
			instance = (uint64) GetCurrentTimestamp();
	}
	return instance;
}

static void
init_shared_memory(void)
{
	bool		found;
	char	   *memory;

	memset(pmhash_shared, 0, sizeof(*pmhash_shared));
	pmhash_shared->instance = current_instance = new_instance();
	pg_atomic_init_u32(&pmhash_shared->ready, 0);
	pg_atomic_init_u32(&pmhash_shared->not_ready, 0);
	pg_atomic_init_u64(&pmhash_shared->stub_generation, 0);
	pg_atomic_init_u64(&pmhash_shared->files_removed, 0);
	pg_atomic_init_u32(&pmhash_shared->logging_begun, 0);
	pg_atomic_init_u64(&pmhash_shared->flush_wanted, InvalidXLogRecPtr);
	for (int i = 0; i < PMHASH_BUILD_KINDS; i++)
		pg_atomic_init_u32(&pmhash_shared->rebuilder_finished[i], 0);
	pg_atomic_init_u32(&pmhash_shared->function_worker, 0);
	pg_atomic_init_u32(&pmhash_shared->files_kept, 0);
	pg_atomic_init_u64(&pmhash_shared->no_worker, 0);
	pg_atomic_init_u64(&pmhash_shared->no_worker_last, 0);
	pg_atomic_init_u64(&pmhash_shared->asked_redo, InvalidXLogRecPtr);
	pg_atomic_init_u64(&pmhash_shared->asked_under_way, InvalidXLogRecPtr);
	pmhash_shared->lwlocks = GetNamedLWLockTranche(TRANCHE_NAME);
	pmhash_shared->key_locks = GetNamedLWLockTranche(KEY_TRANCHE_NAME);
	SpinLockInit(&pmhash_shared->mutex);
	pmhash_wait_events_name();

	memory = ShmemInitStruct("pmhash lock table", lock_table_size(), &found);
	memory = (char *) TYPEALIGN(PG_CACHE_LINE_SIZE, memory);
	pmhash_shared->locks = pmh_locks_init(memory, pmhash_lock_stripes);

	pmhash_shared->journal_records = journal_records();
	pg_atomic_init_u64(&pmhash_shared->journal_next, 0);
	pmhash_shared->journal_lsn = ShmemInitStruct("pmhash journal records",
												 journal_lsn_size(), &found);
	for (uint64 i = 0; i < pmhash_shared->journal_records; i++)
		pg_atomic_init_u64(&pmhash_shared->journal_lsn[i], 0);
	pmhash_standby_shmem_init();
	pmhash_dead_lists_init();
	pmhash_counters_init();
	pmhash_idle_sessions_init();
	for (int i = 0; i < PMHASH_REMOVAL_EPOCHS; i++)
	{
		pg_atomic_init_u64(&pmhash_shared->removal_epoch[i], 0);
		pg_atomic_init_u64(&pmhash_shared->removal_lsn[i], InvalidXLogRecPtr);
	}
	for (int i = 0; i < PMHASH_QUEUE_COUNTS; i++)
		pg_atomic_init_u32(&pmhash_shared->queues[i], 0);
}

/*
 * Take the pool into use for this server life.  If it was refused before,
 * another server may have used it meanwhile: then the token has gone, and
 * nothing is trusted.
 */
static void
start_pool(void)
{
	char		reason[PMHASH_REASON_SIZE] = "";

	pool_refused = !pmhash_directory_allowed(reason) ||
		!pmhash_pool_start(&pmhash_shared->control, current_instance, reason);
	pmhash_shared->usable = !pool_refused;
	pmhash_shared->retried = pool_refused && pmhash_pool_is_locked();
	strlcpy(pmhash_shared->reason, reason, PMHASH_REASON_SIZE);
	if (!pool_refused)
		return;
	ereport(LOG,
			(errmsg("pmhash is disabled: %s", reason),
			 errdetail("%s", pmhash_starts_standby() ? pmhash_standby_disabled_detail() :
					   pmhash_disabled_detail(pmhash_shared->retried))));
	pmhash_refuse_trust(pmhash_shared->control.journal_instance);
}

/*
 * Called by the postmaster each time it has made shared memory: at start, and
 * after a child has crashed (postmaster.c, reset_shared).
 */
static void
shared_memory_startup(void)
{
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	pmhash_shared = ShmemInitStruct("pmhash", sizeof(PmhashShared), &found);
	if (!found)
	{
		init_shared_memory();
		pmhash_counters_load();
		on_shmem_exit(pmhash_counters_save, (Datum) 0);
		start_pool();
	}
	LWLockRelease(AddinShmemInitLock);
}

/* ---- replay ---- */

/*
 * Note that the startup process has come as far as to replay the first record.  A
 * start that dies before replay ends is then known to be the last that has begun to
 * recover (trust.c, is_last_to_recover).  What can't be written is not known to
 * the next start, and costs a rebuild at most.
 */
static void
note_begin_of_replay(void)
{
	PmhashControl *control;
	char		reason[PMHASH_REASON_SIZE];

	if (pmhash_shared == NULL || !pmhash_shared->usable)
		return;
	control = &pmhash_shared->control;
	if (control->role == PMHASH_ROLE_STANDBY)
		pmhash_standby_begin_of_replay();
	if (control->journal_instance == 0)
		return;

	/* It was to be nothing (wal_look.c): then nothing of it is to be believed. */
	if (control->undo_foreseen)
		control->undo_doubt = 1;
	control->pg_control_begun = pmhash_pg_control_mtime();
	if (!pmhash_pool_write_control(control, reason))
		ereport(LOG, (errmsg("pmhash: %s", reason)));
}

/*
 * Save where replay ended.  Called in the startup process as the clean-up of
 * a resource manager: after the last record replayed and before the server
 * writes any (xlogrecovery.c, end of PerformWalRecovery).  So it can't be
 * missed, except if there was nothing to replay; that was found out before the
 * startup process was started (trust.c, inherit_undo).
 *
 * If that can't be written the server does without the pool, and the next start
 * finds a checkpoint that is not the one that this start has begun with, and no
 * end of replay: it trusts nothing (trust.c, unfinished_start_doubt).
 */
static void
save_end_of_replay(void)
{
	PmhashControl *control;
	char		reason[PMHASH_REASON_SIZE];

	if (pmhash_shared == NULL || !pmhash_shared->usable)
		return;
	control = &pmhash_shared->control;
	if (control->role == PMHASH_ROLE_STANDBY)
		pmhash_standby_end_of_replay();
	if (control->journal_instance == 0 || control->undo_end != 0)
		return;
	control->undo_end = GetXLogReplayRecPtr(NULL);

	/*
	 * A start before this one has not saved the end.  If it had nothing to
	 * replay and could not find that out, and died when its end-of-recovery
	 * checkpoint was in WAL but not in pg_control yet, that is what we have
	 * replayed: a record or two past the old checkpoint, instead of WAL that
	 * the crash has lost.
	 */
	if (control->undo_again &&
		control->undo_end - control->start_checkpoint < SHORT_REPLAY)
		control->undo_doubt = 1;
	if (!pmhash_pool_write_control(control, reason))
	{
		ereport(LOG, (errmsg("pmhash is disabled: %s", reason)));
		strlcpy(pmhash_shared->reason, reason, PMHASH_REASON_SIZE);
		pmhash_shared->usable = false;
	}
}

/* No WAL record has our id, so these are never called. */
static void
no_redo(XLogReaderState *record)
{
	elog(PANIC, "pmhash writes no WAL records of its own");
}

static void
no_description(StringInfo buf, XLogReaderState *record)
{
}

static const char *
no_name(uint8 info)
{
	return NULL;
}

/*
 * Register a resource manager for the sake of its start-up and clean-up callbacks.  Since
 * no WAL record ever carries its id, any id that is free in this server will
 * do, and a server without pmhash can replay our WAL.
 */
static void
register_resource_manager(void)
{
	static RmgrData rmgr = {
		.rm_name = "pmhash",
		.rm_redo = no_redo,
		.rm_desc = no_description,
		.rm_identify = no_name,
		.rm_startup = note_begin_of_replay,
		.rm_cleanup = save_end_of_replay
	};

	for (int id = RM_MAX_CUSTOM_ID; id > RM_EXPERIMENTAL_ID; id--)
	{
		if (!RmgrIdExists(id))
		{
			RegisterCustomRmgr((RmgrId) id, &rmgr);
			return;
		}
	}
	ereport(LOG,
			(errmsg("pmhash: no resource manager id is free"),
			 errdetail("After two crashes in a row some indexes may have to be rebuilt.")));
}

/* ---- first use ---- */

/* Write the control file and keep what is in it.  ERROR if that fails. */
static void
keep_control(PmhashControl *control)
{
	char		reason[PMHASH_REASON_SIZE];

	if (!pmhash_pool_write_control(control, reason))
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("pmhash could not be made ready: %s", reason)));
	pmhash_shared->control = *control;
}

/*
 * Take out what the journal of the last server life says.  The new one is made
 * of it, so that a full file system does not matter.  A crash in between finds
 * a pool with nothing to undo: nothing has been written.
 */
static void
finish_last_life(PmhashControl *control)
{
	uint64		instance = control->journal_instance;

	pmhash_undo(control);
	control->journal_instance = 0;
	control->undo_end = 0;
	control->undo_inherited = 0;
	control->undo_doubt = 0;
	control->undo_again = 0;
	control->undo_foreseen = 0;
	control->undo_redo = 0;
	pmhash_see_redo(control);
	keep_control(control);
	pmhash_journal_retire(instance);
}

/* The part of pmhash_pool_ready that one process does. */
static void
make_ready(void)
{
	PmhashControl control = pmhash_shared->control;
	bool		pmem;
	bool		promoted = control.role == PMHASH_ROLE_STANDBY;

	if (control.journal_instance != 0)
		finish_last_life(&control);
	if (promoted)
	{
		PMH_STOP_POINT("promoted_before_use");
		pmhash_standby_promote(&control);
	}
	pmhash_journal_create(pmhash_shared->instance, &pmem);
	control.journal_instance = pmhash_shared->instance;
	control.nonce_pending = 0;
	control.pmem = pmem;
	control.timeline = GetWALInsertionTimeLine();
	control.opts_mtime = pmhash_postmaster_opts_mtime();
	pmhash_see_redo(&control);
	keep_control(&control);

	/* Not before: until then a start needs it. */
	if (promoted)
		pmhash_standby_remove_file();
}

/*
 * Make sure that the undo of the last server life is complete and the journal
 * of this one is there.  Done once in a server life by the process that comes
 * first; others wait for it.  During recovery nothing is done.  ERROR if it
 * fails; the next caller tries again.
 */
void
pmhash_pool_ready(void)
{
	if (RecoveryInProgress())
		return;					/* a standby: the pool is the startup process's */
	if (pg_atomic_read_u32(&pmhash_shared->ready) != 0)
	{
		pg_read_barrier();
		return;
	}
	LWLockAcquire(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE);
	if (pg_atomic_read_u32(&pmhash_shared->ready) == 0)
	{
		PG_TRY();
		{
			make_ready();
		}
		PG_CATCH();
		{
			/* Plans do without indexes until a try succeeds. */
			pg_atomic_write_u32(&pmhash_shared->not_ready, 1);
			PG_RE_THROW();
		}
		PG_END_TRY();
		pg_atomic_write_u32(&pmhash_shared->not_ready, 0);
		pg_write_barrier();
		pg_atomic_write_u32(&pmhash_shared->ready, 1);
	}
	LWLockRelease(pmhash_lwlock(PMHASH_POOL_LOCK));
}

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

	LWLockAcquire(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE);
	if (pmhash_shared->usable)
	{
		control = pmhash_shared->control;
		pmhash_see_redo(&control);
		if (!pmhash_pool_renew_nonce(&control, 0, reason))
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
void
pmhash_distrust_all(const char *why)
{
	PmhashControl control;
	char		reason[PMHASH_REASON_SIZE];
	bool		written;

	LWLockAcquire(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE);
	control = pmhash_shared->control;
	pmhash_renew_eras(&control, PMHASH_ALL_FILES);
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
		pmhash_refuse_trust(control.journal_instance);
	}
	else
		pmhash_restore_witness(pmhash_pool_lock_fd());
}

/* What is in the index files cannot be believed, on a primary or on a standby. */
static void
distrust(const char *why)
{
	if (pmhash_standby_distrust(why))
		pmhash_restore_witness(pmhash_pool_lock_fd());
	else
		pmhash_distrust_all(why);
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
	int			lock_fd = pmhash_pool_lock_fd();
	sigset_t	before;
	bool		unknown;
	bool		asked;

	if (ShutdownRequestPending || ProcDiePending)
		return false;			/* that asks as well, and may be ended by force */
	hold_quit(&before);
	unknown = pmhash_witness_is_withdrawn(lock_fd); /* another failed, or died of it */
	asked = pmhash_withdraw_witness(lock_fd);
	if (asked && fsync(fd) != 0)
		pmhash_fail(failed, "the kernel has failed to write file \"%s\" back: %s",
					path, strerror(errno));
	else if (asked && !unknown)
		pmhash_restore_witness(lock_fd);
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
	int			lock_fd = pmhash_pool_lock_fd();
	bool		unknown;
	bool		written;
	volatile bool asked = false;

	if (failed[0] == '\0' && (ShutdownRequestPending || ProcDiePending))
		return false;			/* that asks as well, and may be ended by force */
	hold_quit(&before);
	PG_TRY();
	{
		unknown = pmhash_witness_is_withdrawn(lock_fd); /* an ERROR, and another asks */
		asked = pmhash_withdraw_witness(lock_fd);
		written = asked && pmhash_pool_written_back(reason);
		PMH_STOP_POINT("asked_for_failed_writes");
		if (asked && failed[0] != '\0')
			distrust(failed);
		else if (asked && unknown)
			distrust("a process failed while it asked for failed writes");
		else if (written)
			pmhash_restore_witness(lock_fd);
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

/*
 * A server that was refused the pool tries again to take it into use.  Called
 * by the launcher.  False if it still cannot be used.
 */
bool
pmhash_try_again(void)
{
	static PmhashControl control;
	char		reason[PMHASH_REASON_SIZE];
	bool		done;

	LWLockAcquire(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE);
	done = pmhash_pool_start_late(&control, pmhash_shared->instance, reason);
	if (done)
	{
		pmhash_shared->control = control;
		pmhash_shared->retried = false; /* if it is given up later, that is for good */
		pg_write_barrier();
		pmhash_shared->usable = true;
		pmhash_stub_changed();
	}
	LWLockRelease(pmhash_lwlock(PMHASH_POOL_LOCK));
	if (done)
		ereport(LOG,
				(errmsg("pmhash is no longer disabled: directory \"%s\" can be used again",
						pmhash_pool_path()),
				 errdetail("Index files that are in it from before are not trusted.")));
	return done;
}

/*
 * ERROR unless the pool directory is the one that this server life has begun
 * with.  For a process that is about to make a file in it.
 */
void
pmhash_require_pool_present(void)
{
	if (!pmhash_pool_is_present())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 pmhash_may_see_details(NULL) ?
				 errmsg("directory \"%s\" has been unmounted, removed or replaced",
						pmhash_pool_path()) :
				 errmsg("the directory of pmhash has been unmounted, removed or replaced"),
				 errdetail("It is not the directory that was there when the server was started."),
				 errhint("Put it back, or restart the server to have the indexes rebuilt in what is there now.")));
}

/*
 * DETAIL for a pmhash that is disabled: the reason can name directories, so it is
 * for those that may see these, and for the log.  Returns 0, for ereport.
 */
static int
detail_of_disabled(bool details)
{
	if (details)
		errdetail("The reason is: %s.", pmhash_shared->reason);
	else
		errdetail_log("The reason is: %s.", pmhash_shared->reason);
	return 0;
}

/* "index "..."" or "pmhash", for messages. */
static const char *
subject(Relation index)
{
	return index == NULL ? "pmhash" :
		psprintf("pmhash index \"%s\"", RelationGetRelationName(index));
}

void
pmhash_require_service(Relation index)
{
	if (unlikely(pmhash_shared == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s cannot be used: the pmhash library is not preloaded",
						subject(index)),
				 errhint("Add pmhash to shared_preload_libraries and restart the server.")));
	if (unlikely(!pmhash_shared->usable))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s cannot be used: pmhash is disabled", subject(index)),
				 detail_of_disabled(pmhash_may_see_details(index)),
				 pmhash_shared->retried && !RecoveryInProgress() ?
				 errhint("Repair this; it is tried again every few seconds.") :
				 errhint("Repair this and restart the server.")));
	if (unlikely(RecoveryInProgress()))
	{
		if (!pmhash_standby_is_active())
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("%s cannot be used during recovery", subject(index)),
					 errhint("pmhash indexes can be used on primary servers and on hot standbys.")));
		return;
	}
	pmhash_pool_ready();
}

bool
pmhash_service_available(void)
{
	return pmhash_shared != NULL && pmhash_shared->usable &&
		(!RecoveryInProgress() || pmhash_standby_is_active());
}

/* Why it is not, though the library is preloaded.  Can name paths. */
const char *
pmhash_why_unavailable(void)
{
	return pmhash_shared->reason[0] != '\0' ? pmhash_shared->reason :
		"the server is in recovery";
}

/* ---- set-up ---- */

/*
 * At exit of the postmaster, or of a single-user backend: sync, clean mark.
 * Shared memory is gone by now (ipc.c, proc_exit_prepare).
 */
static void
postmaster_exit(int code, Datum arg)
{
	if (IsUnderPostmaster || current_instance == 0)
		return;
	if (pool_refused)
		pmhash_continue_without_pool();
	pmhash_pool_stop(current_instance);
}

/* Install the hooks of this file.  While shared_preload_libraries is loaded. */
void
pmhash_startup_init(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shared_memory_startup;
	on_proc_exit(postmaster_exit, (Datum) 0);
	register_resource_manager();
}
