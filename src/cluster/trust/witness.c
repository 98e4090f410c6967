/*-------------------------------------------------------------------------
 *
 * witness.c
 *	  The witness of the page cache: a write life time hint on the lock file.
 *
 * It is in the inode as the kernel has it in memory, and nowhere else.  Whatever loses
 * pages of the pool's files loses that inode too: a boot, an unmount, a shut-down of the
 * file system, a copy, a snapshot.  The hint itself is of no consequence for a file of
 * 20 bytes.  trust.c goes by it.
 *
 * Raises no error.  For the postmaster too.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "postgres.h"

#include <fcntl.h>

#include "cluster/trust/witness.h"

/* What has been stored is in the page cache still. */
#define WITNESS			((uint64_t) RWH_WRITE_LIFE_EXTREME)

/*
 * In its place: nothing in the pool is to be trusted.  To say so needs no medium
 * that can be written, and goes with the inode, hence with the witness.
 */
#define REVOKED			((uint64_t) RWH_WRITE_LIFE_SHORT)

/*
 * In its place while the kernel is asked whether it has failed to write something back.
 * It answers once: if the process that learns of it dies before it has written that
 * down, this is all that is left of it.
 */
#define ASKING			((uint64_t) RWH_WRITE_LIFE_LONG)

/*
 * Set the witness.  Only once the control file says what is to be trusted from
 * here on.  Where it can't be set there is none, and a crash of the whole
 * server costs the files in page cache.
 */
void
pmhash_set_witness(int lock_fd)
{
	uint64_t	hint = WITNESS;

	(void) fcntl(lock_fd, F_SET_RW_HINT, &hint);
}

/* Does an error of fcntl say that the system knows no such hints?  Then there is none. */
static bool
knows_no_hints(int error)
{
	return error == EINVAL || error == ENOSYS;
}

/* Is that what the inode of the lock file says? */
static bool
has_hint(int lock_fd, uint64_t wanted)
{
	uint64_t	hint = 0;

	return fcntl(lock_fd, F_GET_RW_HINT, &hint) == 0 && hint == wanted;
}

/* Is the witness there?  False also if that can't be found out. */
bool
pmhash_has_witness(int lock_fd)
{
	return has_hint(lock_fd, WITNESS);
}

/*
 * Say in the inode of the lock file that nothing is to be trusted, until a
 * server life has written that down.  False with errno if that can't be said.
 */
bool
pmhash_revoke_trust(int lock_fd)
{
	uint64_t	hint = REVOKED;

	return fcntl(lock_fd, F_SET_RW_HINT, &hint) == 0;
}

/*
 * Has that been done?  Assumed as well if it can't be read, except where the system
 * knows no such hints: then it can't have been done either.
 */
bool
pmhash_trust_is_revoked(int lock_fd)
{
	uint64_t	hint = 0;

	if (fcntl(lock_fd, F_GET_RW_HINT, &hint) != 0)
		return !knows_no_hints(errno);
	return hint == REVOKED;
}

/*
 * The kernel is to be asked for failed writes, and until the answer has been written
 * down there must be no witness.  False if there may be one still: then don't ask.
 */
bool
pmhash_withdraw_witness(int lock_fd)
{
	uint64_t	hint = 0;

	if (fcntl(lock_fd, F_GET_RW_HINT, &hint) != 0)
		return knows_no_hints(errno);
	if (hint != WITNESS)
		return true;
	hint = ASKING;
	return fcntl(lock_fd, F_SET_RW_HINT, &hint) == 0;
}

/* Has a process begun to ask, and not come to write down the answer? */
bool
pmhash_witness_is_withdrawn(int lock_fd)
{
	return has_hint(lock_fd, ASKING);
}

/* It has been, or there was none.  Trust that has been revoked stays so. */
void
pmhash_restore_witness(int lock_fd)
{
	if (has_hint(lock_fd, ASKING))
		pmhash_set_witness(lock_fd);
}
