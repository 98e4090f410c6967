/*-------------------------------------------------------------------------
 *
 * list_read.h
 *	  Value lists as a reader sees them (list_read.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_LIST_READ_H
#define PMH_LIST_READ_H

#include "error.h"
#include "layout.h"
#include "place.h"
#include "table.h"

/*
 * Reader: add all values of the list to *values (unsorted).  version: of the first
 * buffer, from when payload was current (PmhProbe).  PMH_OK, PMH_ERR_NO_MEMORY, else as
 * pmh_list_whole.
 */
extern PmhResult pmh_list_read(PmhTable *t, uint64_t hash,
							   uint64_t payload, uint64_t version, PmhValues *values);

/*
 * Reader: the values of a line to value[] (room for PMH_VALUES_PER_LINE).  cells:
 * those that it has (pmh_line_cells).  Returns how many.  To be believed only after
 * validating the buffer: a cell may have been given to another value meanwhile.
 */
extern uint32_t pmh_line_read(const PmhValueLine *line, uint32_t cells,
							  uint64_t *value);

/* Can this be a pointer at all?  As pmh_check_span, for a whole buffer. */
extern PmhResult pmh_buffer_check_span(PmhTable *t, uint64_t payload);

/* The same for a pointer in the index 'holder'. */
extern PmhResult pmh_list_check_child(PmhTable *t, uint64_t holder, uint64_t child);

extern PmhResult pmh_list_fail_foreign(PmhTable *t, uint64_t payload);

/*
 * Positions in a list are numbers of slots: slot s of an index of level 1; of one of level
 * l, s times the slots that each of those below it may have.  A list of one buffer is slot 0.
 * A value stays in its slot until it is removed, whatever becomes of the buffers.  So a
 * walk from the last slot to the first meets every value that is there all the time, and it
 * need remember nothing but its position (PmhListPosition, in table.h).
 */
#define PMH_LIST_START	((PmhListPosition) {.below = UINT64_MAX})
#define PMH_LIST_END	((PmhListPosition) {.below = 0})

/* The most values of a buffer, of a list of one buffer, and room for what a step reads. */
#define PMH_CHUNK_MOST	((PMH_MAX_LINES - 1) * PMH_VALUES_PER_LINE)
#define PMH_SINGLE_MOST	((PMH_CHUNK_LINES - 1) * PMH_VALUES_PER_LINE)
#define PMH_STEP_MAX	(PMH_CHUNK_MOST + PMH_VALUES_PER_LINE)

/* The way to a buffer of values. */
typedef struct PmhListPath
{
	uint64_t	head;			/* payload of the pointer in the bucket */
	uint64_t	version;		/* of the buffer at hand, if there is no lock */
	uint64_t	payload[PMH_MAX_LEVEL + 1]; /* the buffers, values [0] first; 0: none */
	uint32_t	slot[PMH_MAX_LEVEL + 1];	/* of the index of a level, the one taken */
	uint64_t	number;			/* of the slot */
	uint64_t	word;			/* in it */
	const PmhPlace *place;		/* of a writer: the list hangs there, ... */
	uint32_t	bucket;			/* ... in this bucket and slot; NULL: nothing points */
	unsigned	bucket_slot;	/* to it yet */
} PmhListPath;

/*
 * Find the last buffer of values in a slot below 'below' (> 0), from path->head on.  PMH_OK:
 * path->payload[0] is it, or 0: the index that 'below' leads to has none there, and
 * path->number is its first slot.  A reader (not 'locked') has the version of the head in
 * path->version, and then that of the buffer.  PMH_RETRY: it has to begin anew with a probe;
 * PMH_NEED, PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_list_descend(PmhTable *t, uint64_t hash, PmhListPath *path,
								  uint64_t below, bool locked);

/*
 * Reader: the values of the next buffer from pos on, up to the end of the line with which
 * there are 'want' or more, to value[] (room for PMH_STEP_MAX, or 'want' and
 * PMH_VALUES_PER_LINE if that is less, but for all of a list of one buffer).  *n: how many;
 * it may be none.  pos moves on; pos->below == 0: that was the last.  pos->again: something of
 * this slot has been read before, as another buffer is there now.  pos->line counts
 * lines of a buffer from pos->start on, round to there again.  (head, version: of PmhProbe.)
 *
 * PMH_OK; PMH_RETRY: the list has changed, probe again; PMH_NEED; PMH_ERR_CORRUPT.
 * Other than with PMH_OK pos->below is unchanged, and the walk goes on there.
 */
extern PmhResult pmh_list_step(PmhTable *t, uint64_t hash, uint64_t head, uint64_t version,
							   PmhListPosition *pos, uint32_t want, uint64_t *value,
							   uint32_t *n);

/*
 * The same, holding no lock, for a list that is looked up first, as it is now.  PMH_RETRY:
 * it has changed each time, and the caller's caller should have a word.  Maps further.
 */
extern PmhResult pmh_list_next(PmhTable *t, uint64_t hash, PmhListPosition *pos,
							   uint32_t want, uint64_t *value, uint32_t *n);

/*
 * The same for all of a buffer and readers that want all of a list.  PMH_OK; PMH_CANCELLED,
 * if the caller's hook says so; or a real error.
 */
extern PmhResult pmh_list_whole(PmhTable *t, uint64_t hash, PmhListPosition *pos,
								uint64_t *value, uint32_t *n);

#endif							/* PMH_LIST_READ_H */
