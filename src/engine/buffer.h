/*-------------------------------------------------------------------------
 *
 * buffer.h
 *	  Value buffers: pointers to them, their lines, their versions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_BUFFER_H
#define PMH_BUFFER_H

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
	return (payload >> PMH_POINTER_CLASS_BITS) * 64;
}

static inline uint32_t
pmh_pointer_class(uint64_t payload)
{
	return (uint32_t) payload & ((1 << PMH_POINTER_CLASS_BITS) - 1);
}

static inline uint64_t
pmh_make_pointer(uint64_t offset, uint32_t class)
{
	return (offset / 64) << PMH_POINTER_CLASS_BITS | class;
}

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

/* Where in a buffer a value stands: line and cell of the line. */
#define PMH_NO_CELL	UINT16_MAX

static inline uint16_t
pmh_make_cell(uint32_t line, unsigned i)
{
	return (uint16_t) (line * 16 + i);
}

static inline uint32_t
pmh_cell_line(uint16_t cell)
{
	return cell / 16;
}

static inline uint32_t
pmh_cell_mask(uint16_t cell)
{
	return UINT32_C(1) << (cell % 16);
}

#endif							/* PMH_BUFFER_H */
