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

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/durable.h"
#include "cluster/pool_lock.h"
#include "cluster/pool_names.h"

#define LOCK_WAIT_MS	5000	/* for the last processes of a dead server */
#define LOCK_TEXT		16		/* bytes in the lock file */

static int	lock_fd = -1;		/* held by the postmaster, inherited */

/*
 * The lock file once more, to ask through: an open file reports a failed write
 * once, and what one process has learned by this one before it was killed, the
 * postmaster can still learn by the other.
 */
static int	ask_fd = -1;

/* Is the process that wrote its id into the lock file still there? */
static bool
holder_is_alive(int fd)
{
	char		text[32] = {0};
	pid_t		pid;

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return false;
	pid = (pid_t) atol(text);
	return pid > 1 && pid != getpid() && (kill(pid, 0) == 0 || errno == EPERM);
}

/*
 * Give the lock up.  A pool that is not ours is its owner's: don't keep that server
 * out.
 */
void
pmhash_pool_unlock(void)
{
	flock(lock_fd, LOCK_UN);
	close(lock_fd);
	close(ask_fd);
	lock_fd = ask_fd = -1;
}

/* The descriptor of the locked file, or -1.  Children have it from the postmaster. */
int
pmhash_pool_lock_fd(void)
{
	return lock_fd;
}

/* That of the same file, to ask the kernel by (syncfs.c). */
int
pmhash_pool_ask_fd(void)
{
	return ask_fd;
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
 * Say in the lock file which process has the lock.  Always as many bytes, so
 * that a full disk does not matter.  On a file system that can't be written the
 * lock does without.
 */
static bool
sign_lock(int fd, const char *path, char *reason)
{
	char		text[LOCK_TEXT];

	memset(text, ' ', sizeof(text));
	snprintf(text, sizeof(text), "%d", (int) getpid());
	text[strlen(text)] = ' ';
	text[sizeof(text) - 1] = '\n';
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY ||
		pwrite(fd, text, sizeof(text), 0) == (ssize_t) sizeof(text))
		return true;
	return pmhash_fail(reason, "could not write file \"%s\": %s", path,
					   strerror(errno));
}

/*
 * Open the lock file: for reading if it can't be written, whatever the reason is (a mode,
 * "chattr +i", a file system), as without the lock nothing can be tried again later.  It
 * is written before all else is known of the pool, so not through a link, and what stands
 * in its place must not hold the postmaster up, as the reading end of a fifo would.  -1
 * with a reason.
 */
static int
open_lock(const char *path, char *reason)
{
	int			flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	int			fd = open(path, O_RDWR | O_CREAT | flags, 0600);
	int			save_errno = errno;
	struct stat st;

	if (fd < 0)
		fd = open(path, O_RDONLY | flags);
	if (fd < 0)
		pmhash_fail(reason, "could not open file \"%s\": %s", path, strerror(save_errno));
	else if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
	{
		pmhash_fail(reason, "\"%s\" is not a file", path);
		close(fd);
		fd = -1;
	}
	return fd;
}

static bool
open_to_ask(const char *path, char *reason)
{
	ask_fd = open(path, O_RDONLY | O_CLOEXEC);
	return ask_fd >= 0 ||
		pmhash_fail(reason, "could not open file \"%s\": %s", path, strerror(errno));
}

/*
 * Lock the pool against other servers.  flock belongs to the open file, so
 * children keep it after the postmaster is killed, as long as one of them
 * writes.  A new postmaster on this data directory may meet the last of them
 * (syslogger); it waits for those, but not for a living other postmaster.  A lock that
 * we have is given up first.
 */
bool
pmhash_pool_lock(char *reason)
{
	char		path[MAXPGPATH];
	int			fd;

	if (lock_fd >= 0)
		pmhash_pool_unlock();
	snprintf(path, MAXPGPATH, "%s/lock", pmhash_pool_path());
	fd = open_lock(path, reason);
	if (fd < 0)
		return false;
	for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited += 50)
	{
		if (errno != EWOULDBLOCK || holder_is_alive(fd) || waited >= LOCK_WAIT_MS)
		{
			pmhash_fail(reason, "directory \"%s\" is in use by another server",
						pmhash_pool_path());
			close(fd);
			return false;
		}
		pg_usleep(50 * 1000L);
	}
	if (!sign_lock(fd, path, reason) || !open_to_ask(path, reason))
	{
		close(fd);
		return false;
	}
	lock_fd = fd;
	return true;
}
