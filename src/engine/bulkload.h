/*-------------------------------------------------------------------------
 *
 * bulkload.h
 *	  What the parts of bulk load share (bulkload.c, bulk_range.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_BULKLOAD_H
#define PMH_BULKLOAD_H

#include "error.h"
#include "layout.h"
#include "table.h"

/* A pair with this flag has a list's pointer payload for its value. */
#define PMH_BULK_IS_LIST			PMH_WORD_POINTER

/* A segment that has been written. */
typedef struct PmhBulkSegment
{
	uint64_t	prefix;			/* as many hash bits as the element's depth */
	uint64_t	elem;
} PmhBulkSegment;

struct PmhBulk
{
	PmhTable   *table;
	uint32_t	depth;			/* of a segment range, as given to the caller */
	uint32_t	fill;			/* most that a segment is loaded, percent */
	uint32_t	most;			/* entries of the largest segment at that load */
	PmhBulkSegment *segment;		/* the segments so far, in any order */
	size_t		nsegments;
	size_t		segment_room;
	uint64_t   *values;			/* of one key */
	size_t		values_room;
	uint32_t   *seen;			/* hash set of one range: position + 1 */
	uint32_t	seen_size;		/* a power of two */
	uint64_t	ext_next;		/* rest of the extent for extensions, in units */
	uint64_t	ext_end;
};

/* A range of hashes and its entries. */
typedef struct PmhBulkRange
{
	PmhEntry   *entry;
	size_t		n;
	uint32_t	depth;
	uint64_t	prefix;			/* of 'depth' bits */
	bool		written;			/* its entries are in segments already */
	bool		listed;			/* make_lists has been here */
} PmhBulkRange;

/* Set the table's error and return PMH_ERR_NO_MEMORY. */
extern PmhResult pmh_bulk_no_memory(PmhBulk *bulk);

/* Room for n more things in an array that doubles. */
extern bool pmh_bulk_reserve(void **array, size_t used, size_t n, size_t *room,
							 size_t size);

/* Write a range: in one segment if it fits, else half by half. */
extern PmhResult pmh_bulk_write_range(PmhBulk *bulk, PmhBulkRange *range);

/*
 * Build a range.  What fits one segment is left for the caller to join with
 * its neighbour or to write (range->written is false then).
 */
extern PmhResult pmh_bulk_build_range(PmhBulk *bulk, PmhBulkRange *range);

#endif							/* PMH_BULKLOAD_H */
