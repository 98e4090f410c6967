/*-------------------------------------------------------------------------
 *
 * durable.c
 *	  Small files that are written as a whole and durably, without ereport
 *	  and, once they are there, without needing new space; reasons of failures, as
 *	  they are kept for views and other messages.
 *
 * The control file of the pool and the token in the data directory must be
 * written when the disk is full: what a start decides is of no use if it cannot
 * be kept.  So they are overwritten in place, as the server does with pg_control
 * (controldata_utils.c, update_controlfile), and are smaller than what a disk stores
 * as a whole.  Where it does not, as on persistent memory, a loss of power at that
 * moment leaves a wrong checksum, and nothing is trusted.
 *
 * They have the mode of the server's own files: a backup of the data directory may
 * be made by a member of a group that may read all of it (initdb -g), and fails at
 * a file that he may not read.  No other user gets into the pool, whatever its files say.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "mb/pg_wchar.h"
#include "port/pg_crc32c.h"

#include "cluster/base/control_file.h"

/* Put a reason into reason[PMHASH_REASON_SIZE], which has room for two paths; always false. */
bool
pmhash_fail(char *reason, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(reason, PMHASH_REASON_SIZE, format, args);
	va_end(args);
	return false;
}

/* Read a small file whole; -1 with errno if it can't be opened or read. */
ssize_t
pmhash_read_small(const char *path, void *data, size_t size)
{
	int			fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t		n;
	int			save_errno;

	if (fd < 0)
		return -1;
	n = pread(fd, data, size, 0);
	save_errno = errno;
	close(fd);
	errno = save_errno;
	return n;
}

/* The checksum of what is stored: CRC-32C, as the server has it of pg_control. */
uint32
pmhash_crc(const void *data, size_t size)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, data, size);
	FIN_CRC32C(crc);
	return crc;
}

/* Make what has happened to names in a directory durable; false with errno. */
bool
pmhash_fsync_directory(const char *path)
{
	int			fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int			save_errno;
	bool		ok;

	if (fd < 0)
		return false;
	ok = fsync(fd) == 0;
	save_errno = errno;
	close(fd);
	errno = save_errno;
	return ok;
}

/*
 * Replace what directory/name says by data: all or nothing, and durable.  False with a
 * reason if that fails; then the file has its old or its new contents.
 */
bool
pmhash_replace_durably(const char *directory, const char *name, const void *data,
					   size_t size, char *reason)
{
	char		path[MAXPGPATH];
	int			fd;
	bool		ok = false;

	Assert(size <= PMHASH_SMALL_FILE);
	snprintf(path, MAXPGPATH, "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, pg_file_create_mode);
	if (fd >= 0)
	{
		int			save_errno;

		errno = ENOSPC;			/* what a short write means */
		ok = pwrite(fd, data, size, 0) == (ssize_t) size && fsync(fd) == 0;
		save_errno = errno;
		close(fd);
		errno = save_errno;
	}
	if (!ok || !pmhash_fsync_directory(directory))
		return pmhash_fail(reason, "could not write file \"%s\": %s", path,
						   strerror(errno));
	return true;
}

/*
 * Copy a message, in the encoding of the database, to a buffer of so many bytes, as far as
 * there is room for whole characters.  A process that is in no database (replay, the launcher)
 * goes by SQL_ASCII, where each byte is one, and who reads the message is in one: what it has
 * besides ASCII, a path, is in UTF-8 as a rule.  Raises nothing.
 */
void
pmhash_keep_message(char *to, size_t size, const char *message)
{
	int			encoding = GetDatabaseEncoding();
	int			length = pg_encoding_mbcliplen(encoding == PG_SQL_ASCII ? PG_UTF8 : encoding,
											   message, strlen(message), size - 1);

	memcpy(to, message, length);
	to[length] = '\0';
}
