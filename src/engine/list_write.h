/*-------------------------------------------------------------------------
 *
 * list_write.h
 *	  Value lists written to (list_write.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_LIST_WRITE_H
#define PMH_LIST_WRITE_H

#include "error.h"
#include "list_read.h"
#include "table.h"

/*
 * Make a list of n values (n >= 1; order free) in buffers that fit, with room for so
 * many more; durable on return.  Nothing points to it yet.  PMH_OK or PMH_NEED (nothing
 * was kept then).  May be called under the stripe.
 */
extern PmhResult pmh_list_create(PmhTable *t, uint64_t hash,
								 const uint64_t *values, size_t n,
								 size_t room, uint64_t *payload);

/* A list that nothing points to yet, as far as it is made.  Zero-initialise. */
typedef struct PmhListMade
{
	uint64_t	head;			/* payload of the pointer, or 0 */
	size_t		values;			/* in it, the first ones */
} PmhListMade;

/*
 * The same for a caller that holds no lock, however many values there are: what was made
 * before PMH_NEED is kept, and the next call, with the same arguments, goes on with it.
 * pmh_list_unmake frees all of such a list instead.
 */
extern PmhResult pmh_list_make(PmhTable *t, uint64_t hash, const uint64_t *values,
							   size_t n, size_t room, PmhListMade *made);
extern void pmh_list_unmake(PmhTable *t, uint64_t hash, uint64_t payload);

/*
 * What follows is for writers: the segment is locked, and path->head, place, bucket and
 * bucket_slot tell where the list hangs.
 */

/* Fences of pmh_list_append: none, or any of these. */
typedef enum PmhAppendFlags
{
	PMH_APPEND_FENCE_FIRST = 1 << 0,	/* before the entry can become visible */
	PMH_APPEND_FENCE = 1 << 1	/* until it is durable */
} PmhAppendFlags;

/*
 * Add a value.  It is durable with PMH_APPEND_FENCE, else after the next pm_fence
 * (PMH_APPEND_FENCE_FIRST as fence_first of pmh_insert).  PMH_OK; PMH_NEED (nothing done),
 * PMH_ERR_TOO_LARGE, PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_list_append(PmhTable *t, PmhListPath *path, uint64_t hash,
								 uint64_t value, unsigned how);

/*
 * Lines of one list that are searched while its segment is locked: some 5,000 values, less
 * than 100 us.  What lies further on is found without the lock (drain.c).
 */
#define PMH_LOCKED_LINES	1024

/*
 * Take one value out.  PMH_OK: durably gone; PMH_NOT_FOUND; PMH_FAR: not in the last
 * buffers of a long list; PMH_BUSY as pmh_list_take_out; PMH_NEED, PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_list_remove(PmhTable *t, PmhListPath *path, uint64_t hash,
								 uint64_t value, bool wait);

/*
 * Lead the path to the last buffer of values in a slot below *below, which becomes its
 * slot; payload[0] == 0: there is none.  PMH_OK, PMH_NEED, PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_list_find_below(PmhTable *t, uint64_t hash, PmhListPath *path,
									 uint64_t *below);

/*
 * Take the cells of mask[] (one for each line) out of the buffer that the path leads to,
 * durable after the next pm_fence.  If nothing is left of it, it is freed, and the list with
 * its last one.  PMH_OK.  Unless 'wait': PMH_BUSY, nothing done, if that takes the space
 * lock and it is not free; if it is free, it is held on return, until pmh_space_release.
 */
extern PmhResult pmh_list_take_out(PmhTable *t, PmhListPath *path, bool wait,
								   const uint16_t *mask);

/*
 * Put what is in the buffer of a level of the path into a new one of this class, durably,
 * in the same slot, and free the old one.  PMH_OK, PMH_NEED (nothing done).
 */
extern PmhResult pmh_list_rewrite(PmhTable *t, PmhListPath *path, uint32_t level,
								  uint64_t hash, uint32_t class);

/* How many values a buffer holds, and the last slot of an index that is used. */
extern uint32_t pmh_buffer_count(const PmhTable *t, uint64_t payload);
extern uint32_t pmh_index_last(const PmhTable *t, uint64_t payload);

/*
 * Is a buffer of the list of hash where it can be, and does it say so itself?  PMH_OK,
 * PMH_NEED, PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_buffer_check(PmhTable *t, uint64_t hash, uint64_t payload);

/* The smallest class for n values, or the largest of all. */
extern uint32_t pmh_buffer_class_for(size_t n);

#endif							/* PMH_LIST_WRITE_H */
