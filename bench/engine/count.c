/*-------------------------------------------------------------------------
 *
 * count.c
 *	  Counts stores, flushes and fences: pm.h's recording interface on top of
 *	  the production implementation.  For pmh_count, one worker.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "layout.h"
#include "lock.h"
#include "pm.h"
#include "segment.h"

/* Those of pm.h and of pm.c, which is compiled without PMH_RECORD. */
#undef pm_flush
#undef pm_fence
#undef pm_copy
extern void pm_copy(const PmFile *f, void *dst, const void *src, size_t len);
extern void pm_copy(const PmFile *f, void *dst, const void *src, size_t len);

/* Segments are split as without PMH_RECORD. */
bool		pmh_record_splits = false;

static struct
{
	uint64_t	stores;
	uint64_t	flushes;
	uint64_t	lines;			/* flushed */
	uint64_t	fences;
	uint64_t	copied;			/* bytes, past the cache */
	uint64_t	unlocks;
} count;

void
pm_record_flush(const PmFile *f, const void *addr, size_t len, const PmSite *site)
{
	uintptr_t	first = (uintptr_t) addr / PMH_LINE;

	(void) site;
	count.flushes++;
	count.lines += ((uintptr_t) addr + len - 1) / PMH_LINE - first + 1;
	pm_flush(f, addr, len);
}

void
pm_record_fence(const PmFile *f, const PmSite *site)
{
	(void) site;
	count.fences++;
	pm_fence(f);
}

void
pm_record_copy(const PmFile *f, void *dst, const void *src, size_t len, const PmSite *site)
{
	(void) site;
	count.copied += len;
	pm_copy(f, dst, src, len);
}

void
pm_record_store(void *addr, size_t size, uint64_t v, const PmSite *site)
{
	(void) site;
	count.stores++;
	switch (size)
	{
		case 8:
			__atomic_store_n((uint64_t *) addr, v, __ATOMIC_RELEASE);
			break;
		case 4:
			__atomic_store_n((uint32_t *) addr, (uint32_t) v, __ATOMIC_RELEASE);
			break;
		case 2:
			__atomic_store_n((uint16_t *) addr, (uint16_t) v, __ATOMIC_RELEASE);
			break;
		default:
			__atomic_store_n((uint8_t *) addr, (uint8_t) v, __ATOMIC_RELEASE);
			break;
	}
}

void
pm_record_commit(const PmFile *f, void *addr, size_t size, uint64_t v, const PmSite *site)
{
	pm_record_store(addr, size, v, site);
	pm_record_flush(f, addr, size, site);
}

/* lock.h */
void
pm_record_unlock(const uint64_t *lock)
{
	(void) lock;
	count.unlocks++;
}

void
count_begin(void)
{
	memset(&count, 0, sizeof(count));
}

void
count_end(const char *op, uint64_t ops)
{
	double		n = (double) ops;

	printf("    each: %.3f stores, %.3f flushes of %.3f lines, %.3f fences, %.1f bytes copied"
		   " past the cache, %.3f locks\n", (double) count.stores / n, (double) count.flushes / n,
		   (double) count.lines / n, (double) count.fences / n, (double) count.copied / n,
		   (double) count.unlocks / n);
	figure(op, "stores", (double) count.stores / n);
	figure(op, "flushes", (double) count.flushes / n);
	figure(op, "flushed_lines", (double) count.lines / n);
	figure(op, "fences", (double) count.fences / n);
	figure(op, "copied_bytes", (double) count.copied / n);
	figure(op, "locks", (double) count.unlocks / n);
}
