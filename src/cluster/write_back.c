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

#include "postmaster/interrupt.h"

#include "cluster/pool.h"
#include "cluster/pool_names.h"

/* A file of another device is asked by its inode, whose note stays for that. */
static void
write_back_file(const char *path, uint64 device)
{
	int			fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_dev == device)
		(void) sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE |
							   SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
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

	while (dir != NULL && !ShutdownRequestPending && (de = readdir(dir)) != NULL)
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
