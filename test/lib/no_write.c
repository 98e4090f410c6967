/*
 * no_write.c: preloaded into a server, the file that NO_WRITE names cannot be opened
 * for writing, with the errno NO_WRITE_ERROR, or EPERM, as one that "chattr +i" has been
 * done to (which takes root).  And opens of what begins with the path NO_OPEN fail, as no
 * descriptor is to be had (ENFILE), as often as the file NO_OPEN_TIMES has bytes: each
 * takes one away, in whatever process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A number in the environment. */
static int
number(const char *name, int otherwise)
{
	const char *value = getenv(name);

	return value == NULL ? otherwise : atoi(value);
}

/* One time less.  False if there was none. */
static int
one_of(const char *times)
{
	struct stat st;

	return times != NULL && stat(times, &st) == 0 && st.st_size > 0 &&
		truncate(times, st.st_size - 1) == 0;
}

/* The errno of an open that fails, or 0. */
static int
fails(const char *path, int flags)
{
	const char *no_write = getenv("NO_WRITE");
	const char *no_open = getenv("NO_OPEN");

	if (no_open != NULL && strncmp(path, no_open, strlen(no_open)) == 0 &&
		one_of(getenv("NO_OPEN_TIMES")))
		return ENFILE;
	if (no_write != NULL && strcmp(path, no_write) == 0 && (flags & O_ACCMODE) != O_RDONLY)
		return number("NO_WRITE_ERROR", EPERM);
	return 0;
}

int
open64(const char *path, int flags, ...)
{
	static int	(*real) (const char *, int, ...);
	va_list		args;
	int			mode;
	int			error = fails(path, flags);

	va_start(args, flags);
	mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(args, int) : 0;
	va_end(args);
	if (real == NULL)
		*(void **) &real = dlsym(RTLD_NEXT, "open64");
	if (error != 0)
	{
		errno = error;
		return -1;
	}
	return real(path, flags, mode);
}

int			open(const char *path, int flags,...) __attribute__((alias("open64")));
