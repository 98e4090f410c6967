/*-------------------------------------------------------------------------
 *
 * fetch.h
 *	  Rows of a heap by TID, many of them under way at once (fetch.c).
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FETCH_H
#define PMHASH_FETCH_H

#include "access/htup_details.h"
#include "storage/block.h"
#include "storage/buf.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

#include "cluster/cluster.h"

/*
 * Where blocks of the table were found in shared buffers: hints, which are
 * checked when they are used.  part[] is indexed by (block & mask) / part size.
 */
typedef struct PmhashHints
{
	Buffer	  **part;
	uint32		mask;
	uint32		nparts;
	size_t		memory;			/* bytes that they take */
} PmhashHints;

/* The way to the rows of a table. */
typedef struct PmhashFetch
{
	MemoryContext context;
	Relation	heap;
	Relation	index;			/* for statistics only */
	Snapshot	snapshot;
	bool		reads_ahead;	/* may blocks be read before they are visited? */
	PmhashHints hints;
	int64		distance;		/* of the last buffer found, from its block */
	uint32		wrong;			/* so many look-ups are not guessed now, after */
	uint32		no_guess;		/* wrong guesses, and so many of them are left */
	Buffer		buffer;			/* pinned page, or InvalidBuffer */
	BlockNumber block;			/* which one it is */
	HeapTupleData tuple;		/* the last one found, on that page */
	PmhashFile *dead_in;		/* rows known to be dead there are not visited, or NULL */
	/* figures for EXPLAIN */
	uint64		blocks;			/* pages visited */
	uint64		hinted;			/* of these, found by a hint */
} PmhashFetch;

/* How many rows ahead a row is prefetched; its page and hint, two and three times. */
#define PMHASH_FETCH_DISTANCE	24

/* A pipe, of values on their way through the stages: how far each stage has come. */
typedef struct PmhashPipe
{
	const uint64 *value;
	int			shift;			/* bits below the value that are not of it */
	uint32		distance;		/* PMHASH_FETCH_DISTANCE, or less at first */
	size_t		n;
	size_t		next;			/* the next one to be fetched */
	size_t		hint;			/* first one whose hint is not prefetched, */
	size_t		page;			/* whose page is not, */
	size_t		row;			/* and whose row is not */
	BlockNumber hint_block;		/* block that each stage has done last, */
	BlockNumber page_block;		/* InvalidBlockNumber at first */
	BlockNumber row_block;
	Buffer		page_hint;		/* where it seems to be, or InvalidBuffer */
	Buffer		row_hint;
} PmhashPipe;

/* Begin a pipe of n values at v, which are shifted left by so many bits. */
static inline void
pmhash_pipe_begin(PmhashPipe *pipe, const uint64 *v, size_t n, int shift, uint32 distance)
{
	pipe->value = v;
	pipe->shift = shift;
	pipe->distance = distance;
	pipe->n = n;
	pipe->next = pipe->hint = pipe->page = pipe->row = 0;
	pipe->hint_block = pipe->page_block = pipe->row_block = InvalidBlockNumber;
}

/* Rows found under one lock, at most; several turns for a page of more. */
#define PMHASH_PAGE_ROWS	48

/* How far ahead their prefetching goes: two such turns, and a good many pages. */
#define PMHASH_PAGE_DISTANCE	(2 * PMHASH_PAGE_ROWS)

/* Rows of the pinned page that the snapshot sees, and values that lead to none. */
typedef struct PmhashPageRows
{
	int			n;
	int			next;			/* the next one to be handed out */
	OffsetNumber offset[PMHASH_PAGE_ROWS];
	int			ndead;
	uint64		dead[PMHASH_PAGE_ROWS]; /* seen by no snapshot */
} PmhashPageRows;

extern void pmhash_fetch_begin(PmhashFetch *fetch, MemoryContext context,
							   Relation heap, Relation index, Snapshot snapshot);
extern void pmhash_fetch_ahead(PmhashFetch *fetch, PmhashPipe *pipe);
extern void pmhash_fetch_page_rows(PmhashFetch *fetch, PmhashPipe *pipe, size_t most,
								   PmhashPageRows *rows);
extern Buffer pmhash_fetch_page(PmhashFetch *fetch, Buffer pinned, uint64 value);
extern void pmhash_fetch_release(PmhashFetch *fetch);

extern int	pmhash_chain_members(Page page, OffsetNumber root, OffsetNumber *member);

/* A tuple of a block of a heap, in the page itself or a copy of it. */
static inline void
pmhash_tuple_on_page(Relation heap, Page page, BlockNumber block, OffsetNumber offset,
					 HeapTuple tuple)
{
	ItemId		lp = PageGetItemId(page, offset);

	Assert(ItemIdIsNormal(lp));
	tuple->t_data = (HeapTupleHeader) PageGetItem(page, lp);
	tuple->t_len = ItemIdGetLength(lp);
	tuple->t_tableOid = RelationGetRelid(heap);
	ItemPointerSet(&tuple->t_self, block, offset);
}

/* Does a HOT chain, which an entry may name, begin at this line pointer? */
static inline bool
pmhash_is_root(Page page, OffsetNumber offset)
{
	ItemId		lp = PageGetItemId(page, offset);

	return ItemIdIsRedirected(lp) ||
		(ItemIdIsNormal(lp) &&
		 !HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, lp)));
}

/*
 * Have a row of the pinned page in fetch->tuple, one of those that
 * pmhash_fetch_page_rows has found: they stay where they are as long as the page
 * is pinned.
 */
static inline void
pmhash_fetch_found(PmhashFetch *fetch, OffsetNumber offset)
{
	Assert(BufferIsValid(fetch->buffer) && OffsetNumberIsValid(offset));
	pmhash_tuple_on_page(fetch->heap, BufferGetPage(fetch->buffer), fetch->block, offset,
						 &fetch->tuple);
}

#endif							/* PMHASH_FETCH_H */
