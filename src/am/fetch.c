/*-------------------------------------------------------------------------
 *
 * fetch.c
 *	  Rows of a heap by TID, many of them under way at once.
 *
 * To visit a row is to wait for some cache lines, each of which leads to the
 * next: the entry of the buffer table, the buffer's descriptor, the page's header
 * and the line pointer, the row.  An index scan waits for them one after the
 * other.  Here the TIDs of many rows are known before the first is visited, so
 * the lines of later ones are prefetched meanwhile, in three stages:
 *
 *	hint	where the block was last seen
 *	page	the descriptor of the buffer, the line pointer and the page's header
 *	row		the row, where the line pointer says
 *
 * The buffer table would be a stage of its own, and the longest one.  Instead we
 * remember in which buffer each block was last seen.  That is a hint:
 * ReadRecentBuffer checks it under the lock of the descriptor when the row is
 * visited, and what the stages above read of an unpinned page is never used for
 * anything but an address to prefetch.
 *
 * A block without a hint, or whose buffer has another page by now, is looked up in
 * the second stage (PrefetchBuffer).  If it is not in shared buffers at all, it is
 * read ahead in the background, unless effective_io_concurrency is 0.
 *
 * A buffer found by its hint does not count as used another time in the eyes of
 * buffer replacement; but each scan visits each block once without a hint.  So what
 * that look-up has found is noted as "not visited", by a negative number.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "fetch.h"
#include "scan.h"

/* Blocks in a part of the hints: few, since a scan of few rows touches many parts. */
#define PART_BITS	7
#define PART_SIZE	(1 << PART_BITS)

/* ---- hints ---- */

/*
 * Hints for a table of so many blocks: 4 bytes each, up to a quarter of work_mem.
 * If that is too few, several blocks share one.
 */
static void
make_hints(PmhashFetch *fetch, BlockNumber nblocks)
{
	PmhashHints *hints = &fetch->hints;
	uint64		most = Max((uint64) work_mem * (1024 / 4 / sizeof(Buffer)), PART_SIZE);
	uint64		size = PART_SIZE;

	while (size < nblocks && size <= most / 2)
		size *= 2;
	hints->mask = (uint32) (size - 1);
	hints->nparts = (uint32) (size / PART_SIZE);
	hints->memory = hints->nparts * sizeof(Buffer *);
	hints->part = MemoryContextAllocZero(fetch->context, hints->memory);
}

/* The hint of a block, InvalidBuffer, or less than that: not visited. */
static inline Buffer
get_raw_hint(const PmhashHints *hints, BlockNumber block)
{
	const Buffer *part;

	if (unlikely(hints->part == NULL))
		return InvalidBuffer;
	part = hints->part[(block & hints->mask) >> PART_BITS];
	return part == NULL ? InvalidBuffer : part[block & (PART_SIZE - 1)];
}

/* The hint of a block, or InvalidBuffer. */
static inline Buffer
get_hint(const PmhashHints *hints, BlockNumber block)
{
	return abs(get_raw_hint(hints, block));
}

static void
set_hint(PmhashFetch *fetch, BlockNumber block, Buffer buffer)
{
	PmhashHints *hints = &fetch->hints;
	Buffer	  **part;

	if (hints->part == NULL)
		return;
	part = &hints->part[(block & hints->mask) >> PART_BITS];
	if (*part == NULL)
	{
		*part = MemoryContextAllocZero(fetch->context, PART_SIZE * sizeof(Buffer));
		hints->memory += PART_SIZE * sizeof(Buffer);
	}
	(*part)[block & (PART_SIZE - 1)] = buffer;
}

/*
 * pmhash_fetch_begin
 *		Get ready to fetch rows of a heap, found by an index.
 *
 * context: where memory is taken from, until it goes.  index: what rows are
 * counted for.  The snapshot is an MVCC one.  Temporary tables, whose buffers are
 * our own, get no hints.
 */
void
pmhash_fetch_begin(PmhashFetch *fetch, MemoryContext context, Relation heap,
				   Relation index, Snapshot snapshot)
{
	memset(fetch, 0, sizeof(*fetch));
	fetch->context = context;
	fetch->heap = heap;
	fetch->index = index;
	fetch->snapshot = snapshot;
	fetch->buffer = InvalidBuffer;
	fetch->reads_ahead = get_tablespace_io_concurrency(heap->rd_rel->reltablespace) > 0;
	if (!RelationUsesLocalBuffers(heap))
		make_hints(fetch, RelationGetNumberOfBlocks(heap));
}

/*
 * ---- the stages ----
 *
 * Inline, all of them: a compiler may leave out the call of what only prefetches.
 */

/* A page, by the hint of its block, as it is: neither pinned nor locked. */
static inline char *
peek_page(Buffer hint)
{
	return BufferBlocks + (Size) (hint - 1) * BLCKSZ;
}

static inline char *
peek_line_pointer(Buffer hint, uint64 value)
{
	OffsetNumber offset = pmhash_value_to_offset(value);

	return peek_page(hint) + SizeOfPageHeaderData +
		(Min(offset, MaxHeapTuplesPerPage) - 1) * sizeof(ItemIdData);
}

/* Does a buffer seem to have this block of the table? */
static inline bool
seems_to_be(const PmhashFetch *fetch, Buffer hint, BlockNumber block)
{
	const BufferTag *tag = &GetBufferDescriptor(hint - 1)->tag;

#if PG_VERSION_NUM >= 160000
	return tag->blockNum == block && tag->relNumber == fetch->heap->rd_locator.relNumber;
#else
	return tag->blockNum == block && tag->rnode.relNode == fetch->heap->rd_node.relNode;
#endif
}

/*
 * Find out where a block is; have it read in the background if it is nowhere.
 * Returns its buffer or InvalidBuffer.
 */
static pg_noinline Buffer
look_for_block(PmhashFetch *fetch, BlockNumber block)
{
	PrefetchBufferResult result;

	if (!fetch->reads_ahead)
		return InvalidBuffer;
	result = PrefetchBuffer(fetch->heap, MAIN_FORKNUM, block);
	if (result.recent_buffer != InvalidBuffer)
		set_hint(fetch, block, -result.recent_buffer);
	return result.recent_buffer;
}

static inline void __attribute__((always_inline))
prefetch_hint(const PmhashFetch *fetch, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);
	const Buffer *part = fetch->hints.part[(block & fetch->hints.mask) >> PART_BITS];

	if (likely(part != NULL))
		__builtin_prefetch(&part[block & (PART_SIZE - 1)]);
}

static inline void __attribute__((always_inline))
prefetch_page(PmhashFetch *fetch, uint64 value)
{
	Buffer		hint = get_hint(&fetch->hints, pmhash_value_to_block(value));

	if (unlikely(hint == InvalidBuffer))
		hint = look_for_block(fetch, pmhash_value_to_block(value));
	if (unlikely(hint == InvalidBuffer))
		return;
	__builtin_prefetch(GetBufferDescriptor(hint - 1), 1);
	__builtin_prefetch(peek_page(hint));
	__builtin_prefetch(peek_line_pointer(hint, value));
}

static inline void __attribute__((always_inline))
prefetch_row(PmhashFetch *fetch, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);
	Buffer		hint = get_hint(&fetch->hints, block);
	ItemIdData	lp;
	char	   *row;

	if (unlikely(hint == InvalidBuffer))
		return;
	if (unlikely(!seems_to_be(fetch, hint, block)))
	{
		look_for_block(fetch, block);
		return;
	}
	memcpy(&lp, peek_line_pointer(hint, value), sizeof(lp));
	if (unlikely(!ItemIdIsNormal(&lp) || ItemIdGetOffset(&lp) >= BLCKSZ))
		return;
	row = peek_page(hint) + ItemIdGetOffset(&lp);
	__builtin_prefetch(row);
	__builtin_prefetch(row + PG_CACHE_LINE_SIZE / 2);
}

/*
 * pmhash_fetch_ahead
 *		Prefetch the cache lines of what comes after run->next.
 */
void
pmhash_fetch_ahead(PmhashFetch *fetch, PmhashRun *run)
{
	size_t		hint_end = Min(run->n, run->next + 3 * run->distance);
	size_t		page_end = Min(run->n, run->next + 2 * run->distance);
	size_t		row_end = Min(run->n, run->next + run->distance);

	if (unlikely(fetch->hints.part == NULL))
		return;
	for (run->hint = Max(run->hint, run->next); run->hint < hint_end; run->hint++)
		prefetch_hint(fetch, run->value[run->hint] >> run->shift);
	for (run->page = Max(run->page, run->next); run->page < page_end; run->page++)
		prefetch_page(fetch, run->value[run->page] >> run->shift);
	for (run->row = Max(run->row, run->next); run->row < row_end; run->row++)
		prefetch_row(fetch, run->value[run->row] >> run->shift);
}

/* ---- the visit ---- */

/* Pin a block of the table. */
static Buffer
read_block(PmhashFetch *fetch, BlockNumber block)
{
	Buffer		hint = get_raw_hint(&fetch->hints, block);
	Buffer		buffer;

	fetch->blocks++;
#if PG_VERSION_NUM >= 160000
	if (hint > 0 &&
		ReadRecentBuffer(fetch->heap->rd_locator, MAIN_FORKNUM, block, hint))
#else
	if (hint > 0 &&
		ReadRecentBuffer(fetch->heap->rd_node, MAIN_FORKNUM, block, hint))
#endif
	{
		/* what ReadBuffer counts for the table */
		pgstat_count_buffer_read(fetch->heap);
		pgstat_count_buffer_hit(fetch->heap);
		fetch->hinted++;
		return hint;
	}
	buffer = ReadBuffer(fetch->heap, block);
	set_hint(fetch, block, buffer);
	return buffer;
}

/* Have the block of a value pinned, and the one before not any more. */
static void
go_to_block(PmhashFetch *fetch, BlockNumber block)
{
	if (BufferIsValid(fetch->buffer))
	{
		if (fetch->block == block)
			return;
		pmhash_fetch_release(fetch);
	}
	fetch->buffer = read_block(fetch, block);
	fetch->block = block;
	heap_page_prune_opt(fetch->heap, fetch->buffer);
}

/*
 * pmhash_fetch_row
 *		Find the row, of the HOT chain that a value leads to, that the snapshot
 *		sees.
 *
 * It is in fetch->tuple then, and stays there until the next call or
 * pmhash_fetch_release.  False if there is none; then fetch->dead says whether the
 * chain is dead to all.  Locks the row for serializable
 * transactions, as index scans do.
 */
bool
pmhash_fetch_row(PmhashFetch *fetch, uint64 value)
{
	ItemPointerData tid;
	bool		found;

	pmhash_value_to_tid(value, &tid);
	go_to_block(fetch, pmhash_value_to_block(value));
	LockBuffer(fetch->buffer, BUFFER_LOCK_SHARE);
	found = heap_hot_search_buffer(&tid, fetch->heap, fetch->buffer, fetch->snapshot,
								   &fetch->tuple, &fetch->dead, true);
	if (unlikely(fetch->dead))
		fetch->lsn = BufferGetLSNAtomic(fetch->buffer);
	LockBuffer(fetch->buffer, BUFFER_LOCK_UNLOCK);
	pmhash_test_heap_page(fetch->snapshot, fetch->heap, fetch->buffer);
	pgstat_count_index_tuples(fetch->index, 1);
	if (!found)
		return false;
	fetch->tuple.t_self = tid;
	pgstat_count_heap_fetch(fetch->index);
	return true;
}

/*
 * pmhash_fetch_page
 *		Have the page of a value pinned in place of the one that is pinned now, or
 *		InvalidBuffer: what ReleaseAndReadBuffer and heap_page_prune_opt do for an
 *		index scan, by hints.  Returns its buffer, which is the caller's to release.
 */
Buffer
pmhash_fetch_page(PmhashFetch *fetch, Buffer pinned, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);

	if (BufferIsValid(pinned))
	{
		if (BufferGetBlockNumber(pinned) == block)
			return pinned;
		ReleaseBuffer(pinned);
	}
	pinned = read_block(fetch, block);
	heap_page_prune_opt(fetch->heap, pinned);
	return pinned;
}

/* Pin nothing any more. */
void
pmhash_fetch_release(PmhashFetch *fetch)
{
	if (BufferIsValid(fetch->buffer))
		ReleaseBuffer(fetch->buffer);
	fetch->buffer = InvalidBuffer;
}
