/*-------------------------------------------------------------------------
 *
 * mapping.c
 *	  Mappings with nothing beside them: an access out of bounds is SIGSEGV,
 *	  not a visit to whatever is mapped next door.
 *
 * The engine is linked with --wrap for the three calls of pm.c that map.  The
 * file stands in the middle of a large reservation, and grows in it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESERVATION		((size_t) 16 << 30)
#define MIDDLE			((size_t) 8 << 30)

void	   *__wrap_pmem_map_file(const char *path, size_t len, int flags, mode_t mode,
								 size_t *mapped_len, int *is_pmem);
int			__wrap_pmem_unmap(void *addr, size_t len);
void	   *__wrap_mremap(void *addr, size_t old_len, size_t new_len, int flags, ...);
void	   *__real_mremap(void *addr, size_t old_len, size_t new_len, int flags, ...);

void *
__wrap_pmem_map_file(const char *path, size_t len, int flags, mode_t mode,
					 size_t *mapped_len, int *is_pmem)
{
	struct stat st;
	char	   *area;
	void	   *base = MAP_FAILED;
	int			fd = open(path, O_RDWR | O_CLOEXEC);

	(void) len;
	(void) flags;
	(void) mode;
	if (fd < 0)
		return NULL;
	area = mmap(NULL, RESERVATION, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area != MAP_FAILED && fstat(fd, &st) == 0)
		base = mmap(area + MIDDLE, (size_t) st.st_size, PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_FIXED, fd, 0);
	(void) close(fd);
	if (base == MAP_FAILED)
		return NULL;
	*mapped_len = (size_t) st.st_size;
	*is_pmem = 0;
	return base;
}

int
__wrap_pmem_unmap(void *addr, size_t len)
{
	(void) len;
	return munmap((char *) addr - MIDDLE, RESERVATION);
}

/*
 * pm.c first asks whether the mapping can grow where it is.  Yes: over the
 * guard, with the same pages of the file.
 */
void *
__wrap_mremap(void *addr, size_t old_len, size_t new_len, int flags, ...)
{
	if (flags != 0)
	{
		fprintf(stderr, "mremap in a way that mapping.c does not know\n");
		abort();
	}
	if (new_len > RESERVATION - MIDDLE)
	{
		fprintf(stderr, "a mapping of %zu bytes is too long\n", new_len);
		abort();
	}
	if (munmap((char *) addr + ((old_len + 4095) & ~(size_t) 4095),
			   RESERVATION - MIDDLE - ((old_len + 4095) & ~(size_t) 4095)) != 0 ||
		__real_mremap(addr, old_len, new_len, 0) != addr)
		return MAP_FAILED;
	new_len = (new_len + 4095) & ~(size_t) 4095;
	if (mmap((char *) addr + new_len, RESERVATION - MIDDLE - new_len, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return MAP_FAILED;
	return addr;
}
