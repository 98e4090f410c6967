/*-------------------------------------------------------------------------
 *
 * list.h
 *	  Value lists: buffers, reading, writing and rewriting.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_LIST_H
#define PMH_LIST_H

#include "bucket.h"
#include "space.h"

/* ---- value buffers: pointers to them, their lines, their versions ---- */

static inline uint64_t
pmh_buffer_version(const PmhTable *t, uint64_t offset)
{
	return pmh_version_load(pmh_buffer_version_word(t->locks, t->file_id, offset));
}

static inline bool
pmh_buffer_valid(const PmhTable *t, uint64_t offset, uint64_t before)
{
	return pmh_version_same(pmh_buffer_version_word(t->locks, t->file_id, offset),
							before);
}

static inline void
pmh_buffer_bump(const PmhTable *t, uint64_t offset)
{
	pmh_version_bump_shared(pmh_buffer_version_word(t->locks, t->file_id, offset));
}

/* Pointer payloads. */
static inline uint64_t
pmh_pointer_offset(uint64_t payload)
{
	return (payload >> PMH_POINTER_KIND_BITS) * PMH_GRAIN;
}

static inline uint32_t
pmh_pointer_class(uint64_t payload)
{
	return (uint32_t) payload & ((1 << PMH_POINTER_CLASS_BITS) - 1);
}

/* 0: a buffer of values; else an index of those of the level below. */
static inline uint32_t
pmh_pointer_level(uint64_t payload)
{
	return (uint32_t) (payload >> PMH_POINTER_CLASS_BITS) & PMH_MAX_LEVEL;
}

/* Level and class. */
static inline uint32_t
pmh_pointer_kind(uint64_t payload)
{
	return (uint32_t) payload & ((1 << PMH_POINTER_KIND_BITS) - 1);
}

static inline uint64_t
pmh_make_pointer(uint64_t offset, uint32_t class)
{
	return (offset / PMH_GRAIN) << PMH_POINTER_KIND_BITS | class;
}

static inline uint64_t
pmh_make_index_pointer(uint64_t offset, uint32_t class, uint32_t level)
{
	return pmh_make_pointer(offset, class) | (uint64_t) level << PMH_POINTER_CLASS_BITS;
}

/* Of any class that a pointer can tell of; there may be no such class (0). */
static inline uint64_t
pmh_class_bytes(uint32_t class)
{
	PMH_ASSERT(class < 1 << PMH_POINTER_CLASS_BITS);
	return (uint64_t) pmh_class_grains[class] * PMH_GRAIN;
}

/* A short line counts. */
static inline uint32_t
pmh_class_lines(uint32_t class)
{
	PMH_ASSERT(class < 1 << PMH_POINTER_CLASS_BITS);
	return (pmh_class_grains[class] + 1u) / 2;
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

/* How many values a line of a buffer of this class holds. */
static inline uint32_t
pmh_line_capacity(uint32_t class, uint32_t line)
{
	return class == PMH_ODD_CLASS && line == 1 ? PMH_VALUES_SHORT_LINE
		: PMH_VALUES_PER_LINE;
}

/* The same as a mask of the cells: a damaged state may tell of others. */
static inline uint32_t
pmh_line_cells(uint64_t payload, uint32_t line)
{
	return (1u << pmh_line_capacity(pmh_pointer_class(payload), line)) - 1;
}

/* How many values a buffer of this class holds. */
static inline uint32_t
pmh_class_capacity(uint32_t class)
{
	if (class == PMH_ODD_CLASS)
		return PMH_VALUES_PER_LINE + PMH_VALUES_SHORT_LINE;
	return (pmh_class_lines(class) - pmh_class_first_line(class)) *
		PMH_VALUES_PER_LINE;
}

/*
 * Can a buffer of this class begin here (only the odd class where no line does), and does it
 * lie in one block, after the bits of a value block?
 */
static inline bool
pmh_buffer_may_be_at(uint32_t class, uint64_t offset)
{
	uint64_t	at = offset % PMH_BLOCK_SIZE;

	return offset % (class == PMH_ODD_CLASS ? PMH_GRAIN : PMH_VALUE_LINE) == 0 &&
		offset >= PMH_BLOCK_SIZE &&
		at >= sizeof(PmhValueBlock) && at + pmh_class_bytes(class) <= PMH_BLOCK_SIZE;
}

static inline PmhBufferHeader *
pmh_buffer_header(const PmhTable *t, uint64_t payload)
{
	return (PmhBufferHeader *) pmh_at(t, pmh_pointer_offset(payload));
}

/* An index has one, of whatever class. */
static inline bool
pmh_pointer_has_header(uint64_t payload)
{
	return pmh_class_has_header(pmh_pointer_class(payload)) || pmh_pointer_level(payload) > 0;
}

/* What a header says in fill_hint: the hint, and level and class. */
static inline uint32_t
pmh_hint_place(uint32_t fill_hint)
{
	return fill_hint & ((UINT32_C(1) << PMH_HINT_KIND_SHIFT) - 1);
}

static inline uint32_t
pmh_make_hint(uint32_t place, uint64_t payload)
{
	PMH_ASSERT(place < UINT32_C(1) << PMH_HINT_KIND_SHIFT);
	return place | pmh_pointer_kind(payload) << PMH_HINT_KIND_SHIFT;
}

/* Is this the header of a buffer of the pointer's kind, in the list of this hash? */
static inline bool
pmh_header_fits(const PmhTable *t, uint64_t payload, uint64_t hash)
{
	const PmhBufferHeader *header = pmh_buffer_header(t, payload);

	PMH_ASSERT(pmh_pointer_has_header(payload));
	return pm_load(&header->hash) == hash &&
		pm_load(&header->fill_hint) >> PMH_HINT_KIND_SHIFT == pmh_pointer_kind(payload);
}

/* How many slots an index has, and one of them. */
static inline uint32_t
pmh_index_slots(uint64_t payload)
{
	PMH_ASSERT(pmh_pointer_class(payload) >= PMH_INDEX_CLASS);
	return (uint32_t) ((pmh_class_bytes(pmh_pointer_class(payload)) -
						sizeof(PmhBufferHeader)) / sizeof(uint64_t));
}

static inline uint64_t *
pmh_index_slot(const PmhTable *t, uint64_t payload, uint32_t slot)
{
	PMH_ASSERT(pmh_pointer_level(payload) > 0 && slot < pmh_index_slots(payload));
	return (uint64_t *) pmh_at(t, pmh_pointer_offset(payload) + sizeof(PmhBufferHeader)) +
		slot;
}

/* Where a line of a buffer is: the second of an odd one may come first. */
static inline uint64_t
pmh_line_offset(uint64_t payload, uint32_t line)
{
	uint64_t	offset = pmh_pointer_offset(payload);

	if (unlikely(offset % PMH_VALUE_LINE != 0))
		return line == 0 ? offset + PMH_GRAIN : offset;
	return offset + (uint64_t) line * PMH_VALUE_LINE;
}

static inline PmhValueLine *
pmh_buffer_line(const PmhTable *t, uint64_t payload, uint32_t line)
{
	PMH_ASSERT(line < pmh_class_lines(pmh_pointer_class(payload)));
	return (PmhValueLine *) pmh_at(t, pmh_line_offset(payload, line));
}

/* The parts of a value in a line. */
static const uint8_t pmh_cell_low_at[PMH_VALUES_PER_LINE] = {4, 8, 16, 20, 28};
static const uint8_t pmh_cell_high_at[PMH_VALUES_PER_LINE] = {2, 12, 14, 24, 26};

static inline uint32_t *
pmh_cell_low(const PmhValueLine *line, unsigned i)
{
	PMH_ASSERT(i < PMH_VALUES_PER_LINE);
	return (uint32_t *) (uintptr_t) (line->bytes + pmh_cell_low_at[i]);
}

static inline uint16_t *
pmh_cell_high(const PmhValueLine *line, unsigned i)
{
	PMH_ASSERT(i < PMH_VALUES_PER_LINE);
	return (uint16_t *) (uintptr_t) (line->bytes + pmh_cell_high_at[i]);
}

/* ---- list_read.c: value lists as a reader sees them ---- */

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

/* The last slot of an index up to 'from' that names something; its word, or 0. */
extern uint64_t pmh_index_last(const PmhTable *t, uint64_t payload, uint64_t from,
							   uint32_t *slot);

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
 * The same, holding no lock, for a list that is looked up first, as it is now, and again each
 * time that it has changed meanwhile.  Maps further.  PMH_OK; PMH_CANCELLED, if the caller's
 * hook says so then; or a real error.
 */
extern PmhResult pmh_list_next(PmhTable *t, uint64_t hash, PmhListPosition *pos,
							   uint32_t want, uint64_t *value, uint32_t *n);

/* The same for all of a buffer, for who reads all of a list: each buffer asks the hook. */
extern PmhResult pmh_list_whole(PmhTable *t, uint64_t hash, PmhListPosition *pos,
								uint64_t *value, uint32_t *n);

/* Room for n more things of 'size' bytes in an array that doubles; false: no memory. */
extern bool pmh_reserve(void **array, size_t used, size_t n, size_t *room, size_t size);

/* The same for values.  PMH_OK or PMH_ERR_NO_MEMORY (t->error set). */
extern PmhResult pmh_values_reserve(PmhTable *t, PmhValues *values, size_t n);

/* Sort ascending and drop repetitions. */
extern void pmh_values_finish(PmhValues *values);

/* ---- list_write.c: value lists written to ---- */

/*
 * Make a buffer of a class with n values, durable after the next pm_fence.  Nothing points to
 * it yet.  PMH_OK or PMH_NEED.
 */
extern PmhResult pmh_buffer_make(PmhTable *t, uint64_t hash, uint32_t class,
								 const uint64_t *values, size_t n, uint64_t *payload);

/*
 * Make a list of any number of entries of one hash (n >= 1; order free), durable after the
 * next pm_fence, for a caller that holds no lock.  Each time that the file has to grow for it
 * the hook is asked whether to go on.  PMH_OK, PMH_CANCELLED, or a real error: what was made
 * of it then is left to the first sweep of another server life.
 */
extern PmhResult pmh_list_make(PmhTable *t, const PmhEntry *entry, size_t n, uint64_t *head);

/*
 * What follows is for writers: the segment is locked, and path->head, place, bucket and
 * bucket_slot tell where the list hangs.
 */

/*
 * Add a value, durable after the next pm_fence.  PMH_OK; PMH_NEED (nothing done),
 * PMH_ERR_TOO_LARGE, PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_list_append(PmhTable *t, PmhListPath *path, uint64_t hash,
								 uint64_t value);

/*
 * Lead the path to the last buffer of values in a slot below *below, which becomes its
 * slot; payload[0] == 0: there is none.  PMH_OK, PMH_NEED, PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_list_find_below(PmhTable *t, uint64_t hash, PmhListPath *path,
									 uint64_t *below);

/*
 * Take the cells of mask[] (one for each line) out of the buffer that the path leads to,
 * durable after the next pm_fence.  NULL: all that is in it; then it is freed, and the list
 * with its last one: path->head is 0.
 */
extern void pmh_list_take_out(PmhTable *t, PmhListPath *path, const uint16_t *mask);

/*
 * Put the values of the buffer that the path leads to, and perhaps one more, into a new one of
 * this class, durably, in the same slot, and free the old one.  PMH_OK, PMH_NEED (nothing done).
 */
extern PmhResult pmh_list_rewrite(PmhTable *t, PmhListPath *path, uint64_t hash, uint32_t class,
								  const uint64_t *more);

/* Move the index that names this buffer towards the start of the file, in the same way. */
extern PmhResult pmh_list_move_index(PmhTable *t, PmhListPath *path, uint64_t hash);

/* How many values a buffer holds. */
extern uint32_t pmh_buffer_count(const PmhTable *t, uint64_t payload);

/* The smallest class for n values, or the largest of all. */
extern uint32_t pmh_buffer_class_for(size_t n);

#endif							/* PMH_LIST_H */
