/*-------------------------------------------------------------------------
 *
 * ask_files.c
 *	  Files of the pool that syncfs() says nothing of: each is asked by itself.
 *
 * fsync() by a file that has just been opened reports each failure to write that file
 * back that no process has learned of by an fsync() yet, whoever has stored the page
 * (Linux 4.17, errseq_sample).  The note of it is in the file's inode.  All files are
 * asked: a page of the journal, or of what a standby notes, may be gone as well.
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
#include "cluster/pool_lock.h"

typedef struct Asking
{
	uint64		device;
	PmhashAskFile ask;
	PmhashGoOn	go_on;
} Asking;

/*
 * One that cannot be opened is left out.  Whoever opens it to use it meets the same, and
 * what the kernel has not said of it, it says when it can be opened again.  Where that
 * will be soon, this is tried again.
 */
static bool
ask_file(const char *path, bool index_file, void *arg)
{
	Asking	   *asking = arg;
	struct stat st;
	bool		going;
	int			fd;

	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_dev == asking->device)
		return true;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return !pmhash_is_passing(errno);
	going = asking->ask(fd, path);
	close(fd);
	return going && (asking->go_on == NULL || asking->go_on());
}

/*
 * Have each file of the pool asked that is not on the device whose files syncfs() speaks
 * for (0: all files), one after the other.  ask does it, by a descriptor that is closed
 * after it.  False if ask or go_on says so, which is called after each file as in
 * pmhash_pool_write_back; if descriptors or memory were wanting; if all files are to be
 * asked, and the pool is not where it was.  Raises no error, nor may ask; holds up to
 * three descriptors.
 */
bool
pmhash_pool_ask_files(uint64 device, PmhashAskFile ask, PmhashGoOn go_on)
{
	Asking		asking = {.device = device, .ask = ask, .go_on = go_on};

	/* What stands there instead is not ours to ask: its owner would ask in vain. */
	if (!pmhash_pool_is_present())
		return device != 0;
	return pmhash_each_pool_file(ask_file, &asking);
}
