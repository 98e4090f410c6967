/*-------------------------------------------------------------------------
 *
 * read_ahead.h
 *	  Pages of the file, read from disk before an operation waits for them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_READ_AHEAD_H
#define PMH_READ_AHEAD_H

#include "home.h"
#include "table.h"

/* So many keys of a group are asked for together. */
#define PMH_ASK_KEYS	256

/*
 * These keys are next: n hashes, each 'stride' words after the one before.  If pages of
 * the file have to be read, have those of the first home buckets read at once, and for an
 * insert those of the alternatives, without waiting for them.  Returns for how many keys.
 */
extern size_t pmh_ask_for_homes(PmhTable *t, const uint64_t *hash, size_t stride,
								size_t n, bool alternatives);

/*
 * The same for what a home that has been read tells of: the alternative bucket, and the
 * list in the first slot of a mask.
 */
extern void pmh_ask_further(const PmhTable *t, uint64_t hash, const PmhHome *h,
							uint32_t mask);

/* The buffer of a list, and those that the pointers in a copy of n buckets lead to. */
extern void pmh_ask_for_buffer(PmhTable *t, uint64_t payload);
extern void pmh_ask_for_lists(PmhTable *t, const PmhBucket *copy, uint32_t n);

/* The segment at 'hash' is next: ask for it, and if it follows the last one for more. */
extern void pmh_ask_for_next_segments(PmhTable *t, uint64_t hash);

/*
 * Before a segment is locked for an insert (directory.c sees to the buckets of the hash):
 * load from the list that seems to be the key's, and if a larger segment seems to be
 * needed, from all of this one, so that no page is read from disk meanwhile.  What is
 * found may be outdated; then it is a page too many, or too few.
 */
extern void pmh_touch_for_insert(const PmhTable *t, uint64_t hash);

/* The same for all of a segment.  Returns the hash where the next one begins. */
extern uint64_t pmh_touch_segment(const PmhTable *t, uint64_t hash);

#endif							/* PMH_READ_AHEAD_H */
