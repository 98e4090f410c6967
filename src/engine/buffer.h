/*-------------------------------------------------------------------------
 *
 * buffer.h
 *	  Value buffers: pointers to them, their lines, their versions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_BUFFER_H
#define PMH_BUFFER_H

#include "compiler.h"
#include "handle.h"
#include "layout.h"
#include "lock.h"
#include "pm.h"
#include "stop_point.h"
#include "table.h"

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
	return (uint64_t) pmh_class_grains[class] * PMH_GRAIN;
}

/* A short line counts. */
static inline uint32_t
pmh_class_lines(uint32_t class)
{
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

/* Can a buffer of this class begin here?  Only the odd class where no line does. */
static inline bool
pmh_class_may_be_at(uint32_t class, uint64_t offset)
{
	return offset % PMH_VALUE_LINE == 0 ||
		(class == PMH_ODD_CLASS && offset % PMH_GRAIN == 0);
}

/* The same, and does it lie in one block, after the bits of a value block? */
static inline bool
pmh_buffer_may_be_at(uint32_t class, uint64_t offset)
{
	uint64_t	at = offset % PMH_BLOCK_SIZE;

	return pmh_class_may_be_at(class, offset) && offset >= PMH_BLOCK_SIZE &&
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
	return place | pmh_pointer_kind(payload) << PMH_HINT_KIND_SHIFT;
}

/* Is this the header of a buffer of the pointer's kind, in the list of this hash? */
static inline bool
pmh_header_fits(const PmhTable *t, uint64_t payload, uint64_t hash)
{
	const PmhBufferHeader *header = pmh_buffer_header(t, payload);

	return pm_load(&header->hash) == hash &&
		pm_load(&header->fill_hint) >> PMH_HINT_KIND_SHIFT == pmh_pointer_kind(payload);
}

/* How many slots an index has, and one of them. */
static inline uint32_t
pmh_index_slots(uint64_t payload)
{
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
	return (uint32_t *) (uintptr_t) (line->bytes + pmh_cell_low_at[i]);
}

static inline uint16_t *
pmh_cell_high(const PmhValueLine *line, unsigned i)
{
	return (uint16_t *) (uintptr_t) (line->bytes + pmh_cell_high_at[i]);
}

static inline uint64_t
pmh_line_value(const PmhValueLine *line, unsigned i)
{
	uint64_t	low = pm_load(pmh_cell_low(line, i));

	PMH_STOP_POINT("value_between_halves");
	return low | (uint64_t) pm_load(pmh_cell_high(line, i)) << 32;
}

#endif							/* PMH_BUFFER_H */
