/*
 * no_write.c: preloaded into a server, the file that NO_WRITE names cannot be opened
 * for writing, with the errno NO_WRITE_ERROR, or EPERM, as one that "chattr +i" has been
 * done to (which takes root).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A number in the environment. */
static int
number(const char *name, int otherwise)
{
	const char *value = getenv(name);

	return value == NULL ? otherwise : atoi(value);
}

/* The errno of an open that fails, or 0. */
static int
fails(const char *path, int flags)
{
	const char *no_write = getenv("NO_WRITE");

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
