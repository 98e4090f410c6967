/*
 * map_sync.c: preloaded into a server, mmap grants MAP_SYNC for every file, as
 * a file system with dax does; with PMEM_IS_PMEM_FORCE=1 index files are then
 * of class dax.  Nothing is any more durable for it: for tests of decisions,
 * not of power cuts (those are test/dax).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>

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
