/*-------------------------------------------------------------------------
 *
 * lock.h
 *	  The lock table: write locks and versions, in shared memory that dies
 *	  with the system.  See src/README, "Locks", also for their order.
 *
 * Versions only count up.  Those of a stripe are counted up by the holder of its
 * lock, so a plain store does; those of value buffers by any process, so they stand
 * in an array of their own and are counted atomically.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_LOCK_H
#define PMH_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "compiler.h"
#include "table.h"

#define PMH_VERSIONS		7	/* per stripe: together with the lock, a line */
#define PMH_FILE_LOCKS		64	/* of each kind; files share them by id */
#define PMH_LOST_IDS		7	/* lost files remembered per file lock */

typedef struct PmhStripe
{
	uint64_t	lock;			/* 0 free, 1 held */
	uint64_t	version[PMH_VERSIONS];
} PmhStripe;

typedef struct PmhFileLock
{
	uint64_t	directory;
	uint64_t	pad0[7];
	uint64_t	space;
	uint64_t	pad1[7];
	uint64_t	grow;
	uint64_t	pad2[7];

	/*
	 * The board of lost files, a line that is hardly ever written: how many
	 * have been posted, then the ids of the last ones.
	 */
	uint64_t	lost[1 + PMH_LOST_IDS];
} PmhFileLock;

struct PmhLocks
{
	uint64_t	nstripes;		/* a power of two */
	uint64_t	pad[7];
	PmhFileLock file[PMH_FILE_LOCKS];
	PmhStripe	stripe[];		/* nstripes of them, and after them as many
								 * versions of value buffers */
};

/* For loops that look at a word again and again. */
static inline void
pmh_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/*
 * Take or release a lock word.  Waiters spin, then sleep in short steps; a
 * holder only ever executes a bounded number of instructions (grow locks:
 * system calls too).
 */
extern bool pmh_lock_wait(uint64_t *lock, bool cancellable);

/* Does the process want to do something else than to wait (PmhWaitHooks)? */
extern bool pmh_wait_cancelled(void);

/* One that is not to wait for a lock tries to take it so often. */
#define PMH_LOCK_TRIES	100

/*
 * Take the lock if it is free; false if it is not.  An acquire operation: what fills
 * space that was taken out of use before may not overtake this (src/README, "Locks").
 */
static inline bool
pmh_trylock(uint64_t *lock)
{
	uint64_t	free = 0;

	return __atomic_compare_exchange_n(lock, &free, UINT64_C(1), false,
									   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void
pmh_lock(uint64_t *lock)
{
	if (!pmh_trylock(lock))
		(void) pmh_lock_wait(lock, false);
}

/*
 * The same, for a caller that holds no other lock and has done nothing by halves:
 * false if the wait was given up because the process wants to do something else
 * (PmhWaitHooks).  The operation then ends with PMH_CANCELLED.
 */
static inline bool
pmh_lock_or_cancel(uint64_t *lock)
{
	return __builtin_expect(pmh_trylock(lock), 1) || pmh_lock_wait(lock, true);
}

#ifdef PMH_RECORD
/* test/crash: looks what is not durable when others may go on from it. */
extern void pm_record_unlock(const uint64_t *lock);
#else
#define pm_record_unlock(lock)	((void) 0)
#endif

/* Does somebody hold it?  For assertions. */
static inline bool
pmh_is_locked(const uint64_t *lock)
{
	return __atomic_load_n(lock, __ATOMIC_RELAXED) != 0;
}

static inline void
pmh_unlock(uint64_t *lock)
{
	PMH_ASSERT(pmh_is_locked(lock));
	pm_record_unlock(lock);
	__atomic_store_n(lock, UINT64_C(0), __ATOMIC_RELEASE);
}

/* The stripe of a segment, by the block number of its main part. */
static inline PmhStripe *
pmh_segment_stripe(PmhLocks *locks, uint64_t file_id, uint64_t block)
{
	PMH_ASSERT(locks->nstripes > 0 && (locks->nstripes & (locks->nstripes - 1)) == 0);
	return &locks->stripe[(file_id + block) & (locks->nstripes - 1)];
}

/* The version word of a value buffer, by its offset. */
static inline uint64_t *
pmh_buffer_version_word(PmhLocks *locks, uint64_t file_id, uint64_t offset)
{
	uint64_t	x = (file_id ^ (offset / 64)) * UINT64_C(0x9e3779b97f4a7c15);
	uint64_t   *version = (uint64_t *) (void *) &locks->stripe[locks->nstripes];

	return &version[(x >> 32) & (locks->nstripes - 1)];
}

/* How many losses have been posted on a board? */
static inline uint64_t
pmh_lost_count(const uint64_t *board)
{
	return __atomic_load_n(&board[0], __ATOMIC_ACQUIRE);
}

/* Is the file posted as lost? */
static inline bool
pmh_lost_posted(const uint64_t *board, uint64_t file_id)
{
	if (__builtin_expect(pmh_lost_count(board) == 0, 1))
		return false;
	for (unsigned i = 1; i <= PMH_LOST_IDS; i++)
	{
		if (__atomic_load_n(&board[i], __ATOMIC_ACQUIRE) == file_id)
			return true;
	}
	return false;
}

/*
 * Post a file as lost, for all that have it mapped.  What this process stores
 * from now on is seen only by those that also see the post.  Called in a signal
 * handler.  More than PMH_LOST_IDS lost files of one file lock push the oldest
 * off; see src/README.
 */
static inline void
pmh_lost_post(uint64_t *board, uint64_t file_id)
{
	uint64_t	n;

	if (pmh_lost_posted(board, file_id))
		return;
	n = __atomic_fetch_add(&board[0], UINT64_C(1), __ATOMIC_ACQ_REL);
	__atomic_store_n(&board[1 + n % PMH_LOST_IDS], file_id, __ATOMIC_SEQ_CST);
}

/*
 * Count up a version of a stripe that the caller has locked.  Everything stored
 * afterwards (release stores) is seen only by readers that can also see the new
 * version.  Not a locked instruction: it would wait for all stores and flushes
 * before it.
 */
static inline void
pmh_version_bump(uint64_t *version)
{
	__atomic_store_n(version, __atomic_load_n(version, __ATOMIC_RELAXED) + 1,
					 __ATOMIC_RELEASE);
}

/* The same for a version that others may count up at the same time. */
static inline void
pmh_version_bump_shared(uint64_t *version)
{
	(void) __atomic_fetch_add(version, UINT64_C(1), __ATOMIC_ACQ_REL);
}

static inline uint64_t
pmh_version_load(const uint64_t *version)
{
	return __atomic_load_n(version, __ATOMIC_ACQUIRE);
}

/*
 * After the loads of a reader, before it loads the version again: keeps the
 * (relaxed) loads before it in front of the loads after it.  ThreadSanitizer
 * does not model fences; it need not, since every racing access is atomic.
 */
static inline void
pmh_read_fence(void)
{
#ifdef __SANITIZE_THREAD__
	__asm__ __volatile__("" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

/* True if the version still is what the reader has loaded before. */
static inline bool
pmh_version_same(const uint64_t *version, uint64_t before)
{
	pmh_read_fence();
	return __atomic_load_n(version, __ATOMIC_RELAXED) == before;
}

#endif							/* PMH_LOCK_H */
