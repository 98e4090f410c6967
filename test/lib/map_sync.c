/*
 * map_sync.c: preloaded into a server, mmap grants MAP_SYNC for every file, and
 * statx says that it may, as with a file system with dax.  Index
 * files are then of class dax.  Nothing is any more durable for it: for tests of decisions,
 * not of power cuts (those are test/dax).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

void *
mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	static void *(*real_mmap) (void *, size_t, int, int, int, off_t);

	if (real_mmap == NULL)
		*(void **) &real_mmap = dlsym(RTLD_NEXT, "mmap");
	if ((flags & MAP_SYNC) != 0)
		flags = (flags & ~(MAP_SYNC | MAP_SHARED_VALIDATE)) | MAP_SHARED;
	return real_mmap(addr, length, prot, flags, fd, offset);
}

int
statx(int fd, const char *path, int flags, unsigned mask, struct statx *st)
{
	static int (*real_statx) (int, const char *, int, unsigned, struct statx *);
	int			result;

	if (real_statx == NULL)
		*(void **) &real_statx = dlsym(RTLD_NEXT, "statx");
	result = real_statx(fd, path, flags, mask, st);
	if (result == 0)
		st->stx_attributes |= STATX_ATTR_DAX;
	return result;
}
