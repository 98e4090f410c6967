/*-------------------------------------------------------------------------
 *
 * pm.h
 *	  Persistent memory: stores, flushes, fences, files, mappings and descriptors.
 *
 * Every store to the file goes through pm_store*, pm_raise64 or pm_copy, so
 * that a recording implementation (test/crash, compiled with PMH_RECORD) sees
 * each one; only what recovery rebuilds is changed by other means as well.
 * The production implementation (pm.c) is the only file that calls libpmem.
 *
 * Flush and fence are apart, as in libpmem: pm_flush starts write-back of
 * lines, pm_fence waits for all flushes so far.  A commit store (pm_commit*) is a
 * store and the flush of its line.  Where the file is not
 * persistent memory (class "cache") both are free: the page cache survives
 * the process, and x86's store order (release stores elsewhere) is all that a
 * kill can test.
 *
 * Nothing past 'bound' may be touched.  When a page can't be read or written any more
 * (SIGBUS; map.c), 'lost' is set; an implementation for tests may do without.  No
 * descriptor is kept, but for a bulk load (pm_hold): see table.h, "file descriptors".
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_PM_H
#define PMH_PM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "stop_point.h"

/* A mapping that a file has outgrown. */
typedef struct PmMapping
{
	struct PmMapping *next;		/* older, or NULL */
	char	   *base;
	size_t		addresses;
} PmMapping;

/* What tells one file from another that has taken its name. */
typedef struct PmBirth
{
	uint64_t	device;
	uint64_t	inode;			/* no other file's while this one is mapped, on
								 * file systems whose inodes have numbers ... */
	uint64_t	born;			/* ... and for others: nanoseconds, or 0 */
} PmBirth;

/* How lines are written back on x86-64; pm.c asks the processor. */
typedef enum PmWriteBack
{
	PM_NO_WRITE_BACK,			/* not persistent, or caches are as good as memory */
	PM_CLWB,
	PM_CLFLUSHOPT,
	PM_CLFLUSH
} PmWriteBack;

typedef struct PmFile
{
	int			fd;				/* of a bulk load; else -1 */
	char	   *base;			/* where the file is mapped just now */
	size_t		bound;			/* bytes of it that may be touched: the file has them */
	bool		is_pmem;		/* persistent memory: the kernel's word; on x86-64 only */
	bool		persist;		/* flush and fence for real (tests: any file) ... */
	PmWriteBack write_back;		/* ... and how lines are flushed */
	uint64_t	lost;			/* 0, or 1 + where a page was lost (offset) */
	uint64_t   *lost_board;		/* where to post this, or NULL: see lock.h ... */
	uint64_t	file_id;		/* ... and what to post; both set by the engine */
	/* private to pm.c and map.c */
	struct PmFile *next;		/* all mapped files ... */
	struct PmFile **link;		/* ... and what points to this one */
	char	   *path;			/* as given */
	PmBirth		birth;
	size_t		addresses;		/* from base on that are ours */
	PmMapping  *outgrown;
} PmFile;

/*
 * Create exclusively (0600) with 'size' bytes allocated, or open; and map.
 * *f must stay where it is until pm_close.  On failure there is nothing to
 * close.
 */
extern PmhResult pm_create(PmFile *f, const char *path, size_t size,
						   bool force_pmem, PmhError *error);
extern PmhResult pm_open(PmFile *f, const char *path, bool force_pmem,
						 PmhError *error);
extern void pm_close(PmFile *f);

/*
 * Have the pages of [address, address + size) read from disk, without waiting for it.
 * They may be past the end of the mapping: then nothing is done.  Nor is it for
 * persistent memory, all of which is resident.
 */
extern void pm_read_ahead(const PmFile *f, const void *address, size_t size);
extern bool pm_is_resident(const PmFile *f, const void *address);

/*
 * Let all that has been stored to persistent memory be durable, whoever stored it: the
 * kernel knows which pages that is.
 */
extern PmhResult pm_sync(const PmFile *f, PmhError *error);

/*
 * posix_fallocate [from, to), all pages that it is in: at the end of the file, which
 * becomes longer, or where it has been punched.  Never leaves a hole: PMH_ERR_LOST if the
 * file is shorter than 'from' tells.  On failure the file may have become longer by some
 * of it.  What it does is durable if the file is persistent memory.
 */
extern PmhResult pm_extend(PmFile *f, size_t from, size_t to, PmhError *error);

/*
 * Give the space of the whole pages (there may be none) of [from, to) back to the file
 * system; the file keeps its length, and what is mapped there reads as zeroes from then on.
 * Before it is stored to again it has to be extended there.  PMH_OK also where the file
 * system cannot do it, and where a load from a hole would take space again, and be SIGBUS
 * if there is none (tmpfs): then all stays as it is.
 */
extern PmhResult pm_punch(PmFile *f, size_t from, size_t to, PmhError *error);

/*
 * The file has 'size' bytes (at least): let the bound be there, if it is not further up
 * already, and map the file anew if it has outgrown its mapping.  PMH_ERR_LOST,
 * PMH_ERR_NO_MEMORY.
 */
extern PmhResult pm_raise_bound(PmFile *f, size_t size, PmhError *error);

/*
 * Keep a descriptor, for many calls of pm_copy_to_space, and give it back.  If
 * there is none to be had, that copies through the mapping.
 */
extern void pm_hold(PmFile *f);
extern void pm_let_go(PmFile *f);

/* Fill in the PMH_ERR_LOST of a file that has lost a page; returns it. */
extern PmhResult pmh_fill_lost(PmhError *error, const PmFile *f);

/*
 * Inline where we know how: an insert or delete waits for two or three lines, and calls
 * into a shared library for each of them, and for the fences, are a tenth of its time.
 */
#ifdef __x86_64__
static inline void __attribute__((always_inline))
pm_flush(const PmFile *f, const void *addr, size_t len)
{
	uintptr_t	end = (uintptr_t) addr + len;

	if (f->write_back == PM_NO_WRITE_BACK)
		return;
	for (uintptr_t at = (uintptr_t) addr & ~(uintptr_t) 63; at < end; at += 64)
	{
		volatile char *line = (volatile char *) at;

		if (f->write_back == PM_CLWB)
			__asm__ __volatile__("clwb %0" : "+m"(*line) : : "memory");
		else if (f->write_back == PM_CLFLUSHOPT)
			__asm__ __volatile__("clflushopt %0" : "+m"(*line) : : "memory");
		else
			__asm__ __volatile__("clflush %0" : "+m"(*line) : : "memory");
	}
}

static inline void __attribute__((always_inline))
pm_fence(const PmFile *f)
{
	if (f->persist)
		__asm__ __volatile__("sfence" : : : "memory");
}
#else							/* where no file is persistent memory */
#define pm_flush(f, addr, len)	((void) (f), (void) (addr), (void) (len))
#define pm_fence(f)				((void) (f))
#endif

#ifndef PMH_RECORD

/*
 * Copy to the file, 8-byte aligned and in multiples of 8, past the cache
 * where that pays (non-temporal stores).  Complete after the next pm_fence,
 * without pm_flush.
 */
extern void pm_copy(const PmFile *f, void *dst, const void *src, size_t len);

/*
 * The same.  'fresh': that part of the file has probably not been touched before;
 * where files are cached, and a descriptor is held (pm_hold), the kernel then
 * has no page to zero and to map first.
 */
extern void pm_copy_to_space(const PmFile *f, void *dst, const void *src,
							 size_t len, bool fresh);

/*
 * Stores are release stores: what was stored before is visible (and, within
 * one cache line, durable) no later.  Loads meant to race with stores are
 * relaxed; order comes from pm_load_acquire and the version locks (lock.h).
 */
static inline void
pm_store64(uint64_t *addr, uint64_t v)
{
	__atomic_store_n(addr, v, __ATOMIC_RELEASE);
}

static inline void
pm_store32(uint32_t *addr, uint32_t v)
{
	__atomic_store_n(addr, v, __ATOMIC_RELEASE);
}

static inline void
pm_store16(uint16_t *addr, uint16_t v)
{
	__atomic_store_n(addr, v, __ATOMIC_RELEASE);
}

static inline void
pm_store8(uint8_t *addr, uint8_t v)
{
	__atomic_store_n(addr, v, __ATOMIC_RELEASE);
}

/* Store v unless there is as much already; several processes may do this. */
static inline void
pm_raise64(uint64_t *addr, uint64_t v)
{
	uint64_t	old = __atomic_load_n(addr, __ATOMIC_RELAXED);

	while (old < v &&
		   !__atomic_compare_exchange_n(addr, &old, v, false, __ATOMIC_RELEASE,
										__ATOMIC_RELAXED))
		continue;
}

/*
 * The store that commits what has been stored, and the flush of its line: durable
 * after the next pm_fence together with all that was stored to the same line before,
 * and never before it.  What was stored to other lines has to be durable already if it
 * is to be so before.
 *
 * It does not go past the cache (movnti, sfence), quick as that is: processors may
 * keep a line that they have, and then nothing has reached memory.  See src/README,
 * "Commit stores".
 */
static inline void
pm_commit16(const PmFile *f, uint16_t *addr, uint16_t v)
{
	pm_store16(addr, v);
	pm_flush(f, addr, sizeof(v));
}

static inline void
pm_commit32(const PmFile *f, uint32_t *addr, uint32_t v)
{
	pm_store32(addr, v);
	pm_flush(f, addr, sizeof(v));
}

static inline void
pm_commit64(const PmFile *f, uint64_t *addr, uint64_t v)
{
	pm_store64(addr, v);
	pm_flush(f, addr, sizeof(v));
}

#else							/* in test/crash */
#include "pm_record.h"
#endif							/* PMH_RECORD */

#ifndef PMH_STOP_LOADS
#define pm_load(addr)			__atomic_load_n(addr, __ATOMIC_RELAXED)
#define pm_load_acquire(addr)	__atomic_load_n(addr, __ATOMIC_ACQUIRE)
#else							/* test/engine/stop_lost.c */
#define pm_load(addr) \
	({ pmh_stop_load(__func__, addr); __atomic_load_n(addr, __ATOMIC_RELAXED); })
#define pm_load_acquire(addr) \
	({ pmh_stop_load(__func__, addr); __atomic_load_n(addr, __ATOMIC_ACQUIRE); })
#endif

/* Has this mapping lost a page?  Ask after the accesses that count. */
static inline bool
pm_is_lost(const PmFile *f)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&f->lost, __ATOMIC_RELAXED) != 0;
}

/* ---- map.c: where files are mapped, for pm.c ---- */

/*
 * Map the file that fd has open, which is 'size' bytes long and may become longer; fd may
 * be closed then: a mapping holds the file by itself.  *synchronous: with MAP_SYNC, which
 * the kernel grants where a store is durable once its line is flushed.  Sets
 * base, mapped and bound of *f and enters it into the list of the SIGBUS
 * handler.  0, or an errno: nothing is mapped then.
 */
extern int	pmh_map(PmFile *f, int fd, size_t size, bool *synchronous);

/*
 * The file is 'size' bytes long, which is more than is mapped: map it anew.  Takes no
 * descriptor, and works for a file that has no name any more.  f->base is another one
 * afterwards, and the old mapping stays as it is until pmh_unmap.  0, or an
 * errno: nothing has changed then.
 */
extern int	pmh_map_further(PmFile *f, size_t size);

/* So many bytes, rounded up to whole pages. */
extern size_t pmh_whole_pages(size_t size);

/* Unmap everything, and take *f off the list. */
extern void pmh_unmap(PmFile *f);

/* Note that the page at 'offset' of a file is lost, and tell all others. */
extern void pmh_map_note_lost(PmFile *f, size_t offset);

#endif							/* PMH_PM_H */
