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
#include "table.h"

/*
 * Make a list of n values (n >= 1; order free) in buffers that fit, with room for so
 * many more, chained if need be; durable on return.  Nothing points to it yet.  PMH_OK
 * or PMH_NEED (nothing was kept then).  May be called under the stripe.
 */
extern PmhResult pmh_list_create(PmhTable *t, uint64_t hash,
								 const uint64_t *values, size_t n,
								 size_t room, uint64_t *payload);

/* A list that nothing points to yet, as far as it is made.  Zero-initialise. */
typedef struct PmhListMade
{
	uint64_t	head;			/* its newest buffer, or 0 */
	uint64_t	bytes;			/* of all */
	size_t		values;			/* in them, the first ones */
} PmhListMade;

/*
 * The same for a caller that holds no lock, however many values there are: what was made
 * before PMH_NEED is kept, and the next call, with the same arguments, goes on with it.
 * pmh_list_unmake frees it instead.
 */
extern PmhResult pmh_list_make(PmhTable *t, uint64_t hash, const uint64_t *values,
							   size_t n, size_t room, PmhListMade *made);
extern void pmh_list_unmake(PmhTable *t, const PmhListMade *made);

/* Fences of pmh_list_append: none, or any of these. */
typedef enum PmhAppendFlags
{
	PMH_APPEND_FENCE_FIRST = 1 << 0,	/* before the entry can become visible */
	PMH_APPEND_FENCE = 1 << 1	/* until it is durable */
} PmhAppendFlags;

/*
 * Add a value to the list at payload; the segment is locked.  If there is room
 * it is in, durable with PMH_APPEND_FENCE, else after the next pm_fence
 * (PMH_APPEND_FENCE_FIRST as fence_first of pmh_insert, between value and line
 * state), and *new_payload == payload.  Else
 * *new_payload is a list that has the value too (a larger copy, or a new buffer
 * chained in front), durable; the caller publishes it with pmh_bucket_repoint
 * and then calls pmh_list_retire(payload, *new_payload).  PMH_OK, PMH_NEED
 * (nothing done), or PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_list_append(PmhTable *t, uint64_t hash, uint64_t payload,
								 uint64_t value, unsigned how,
								 uint64_t *new_payload);

/*
 * Take one value out; the segment is locked.  PMH_OK: durably gone;
 * *new_payload == payload as a rule, 0 if the list is empty now (the caller
 * removes the pointer slot with pmh_bucket_unpoint), or another head (the
 * caller publishes it with pmh_bucket_repoint); in both latter cases it then
 * calls pmh_list_retire(payload, *new_payload).  PMH_NOT_FOUND; PMH_FAR: not in
 * the first buffers of a long list; PMH_NEED (map further), PMH_ERR_CORRUPT.
 * Unless 'wait', the last value of a buffer, which then has to be freed, stays
 * (PMH_BUSY) if the space lock is not free; if it is, it is held on return.
 */
extern PmhResult pmh_list_remove(PmhTable *t, uint64_t hash, uint64_t payload,
								 uint64_t value, bool wait,
								 uint64_t *new_payload);

/*
 * Free the buffers of the list 'old' that are not part of the list 'new' (0:
 * all).  Nothing points to old any more.
 */
extern void pmh_list_retire(PmhTable *t, uint64_t old, uint64_t new_payload);

/*
 * Lines of one list that are searched while its segment is locked: some 5,000
 * values, less than 100 us.  What lies further on is found without the lock.
 */
#ifdef PMH_RECORD
#define PMH_LOCKED_LINES	128		/* so test/crash gets by with short lists */
#else
#define PMH_LOCKED_LINES	1024
#endif

/*
 * Writer (segment locked): take the buffer 'payload' out of the list that begins with
 * 'head' and whose buffer 'before' points to it, durably, and free it.
 * PMH_OK, or (nothing done) PMH_NEED or PMH_ERR_CORRUPT: what comes after it cannot.
 */
extern PmhResult pmh_list_unlink(PmhTable *t, uint64_t hash, uint64_t head,
								 uint64_t before, uint64_t payload);

/*
 * Writer (segment locked): note in the buffer 'head', the first one of a list after the
 * buffer 'gone' has been taken out, how large the list is now.  'noted' is the one that
 * tells of it with 'gone'.  (A hint.  Durable after the next pm_fence.)
 */
extern void pmh_list_note_rest(PmhTable *t, uint64_t noted, uint64_t gone, uint64_t head);

/*
 * Writer (segment locked): clear the cells of 'mask' in a line.  The caller counts
 * the version of the buffer up before this and, while it has the segment locked,
 * after it.  Durable after the next pm_fence.
 */
extern void pmh_line_clear(PmhTable *t, uint64_t payload, uint32_t line,
						   uint32_t mask);

/*
 * Writer (segment locked): is a buffer of the list of hash where it can be, and
 * does it say so itself?  PMH_OK, PMH_NEED, PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_buffer_check(PmhTable *t, uint64_t hash, uint64_t payload);

/*
 * Write all of a new buffer: n values (not more than fit) and, if its class
 * has one, the header.  Durable after the next pm_fence.
 */
extern void pmh_buffer_write(PmhTable *t, uint64_t payload, uint64_t hash,
							 uint64_t next, uint64_t list_bytes,
							 const uint64_t *values, size_t n);

/* The smallest class for n values, or the largest of all. */
extern uint32_t pmh_buffer_class_for(size_t n);

/*
 * Bytes of the buffers of a list from one on, as that tells it (a hint); and as a
 * header tells so many.
 */
extern uint64_t pmh_list_bytes_from(const PmhTable *t, uint64_t payload);
extern uint32_t pmh_list_lines(uint64_t list_bytes);

/* Let 'before' be followed by the buffer 'next', durably. */
extern void pmh_list_relink(PmhTable *t, uint64_t before, uint64_t next);

#endif							/* PMH_LIST_WRITE_H */
