/*
 * read_error.c: preloaded into a server, the files whose inode numbers stand in the
 * file that READ_ERRORS names (in decimal, one a line) cannot be read: EIO, as of a
 * bad sector.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

static int
is_bad(int fd)
{
	const char *path = getenv("READ_ERRORS");
	unsigned long long inode;
	struct stat st;
	FILE	   *list;
	int			bad = 0;

	if (path == NULL || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
		(list = fopen(path, "r")) == NULL)
		return 0;
	while (!bad && fscanf(list, "%llu", &inode) == 1)
		bad = inode == st.st_ino;
	fclose(list);
	return bad;
}

ssize_t
pread(int fd, void *data, size_t len, off_t offset)
{
	static ssize_t (*real) (int, void *, size_t, off_t);

	if (real == NULL)
		*(void **) &real = dlsym(RTLD_NEXT, "pread");
	if (is_bad(fd))
	{
		errno = EIO;
		return -1;
	}
	return real(fd, data, len, offset);
}

ssize_t
pread64(int fd, void *data, size_t len, off64_t offset)
{
	return pread(fd, data, len, offset);
}

ssize_t
preadv(int fd, const struct iovec *part, int n, off_t offset)
{
	static ssize_t (*real) (int, const struct iovec *, int, off_t);

	if (real == NULL)
		*(void **) &real = dlsym(RTLD_NEXT, "preadv");
	if (is_bad(fd))
	{
		errno = EIO;
		return -1;
	}
	return real(fd, part, n, offset);
}

ssize_t
preadv64(int fd, const struct iovec *part, int n, off64_t offset)
{
	return preadv(fd, part, n, offset);
}
