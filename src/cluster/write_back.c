/*-------------------------------------------------------------------------
 *
 * write_back.c
 *	  Have the kernel write index files back before it is asked whether it could.
 *
 * While it is asked the witness is away (trust.c), so that a process which is killed
 * then takes trust with it.  syncfs() writes all that is dirty, which takes seconds
 * or minutes, and containers are killed 10 seconds after they were to stop.  So
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

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/pool_files.h"

/* Bytes: what a device writes in less than a second. */
#define PIECE			((off_t) 64 * 1024 * 1024)

typedef struct WriteBack
{
	uint64		device;
	PmhashGoOn	go_on;
	bool		going;
} WriteBack;

/*
 * A file of another device is asked by its inode, whose note stays for that.  What
 * it grows by meanwhile is left to syncfs().  False: not to be gone on with.
 */
static bool
write_back_file(const char *path, bool index_file, void *arg)
{
	WriteBack  *write_back = arg;
	struct stat st;
	int			fd;

	if (!index_file)
		return true;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return true;
	if (fstat(fd, &st) != 0 || st.st_dev != write_back->device)
		st.st_size = 0;
	for (off_t at = 0; write_back->going && at < st.st_size; at += PIECE)
	{
		(void) sync_file_range(fd, at, PIECE, SYNC_FILE_RANGE_WAIT_BEFORE |
							   SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
		write_back->going = write_back->go_on == NULL || write_back->go_on();
	}
	close(fd);
	return write_back->going;
}

/*
 * Write all index files back that a syncfs() on the pool is going to (its device, 0:
 * none), and wait for that.  What fails, or is left out, that syncfs() does and tells
 * of.  Raises no error; holds up to three descriptors.  For the postmaster at its
 * end too.
 *
 * go_on is called after each piece of a file, of 64 MB at the most, so that a process
 * can do meanwhile what others wait for; false has the rest left out, and this returns
 * false.  NULL: nothing is done.  An error that it raises must be the end of the process.
 */
bool
pmhash_pool_write_back(uint64 device, PmhashGoOn go_on)
{
	WriteBack	write_back = {.device = device, .go_on = go_on, .going = true};

	if (device != 0)
		(void) pmhash_each_pool_file(write_back_file, &write_back);
	return write_back.going;
}
