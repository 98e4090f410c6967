/*-------------------------------------------------------------------------
 *
 * directory.h
 *	  Find, lock and publish segments; double the directory (directory.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_DIRECTORY_H
#define PMH_DIRECTORY_H

#include "element.h"
#include "error.h"
#include "layout.h"
#include "lock.h"
#include "place.h"
#include "stop_point.h"
#include "table.h"

/*
 * Find the segment of hash.  PMH_OK, PMH_NEED (map further), or PMH_ERR_CORRUPT.
 * Nothing is locked: the place may be outdated already.
 */
extern PmhResult pmh_locate(PmhTable *t, uint64_t hash, PmhPlace *place);

/*
 * Reader: locate the segment of hash and take the versions of its buckets.
 * Maps further as needed.  PMH_OK or a real error.
 */
extern PmhResult pmh_snapshot(PmhTable *t, uint64_t hash, PmhSnapshot *snap);

/* Has nothing a reader of this bucket relied on changed since the snapshot? */
static inline bool
pmh_snapshot_valid(const PmhSnapshot *snap, uint32_t bucket)
{
	return pmh_version_same(pmh_bucket_version(&snap->place, bucket),
							snap->version[bucket % PMH_VERSIONS]);
}

/*
 * The condition for following a pointer slot: to be checked after loading the
 * version of the buffer, so that this version is from before a free.  (The
 * version of the bucket alone would not do: after a split it is the new
 * segment's versions that tell.)  The place first: if it is current and the
 * version has not changed after that, the segment was there all the time.  The
 * other way round it may have been moved away in between, and back again.
 */
static inline bool
pmh_snapshot_current(const PmhTable *t, const PmhSnapshot *snap, uint32_t bucket)
{
	if (!pmh_place_current(t, &snap->place))
		return false;
	PMH_STOP_POINT("current_between_checks");
	return pmh_snapshot_valid(snap, bucket);
}

/*
 * Writer: lock the segment of hash; the place is current until it is
 * unlocked.  PMH_OK (locked) or a real error.  pmh_segment_trylock gives
 * PMH_RETRY if it is locked, or PMH_NEED; the caller may hold others.
 */
extern PmhResult pmh_segment_lock(PmhTable *t, uint64_t hash, PmhPlace *place);
extern PmhResult pmh_segment_trylock(PmhTable *t, uint64_t hash, PmhPlace *place);

/*
 * The same for one that may have to leave it: unless 'wait' it tries for a
 * moment, then PMH_BUSY.  Maps further.  No lock may be held.
 */
extern PmhResult pmh_segment_lock_or_leave(PmhTable *t, uint64_t hash,
										   bool wait, PmhPlace *place);

static inline void
pmh_segment_unlock(const PmhPlace *place)
{
	pmh_unlock(&place->stripe->lock);
}

/*
 * Double the directory if its depth is still 'depth'.  No lock may be held;
 * takes the directory lock, and space.
 */
extern PmhResult pmh_directory_double(PmhTable *t, uint32_t depth);

/*
 * Blocks a directory of this depth takes: 0 if it stands in block 0; and the
 * offset for a small directory there that is not the current one's.
 */
extern uint64_t pmh_directory_blocks(uint32_t depth);
extern uint64_t pmh_small_directory(const PmhTable *t);

/*
 * Let all elements of the segment of 'place' (locked by the caller) say 'low'
 * in the first half of their range and 'high' in the second; logged.  The range
 * is that of the depth in place->elem.  PMH_OK or PMH_NEED (nothing done).
 */
extern PmhResult pmh_directory_publish(PmhTable *t, const PmhPlace *place,
									   uint64_t low, uint64_t high);

extern void pmh_directory_store(PmhTable *t, uint64_t dirword, uint64_t first,
								uint64_t count, uint64_t low, uint64_t high);

/*
 * Change the strategy of a locked segment; place->elem follows.  PMH_OK or
 * PMH_NEED (nothing done).
 */
extern PmhResult pmh_directory_strategy(PmhTable *t, PmhPlace *place,
										PmhStrategy strategy);

extern uint32_t pmh_dirlog_crc(const PmhDirLog *log, uint64_t count);

/* Is the element possible in a directory of this depth and file length? */
extern bool pmh_elem_sane(uint64_t elem, uint64_t index,
						  uint32_t depth, uint64_t blocks);

#endif							/* PMH_DIRECTORY_H */
