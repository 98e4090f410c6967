/*-------------------------------------------------------------------------
 *
 * pool_life.c
 *	  The pool: the directory that holds the index files; its start, what the first process
 *	  does that uses pmhash in a server life, and its stop.  May pmhash be used now, and what
 *	  is said if not?
 *
 * src/README, "Trust", has the files of the pool.  Control file, nonce, lock file and journal
 * have their space beforehand, so that a start does not fail for want of it.
 *
 * Start and stop are the postmaster's, where an ERROR would keep the server
 * from starting.  So functions for these report with a reason and return false.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/undo_journal.h"

/* ==== the start ==== */

/* ---- the directory ---- */

/*
 * A directory without a control file and a lock file, the first that is made in a pool, but with
 * other things (lost+found and what is hidden is none), was not meant to be one.
 */
static bool
looks_like_pool(char *reason)
{
	char		control[MAXPGPATH];
	char		lock[MAXPGPATH];
	struct stat st;

	snprintf(control, MAXPGPATH, "%s/control", pmhash_pool_path());
	snprintf(lock, MAXPGPATH, "%s/lock", pmhash_pool_path());
	if (stat(control, &st) == 0 || lstat(lock, &st) == 0)
		return true;
	switch (pg_check_dir(pmhash_pool_path()))
	{
		case -1:
			return pmhash_fail(reason, "could not open directory \"%s\": %s", pmhash_pool_path(), strerror(errno));
		case 4:
			return pmhash_fail(reason, "directory \"%s\" is not a pmhash pool, and not empty", pmhash_pool_path());
		default:
			return true;
	}
}

/*
 * Make the directory, or make sure that an existing one is private.  One that was not
 * meant for us is left as it is, and so is one that others can write in: they may have
 * put links there to files that they cannot write and we can, or have written to ours.
 */
static bool
prepare_directory(char *reason)
{
	struct stat st;

	if (!is_absolute_path(pmhash_pool_path()))
		return pmhash_fail(reason, "\"pmhash.directory\" is not an absolute path: \"%s\"",
					pmhash_pool_path());
	if (strlen(pmhash_pool_path()) > MAXPGPATH - 64)
		return pmhash_fail(reason, "the path in \"pmhash.directory\" is too long");
	/* pg_rewind and pg_checksums would take index files for the server's own */
	if (path_is_prefix_of_path(DataDir, pmhash_pool_path()))
		return pmhash_fail(reason, "\"pmhash.directory\" is inside the data directory: \"%s\"",
						   pmhash_directory);
	if (mkdir(pmhash_pool_path(), 0700) != 0 && errno != EEXIST)
		return pmhash_fail(reason, "could not create directory \"%s\": %s%s",
						   pmhash_pool_path(), strerror(errno),
						   pmhash_pool_is_default() ? "; \"pmhash.directory\" can name another one" : "");
	if (stat(pmhash_pool_path(), &st) != 0)
		return pmhash_fail(reason, "could not stat directory \"%s\": %s",
					pmhash_pool_path(), strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return pmhash_fail(reason, "\"%s\" is not a directory", pmhash_pool_path());
	if (st.st_uid != geteuid())
		return pmhash_fail(reason, "directory \"%s\" belongs to another user", pmhash_pool_path());
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return pmhash_fail(reason, "other users can write in directory \"%s\"", pmhash_pool_path());
	if (!looks_like_pool(reason))
		return false;
	/* No other user shall look. */
	if ((st.st_mode & 0077) != 0 && chmod(pmhash_pool_path(), 0700) != 0)
		return pmhash_fail(reason, "could not make directory \"%s\" private: %s",
					pmhash_pool_path(), strerror(errno));
	return true;
}

/* ---- the control file ---- */

/*
 * Is the locked pool this server's, or is it now?  One that its control file says to be
 * of another cluster is
 *	- this server's if the data directory has its nonce: then the server has got another
 *	  identifier (pg_createsubscriber, pg_resetwal);
 *	- left from a cluster that was in the place of this one, if it stands where the pool
 *	  of a cluster in this place does by default, and no server has it locked.  To be
 *	  begun anew: *found becomes ABSENT.  A cluster that was moved away, and left it,
 *	  makes another one in its new place;
 *	- else refused: the setting that names it may be wrong.
 *
 * One that another version of pmhash has left is this server's by its identifier alone.
 */
static bool
is_ours(const PmhashControl *control, PmhashControlRead *found,
		const PmhashServerState *server, char *reason)
{
	if ((*found != PMHASH_CONTROL_VALID && *found != PMHASH_CONTROL_OTHER_VERSION) ||
		control->system_identifier == server->control.system_identifier ||
		(*found == PMHASH_CONTROL_VALID &&
		 pmhash_token_matches(control, server->has_token, &server->token)))
		return true;
	if (!pmhash_pool_is_default())
		return pmhash_fail(reason, "directory \"%s\" belongs to another cluster: its system identifier is "
						   UINT64_FORMAT ", that of this server is " UINT64_FORMAT,
						   pmhash_pool_path(), control->system_identifier,
						   server->control.system_identifier);
	*found = PMHASH_CONTROL_ABSENT;
	return true;
}

/*
 * The server is about to recover, and to call syncfs() itself.  Had the kernel failed to
 * write something back, that call would learn of it, by an open file of its own, and
 * a lock file opened after that knows of nothing (errseq_sample): if this start died
 * before it has asked, the next one would ask in vain.  So it asks before, which makes
 * the server's call as much shorter.  With no witness there is nothing to lose by that,
 * or a process has died of the answer (write_back_doubt).  What a file would say if it
 * were asked by itself, no syncfs() takes from it (its inode has a note of its own), so
 * that has time until the server is up.  False if something has
 * failed, or that can't be asked for; the witness stays away then.
 */
static bool
ask_before_server(void)
{
	if (!pmhash_has_witness())
		return true;
	/* as long as it is there */
	(void) pmhash_pool_write_back_or_ask(pmhash_device_of_syncfs(), NULL, NULL);
	if (!pmhash_withdraw_witness() || !pmhash_pool_sync())
		return false;
	pmhash_restore_witness();
	return true;
}

/*
 * Enter the locked pool: decide what may be trusted, and mark it as in use.  False with a
 * reason if it can't be used; it is then unlocked if it is another's, not if it only cannot
 * be read or written now.
 */
static bool
enter_pool(PmhashControl *control, char *reason)
{
	PmhashServerState server;
	PmhashControlRead there = pmhash_control_read(control, reason);
	PmhashControlRead found = there;
	uint64		owner = control->system_identifier;
	PmhashStandbyStart start;
	bool		write_failed;
	char		why[PMHASH_REASON_SIZE];

	Assert(pmhash_pool_is_locked());
	/* Whose it is can't be read now.  It may be ours, and that may pass. */
	if (there == PMHASH_CONTROL_REFUSED || !pmhash_read_server_state(&server, reason))
		return false;
	if (!is_ours(control, &found, &server, reason))
	{
		pmhash_pool_unlock();
		return false;
	}
	/* ours, and it stays locked: it may be usable at the next start */
	if (access(pmhash_pool_path(), R_OK | W_OK | X_OK) != 0)
		return pmhash_fail(reason, "directory \"%s\" is not writable: %s",
						   pmhash_pool_path(), strerror(errno));
	if (!pmhash_journal_provide(reason))
		return false;
	write_failed = found == PMHASH_CONTROL_VALID &&
		control->state == PMHASH_POOL_RUNNING && pmhash_start_calls_syncfs() &&
		!ask_before_server();
	start = pmhash_decide(control, found, write_failed, &server);
	if (control->role == PMHASH_ROLE_STANDBY && !pmhash_standby_load(start, &server, why))
		pmhash_trust_none(control, PMHASH_REASON_APART, why);
	if (!pmhash_control_first_nonce(control, &server, reason))
		return false;
	PMH_STOP_POINT("pool_taken");
	pmhash_standby_remove_deltas();
	reason[0] = '\0';

	/* last: it vouches for what the control file says */
	pmhash_set_witness();
	if (found != there)			/* the pool of another cluster has been begun anew */
		ereport(LOG,
				(errmsg("pmhash: directory \"%s\" of another cluster is used by this one from now on",
						pmhash_pool_path()),
				 errdetail("That cluster, with the system identifier " UINT64_FORMAT ", was in the same place. Its index files are removed.",
						   owner)));
	return true;
}

/*
 * Take the pool into use for a server life: find or make the directory, lock
 * it, read the control file, decide what may be trusted, mark it as in use.
 * Called by the postmaster at start and after a crash of its children, when no
 * other process of the server is there.  False with a reason if the pool can't
 * be used.
 */
bool
pmhash_pool_start(PmhashControl *control, char *reason)
{
	Assert(!IsUnderPostmaster);
	pmhash_set_pool_path();
	/* At a restart after a crash we still have the lock, unless the directory was replaced. */
	return prepare_directory(reason) &&
		((pmhash_pool_is_locked() && pmhash_pool_is_present()) || pmhash_pool_lock(reason)) &&
		enter_pool(control, reason);
}

/* ==== the first use ==== */

/*
 * That is the undo of the last server life, and the journal of this one; a standby that has
 * been promoted becomes a primary.  From then on entries may be written.
 */

pg_noreturn static void
not_ready(const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR),
			 errmsg("pmhash could not be made ready: %s", reason)));
}

/* Write the control file and keep what is in it.  ERROR if that fails. */
static void
keep_control(PmhashControl *control)
{
	char		reason[PMHASH_REASON_SIZE];

	Assert(LWLockHeldByMeInMode(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE));
	if (!pmhash_pool_write_control(control, reason))
		not_ready(reason);
	pmhash_shared->control = *control;
}

/* The part of pmhash_pool_ready that one process does. */
static void
make_ready(void)
{
	PmhashControl control = pmhash_shared->control;
	bool		pmem;
	bool		promoted = control.role == PMHASH_ROLE_STANDBY;
	char		reason[PMHASH_REASON_SIZE];

	Assert(!RecoveryInProgress());
	Assert(LWLockHeldByMeInMode(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE));
	/* Not in another directory of that name: a standby has had its pool for long. */
	pmhash_require_pool_present();
	if (control.journal_instance != 0)
	{
		/* the entries that the journal names are removed; then it is not needed any more */
		pmhash_undo(&control);
		control.journal_instance = 0;
		keep_control(&control);
	}
	if (promoted)
	{
		PMH_STOP_POINT("promoted_before_use");
		pmhash_standby_promote();
		if (!pmhash_shared->usable)	/* a file that does not count can't be removed */
			not_ready(pmhash_shared->reason);
		control.role = PMHASH_ROLE_PRIMARY;
	}
	pmhash_journal_begin(pmhash_shared->instance, &pmem);
	if (!pmhash_make_life_mark(reason))
		not_ready(reason);
	control.state = PMHASH_POOL_RUNNING;
	control.clean_checkpoint = InvalidXLogRecPtr;
	control.journal_instance = pmhash_shared->instance;
	control.nonce_pending = 0;
	control.pmem = pmem;
	control.life_mark = pmhash_life_mark_time();
	keep_control(&control);
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
	Assert(CritSectionCount == 0);
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
		/* A launcher can be missed from here on, which clears this; recovery may take long. */
		pg_atomic_write_u64(&pmhash_shared->no_worker, pmhash_clock_ms());
		pg_memory_barrier();
		if (pmhash_launcher_is_there())
			pg_atomic_write_u64(&pmhash_shared->no_worker, 0);
		pg_atomic_write_u32(&pmhash_shared->ready, 1);
	}
	LWLockRelease(pmhash_lwlock(PMHASH_POOL_LOCK));
}

/* ==== service ==== */

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
				 /* it can name directories */
				 pmhash_may_see_details(index == NULL ? InvalidOid : RelationGetRelid(index)) ?
				 errdetail("The reason is: %s.", pmhash_shared->reason) :
				 errdetail_log("The reason is: %s.", pmhash_shared->reason),
				 errhint("Repair this and restart the server.")));
	pmhash_pool_ready();
}

/*
 * pmhash_service_doubt
 *		Why there is no file to be had of any index, or NONE.
 *
 * pmhash is disabled for this server life; or the pool is away, and has not been used in
 * this life yet, as when a standby is promoted without the file system that its files are
 * on.  It can't be made ready, and rows are to be written all the same.
 */
PmhashReason
pmhash_service_doubt(void)
{
	if (unlikely(pmhash_shared == NULL))
		return PMHASH_REASON_NONE;
	if (unlikely(!pmhash_shared->usable))
		return PMHASH_REASON_DISABLED;
	if (unlikely(pg_atomic_read_u32(&pmhash_shared->ready) == 0) &&
		!RecoveryInProgress() && !pmhash_pool_is_present())
		return PMHASH_REASON_MISSING;
	return PMHASH_REASON_NONE;
}

bool
pmhash_service_available(void)
{
	return pmhash_shared != NULL && pmhash_shared->usable &&
		(!RecoveryInProgress() || pmhash_standby_is_active());
}

/* ==== the stop ==== */

/*
 * Stamp all files and write them back, and the names in their directories: those that syncfs
 * speaks for all at once, which is one commit of the file system's journal instead of one for
 * each of what may be thousands.  False with errno.  The witness is away meanwhile, as in
 * failed_writes.c, ask_kernel, and stays away if pages may be gone from the page cache: if
 * something could not be written back, whatever the errno is.  The kernel hands on what the
 * device or the file system has said (ETIMEDOUT, ENODATA, ENOLINK, ENOMEM), and says it once.
 */
static bool
shut_all_files(uint64 stamp)
{
	PmhEnv		env = pmhash_engine_env();
	uint64		synced = pmhash_device_of_syncfs();	/* what syncfs writes back, or 0 */
	PmhashFileWalk walk = {0};
	Oid			database = InvalidOid;	/* whose directory was synced last */
	bool		lost = false;
	bool		ok;
	int			save_errno;

	Assert(pmhash_pool_is_locked() && stamp != 0);
	/* as long as the witness is there */
	(void) pmhash_pool_write_back_or_ask(synced, NULL, NULL);
	ok = pmhash_withdraw_witness();
	while (ok && pmhash_next_file(&walk))
	{
		char		directory[MAXPGPATH];
		PmhError	error;
		PmhResult	result;

		if (walk.file_id == 0)
			continue;
		result = pmh_shut(walk.path, &env, stamp, synced, &error);
		if (result != PMH_OK && result != PMH_ERR_NO_FILE)	/* that has just gone */
		{
			/* One that can't be opened has lost nothing by that; what fails later is LOST. */
			errno = error.sys_errno;
			lost = result == PMH_ERR_LOST;
			ok = false;
		}
		else if (walk.database != database)
		{
			database = walk.database;
			pmhash_database_path(directory, database);
			ok = pmhash_fsync_directory(directory);
			lost = !ok;
		}
	}
	if (ok && walk.error != 0)
	{
		errno = walk.error;
		ok = false;
	}
	if (ok)
	{
		ok = pmhash_fsync_directory(pmhash_pool_path()) && (synced == 0 || pmhash_pool_sync());
		lost = !ok;
	}
	save_errno = errno;
	pmhash_end_walk(&walk);
	if (!lost)
		pmhash_restore_witness();
	errno = save_errno;
	return ok;
}

/*
 * The postmaster exits, after all its children.  If the server was shut down
 * cleanly (only pg_control shows that: a postmaster's exit code does not),
 * write every file back and mark the pool clean.  Without the mark all that
 * happens is that the files are not trusted after a reboot.
 */
void
pmhash_pool_stop(void)
{
	char		reason[PMHASH_REASON_SIZE];
	ControlFileData server;
	PmhashControl control = pmhash_shared->control;
	PmhashToken token;
	bool		done;

	Assert(!IsUnderPostmaster && pmhash_shared->usable);
	if (!pmhash_pool_is_present() ||
		!pmhash_read_pg_control(&server, reason) ||
		server.state != (control.role == PMHASH_ROLE_STANDBY ?
						 DB_SHUTDOWNED_IN_RECOVERY : DB_SHUTDOWNED) ||
		control.state == PMHASH_POOL_STARTING ||
		/* nor if a process has died of the kernel's answer */
		pmhash_witness_is_withdrawn() ||
		!pmhash_token_matches(&control, pmhash_read_token(&token), &token))
		return;

	/*
	 * There is nothing to undo.  That is noted at once: to write everything back may take
	 * long, and a postmaster that is killed meanwhile has lost nothing, unless the operating
	 * system goes down too, or it was at the end of that, when it asks the kernel.
	 */
	control.state = PMHASH_POOL_RUNNING;	/* files are about to be stamped */
	control.journal_instance = 0;
	control.clean_checkpoint = server.checkPoint;
	control.seen_redo = server.checkPointCopy.redo;
	done = pmhash_pool_write_control(&control, reason);
	if (done && !shut_all_files(control.next_shut))
	{
		ereport(LOG,
				(errmsg("pmhash: could not write the files in \"%s\" back: %m",
						pmhash_pool_path())));
		return;
	}
	if (done)
	{
		control.shut = control.next_shut;
		control.all_shut = 1;
		control.state = PMHASH_POOL_CLEAN;
		done = pmhash_pool_renew_nonce(&control, reason);
	}
	if (!done)
		ereport(LOG, (errmsg("pmhash: %s", reason)));
}
