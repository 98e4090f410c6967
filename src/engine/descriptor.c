/*-------------------------------------------------------------------------
 *
 * descriptor.c
 *	  File descriptors: as few as can be, for as short as can be.
 *
 * A handle keeps none.  Whatever needs one opens the file, and closes it before
 * it returns; a bulk load keeps one from its beginning to its end.  So an
 * operation holds one at the most, and it is announced to the caller before and
 * after (pmh_set_descriptor_callbacks).
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "error.h"
#include "pm.h"
#include "table.h"

static bool (*reserve_descriptor) (void);
static void (*release_descriptor) (void);

void
pmh_set_descriptor_callbacks(bool (*reserve) (void), void (*release) (void))
{
	reserve_descriptor = reserve;
	release_descriptor = release;
}

bool
pmh_descriptor_begin(void)
{
	if (reserve_descriptor == NULL || reserve_descriptor())
		return true;
	errno = EMFILE;
	return false;
}

void
pmh_descriptor_end(void)
{
	int			save_errno = errno;

	if (release_descriptor != NULL)
		release_descriptor();
	errno = save_errno;
}

int
pmh_descriptor_open(const char *path, int flags)
{
	int			fd;

	if (!pmh_descriptor_begin())
		return -1;
	fd = open(path, flags | O_CLOEXEC, 0600);
	if (fd < 0)
		pmh_descriptor_end();
	return fd;
}

void
pmh_descriptor_close(int fd)
{
	(void) close(fd);
	pmh_descriptor_end();
}

PmhResult
pmh_result_of_errno(int err)
{
	switch (err)
	{
		case ENOSPC:
		case EDQUOT:
		case EFBIG:
			return PMH_ERR_NO_SPACE;
		case ENOMEM:
			return PMH_ERR_NO_MEMORY;
		case EMFILE:
		case ENFILE:
			return PMH_ERR_NO_DESCRIPTOR;
		case ENOENT:
			return PMH_ERR_NO_FILE;
		case EEXIST:
			return PMH_ERR_EXISTS;
		default:
			return PMH_ERR_IO;
	}
}
