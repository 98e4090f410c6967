/*-------------------------------------------------------------------------
 *
 * handle.h
 *	  The handle of a process on a file, its results, and what the header of the file tells.
 *
 * Pointers into the mapping (pmh_at) are good until the handle rests or is closed.
 * What outlives an operation (sweep, shrink, cursor, bulk load) holds offsets.
 *
 * An offset that was read from the file is followed only after pmh_check_span, or
 * pmh_within, has said that the file reaches so far: test builds look at each one.
 * See src/README, "Mapping".
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_HANDLE_H
#define PMH_HANDLE_H

#include <stdbool.h>

#include "layout.h"
#include "lock.h"
#include "pm.h"

/* ---- fail.c: how functions of the engine report what went wrong ---- */

/*
 * Results beyond error.h, never seen by callers of the engine:
 *
 * 	PMH_RETRY	a writer has changed what we were reading: start again
 * 	PMH_NEED	something is missing that may only be had without locks (file
 * 				space, a longer mapping, a larger directory).  It is noted in
 * 				table->need.  The caller drops its locks, calls pmh_provide()
 * 				and starts again.
 * 	PMH_BUSY	it takes a lock that another process holds, and we are not to wait
 */

#define PMH_RETRY			((PmhResult) 100)
#define PMH_NEED			((PmhResult) 101)
#define PMH_BUSY			((PmhResult) 102)

/* PMH_ERR_LOST, PMH_CANCELLED: set t->error and return that. */
extern PmhResult pmh_fail_lost(PmhTable *t);
extern PmhResult pmh_fail_cancelled(PmhTable *t);

/* Set *error, or t->error, and return code.  detail: a printf format for a sentence. */
#define pmh_fail(t, ...)	pmh_fill_error(&(t)->error, __VA_ARGS__)
extern PmhResult pmh_fill_error(PmhError *error, PmhResult code, int sys_errno,
								uint64_t offset, const char *detail, ...)
			__attribute__((format(printf, 5, 6)));

/* The same for a system call that has failed with the errno 'err'. */
extern PmhResult pmh_fill_call_error(PmhError *error, int err, const char *what);

/* ---- the handle of a process on a file, and pointers into its mapping ---- */

/* What pmh_provide() is to see to. */
typedef struct PmhNeed
{
	bool		map;			/* map anew: the file has outgrown its mapping */
	bool		doubling;		/* double the directory ... */
	uint32_t	doubling_depth; /* ... if it still has this depth */
	uint64_t	blocks;			/* an extent of so many free blocks ... */
	uint64_t	seen;			/* ... if the file still has so many in all */
	uint64_t   *lock;			/* has to be free */
} PmhNeed;

struct PmhTable
{
	PmFile		file;
	PmhLocks   *locks;
	PmhFileLock *file_lock;
	uint64_t	instance;
	uint64_t	file_id;
	uint64_t	seen_dirword;	/* a directory seen to be within the bound, ... */
	uint64_t	seen_offset;	/* ... where, ... */
	uint64_t	seen_elements;	/* ... and of how many elements */
	uint64_t	stripe_mask;	/* number of stripes - 1 */
	PmhNeed		need;
	bool		space_held;		/* the space lock is: pmh_space_trylock */
	PmhError	error;
	uint8_t		identity[PMH_IDENTITY_SIZE];
	/* of read_ahead.c: */
	uint32_t	cold;			/* groups whose pages are asked for, still */
	size_t		look_each;		/* keys from one look at a page to the next, ... */
	size_t		keys_warm;		/* ... and of these still to come */
	uint32_t	walk_left;		/* segments asked for and not read yet; ... */
	uint64_t	walk_at;		/* ... the element after them; ... */
	uint64_t	walk_next;		/* ... the hash where a walk goes on */
};

/* Is [offset, offset + len) known to be part of the file, and mapped? */
static inline bool
pmh_within(const PmhTable *t, uint64_t offset, uint64_t len)
{
	return offset <= t->file.bound && len <= t->file.bound - offset;
}

/* The address of an offset that has not been checked: for a prefetch, or until it is. */
static inline void *
pmh_unchecked(const PmhTable *t, uint64_t offset)
{
	return t->file.base + offset;
}

static inline void *
pmh_at(const PmhTable *t, uint64_t offset)
{
	PMH_ASSERT(pmh_within(t, offset, sizeof(uint64_t)));
	return pmh_unchecked(t, offset);
}

static inline PmhFormat *
pmh_format(const PmhTable *t)
{
	return (PmhFormat *) (t->file.base + PMH_FORMAT_OFFSET);
}

static inline PmhLive *
pmh_live(const PmhTable *t)
{
	return (PmhLive *) (t->file.base + PMH_LIVE_OFFSET);
}

static inline PmhRun *
pmh_run(const PmhTable *t)
{
	return (PmhRun *) (t->file.base + PMH_RUN_OFFSET);
}

static inline void
pmh_count(uint64_t *counter, uint64_t by)
{
	(void) __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

/*
 * What a public function returns at its end: 'result', unless the file is lost.  Ordered
 * after everything that the caller has read.
 */
static inline PmhResult
pmh_conclude(PmhTable *t, PmhResult result)
{
	PMH_ASSERT(!t->space_held);
	PMH_ASSERT(result <= PMH_CANCELLED);	/* the others never leave the engine */
	pmh_read_fence();
	/* The process that loses a page posts it, so mostly the board says it all. */
	if (unlikely(pmh_lost_count(t->file_lock->lost) != 0) &&
		(pm_is_lost(&t->file) || pmh_lost_posted(t->file_lock->lost, t->file_id)))
		return pmh_fail_lost(t);
	return result;
}

/* ---- the live words, which have checksums ---- */

/*
 * Recovery and everyone else begins with them: were they wrong, blocks in use would be taken
 * for free, or a directory for the current one that is whole, but of before.  So each has a
 * checksum in its upper bits, and is changed with it by one store.
 */

_Static_assert(PMH_MAX_BLOCKS_SHIFT < PMH_LIVE_CRC_SHIFT,
			   "the number of a block would reach into its checksum");

/* The number of blocks in a live word. */
static inline uint64_t
pmh_live_number(uint64_t word)
{
	return word & ((UINT64_C(1) << PMH_LIVE_CRC_SHIFT) - 1);
}

/* A live word: its lower 'bits' bits, with their checksum, or the end of it, above them. */
static inline uint64_t
pmh_seal(uint64_t word, uint32_t bits)
{
	word &= (UINT64_C(1) << bits) - 1;
	return word | (uint64_t) pmh_crc32c(&word, sizeof(word)) << bits;
}

static inline uint64_t
pmh_seal_blocks(uint64_t number)
{
	PMH_ASSERT(number > 0 && number <= PMH_MAX_BLOCKS);
	return pmh_seal(number, PMH_LIVE_CRC_SHIFT);
}

static inline uint64_t
pmh_seal_dirword(uint64_t offset, uint32_t depth)
{
	return pmh_seal(offset / 64 | (uint64_t) depth << PMH_DIRWORD_DEPTH_SHIFT, PMH_DIRWORD_BITS);
}

/* The length of the file in blocks. */
static inline uint64_t
pmh_blocks(const PmhTable *t)
{
	return pmh_live_number(pm_load_acquire(&pmh_live(t)->blocks));
}

/* ---- file_life.c: what the header must say ---- */

extern PmhResult pmh_check_format(const PmhFormat *format, PmhError *error);

/* Are the live words possible, within a file of so many bytes? */
extern PmhResult pmh_check_live_words(const PmhLive *live, uint64_t size, PmhError *error);

/* ---- recover.c: recovery ---- */

/*
 * Make the volatile parts true again; the caller holds the grow lock and has
 * seen that run.instance is not the current one.  Idempotent.  Whatever was
 * stored before is durable after it.
 */
extern PmhResult pmh_recover(PmhTable *t);

#endif							/* PMH_HANDLE_H */
