/*-------------------------------------------------------------------------
 *
 * syncfs.c
 *	  What syncfs() says of the pool, and where its word is worth something.
 *
 * syncfs() on one file writes all of a file system back, and reports that something could
 * not be written: each failure once for an open file (Linux 5.8: errseq of the super
 * block, fs/sync.c).  A failure counts wherever it comes from.  That there is none can
 * only be believed of a file system that notes each failure in the super block that the
 * file asked by belongs to.  On overlayfs, where the root file system of a container
 * lies, failures are noted in that of the upper layer, and syncfs() on the overlay looks
 * into its own (as of Linux 6.18).  Whatever is not known to report them is asked file by
 * file (pool_files.c), as PostgreSQL does: fsync() is handed on to where the file lies.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "postgres.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cluster/base/durable.h"
#include "cluster/base/pool_names.h"
#include "cluster/pool/pool.h"

/* From this Linux on syncfs reports failures. */
#define SYNCFS_MAJOR	5
#define SYNCFS_MINOR	8

/*
 * File systems (statfs, f_type) that have been seen to report them: ext2, 3 and 4, xfs,
 * btrfs.  And tmpfs, which has nowhere to write to.
 */
static const uint32 reporting[] = {0xEF53, 0x58465342, 0x9123683E, 0x01021994};

static bool
kernel_reports(void)
{
	struct utsname kernel;
	unsigned	major;
	unsigned	minor;

	return uname(&kernel) == 0 && strcmp(kernel.sysname, "Linux") == 0 &&
		sscanf(kernel.release, "%u.%u", &major, &minor) == 2 &&
		(major > SYNCFS_MAJOR || (major == SYNCFS_MAJOR && minor >= SYNCFS_MINOR));
}

static bool
file_system_reports(void)
{
	struct statfs fs;

	if (fstatfs(pmhash_pool_lock_fd(), &fs) != 0)
		return false;
	for (int i = 0; i < (int) lengthof(reporting); i++)
	{
		if ((uint32) fs.f_type == reporting[i])
			return true;
	}
	return false;
}

/*
 * The device whose files one syncfs on the lock file writes back, telling of each
 * failure as fsync does.  0: that cannot be relied upon with this kernel or on this file
 * system, or is not known.  The pool is locked.
 */
uint64
pmhash_device_of_syncfs(void)
{
	struct stat st;

	if (!kernel_reports() || !file_system_reports() ||
		fstat(pmhash_pool_lock_fd(), &st) != 0)
		return 0;
	return st.st_dev;
}

/*
 * Has the kernel failed to write back something to the pool's file system, since
 * the last call or since the pool was locked?  Then pages of an index file may
 * be gone from the page cache, or may go, and older ones come from the disk.
 * All processes share the postmaster's open file.  It writes everything back first, so
 * ask no more often than checkpoints come.  False with a reason if something has failed.
 * True says nothing of files that are not on pmhash_device_of_syncfs.
 */
bool
pmhash_pool_written_back(char *reason)
{
	if (pmhash_pool_sync())
		return true;
	return pmhash_fail(reason, "the file system of directory \"%s\" has failed to write something back: %s",
					   pmhash_pool_path(), strerror(errno));
}

/* The same, for the start and the stop of the server.  False with errno. */
bool
pmhash_pool_sync(void)
{
	return syncfs(pmhash_pool_ask_fd()) == 0;
}

/* A file's own answer has gone with the process that had it. */
static bool
cannot_be_asked_again(int fd, const char *path)
{
	return false;
}

/*
 * Has anything failed at all since the pool was locked, whether a process of this
 * server knows of it or not?  For the postmaster, if a process has died that may have
 * known.  False if so (*failed), or if that can't be found out: where syncfs is not
 * believed, or for a file that it does not speak for.
 */
bool
pmhash_pool_never_failed(bool *failed)
{
	uint64		device = pmhash_device_of_syncfs();

	*failed = device != 0 && syncfs(pmhash_pool_lock_fd()) != 0;
	return device != 0 && !*failed &&
		pmhash_pool_ask_files(device, cannot_be_asked_again, NULL);
}
