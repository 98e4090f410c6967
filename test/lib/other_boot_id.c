/*
 * other_boot_id.c: preloaded into a server, the id of the boot is another one at each
 * look, as container runtimes make it that give each start an id of its own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

int
open(const char *path, int flags,...)
{
	static int	(*real_open) (const char *, int,...);
	va_list		args;
	unsigned	mode;

	va_start(args, flags);
	mode = va_arg(args, unsigned);
	va_end(args);
	if (real_open == NULL)
		*(void **) &real_open = dlsym(RTLD_NEXT, "open");
	if (strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
		path = "/proc/sys/kernel/random/uuid";
	return real_open(path, flags, mode);
}
