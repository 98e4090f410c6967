/*-------------------------------------------------------------------------
 *
 * values.h
 *	  Value lists seen from near: buffers and their lines.
 *
 * For values.c and for those that walk lists piecemeal (cursor, sweep, stats,
 * check).  Everybody else uses the pmh_list_* functions of internal.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_VALUES_H
#define PMH_VALUES_H

#include "internal.h"

/*
 * Which slots of a bucket (a reader's copy, or in a locked segment) hold plain
 * entries that count, and which hold pointers?
 */
static inline void
pmh_bucket_kinds(const PmhBucket *b, uint32_t *plain, uint32_t *pointers)
{
	uint32_t	state = pmh_bucket_state(b);

	*plain = state & PMH_STATE_OCCUPIED;
	*pointers = 0;
	if ((state & PMH_STATE_POINTERS) == 0)
		return;
	for (uint32_t m = *plain; m != 0; m &= m - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(m);
		uint64_t	word = pmh_slot_load_word(b, slot);
		int			pointer;

		if (!pmh_word_is_pointer(word))
			continue;
		*pointers |= UINT32_C(1) << slot;
		*plain &= ~pmh_bucket_find(b, pmh_slot_load_hash(b, slot, word), &state,
								   &pointer);
	}
	*plain &= ~*pointers;
}

/*
 * Lines of one list that are searched while its segment is locked: some 5,000
 * values, less than 100 us.  What lies further on is found without the lock.
 */
#ifdef PMH_RECORD
#define PMH_LOCKED_LINES	64		/* so test/crash gets by with short lists */
#else
#define PMH_LOCKED_LINES	512
#endif

/* Lines of the largest buffer. */
#define PMH_MAX_LINES	(UINT32_C(1) << PMH_MAX_CLASS)

static inline uint64_t
pmh_class_bytes(uint32_t class)
{
	return (uint64_t) PMH_LINE << class;
}

static inline uint32_t
pmh_class_lines(uint32_t class)
{
	return UINT32_C(1) << class;
}

static inline bool
pmh_class_has_header(uint32_t class)
{
	return class >= PMH_HEADER_CLASS;
}

/* The first line that holds values. */
static inline uint32_t
pmh_class_first_line(uint32_t class)
{
	return pmh_class_has_header(class) ? 1 : 0;
}

/* How many values a buffer of this class holds. */
static inline uint32_t
pmh_class_capacity(uint32_t class)
{
	return (pmh_class_lines(class) - pmh_class_first_line(class)) *
		PMH_VALUES_PER_LINE;
}

static inline PmhBufferHeader *
pmh_buffer_header(const PmhTable *t, uint64_t payload)
{
	return (PmhBufferHeader *) pmh_at(t, pmh_pointer_offset(payload));
}

static inline PmhValueLine *
pmh_buffer_line(const PmhTable *t, uint64_t payload, uint32_t line)
{
	return (PmhValueLine *) pmh_at(t, pmh_pointer_offset(payload)) + line;
}

static inline uint64_t
pmh_line_value(const PmhValueLine *line, unsigned i)
{
	uint64_t	low = pm_load(&line->low[i]);

	PMH_STOP_POINT("value_between_halves");
	return low | (uint64_t) pm_load(&line->high[i]) << 32;
}

/* The state of a line after taking the values of 'mask' out. */
static inline uint32_t
pmh_line_state_without(uint32_t state, uint32_t mask)
{
	return (state & ~mask) + PMH_LINE_REMOVAL;
}

/*
 * Reader: the values of a line, as they stood at one moment, to value[]
 * (room for PMH_VALUES_PER_LINE).  *mask tells which places they came from.
 * Returns their number.  To be believed only after validating the buffer.
 */
extern uint32_t pmh_line_read(const PmhValueLine *line, uint64_t *value,
							  uint32_t *mask);

/* Can this be a pointer at all?  As pmh_check_span, for a whole buffer. */
extern PmhResult pmh_buffer_check_span(PmhTable *t, uint64_t payload);

/*
 * The same for the pointer in the buffer 'holder' to the next one of its list
 * (or 0), which has a header.
 */
extern PmhResult pmh_list_check_next(PmhTable *t, uint64_t holder, uint64_t next);

/*
 * A place in a list from which reading can go on as long as the version of
 * the buffer stays the same.
 */
typedef struct PmhListPosition
{
	uint64_t	payload;		/* buffer, or 0: the end of the list */
	uint64_t	version;		/* of the buffer */
	uint64_t	birth;			/* of the buffer; 0: not known */
	uint32_t	line;			/* next line to read in it */
} PmhListPosition;

/*
 * Reader: the start of a buffer (0: the end) that is inside our mapping and was
 * seen to be in its list after 'version' was loaded.
 */
extern PmhListPosition pmh_list_at(const PmhTable *t, uint64_t payload,
								   uint64_t version);

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

/* Where in a buffer a value stands: line and place in the line. */
#define PMH_NO_PLACE	UINT16_MAX

static inline uint16_t
pmh_make_place(uint32_t line, unsigned i)
{
	return (uint16_t) (line * 16 + i);
}

static inline uint32_t
pmh_place_line(uint16_t place)
{
	return place / 16;
}

static inline uint32_t
pmh_place_mask(uint16_t place)
{
	return UINT32_C(1) << (place % 16);
}

/*
 * Reader: the values of one buffer from pos on, up to the end of the line
 * with which there are 'want' or more, to value[] (room for 'want' +
 * PMH_VALUES_PER_LINE); where they stand to place[] if it is not NULL.  *n: how
 * many.  pos moves on, at the end of the buffer to the next one.
 *
 * PMH_OK; PMH_RETRY: the buffer has changed since pos was taken; PMH_NEED;
 * PMH_ERR_CORRUPT.  Other than with PMH_OK pos is unchanged.
 */
extern PmhResult pmh_list_step(PmhTable *t, uint64_t hash, PmhListPosition *pos,
							   uint32_t want, uint64_t *value, uint16_t *place,
							   uint32_t *n);

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
 * is in the same place now may be another one.  PMH_RETRY: the list has changed
 * each time, under many searches; nothing is known, and the caller, who has let
 * its own caller have a word, may search again.  Or a real error.  Maps further.
 */
extern PmhResult pmh_list_find_again(PmhTable *t, PmhSide side, uint64_t hash,
									 PmhListPosition *wanted,
									 PmhListPosition *before);

/* Report a list that runs in a circle; returns PMH_ERR_CORRUPT. */
extern PmhResult pmh_list_circle(PmhTable *t, uint64_t payload);

/*
 * Writer (segment locked): take the buffer 'payload' out of the list whose
 * buffer 'before' points to it, durably, and free it.
 */
extern void pmh_list_unlink(PmhTable *t, uint64_t before, uint64_t payload);

/*
 * Writer (segment locked): clear the places of 'mask' in a line.  The version
 * of the buffer has been counted up.  Durable after the next pm_fence.
 */
extern void pmh_line_clear(PmhTable *t, uint64_t payload, uint32_t line,
						   uint32_t mask);

/* How many values a buffer of a locked segment holds. */
extern uint32_t pmh_buffer_count(const PmhTable *t, uint64_t payload);

/*
 * Writer (segment locked): is a buffer of the list of hash where it can be, and
 * does it say so itself?  PMH_OK, PMH_NEED, PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_buffer_check(PmhTable *t, uint64_t hash, uint64_t payload);

/*
 * The buffer behind one in a locked segment, or 0.  Checked: PMH_OK, PMH_NEED,
 * PMH_ERR_CORRUPT.
 */
extern uint64_t pmh_buffer_next(const PmhTable *t, uint64_t payload);
extern PmhResult pmh_buffer_follow(PmhTable *t, uint64_t hash, uint64_t payload,
								   uint64_t *next);

/* Neighbours in a list, from 'first' up to, not including, 'behind'. */
typedef struct PmhListRun
{
	uint64_t	before;			/* what points to the first: a buffer, or 0 */
	uint64_t	first;
	uint64_t	behind;			/* or 0: the end */
	uint64_t	values;			/* in them: no more than the largest buffer holds */
	uint64_t	bytes;			/* of their buffers */
} PmhListRun;

/* A head that is rewritten has room for a share of its values more. */
#define PMH_HEAD_ROOM	4

/* Would one buffer for all of them save a quarter of their bytes? */
extern bool pmh_list_run_pays(const PmhListRun *run);

/*
 * Writer (segment locked): put all values of the run into one new buffer that
 * fits, durably, and free theirs.  PMH_OK, PMH_NEED (nothing done).
 */
extern PmhResult pmh_list_rewrite(PmhTable *t, const PmhPlace *place,
								  const PmhListSlot *at, uint64_t hash,
								  const PmhListRun *run, uint64_t *new_payload);

/*
 * Writer (segment locked): the buffer holds nothing that is to stay.  Take it
 * off its list, durably, and free it; before: the buffer in front, or 0.
 * PMH_OK, or (nothing done) PMH_NEED or PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_list_drop(PmhTable *t, const PmhPlace *place,
							   const PmhListSlot *at, uint64_t before,
							   uint64_t payload);

/*
 * Writer (segment locked): note in its first buffer how large a list is, which
 * tells how large the next buffer should be.  (A hint.)
 */
extern void pmh_list_note_bytes(PmhTable *t, uint64_t head, uint64_t bytes);

/*
 * A walk along a list that lets go of the segment now and then.  All buffers
 * up to 'before' have been seen; 0: none.  Zero-initialise.
 */
typedef struct PmhListWalk
{
	uint64_t	before;
	uint64_t	version;		/* of 'before', and ... */
	uint64_t	birth;			/* ... its birth, when the segment was let go */
} PmhListWalk;

/*
 * With the segment locked again: the buffer to go on with, 0 at the end.
 * PMH_OK, PMH_NEED, PMH_ERR_CORRUPT; PMH_RETRY: the last one seen has changed, the
 * caller lets go of the segment and calls pmh_list_search.  That takes no lock,
 * however long the list is: if the buffer has left the list walk->before is 0
 * then, and the walk begins anew; if the list does not stand still, the walk is as
 * it was, and pmh_list_resume says PMH_RETRY again.  And: before the segment is let
 * go.
 */
extern PmhResult pmh_list_resume(PmhTable *t, uint64_t hash, uint64_t head,
								 const PmhListWalk *walk, uint64_t *payload);
extern PmhResult pmh_list_search(PmhTable *t, PmhSide side, uint64_t hash,
								 PmhListWalk *walk);
extern void pmh_list_pause(const PmhTable *t, PmhListWalk *walk);

/*
 * Writer (segment locked): take the places of mask[] (one for each line of the
 * largest buffer) out of a buffer that a walk has come to, durable after the
 * next pm_fence, and the buffer off its list if nothing is left of it.  *before
 * is what the walk has come from.  PMH_OK: both are as they are now, at->payload
 * 0 if the buffer is gone.  PMH_RETRY: the list is not as the walk has met it;
 * PMH_BUSY (if not 'wait'); PMH_NEED; PMH_ERR_CORRUPT; nothing is done then.
 */
extern PmhResult pmh_list_take_out(PmhTable *t, const PmhPlace *place,
								   uint64_t hash, bool wait, PmhListPosition *at,
								   PmhListPosition *before, const uint16_t *mask);

/* ---- cursors from near (cursor.c), for the sweep ---- */

/* Open a cursor that reads one of the two tables only; the hash there. */
extern void pmh_cursor_open_in(PmhTable *t, PmhCursor *cursor, PmhSide side,
							   uint64_t side_hash);

/* Have the cursor, just opened, leave this value out. */
extern PmhResult pmh_cursor_leave_out(PmhTable *t, PmhCursor *cursor,
									  uint64_t value);

/*
 * One step of a streaming cursor: the plain entries, or about 'want' values of
 * one buffer, are put behind batch.n, unsorted, without those seen already
 * (that may be all).  If place is not NULL, it has room for the whole batch
 * (PMH_STEP_MAX, with an empty batch), place[i] tells where batch.value[i]
 * stands in the buffer *payload (PMH_NO_PLACE: a plain entry).  *payload is 0
 * if no buffer was read.
 */
#define PMH_STEP_MAX \
	(PMH_MAX_LINES * PMH_VALUES_PER_LINE + PMH_VALUES_PER_LINE + PMH_PROBE_MAX)
extern PmhResult pmh_cursor_step(PmhTable *t, PmhCursor *cursor, size_t want,
								 uint16_t *place, uint64_t *payload);
extern bool pmh_cursor_at_end(const PmhCursor *cursor);

/* ---- finding out what nothing points to (reclaim.c) ---- */

/*
 * A walk over all lists that finds out which value buffers are in use.
 * Zero-initialise but for the last three.
 */
typedef struct PmhReclaim
{
	uint64_t	mark;			/* where our map is, or 0: none goes on */
	uint64_t	serial;			/* run.mark_serial of ours */
	uint64_t	run[PMH_MARK_RUNS];	/* the runs of blocks of our map */
	unsigned	nruns;
	uint64_t	covered;		/* bytes of the file that it covers */
	uint64_t	first_region;	/* newest region when it began */
	bool		shrinks;		/* begin even if all is known; what is marked is
								 * in a locked segment, so that marks can be taken
								 * back */
	uint64_t	limit;			/* for run.shrink_limit and ... */
	uint64_t	region_blocks;	/* ... run.region_blocks */
} PmhReclaim;

/*
 * Begin, if the free map of the value space is unknown or for a shrink, and
 * nobody is just freeing what he has found; r->mark tells.  No lock may be held.  Who walks then holds the stripe of each segment
 * for a moment before he reads its pointers: buffers from before the map are
 * published by then.
 */
extern PmhResult pmh_reclaim_begin(PmhTable *t, PmhReclaim *r);

/* Is it still going on, i.e. has nobody else begun one since? */
extern bool pmh_reclaim_is_ours(const PmhTable *t, const PmhReclaim *r);

/* This buffer is in use.  May be called under a stripe. */
extern void pmh_reclaim_mark(PmhTable *t, const PmhReclaim *r, uint64_t payload);

/* The walk is complete: free what it has not found.  Or forget about it. */
extern PmhResult pmh_reclaim_finish(PmhTable *t, PmhReclaim *r);
extern void pmh_reclaim_abandon(PmhTable *t, PmhReclaim *r);

/*
 * Where a run of blocks of the mark map of a reclaim is, beginning with run 0;
 * false: there is none.  *nblocks is 0 if what tells of it is damaged.  All of
 * the file is mapped.
 */
extern bool pmh_sweep_map_run(const PmhTable *t, unsigned run, uint64_t *block,
							  uint64_t *nblocks);

#endif							/* PMH_VALUES_H */
