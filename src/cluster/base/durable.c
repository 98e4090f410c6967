/*-------------------------------------------------------------------------
 *
 * durable.c
 *	  Small files that are replaced as a whole and durably, without ereport
 *	  and, once they are there, without needing new space.
 *
 * The control file of the pool and the token in the data directory must be
 * written when the disk is full: what a start decides is of no use if it cannot
 * be kept.  So each of them has a twin with ".tmp" at the end of its name, which
 * has its space already.  What is new goes into the twin; then the two change
 * names (RENAME_EXCHANGE), and the old contents are the twin's.  No reader ever
 * reads a twin.
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
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"

#include "cluster/base/durable.h"
#include "cluster/base/kept_message.h"

#define WHOLE_REASON	(4 * MAXPGPATH) /* bytes: two paths and more */

/*
 * Put a reason into reason[PMHASH_REASON_SIZE]; always false.  Paths may be longer than
 * that, and what is cut must leave whole characters, and why it failed: it is shown in a
 * view and in messages.
 */
bool
pmhash_fail(char *reason, const char *format,...)
{
	char		whole[WHOLE_REASON];
	va_list		args;

	va_start(args, format);
	vsnprintf(whole, sizeof(whole), format, args);
	va_end(args);
	pmhash_keep_message(reason, PMHASH_REASON_SIZE, whole);
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

/*
 * The next name in an open directory; NULL at its end, and if it can't be read: then
 * *ok is false, with errno.  (readdir alone does not distinguish the two.)
 */
struct dirent *
pmhash_next_name(DIR *dir, bool *ok)
{
	struct dirent *de;

	errno = 0;
	de = readdir(dir);
	if (de == NULL && errno != 0)
		*ok = false;
	return de;
}

/* Make what has happened to names in a directory durable; false with errno. */
static bool
fsync_directory(const char *path)
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

/* Write data to an open file, cut it to that length, and sync it. */
static bool
fill(int fd, const void *data, size_t size)
{
	struct stat st;

	errno = ENOSPC;				/* what a short write means */
	if (pwrite(fd, data, size, 0) != (ssize_t) size || fstat(fd, &st) != 0)
		return false;
	if (st.st_size > (off_t) size && ftruncate(fd, (off_t) size) != 0)
		return false;
	return fsync(fd) == 0;
}

/* Fill the twin, in the space that it has.  False with errno. */
static bool
fill_twin(const char *twin, const void *data, size_t size)
{
	int			fd = open(twin, O_WRONLY | O_CREAT | O_CLOEXEC, pg_file_create_mode);
	bool		ok;
	int			save_errno;

	if (fd < 0)
		return false;
	ok = fill(fd, data, size);
	save_errno = errno;
	close(fd);
	errno = save_errno;
	return ok;
}

/*
 * Give a file a twin that has its space.  If there is no room for it now, the
 * next write needs some: nothing is lost by that.
 */
static void
make_twin(const char *twin, size_t size)
{
	int			fd = open(twin, O_WRONLY | O_CREAT | O_CLOEXEC, pg_file_create_mode);

	if (fd < 0)
		return;
	(void) posix_fallocate(fd, 0, (off_t) size);
	close(fd);
}

/* Exchange twin and file.  False with errno. */
static bool
change_places(const char *twin, const char *path, size_t size)
{
	struct stat st;

	/* Not with a directory or the like: that would stand in for the twin. */
	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
		renameat2(AT_FDCWD, twin, AT_FDCWD, path, RENAME_EXCHANGE) == 0)
		return true;

	/* There was no file yet, or the file system can't exchange names. */
	if (rename(twin, path) != 0)
		return false;
	make_twin(twin, size);
	return true;
}

/*
 * Replace directory/name by data: all or nothing, and durable (the sequence is
 * that of durable_rename in fd.c, which may ereport).  False with a reason if
 * that fails; then the file has its old or its new contents.
 */
bool
pmhash_replace_durably(const char *directory, const char *name, const void *data,
					   size_t size, char *reason)
{
	char		path[MAXPGPATH];
	char		twin[MAXPGPATH];

	snprintf(path, MAXPGPATH, "%s/%s", directory, name);
	snprintf(twin, MAXPGPATH, "%s/%s.tmp", directory, name);
	if (!fill_twin(twin, data, size) ||
		!change_places(twin, path, size) ||
		!fsync_directory(directory))
		return pmhash_fail(reason, "could not write file \"%s\": %s", path,
						   strerror(errno));
	return true;
}

/*
 * Make an open file of that size worthless where it stands: empty, or if that
 * can't be, all zeros.
 */
static bool
spoil(int fd, size_t size)
{
	char		zeros[PMHASH_SMALL_FILE] = {0};

	return (ftruncate(fd, 0) == 0 ||
			pwrite(fd, zeros, size, 0) == (ssize_t) size) &&
		fsync(fd) == 0;
}

/* The same by name.  False with errno. */
static bool
spoil_durably(const char *path, size_t size)
{
	int			fd = open(path, O_WRONLY | O_CLOEXEC);
	bool		ok;
	int			save_errno;

	if (fd < 0)
		return false;
	ok = spoil(fd, size);
	save_errno = errno;
	close(fd);
	errno = save_errno;
	return ok;
}

/*
 * Make away with directory/name, a file of that size (PMHASH_SMALL_FILE at the
 * most), durably: what it said is said no more.  It is spoiled where it stands,
 * which needs the file only, and removed, which needs the directory only; one of
 * both is enough, and neither needs space.  False with a reason if it may still
 * be there, or be there again after a crash of the operating system.
 */
bool
pmhash_remove_durably(const char *directory, const char *name, size_t size,
					  char *reason)
{
	char		path[MAXPGPATH];
	bool		spoiled;

	snprintf(path, MAXPGPATH, "%s/%s", directory, name);
	spoiled = spoil_durably(path, size);
	if (((unlink(path) == 0 || errno == ENOENT) && fsync_directory(directory)) ||
		spoiled)
		return true;
	return pmhash_fail(reason, "could not remove file \"%s\": %s", path,
					   strerror(errno));
}
