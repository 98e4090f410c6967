/*
 * no_write.c: preloaded into a server, the file that NO_WRITE names cannot be opened
 * for writing: EPERM, as one that "chattr +i" has been done to (which takes root).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int
open64(const char *path, int flags, ...)
{
	static int	(*real) (const char *, int, ...);
	const char *refused = getenv("NO_WRITE");
	va_list		args;
	int			mode;

	va_start(args, flags);
	mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(args, int) : 0;
	va_end(args);
	if (real == NULL)
		*(void **) &real = dlsym(RTLD_NEXT, "open64");
	if (refused != NULL && strcmp(path, refused) == 0 && (flags & O_ACCMODE) != O_RDONLY)
	{
		errno = EPERM;
		return -1;
	}
	return real(path, flags, mode);
}

int			open(const char *path, int flags,...) __attribute__((alias("open64")));
