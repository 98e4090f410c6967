/*-------------------------------------------------------------------------
 *
 * pool.c
 *	  The lock on the pool: which server uses it, and whether it is still there.  The files
 *	  in it, one after the other; writing them back, asking each whether that failed.
 *
 * Writing back.  While the kernel is asked the witness is away (trust.c), so that a
 * process which is killed then takes trust with it.  syncfs() writes all that is
 * dirty, which takes seconds or minutes, and containers are killed 10 seconds after they
 * were to stop.  So what is dirty is written first, file by file, as long as the witness
 * is there.  sync_file_range() does not say for certain that it was written, and what
 * fails it notes with the inode alone: the file system's own note of it, which the
 * syncfs() after it returns, stays (Linux, mapping_set_error, errseq_check_and_advance).
 *
 * Asking, where syncfs() says nothing of a file.  fsync() by a file that has just been
 * opened reports each failure to write that file back that no process has learned of by
 * an fsync() yet, whichever has stored the page (Linux 4.17, errseq_sample).  The note of
 * it is in the file's inode.  All files are asked: a page of the journal, or of what a
 * standby notes, may be gone as well.
 *
 * syncfs() on one file writes all of a file system back, and reports that something could
 * not be written: each failure once for an open file (Linux 5.8: errseq of the super
 * block, fs/sync.c).  A failure counts wherever it comes from.  That there is none can
 * only be believed of a file system that notes each failure in the super block that the
 * file asked by belongs to.  On overlayfs, where the root file system of a container
 * lies, failures are noted in that of the upper layer, and syncfs() on the overlay looks
 * into its own (as of Linux 6.18).  Whatever is not known to report them is asked file by
 * file, as PostgreSQL does: fsync() is handed on to where the file lies.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "miscadmin.h"

#include "cluster/base/control_file.h"
#include "cluster/pool/pool.h"

/* ==== the lock ==== */

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
 * the kernel by it.
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

/* ==== the files ==== */

/* Bytes that are written back at a time: what a device writes in less than a second. */
#define PIECE			((off_t) 64 * 1024 * 1024)

/*
 * Go to the next file of the pool; false after the last.  A directory that can't be read is
 * left out.  Files that come or go meanwhile may be, too.  Raises no error.
 */
bool
pmhash_next_file(PmhashFileWalk *walk)
{
	char		directory[MAXPGPATH];

	Assert(walk->pool != NULL || walk->inner == NULL);
	if (walk->pool == NULL)
		walk->pool = opendir(pmhash_pool_path());
	if (walk->pool == NULL)
		walk->error = errno;
	while (walk->pool != NULL)
	{
		DIR		   *dir = walk->inner != NULL ? walk->inner : walk->pool;
		struct dirent *de;

		errno = 0;				/* readdir does not tell the end from a failure else */
		de = readdir(dir);
		if (de == NULL)
		{
			if (errno != 0)
				walk->error = errno;
			closedir(dir);
			if (walk->inner == NULL)
				walk->pool = NULL;
			walk->inner = NULL;
			walk->database = InvalidOid;
		}
		else if (walk->inner == NULL && pmhash_parse_database_name(de->d_name, &walk->database))
		{
			pmhash_database_path(directory, walk->database);
			walk->inner = opendir(directory);
			if (walk->inner == NULL && errno != ENOENT)
				walk->error = errno;
		}
		else if (de->d_name[0] != '.')
		{
			walk->file_id = 0;
			if (walk->inner == NULL)
			{
				walk->database = InvalidOid;
				strlcpy(directory, pmhash_pool_path(), MAXPGPATH);
			}
			else
			{
				pmhash_database_path(directory, walk->database);
				(void) pmhash_parse_file_name(de->d_name, &walk->file_id);
			}
			snprintf(walk->path, MAXPGPATH, "%s/%s", directory, de->d_name);
			return true;
		}
	}
	return false;
}

/* The walk is over, before its end or there. */
void
pmhash_end_walk(PmhashFileWalk *walk)
{
	if (walk->inner != NULL)
		closedir(walk->inner);
	if (walk->pool != NULL)
		closedir(walk->pool);
	walk->pool = walk->inner = NULL;
}

/* ---- writing back ---- */

/*
 * Write all index files back that a syncfs() on the pool is going to (its device, 0:
 * none), and wait for that.  What fails, or is left out, that syncfs() does and tells
 * of, also of what they grow by meanwhile.  Each other file of the pool is asked: ask, unless
 * NULL, does it, by a descriptor that is closed after it.  Raises no error, nor may ask; holds
 * up to three descriptors.  For the postmaster too.
 *
 * A file that cannot be opened is left out.  A process that opens it to use it meets the same,
 * and what the kernel has not said of it, it says after the next checkpoint.
 *
 * go_on is called after each file that was asked, and each piece of one that was written, of
 * 64 MB at the most, so that a process can do meanwhile what others wait for; false has the
 * rest left out.  NULL: nothing is done.  An error that it raises must be the end of the
 * process.
 *
 * False if go_on or ask says so; if all files are to be asked, and the pool is not where it
 * was.
 */
bool
pmhash_pool_write_back_or_ask(uint64 device, PmhashAskFile ask, PmhashGoOn go_on)
{
	PmhashFileWalk walk = {0};
	bool		going = true;

	/* What stands there instead is not ours to ask: its owner would ask in vain. */
	if (ask != NULL && !pmhash_pool_is_present())
		return device != 0;
	if (device == 0 && ask == NULL)
		return true;
	while (going && pmhash_next_file(&walk))
	{
		struct stat st;
		bool		spoken_for;
		int			fd;

		if ((OidIsValid(walk.database) && walk.file_id == 0) ||
			stat(walk.path, &st) != 0 || !S_ISREG(st.st_mode))
			continue;
		spoken_for = st.st_dev == device;
		if (spoken_for ? walk.file_id == 0 : ask == NULL)
			continue;
		fd = open(walk.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			continue;
		if (!spoken_for)
			going = ask(fd, walk.path) && (go_on == NULL || go_on());
		for (off_t at = 0; spoken_for && going && at < st.st_size; at += PIECE)
		{
			(void) sync_file_range(fd, at, PIECE, SYNC_FILE_RANGE_WAIT_BEFORE |
								   SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
			going = go_on == NULL || go_on();
		}
		close(fd);
	}
	pmhash_end_walk(&walk);
	return going;
}

/* ==== syncfs ==== */

/*
 * File systems (statfs, f_type) that have been seen to report failures: ext2, 3 and 4, xfs,
 * btrfs.  And tmpfs, which has nowhere to write to.
 */
static const uint32 reporting[] = {0xEF53, 0x58465342, 0x9123683E, 0x01021994};

/*
 * The device whose files one syncfs on the lock file writes back, telling of each
 * failure as fsync does.  0: that cannot be relied upon with this kernel or on this file
 * system, or is not known.  The pool is locked.
 */
uint64
pmhash_device_of_syncfs(void)
{
	struct utsname kernel;
	unsigned	major;
	unsigned	minor;
	struct statfs fs;
	struct stat st;

	Assert(pmhash_pool_is_locked());
	if (uname(&kernel) != 0 || strcmp(kernel.sysname, "Linux") != 0 ||
		sscanf(kernel.release, "%u.%u", &major, &minor) != 2 ||
		major < 5 || (major == 5 && minor < 8) ||	/* it tells from 5.8 on */
		fstatfs(lock_fd, &fs) != 0 || fstat(lock_fd, &st) != 0)
		return 0;
	for (int i = 0; i < (int) lengthof(reporting); i++)
	{
		if ((uint32) fs.f_type == reporting[i])
			return st.st_dev;
	}
	return 0;
}

/*
 * Has the kernel failed to write back something to the pool's file system, since
 * the last call or since the pool was locked?  Then pages of an index file may
 * be gone from the page cache, or may go, and older ones come from the disk.
 * All processes share the postmaster's open file.  It writes everything back first, so
 * ask no more often than checkpoints come.  False with errno if something has failed.
 * True says nothing of files that are not on pmhash_device_of_syncfs.
 */
bool
pmhash_pool_sync(void)
{
	Assert(pmhash_pool_is_locked());
	return syncfs(lock_fd) == 0;
}
