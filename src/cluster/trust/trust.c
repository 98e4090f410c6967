/*-------------------------------------------------------------------------
 *
 * trust.c
 *	  What may be trusted when the pool is taken into use.
 *
 * src/README, "Trust", has the rule and the marks; test/TRUST.md the table of all facts that
 * are relied on, with the test of each.  Called by the postmaster, where an ERROR would keep
 * the server from starting.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "miscadmin.h"

#include "cluster/base/control_file.h"
#include "cluster/pool/pool.h"
#include "cluster/trust/trust.h"

/* ==== the witness of the page cache ==== */

/*
 * What has been stored is in the page cache still: a write life time hint on the lock file,
 * which is in the inode as the kernel has it in memory, and nowhere else.  The hint itself
 * is of no consequence for a file of 20 bytes.
 */
#define WITNESS			((uint64_t) RWH_WRITE_LIFE_EXTREME)

/*
 * In its place while the kernel is asked whether it has failed to write something back,
 * and for good when the pool has to be given up: what the last server life has left is not
 * to be trusted.  The kernel answers once: if the process that learns of it dies before it
 * has written that down, this is all that is left of it.  To say so needs no medium that
 * can be written, and goes with the inode, hence with the witness.
 */
#define WITHDRAWN		((uint64_t) RWH_WRITE_LIFE_LONG)

#define UNKNOWN			UINT64_MAX	/* that can't be read */

/* What the inode of the lock file says; 0 also where the system knows no such hints. */
static uint64_t
get_hint(void)
{
	uint64_t	hint = 0;

	if (fcntl(pmhash_pool_lock_fd(), F_GET_RW_HINT, &hint) != 0 &&
		errno != EINVAL && errno != ENOSYS)
		return UNKNOWN;
	return hint;
}

static bool
set_hint(uint64_t hint)
{
	return fcntl(pmhash_pool_lock_fd(), F_SET_RW_HINT, &hint) == 0;
}

/*
 * Set the witness.  Only once the control file says what is to be trusted from
 * here on.  Where it can't be set there is none, and a crash of the whole
 * server costs the files in page cache.
 */
void
pmhash_set_witness(void)
{
	(void) set_hint(WITNESS);
}

/* Is the witness there?  False also if that can't be found out. */
bool
pmhash_has_witness(void)
{
	return get_hint() == WITNESS;
}

/*
 * The kernel is to be asked for failed writes, and until the answer has been written
 * down there must be no witness.  False if there may be one still: then don't ask.
 */
bool
pmhash_withdraw_witness(void)
{
	uint64_t	hint = get_hint();

	return hint == WITNESS ? set_hint(WITHDRAWN) : hint != UNKNOWN;
}

/* Has a process begun to ask, and not come to write down the answer, or given the pool up? */
bool
pmhash_witness_is_withdrawn(void)
{
	uint64_t	hint = get_hint();

	return hint == WITHDRAWN || hint == UNKNOWN;
}

/* It has been written down, or there was none. */
void
pmhash_restore_witness(void)
{
	if (pmhash_witness_is_withdrawn())
		pmhash_set_witness();
}

/* ==== what is trusted ==== */

/*
 * Does the token, if there is one, have the nonce of the pool: were this pool and its data
 * directory last used together?
 */
bool
pmhash_token_matches(const PmhashControl *control, bool has_token, const PmhashToken *token)
{
	return has_token &&
		(memcmp(token->nonce, control->nonce, PMHASH_NONCE_SIZE) == 0 ||
		 (control->nonce_pending &&
		  memcmp(token->nonce, control->old_nonce, PMHASH_NONCE_SIZE) == 0));
}

/*
 * The server is about to do without the pool, and what is in the pool will be out of step
 * with the tables.  No later start must take it for up to date.  So the token is removed; or,
 * if the data directory can't be written, the witness is withdrawn.  Neither needs space.
 * (The token of a start that could not be removed may stay: without that a server can't make
 * its postmaster.pid.)
 *
 * If both fail the server goes on nevertheless.  A start that finds the control file as it
 * is now judges it by pg_control, as after the life of a server that has no pmhash, which
 * takes nothing away either (wal_doubt): the one that begins now recovers and leaves a
 * checkpoint past all of the crashed one's WAL.  What it leaves out of an index it marks in
 * the stub.
 */
void
pmhash_refuse_trust(void)
{
	char		reason[PMHASH_REASON_SIZE];

	if (!pmhash_remove_token(reason) &&
		!(pmhash_pool_is_locked() && set_hint(WITHDRAWN)))
		ereport(LOG,
				(errmsg("pmhash can neither use its pool nor give it up: %s", reason),
				 errdetail("At a later start only the state of the server can show that the index files are not up to date.")));
}

/* ---- is the control file that of this WAL? ---- */

static const char *
wal_doubt(const PmhashControl *control, const PmhashServerState *server)
{
	/* It may have written WAL where that of the life before was lost. */
	if (control->state == PMHASH_POOL_STARTING)
		return "the last start went down before it used the pool";

	/*
	 * A server that had its journal has crashed, and this is the first start since.
	 * It left the server "in production" or about to shut down, and its mark.
	 */
	if (control->journal_instance != 0)
	{
		if (server->control.state != DB_IN_PRODUCTION &&
			server->control.state != DB_SHUTDOWNING)
			return "the server was shut down without the pool, or its WAL was reset";
		if (control->life_mark == 0 || control->life_mark != pmhash_life_mark_time())
			return "the server was started without the pool, or the data directory is a copy";
		return NULL;
	}
	if (server->control.checkPoint == control->clean_checkpoint &&
		server->control.state == DB_SHUTDOWNED)
		return NULL;
	return "the server has run without the pool since it was shut down";
}

/*
 * A standby is being started.  May it go on with what is in the pool?
 *
 * From the life of a primary: if that was shut down cleanly, and nothing has
 * happened since.  From that of a standby: if replay does not begin past the
 * checkpoints that it has replayed.  A life without the pool may have let redo get there;
 * as long as redo is not past them, all that such a life has skipped is replayed again.
 */
static const char *
standby_doubt(const PmhashControl *control, const PmhashServerState *server)
{
	if (control->role == PMHASH_ROLE_PRIMARY)
	{
		if (control->state == PMHASH_POOL_CLEAN && control->journal_instance == 0 &&
			server->control.state == DB_SHUTDOWNED &&
			server->control.checkPoint == control->clean_checkpoint)
			return NULL;
		return "the server was not shut down cleanly as a primary before it became a standby";
	}
	if (server->control.checkPointCopy.redo > control->seen_redo)
		return "this standby has replayed WAL without the pool";
	return NULL;
}

/* ---- is what was stored still in the page cache? ---- */

/*
 * Which file is the lock file?  Its inode, and when that was made, which
 * distinguish it from a copy that was put there instead.  0 where the file
 * system does not say when.  (dev_t would not do: it may change from boot to
 * boot.)
 */
static void
read_lock_identity(uint64 *inode, uint64 *birth)
{
	struct statx st;

	*inode = *birth = 0;
	if (statx(pmhash_pool_lock_fd(), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) != 0)
	{
		/* Old kernels, containers that forbid it.  Else not known now: unlike any. */
		*birth = errno == ENOSYS || errno == EPERM ? 0 : pmhash_random_id();
		return;
	}
	if ((st.stx_mask & STATX_BTIME) == 0)
		return;
	*inode = st.stx_ino;
	*birth = st.stx_btime.tv_sec * UINT64CONST(1000000000) + st.stx_btime.tv_nsec;
}

/*
 * The last server life did not end cleanly, and its page cache may be gone: unless the marker
 * is there.  That is in an inode that was in memory all the time since, hence so was all else
 * of that file system, whatever the id of the boot: a container runtime may give each start
 * one of its own.
 *
 * If it is gone, and the journal was there no file is any good, not even those that turn out to be
 * on persistent memory now: the file system may have been mounted without dax
 * then.  Nor if it was a standby's, which has no journal: what pmem says is of a life
 * before that, and which files were up to date was in the page cache (standby.c).
 */
static bool
check_page_cache(PmhashControl *control)
{
	bool		pmem = control->pmem && control->role != PMHASH_ROLE_STANDBY;

	if (pmhash_has_witness())
		return true;
	if (!pmem)
		control->journal_instance = 0;
	pmhash_renew_eras(control, pmem ? PMHASH_CACHE_FILES : PMHASH_ALL_FILES,
					  PMHASH_REASON_POWER);
	ereport(LOG,
			(errmsg("pmhash: the operating system went down, or the file system of the pool was unmounted, without a clean shutdown of the server"),
			 errdetail("Index files in \"%s\"%s are not trusted any more.", pmhash_pool_path(),
					   pmem ? " that are not on persistent memory" : "")));
	return false;
}

/* ---- the decision ---- */

/*
 * Why must no file be trusted?  NULL if there is no reason: data directory
 * and pool were last used together.  *reason: as the files' states have it.
 */
static const char *
reason_for_doubt(const PmhashControl *control, bool write_failed,
				 const PmhashServerState *server, PmhashReason *reason)
{
	const char *doubt;
	uint64		inode;
	uint64		birth;

	if (control->system_identifier != server->control.system_identifier)
		return "the server has got another system identifier";
	if (server->restored)
		return "the data directory has been restored from a backup, or rewound";
	if (control->role == PMHASH_ROLE_STANDBY && !server->standby)
		return "the server was a standby and has not used the pool as a primary";
	if (!server->has_token)
		return "the data directory was last used without this pool";
	if (!pmhash_token_matches(control, true, &server->token))
		return "data directory and pool were last used at different times";

	/*
	 * Has the pool been copied while it was in use?  A copy of a running server's
	 * pool, put back after a crash of the same server life, has everything that
	 * distinguishes server lives, but not what was inserted since.  After a clean
	 * shutdown a copy is as good as the original.  (For files in page cache the
	 * witness shows as much; this is for persistent memory.)
	 */
	read_lock_identity(&inode, &birth);
	if (control->state == PMHASH_POOL_RUNNING && control->lock_birth != 0 &&
		(inode != control->lock_inode || birth != control->lock_birth))
		return "the pool is a copy that was made while the server was running";

	/*
	 * May a process of the last server life have learned that something was not written
	 * back, and have been killed with that?  Only if it has taken the witness away before.
	 * Or the postmaster has asked already (pool_life.c, ask_before_server).
	 */
	if (write_failed || (control->state == PMHASH_POOL_RUNNING && pmhash_witness_is_withdrawn()))
	{
		*reason = PMHASH_REASON_WRITE_FAILED;
		return write_failed ? "the file system has failed to write something back" :
			"the server had to give them up, or went down while it asked whether all had been written back";
	}
	doubt = server->standby ? standby_doubt(control, server) : wal_doubt(control, server);
	if (doubt != NULL && control->state == PMHASH_POOL_STARTING)
		*reason = PMHASH_REASON_START_DIED;
	return doubt;
}

/* The same for a pool without a control file that could be read. */
static const char *
new_control(PmhashControl *control, PmhashControlRead found,
			const PmhashServerState *server)
{
	memset(control, 0, sizeof(*control));
	control->magic = PMHASH_CONTROL_MAGIC;
	control->version = PMHASH_POOL_VERSION;
	control->system_identifier = server->control.system_identifier;
	pmhash_renew_eras(control, PMHASH_ALL_FILES, PMHASH_REASON_APART);
	if (found == PMHASH_CONTROL_DAMAGED)
		return "its control file is damaged";
	if (found == PMHASH_CONTROL_OTHER_VERSION)
		return "another version of pmhash has used them";
	return server->has_token ? "the data directory was used with another pool" : NULL;
}

/*
 * What the server life that begins now starts from.  trusted: nothing speaks against the
 * files.
 *
 * A clean pool stays so until it is used: a start that comes to nothing has changed
 * nothing.  After a crash the first use is that of the journal, and a start that does not
 * come to it leaves STARTING.
 */
static void
begin_life(PmhashControl *control, const PmhashServerState *server, bool trusted)
{
	/* Some files may already have the stamp of a shutdown without our mark. */
	control->all_shut = control->state == PMHASH_POOL_CLEAN;
	control->shut_begun = control->all_shut ? 0 : control->next_shut;
	control->next_shut = pmhash_random_id();
	if (server->standby)
		control->state = PMHASH_POOL_RUNNING;
	else if (!trusted || control->state != PMHASH_POOL_CLEAN)
		control->state = PMHASH_POOL_STARTING;
	control->clean_checkpoint = control->state == PMHASH_POOL_CLEAN ?
		server->control.checkPoint : InvalidXLogRecPtr;
	control->system_identifier = server->control.system_identifier;

	/*
	 * A backup label takes pg_control back to the checkpoint that it names (xlog.c,
	 * StartupXLOG): after pg_rewind, and after a base backup in which there was a
	 * checkpoint.  The startup process finds out where that is (standby_redo.c, deal_with).
	 */
	control->seen_redo = server->standby && server->restored ?
		InvalidXLogRecPtr : server->control.checkPointCopy.redo;
	control->role = server->standby ? PMHASH_ROLE_STANDBY : PMHASH_ROLE_PRIMARY;
	read_lock_identity(&control->lock_inode, &control->lock_birth);
}

/*
 * Bring the control structure from what was found to what holds from now on.
 * found: what the control file is; write_failed: the kernel has failed to write something
 * back.  Returns what a standby begins with.
 */
PmhashStandbyStart
pmhash_decide(PmhashControl *control, PmhashControlRead found, bool write_failed,
			  const PmhashServerState *server)
{
	const char *doubt;
	PmhashStandbyStart start = PMHASH_STANDBY_FRESH;
	PmhashReason reason = PMHASH_REASON_APART;

	Assert(!IsUnderPostmaster);
	if (found != PMHASH_CONTROL_VALID)
		doubt = new_control(control, found, server);
	else
		doubt = reason_for_doubt(control, write_failed, server, &reason);

	if (doubt != NULL)
	{
		pmhash_trust_none(control, reason, doubt);
		control->journal_instance = 0;
	}
	else if ((control->state != PMHASH_POOL_RUNNING ||
			  check_page_cache(control)) &&
			 found == PMHASH_CONTROL_VALID)
		start = control->role == PMHASH_ROLE_STANDBY ? PMHASH_STANDBY_RESUME :
			PMHASH_STANDBY_DEMOTED;

	begin_life(control, server, doubt == NULL);
	return start;
}
