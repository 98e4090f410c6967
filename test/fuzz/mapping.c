/*-------------------------------------------------------------------------
 *
 * mapping.c
 *	  Mappings with nothing beside them: an access out of bounds is SIGSEGV,
 *	  not a visit to whatever is mapped next door.
 *
 * The engine is linked with --wrap for mmap and munmap: a file gets addresses from the
 * middle of a large reservation.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define GUARD			((size_t) 8 << 30)	/* on either side */
#define MAX_AREAS		64

void	   *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
void	   *__real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
int			__wrap_munmap(void *addr, size_t len);
int			__real_munmap(void *addr, size_t len);

/* Where files are mapped. */
static struct
{
	char	   *all;			/* with the guards; NULL: free */
	size_t		len;			/* without */
}			area[MAX_AREAS];

void *
__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	int			i = 0;
	char	   *all;
	void	   *base;

	if (addr != NULL || fd < 0)
		return __real_mmap(addr, len, prot, flags, fd, offset);
	while (i < MAX_AREAS && area[i].all != NULL)
		i++;
	if (i == MAX_AREAS)
	{
		fprintf(stderr, "more than %d mappings\n", MAX_AREAS);
		abort();
	}
	all = __real_mmap(NULL, len + 2 * GUARD, PROT_NONE,
					  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED)
		return MAP_FAILED;
	base = __real_mmap(all + GUARD, len, prot, flags | MAP_FIXED, fd, offset);
	if (base == MAP_FAILED)
	{
		(void) __real_munmap(all, len + 2 * GUARD);
		return MAP_FAILED;
	}
	area[i].all = all;
	area[i].len = len;
	return base;
}

int
__wrap_munmap(void *addr, size_t len)
{
	for (int i = 0; i < MAX_AREAS; i++)
	{
		char	   *all = area[i].all;

		if (all == NULL || (char *) addr != all + GUARD)
			continue;
		area[i].all = NULL;
		return __real_munmap(all, area[i].len + 2 * GUARD);
	}
	return __real_munmap(addr, len);
}
