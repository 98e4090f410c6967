/*-------------------------------------------------------------------------
 *
 * service.c
 *	  What the first process does that uses pmhash in a server life; may pmhash be used
 *	  now, and what is said if not?
 *
 * The first use is the undo of the last server life, and the journal of this one; a standby
 * that has been promoted becomes a primary.  From then on entries may be written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/undo_journal.h"
#include "engine/stop_point.h"

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
		pg_write_barrier();
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
 * on.  It can't be made ready (service.c), and rows are to be written all the same.
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
