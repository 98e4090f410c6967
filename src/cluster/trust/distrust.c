/*-------------------------------------------------------------------------
 *
 * distrust.c
 *	  The pool loses its trust in a running server, and gets a new nonce.
 *
 * What the kernel says of writes that have failed is asked for here; when that is done,
 * and by which process, is in failed_writes.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "postmaster/interrupt.h"

#include "cluster/base/control_file.h"
#include "cluster/base/durable.h"
#include "cluster/base/pool_names.h"
#include "cluster/base/shared.h"
#include "cluster/pool/pool.h"
#include "cluster/trust/standby_lose.h"
#include "cluster/trust/trust.h"
#include "cluster/trust/witness.h"
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
static void
distrust_all(const char *why)
{
	PmhashControl control;
	char		reason[PMHASH_REASON_SIZE];
	bool		written;

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
