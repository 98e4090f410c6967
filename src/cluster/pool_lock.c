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

#include "cluster/cluster.h"
#include "cluster/durable.h"
#include "cluster/pool_lock.h"
#include "cluster/pool_names.h"

#define LOCK_WAIT_MS	5000	/* for the last processes of a dead server */
#define LOCK_STEP_MS	50
#define LOCK_TEXT		16		/* bytes in the lock file */

/*
 * The lock file, or the directory where there is none to be had (pmhash_pool_lock).  Held
 * by the postmaster, inherited.
 */
static int	lock_fd = -1;
static bool is_directory = false;

/* The directory itself, locked as well; -1 where that can't be. */
static int	directory_fd = -1;

/*
 * What lock_fd is, once more, to ask through: an open file reports a failed write
 * once, and what one process has learned by this one before it was killed, the
 * postmaster can still learn by the other.
 */
static int	ask_fd = -1;

/* What came of an attempt to lock something. */
typedef enum LockResult
{
	LOCKED,
	IN_USE,						/* by another server */
	NOT_LOCKED					/* that can't be done; see errno */
} LockResult;

/* Is the process that wrote its id into the lock file still there? */
static bool
holder_is_alive(int fd)
{
	char		text[32] = {0};
	pid_t		pid;

	if (fd < 0 || pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return false;
	pid = (pid_t) atol(text);
	return pid > 1 && pid != getpid() && (kill(pid, 0) == 0 || errno == EPERM);
}

static void
let_go(int *fd)
{
	if (*fd < 0)
		return;
	flock(*fd, LOCK_UN);
	close(*fd);
	*fd = -1;
}

/*
 * Give the lock up.  A pool that is not ours is its owner's: don't keep that server
 * out.
 */
void
pmhash_pool_unlock(void)
{
	let_go(&lock_fd);
	let_go(&ask_fd);
	let_go(&directory_fd);
}

/*
 * The descriptor of the lock file, or of what stands in for it, or -1.  Children have it
 * from the postmaster.
 */
int
pmhash_pool_lock_fd(void)
{
	return lock_fd;
}

/* That of the same once more, to ask the kernel by (syncfs.c). */
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

/* Without a lock file, by its directory alone? */
bool
pmhash_pool_lock_is_directory(void)
{
	return is_directory;
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

	snprintf(path, MAXPGPATH, is_directory ? "%s" : "%s/lock", pmhash_pool_path());
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
				 pmhash_may_see_details(NULL) ?
				 errmsg("directory \"%s\" has been unmounted, removed or replaced",
						pmhash_pool_path()) :
				 errmsg("the directory of pmhash has been unmounted, removed or replaced"),
				 errdetail("It is not the directory that was there when the server was started."),
				 errhint("Put it back, or restart the server to have the indexes rebuilt in what is there now.")));
}

/*
 * Say in the lock file which process has the lock, so that a server that meets it need
 * not wait.  Always as many bytes, so that a full disk does not matter; where it can't be
 * written, for whatever reason, the lock does without.
 */
static void
sign_lock(int fd)
{
	char		text[LOCK_TEXT];

	memset(text, ' ', sizeof(text));
	snprintf(text, sizeof(text), "%d", (int) getpid());
	text[strlen(text)] = ' ';
	text[sizeof(text) - 1] = '\n';
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY &&
		pwrite(fd, text, sizeof(text), 0) < 0)
		ereport(DEBUG1, (errmsg_internal("pmhash: could not sign the lock file: %m")));
}

/* ---- what is opened ---- */

/*
 * open(), which waits if others have what it needs: a start that gave up for that would
 * be without pmhash until the next one.
 */
static int
open_patiently(const char *path, int flags)
{
	for (int waited = 0;; waited += LOCK_STEP_MS)
	{
		int			fd = open(path, flags | O_CLOEXEC, 0600);

		if (fd >= 0 || waited >= LOCK_WAIT_MS ||
			(errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != EINTR))
			return fd;
		pg_usleep(LOCK_STEP_MS * 1000L);
	}
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
	int			flags = O_NOFOLLOW | O_NONBLOCK;
	int			fd = open_patiently(path, O_RDWR | O_CREAT | flags);
	int			save_errno = errno;
	struct stat st;

	if (fd < 0)
		fd = open(path, O_RDONLY | O_CLOEXEC | flags);
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

/* ---- what is locked ---- */

/* Lock an open file.  signed_fd: where its holder may have written its id, or -1. */
static LockResult
lock_open_file(int fd, int signed_fd)
{
	for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited += LOCK_STEP_MS)
	{
		if (errno != EWOULDBLOCK && errno != EINTR)
			return NOT_LOCKED;
		if (waited >= LOCK_WAIT_MS || holder_is_alive(signed_fd))
			return IN_USE;
		pg_usleep(LOCK_STEP_MS * 1000L);
	}
	return LOCKED;
}

/* Lock the directory, into directory_fd. */
static LockResult
lock_directory(int signed_fd)
{
	LockResult	result = NOT_LOCKED;
	int			save_errno;

	directory_fd = open_patiently(pmhash_pool_path(), O_RDONLY | O_DIRECTORY);
	if (directory_fd >= 0)
		result = lock_open_file(directory_fd, signed_fd);
	save_errno = errno;
	if (directory_fd >= 0 && result != LOCKED)
	{
		close(directory_fd);
		directory_fd = -1;
	}
	errno = save_errno;
	return result;
}

/*
 * Lock the lock file, *fd, if there is one.  If it can't be locked *fd becomes -1, with a
 * reason.
 */
static LockResult
lock_file(int *fd, const char *path, char *reason)
{
	LockResult	result = NOT_LOCKED;

	if (*fd >= 0)
		result = lock_open_file(*fd, *fd);
	if (*fd < 0 || result == LOCKED)
		return result;
	if (result == NOT_LOCKED)
		pmhash_fail(reason, "could not lock file \"%s\": %s", path, strerror(errno));
	close(*fd);
	*fd = -1;
	return result;
}

/*
 * Both are locked, or one of them.  Have lock_fd and ask_fd, of fd, the lock file, or of
 * the directory if that is -1.
 */
static bool
keep_locks(int fd, const char *path, char *reason)
{
	is_directory = fd < 0;
	if (is_directory)
		fd = open_patiently(path, O_RDONLY | O_DIRECTORY);
	ask_fd = open_patiently(path, O_RDONLY);
	lock_fd = fd;
	return (fd >= 0 && ask_fd >= 0) ||
		pmhash_fail(reason, "could not open \"%s\": %s", path, strerror(errno));
}

/*
 * Lock the pool against other servers.  flock belongs to the open file, so
 * children keep it after the postmaster is killed, as long as one of them
 * writes.  A new postmaster on this data directory may meet the last of them
 * (syslogger); it waits for those, but not for a living other postmaster.  A lock that
 * we have is given up first.
 *
 * The directory is locked, and the file in it that is there to be locked.  One of both
 * is enough, so nothing that stands in the place of the file, and no lack of space for
 * it, keeps a server from its pool; each server tries both, so they meet.  Without the
 * file the directory's inode has the hints (witness.c), and no life that does not end in
 * order is trusted (trust.c, copy_doubt).
 */
bool
pmhash_pool_lock(char *reason)
{
	char		path[MAXPGPATH];
	int			fd;
	bool		in_use;

	pmhash_pool_unlock();
	snprintf(path, MAXPGPATH, "%s/lock", pmhash_pool_path());
	fd = open_lock(path, reason);
	in_use = lock_directory(fd) == IN_USE || lock_file(&fd, path, reason) == IN_USE;
	if (in_use)
		pmhash_fail(reason, "directory \"%s\" is in use by another server",
					pmhash_pool_path());
	else if (fd >= 0)
		sign_lock(fd);
	else if (directory_fd >= 0)
		ereport(LOG,
				(errmsg("pmhash: %s", reason),
				 errdetail("The directory is locked instead. Index files in it are not trusted after a crash of the server."),
				 errhint("Remove what stands there, if anything does; the next start makes a new file.")));
	if (!in_use && (fd >= 0 || directory_fd >= 0) &&
		keep_locks(fd, fd >= 0 ? path : pmhash_pool_path(), reason))
		return true;
	if (in_use && fd >= 0)
		close(fd);
	pmhash_pool_unlock();
	return false;
}
