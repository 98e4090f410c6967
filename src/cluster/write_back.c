/*-------------------------------------------------------------------------
 *
 * write_back.c
 *	  Have the kernel write index files back before it is asked whether it could.
 *
 * While it is asked the witness is away (trust.c), so that a process which is killed
 * then takes trust with it.  syncfs() writes all that is dirty, which takes seconds
 * or minutes, and containers are killed 10 seconds after they were told to stop.  So
 * what is dirty is written first, file by file, as long as the witness is there.
 * sync_file_range() does not say for certain that it was written, and what fails it
 * notes with the inode alone: the file system's own note of it, which the syncfs() after
 * it returns, stays (Linux, mapping_set_error, errseq_check_and_advance).
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/procsignal.h"

#include "cluster/pool.h"
#include "cluster/pool_names.h"

#define PIECE	(INT64CONST(64) * 1024 * 1024)	/* bytes between looks around */

/*
 * Is this process to go on?  Meanwhile it lets barriers pass: DROP DATABASE and the like,
 * and on a standby their replay, wait for all that are connected (procsignal.c).
 */
static bool
goes_on(void)
{
	if (ProcSignalBarrierPending)
		ProcessProcSignalBarrier();
	return !ShutdownRequestPending && !ProcDiePending;
}

/* A file of another device is asked by its inode, whose note stays for that. */
static void
write_back_file(const char *path, uint64 device)
{
	int			fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_dev == device)
	{
		for (off_t from = 0; from < st.st_size && goes_on(); from += PIECE)
			(void) sync_file_range(fd, from, PIECE, SYNC_FILE_RANGE_WAIT_BEFORE |
								   SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
	}
	close(fd);
}

static void
write_back_directory(const char *path, bool top, uint64 device)
{
	DIR		   *dir = opendir(path);
	struct dirent *de;
	char		child[MAXPGPATH];
	uint64		file_id;
	Oid			database;

	while (dir != NULL && goes_on() && (de = readdir(dir)) != NULL)
	{
		snprintf(child, MAXPGPATH, "%s/%s", path, de->d_name);
		if (top && pmhash_parse_database_name(de->d_name, &database))
			write_back_directory(child, false, device);
		else if (!top && pmhash_parse_file_name(de->d_name, &file_id))
			write_back_file(child, device);
	}
	if (dir != NULL)
		closedir(dir);
}

/*
 * Write all index files back that a syncfs() on the pool is going to (its device, 0:
 * none), and wait for that.  What fails, or is left out, that syncfs() does and tells
 * of.  Raises no error; holds up to three descriptors.  For the postmaster at its
 * end too.  A worker that is to end leaves the rest out.
 */
void
pmhash_pool_write_back(uint64 device)
{
	if (device != 0)
		write_back_directory(pmhash_pool_path(), true, device);
}
