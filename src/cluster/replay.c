/*-------------------------------------------------------------------------
 *
 * replay.c
 *	  Where replay begins and ends, noted in the control file.
 *
 * By the startup process, which calls us before the first record and after the last.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"

#include "cluster/control_file.h"
#include "cluster/data_directory.h"
#include "cluster/replay.h"
#include "cluster/shared.h"
#include "cluster/standby_state.h"

/*
 * From an old checkpoint to past what a start with nothing to replay writes:
 * two checkpoint records of some 120 bytes, full_page_writes, page headers.
 */
#define SHORT_REPLAY	1024

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
	if (control->journal_instance == 0 && control->replayed_to == 0)
		return;

	/* It was to be nothing (wal_look.c): then nothing of it is to be believed. */
	control->replayed_to = 0;
	if (control->undo_foreseen)
		control->undo_doubt = 1;
	control->pg_control_begun = pmhash_pg_control_mtime();
	if (!pmhash_pool_write_control(control, reason))
		ereport(LOG, (errmsg("pmhash: %s", reason)));
}

/*
 * This is where the undo ends, as nothing says yet where it does.
 *
 * A start before this one has not saved the end.  If it had nothing to replay and
 * could not find that out, and died when its end-of-recovery checkpoint was in WAL but
 * not in pg_control yet, that is what we have replayed: a record or two past the old
 * checkpoint, instead of WAL that the crash has lost.
 */
static void
set_end_of_undo(PmhashControl *control, XLogRecPtr end)
{
	control->undo_end = end;
	if (control->undo_again && end - control->start_checkpoint < SHORT_REPLAY)
		control->undo_doubt = 1;
}

/*
 * Save where replay ended.  Called in the startup process as the clean-up of
 * a resource manager: after the last record replayed and before the server
 * writes any (xlogrecovery.c, end of PerformWalRecovery).  So it can't be
 * missed, except if there was nothing to replay; that was found out before the
 * startup process was started (trust.c, inherit_undo).
 *
 * If that can't be written and the undo needs it, the server does without the pool.
 * The next start finds a checkpoint that is not the one that this start has begun
 * with, and no end of replay: it trusts nothing (trust.c, unfinished_start_doubt).
 */
static void
save_end_of_replay(void)
{
	PmhashControl *control;
	char		reason[PMHASH_REASON_SIZE];
	bool		needed;

	if (pmhash_shared == NULL || !pmhash_shared->usable)
		return;
	control = &pmhash_shared->control;
	if (control->role == PMHASH_ROLE_STANDBY)
	{
		pmhash_standby_end_of_replay();
		return;
	}
	control->replayed_to = GetXLogReplayRecPtr(NULL);
	needed = control->journal_instance != 0 && control->undo_end == 0;
	if (needed)
		set_end_of_undo(control, control->replayed_to);
	if (pmhash_pool_write_control(control, reason))
		return;
	ereport(LOG, (errmsg(needed ? "pmhash is disabled: %s" : "pmhash: %s", reason)));
	if (!needed)
		return;
	strlcpy(pmhash_shared->reason, reason, PMHASH_REASON_SIZE);
	pmhash_shared->usable = false;
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
 * do, and a server without pmhash can replay our WAL.  While shared_preload_libraries
 * is loaded.
 */
void
pmhash_replay_init(void)
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
