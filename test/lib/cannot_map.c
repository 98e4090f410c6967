/*
 * cannot_map.c: preloaded into a server, files of a pool cannot be mapped to be shared, as
 * on 9p or some FUSE file systems (ENODEV).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Is it one that is called so, or an index file? */
static int
is_of_pool(int fd)
{
	char		link[64];
	char		path[4096];
	ssize_t		n;
	const char *name;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return 0;
	path[n] = '\0';
	name = strrchr(path, '/');
	return name != NULL && (strcmp(name, "/journal") == 0 || strncmp(name, "/journal.", 9) == 0 ||
							strcmp(name, "/standby") == 0 || strstr(name, ".pmh") != NULL);
}

void *
mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset)
{
	static void *(*real) (void *, size_t, int, int, int, off64_t);

	if (real == NULL)
		*(void **) &real = dlsym(RTLD_NEXT, "mmap64");
	if (fd >= 0 && (flags & MAP_TYPE) != MAP_PRIVATE && is_of_pool(fd))
	{
		errno = ENODEV;
		return MAP_FAILED;
	}
	return real(at, length, protection, flags, fd, offset);
}

void *
mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	return mmap64(at, length, protection, flags, fd, offset);
}
