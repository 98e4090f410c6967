/*-------------------------------------------------------------------------
 *
 * pool_lock.c
 *	  The lock on the pool: which server uses it, and whether it is still there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "postgres.h"

#include "miscadmin.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/base/control_file.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"

#define LOCK_WAIT_MS	5000	/* for the last processes of a dead server */
#define LOCK_STEP_MS	50

/* The lock file, held by the postmaster, inherited; or -1. */
static int	lock_fd = -1;

/*
 * Give the lock up.  A pool that is not ours is its owner's: don't keep that server
 * out.
 */
void
pmhash_pool_unlock(void)
{
	if (lock_fd >= 0)
	{
		flock(lock_fd, LOCK_UN);
		close(lock_fd);
	}
	lock_fd = -1;
}

/*
 * The descriptor of the lock file, or -1.  Children have it from the postmaster, and all ask
 * the kernel by it (pool_files.c).
 */
int
pmhash_pool_lock_fd(void)
{
	return lock_fd;
}

/* Has this server locked a pool, whether it can use it or not? */
bool
pmhash_pool_is_locked(void)
{
	return lock_fd >= 0;
}

/*
 * Is the directory still the one that this server has locked?  Not if it has
 * been unmounted, moved, removed or replaced since: then nothing must be made
 * or changed in what stands there instead.  For any process of a server that
 * uses its pool; children have the descriptor from the postmaster.
 */
bool
pmhash_pool_is_present(void)
{
	char		path[MAXPGPATH];
	struct stat there;
	struct stat ours;

	snprintf(path, MAXPGPATH, "%s/lock", pmhash_pool_path());
	return stat(path, &there) == 0 && fstat(lock_fd, &ours) == 0 &&
		there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
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
				 errmsg("the directory of pmhash has been unmounted, removed or replaced"),
				 errdetail("It is not the directory that was there when the server was started."),
				 errhint("Put it back, or restart the server to have the indexes rebuilt in what is there now.")));
}

/*
 * Lock the pool against other servers.  flock belongs to the open file, so
 * children keep it after the postmaster is killed, as long as one of them
 * writes.  A new postmaster on this data directory may meet the last of them
 * (syslogger), and waits for those.  A lock that we have is given up first.
 *
 * The lock file is written before all else is known of the pool, so not through a link, and
 * what stands in its place must not hold the postmaster up, as the reading end of a fifo
 * would.
 */
bool
pmhash_pool_lock(char *reason)
{
	int			flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	char		path[MAXPGPATH];
	struct stat st;
	bool		locked = true;

	Assert(!IsUnderPostmaster);
	pmhash_pool_unlock();
	snprintf(path, MAXPGPATH, "%s/lock", pmhash_pool_path());
	lock_fd = open(path, flags, 0600);
	if (lock_fd < 0)
		return pmhash_fail(reason, "could not open file \"%s\": %s", path, strerror(errno));
	if (fstat(lock_fd, &st) != 0 || !S_ISREG(st.st_mode))
		locked = pmhash_fail(reason, "\"%s\" is not a file", path);
	for (int waited = 0; locked && flock(lock_fd, LOCK_EX | LOCK_NB) != 0; waited += LOCK_STEP_MS)
	{
		if (errno != EWOULDBLOCK && errno != EINTR)
			locked = pmhash_fail(reason, "could not lock file \"%s\": %s", path, strerror(errno));
		else if (waited >= LOCK_WAIT_MS)
			locked = pmhash_fail(reason, "directory \"%s\" is in use by another server",
								 pmhash_pool_path());
		else
			pg_usleep(LOCK_STEP_MS * 1000L);
	}
	if (!locked)
		pmhash_pool_unlock();
	return locked;
}
