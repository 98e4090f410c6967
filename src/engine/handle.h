/*-------------------------------------------------------------------------
 *
 * handle.h
 *	  The handle of a process on a file, and pointers into its mapping.
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

#include "compiler.h"
#include "error.h"
#include "fail.h"
#include "layout.h"
#include "lock.h"
#include "pm.h"
#include "table.h"

/* What pmh_provide() is to see to. */
typedef struct PmhNeed
{
	bool		map;			/* map anew: the file has outgrown its mapping */
	bool		workspace;		/* memory to build segments in */
	bool		doubling;		/* double the directory ... */
	uint32_t	doubling_depth; /* ... if it still has this depth */
	uint64_t	blocks;			/* an extent of so many free blocks ... */
	uint64_t	seen;			/* ... if the file still has so many in all */
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
	struct PmhWorkspace *workspace; /* NULL until needed; until pmh_conclude ... */
	struct PmhBuild *build[2];	/* ... its segments being built */
	struct PmhItem *overflow[2];	/* their entries with no room at home */
	PmhCounts	counts;			/* of this handle, since pmh_take_counts */
	/* of read_ahead.c: */
	uint32_t	cold;			/* groups whose pages are asked for, still */
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
 * Lend a handle the memory to build segments in: t->build and t->overflow are NULL
 * without it.  It stays until pmh_conclude.  Nothing to do if it is there.  PMH_OK,
 * PMH_ERR_NO_MEMORY.  Locks do not matter.  (segment_build.c)
 */
extern PmhResult pmh_workspace_take(PmhTable *t);
extern void pmh_workspace_give_back(PmhTable *t);

/* The results of fail.h never leave the engine. */
#define PMH_ASSERT_PUBLIC(result)	PMH_ASSERT((result) <= PMH_CANCELLED)

/*
 * What a public function returns at its end that cannot have built segments: 'result',
 * unless the file is lost.  Ordered after everything that the caller has read.
 */
static inline PmhResult
pmh_conclude_reading(PmhTable *t, PmhResult result)
{
	PMH_ASSERT_PUBLIC(result);
	pmh_read_fence();
	/* The process that loses a page posts it, so mostly the board says it all. */
	if (unlikely(pmh_lost_count(t->file_lock->lost) != 0) &&
		(pm_is_lost(&t->file) || pmh_lost_posted(t->file_lock->lost, t->file_id)))
		return pmh_fail_lost(t);
	return result;
}

/*
 * The same for a function that may have built segments: the memory that it has built in
 * goes.  Hence none of these functions may be called inside of another one.
 */
static inline PmhResult
pmh_conclude(PmhTable *t, PmhResult result)
{
	if (unlikely(t->workspace != NULL))
		pmh_workspace_give_back(t);
	return pmh_conclude_reading(t, result);
}

#endif							/* PMH_HANDLE_H */
