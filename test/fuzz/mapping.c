/*-------------------------------------------------------------------------
 *
 * mapping.c
 *	  Mappings with nothing beside them: an access out of bounds is SIGSEGV,
 *	  not a visit to whatever is mapped next door.
 *
 * The engine is linked with --wrap for mmap and munmap: where it reserves
 * addresses (map.c) it gets them from the middle of a large reservation.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
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

/* What the engine has reserved, and how much of that is still its own. */
static struct
{
	char	   *all;			/* with the guards; NULL: free */
	size_t		all_len;
	char	   *base;
	size_t		len;
}			area[MAX_AREAS];

static void *
nothing_at(void *addr, size_t len)
{
	return __real_mmap(addr, len, PROT_NONE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
					   (addr == NULL ? 0 : MAP_FIXED), -1, 0);
}

void *
__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (addr != NULL || prot != PROT_NONE)
		return __real_mmap(addr, len, prot, flags, fd, offset);
	for (int i = 0; i < MAX_AREAS; i++)
	{
		if (area[i].all != NULL)
			continue;
		area[i].all = nothing_at(NULL, len + 2 * GUARD);
		if (area[i].all == MAP_FAILED)
		{
			area[i].all = NULL;
			return MAP_FAILED;
		}
		area[i].all_len = len + 2 * GUARD;
		area[i].base = area[i].all + GUARD;
		area[i].len = len;
		return area[i].base;
	}
	fprintf(stderr, "more than %d reservations\n", MAX_AREAS);
	abort();
}

/*
 * What is given back at either end becomes part of the guard.  In between a
 * mapping is going to grow.  (To the very end it cannot; then it moves.)
 */
int
__wrap_munmap(void *addr, size_t len)
{
	for (int i = 0; i < MAX_AREAS; i++)
	{
		char	   *base = area[i].base;
		size_t		rest = area[i].len - len;

		if (area[i].all == NULL || (char *) addr < base || (char *) addr >= base + area[i].len)
			continue;
		if (addr == base && rest == 0)
		{
			addr = area[i].all;
			area[i].all = NULL;
			return __real_munmap(addr, area[i].all_len);
		}
		if (addr != base && (char *) addr + len != base + area[i].len)
			break;
		area[i].base = addr == base ? base + len : base;
		area[i].len = rest;
		return nothing_at(addr, len) == MAP_FAILED ? -1 : 0;
	}
	return __real_munmap(addr, len);
}
