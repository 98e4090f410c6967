/*-------------------------------------------------------------------------
 *
 * control_file.c
 *	  The control file of the pool: what is known of all its files together.
 *
 * It is written by the postmaster, alone, or under the pool lock.  Functions here
 * raise no ERROR: that would keep the server from starting.  They return false with
 * a reason in reason[PMHASH_REASON_SIZE].
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_crc32c.h"
#include "utils/timestamp.h"

#include "cluster/base/control_file.h"
#include "cluster/base/data_directory.h"
#include "cluster/base/durable.h"
#include "cluster/base/pool_names.h"
#define CONTROL_FILE	"control"

/* A random number that is not 0. */
uint64
pmhash_random_id(void)
{
	uint64		id = 0;

	while (id == 0)
	{
		if (!pg_strong_random(&id, sizeof(id)))
			id = ((uint64) random() << 32) ^ (uint64) random() ^
				(uint64) GetCurrentTimestamp();
	}
	return id;
}

/*
 * Distrust the files that lived in the page cache, or all files, which is for a reason:
 * see PmhashControl.  Takes effect when the control file is written.
 */
void
pmhash_renew_eras(PmhashControl *control, PmhashFileClass which, PmhashReason reason)
{
	control->cache_era = pmhash_random_id();
	if (which != PMHASH_ALL_FILES)
		return;
	control->ended_reason = reason;
	control->dax_era = pmhash_random_id();
}

static pg_crc32c
control_crc(const PmhashControl *control)
{
	PmhashControl copy = *control;
	pg_crc32c	crc;

	copy.crc = 0;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &copy, sizeof(copy));
	FIN_CRC32C(crc);
	return crc;
}

/*
 * Write the control file.  Serialised by the pool lock, or by being alone
 * (postmaster with no children, startup process).  False with a reason if
 * that fails; the old contents are then still valid.
 */
bool
pmhash_pool_write_control(PmhashControl *control, char *reason)
{
	control->crc = control_crc(control);
	return pmhash_replace_durably(pmhash_pool_path(), CONTROL_FILE,
								  control, sizeof(*control), reason);
}

/*
 * Read the control file of the pool.  If another version of pmhash has written it, all
 * that is known is whose it was.  REFUSED, with a reason, if it can't be read.
 */
PmhashControlRead
pmhash_control_read(PmhashControl *control, char *reason)
{
	char		path[MAXPGPATH];
	ssize_t		n;

	snprintf(path, MAXPGPATH, "%s/" CONTROL_FILE, pmhash_pool_path());
	n = pmhash_read_small(path, control, sizeof(*control));
	if (n < 0 && errno == ENOENT)
		return PMHASH_CONTROL_ABSENT;
	if (n < 0)
	{
		pmhash_fail(reason, "could not read file \"%s\": %s", path, strerror(errno));
		return PMHASH_CONTROL_REFUSED;
	}
	if (n >= (ssize_t) offsetof(PmhashControl, start_counter) &&
		control->magic == PMHASH_CONTROL_MAGIC &&
		control->version != PMHASH_POOL_VERSION)
		return PMHASH_CONTROL_OTHER_VERSION;
	if (n != sizeof(*control) || control->magic != PMHASH_CONTROL_MAGIC ||
		control->crc != control_crc(control))
		return PMHASH_CONTROL_DAMAGED;
	return PMHASH_CONTROL_VALID;
}

StaticAssertDecl(sizeof(PmhashControl) <= PMHASH_SMALL_FILE &&
				 sizeof(PmhashToken) <= PMHASH_SMALL_FILE,
				 "files of durable.c are small");

/*
 * Make away with the control file: whatever the token in the data directory says,
 * nothing is trusted then.  True if it is gone; else false with a reason.
 */
bool
pmhash_control_remove(char *reason)
{
	return pmhash_remove_durably(pmhash_pool_path(), CONTROL_FILE,
								 sizeof(PmhashControl), reason);
}

/* ---- the nonce ---- */

static void
new_nonce(PmhashControl *control)
{
	for (int i = 0; i < PMHASH_NONCE_SIZE; i += sizeof(uint64))
	{
		uint64		id = pmhash_random_id();

		memcpy(control->nonce + i, &id, sizeof(id));
	}
}

/*
 * Renew the nonce in pool and data directory, at start.  While it is pending
 * the old one counts as well, so that a crash between the two writes is no time
 * travel.  It is so until the first use; on a standby, to the end of its life.  There a
 * data directory put back from the life before is no harm: what its files have is
 * compared with where replay begins (trust.c, standby_doubt), they are not used before
 * that has come as far, and it was not promoted (promotion_doubt).
 */
bool
pmhash_control_first_nonce(PmhashControl *control, const PmhashServerState *server,
					 char *reason)
{
	memcpy(control->old_nonce, server->token.nonce, PMHASH_NONCE_SIZE);
	new_nonce(control);
	control->nonce_pending = server->has_token;
	return pmhash_pool_write_control(control, reason) &&
		pmhash_write_token(control->nonce, 0, reason);
}

/*
 * Has the last renewal come no further than the control file?  Then the token has
 * the old nonce still, which another renewal would let count no more.
 */
static bool
token_lags(const PmhashControl *control)
{
	PmhashToken token;

	return control->nonce_pending &&
		!(pmhash_read_token(&token) &&
		  memcmp(token.nonce, control->nonce, PMHASH_NONCE_SIZE) == 0);
}

/*
 * The same later in the server life: now and then, and at its end.  So a pool
 * or a data directory put back from an earlier moment of it is noticed, too.
 * checkpoint: see PmhashToken.  Under the pool lock, or alone.
 */
bool
pmhash_pool_renew_nonce(PmhashControl *control, uint64 checkpoint, char *reason)
{
	if (!token_lags(control))
	{
		memcpy(control->old_nonce, control->nonce, PMHASH_NONCE_SIZE);
		new_nonce(control);
	}
	control->nonce_pending = 1;
	if (!pmhash_pool_write_control(control, reason) ||
		!pmhash_write_token(control->nonce, checkpoint, reason))
		return false;
	control->nonce_pending = 0;
	return pmhash_pool_write_control(control, reason);
}
