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
 * Reader: add all values of the list to *values (unsorted).  hash is that of this
 * table; version: of the first buffer, from when payload was current (PmhProbe).
 * PMH_OK; PMH_RETRY (values->n is what it was before; probe again);
 * PMH_ERR_NO_MEMORY; else as pmh_list_whole.
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

/*
 * The same for the pointer in the buffer 'holder' to the next one of its list
 * (or 0), which has a header.
 */
extern PmhResult pmh_list_check_next(PmhTable *t, uint64_t holder, uint64_t next);

/*
 * A position in a list from which reading can go on as long as the version of
 * the buffer stays the same.
 */
typedef struct PmhListPosition
{
	uint64_t	payload;		/* buffer, or 0: the end of the list */
	uint64_t	version;		/* of the buffer */
	uint64_t	birth;			/* of the buffer; 0: not known */
	uint32_t	line;			/* next line to read in it */
	uint32_t	start;			/* where in each buffer reading begins: 2^32 is its end */
} PmhListPosition;

/*
 * Reader: the start of a buffer (0: the end) that is within the bound and was
 * seen to be in its list after 'version' was loaded.
 */
extern PmhListPosition pmh_list_at(const PmhTable *t, uint64_t payload,
								   uint64_t version);

/*
 * The same for a buffer of a locked list, which cannot change: its birth is known,
 * also if another file counts its version up meanwhile.
 */
extern PmhListPosition pmh_list_at_locked(const PmhTable *t, uint64_t payload);

/*
 * What a walk without a lock remembers to notice a circle: a buffer that it has
 * come by.  Zero-initialise when a walk begins at the head of a list.
 */
typedef struct PmhListCircle
{
	uint64_t	payload;
	uint64_t	version;
	uint64_t	steps;			/* since then; ... */
	uint64_t	most;			/* ... after so many it is another buffer */
} PmhListCircle;

/*
 * A walk comes to a buffer.  True if that proves a circle: it has been there,
 * and the buffer has not left the list meanwhile (its version is the same).  In
 * a sound list what a walk comes to lies after all buffers it has come by, as long
 * as these stay in it.  (Brent's algorithm: no more than three times around.)
 */
extern bool pmh_list_is_circle(const PmhTable *t, PmhListCircle *circle,
							   const PmhListPosition *pos);

/*
 * Reader: the values of one buffer from pos on, up to the end of the line
 * with which there are 'want' or more, to value[] (room for 'want' +
 * PMH_VALUES_PER_LINE).  *n: how many.  pos moves on, at the end of the buffer to the
 * next one.  pos->line counts the lines of a buffer from pos->start on, round to there
 * again.
 *
 * PMH_OK; PMH_RETRY: the buffer has changed since pos was taken; PMH_NEED;
 * PMH_ERR_CORRUPT.  Other than with PMH_OK pos is unchanged.
 */
extern PmhResult pmh_list_step(PmhTable *t, uint64_t hash, PmhListPosition *pos,
							   uint32_t want, uint64_t *value, uint32_t *n);

/*
 * Reader, after all that it has read of a buffer: was it all right, and where
 * does the list go on?  As pmh_list_step.
 */
extern PmhResult pmh_list_pass(PmhTable *t, uint64_t hash,
							   const PmhListPosition *at, PmhListPosition *next);

/*
 * Reader, holding no lock: find a buffer again in the list that hash, which is
 * that of this table, has there now.
 * PMH_OK: wanted->version is a new one, and *before is the buffer that points to
 * it (payload 0: none).  PMH_NOT_FOUND: it has left the list, or may have; what
 * is at the same offset now may be another one.  PMH_RETRY: the list has changed
 * each time, under many searches; nothing is known, and the caller, which has let
 * its own caller have a word, may search again.  Or a real error.  Maps further.
 */
extern PmhResult pmh_list_find_again(PmhTable *t, uint64_t hash,
									 PmhListPosition *wanted,
									 PmhListPosition *before);

/*
 * Reader, holding no lock, that wants all of a list: the values of the buffer at
 * whose start pos is (pmh_list_at), to value[], with room for all that it can
 * hold.  *n: how many.  pos moves on to the next buffer.
 *
 * Version words are shared by the buffers of all files, so that one in a long list
 * changes now and then although the list does not.  Then the buffer is found again,
 * and what was read of those before it stays good: values never move to a buffer
 * after their own, but that may be freed.
 *
 * PMH_OK; PMH_RETRY: the buffer has left the list, begin anew; PMH_CANCELLED, if the
 * caller's hook says so when the buffer has changed or there are more of them; or a real
 * error.  Maps further.
 */
extern PmhResult pmh_list_whole(PmhTable *t, uint64_t hash,
								PmhListPosition *pos, uint64_t *value, uint32_t *n);

/*
 * Reader, holding no lock, that has found a pointer slot in a copy of a segment: have its
 * list visited, or the one that the key has by now, if it was not there any more or visit()
 * says so (PMH_RETRY), which is called anew then, so many times in all.  Maps further if
 * it says PMH_NEED.
 */
typedef PmhResult (*PmhVisitList) (PmhTable *t, uint64_t hash, PmhListPosition pos,
								   void *arg);
extern PmhResult pmh_list_visit(PmhTable *t, const PmhSnapshot *snap, uint32_t bucket,
								uint64_t hash, uint64_t payload, unsigned most,
								PmhVisitList visit, void *arg);

/* Report a list that runs in a circle; returns PMH_ERR_CORRUPT. */
extern PmhResult pmh_list_circle(PmhTable *t, uint64_t payload);

extern PmhResult pmh_list_fail_foreign(PmhTable *t, uint64_t payload);

#endif							/* PMH_LIST_READ_H */
