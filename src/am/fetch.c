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
 * buffer replacement; but each scan that visits a block counts once.  So what a
 * look-up ahead has found is noted as "not visited", by a negative number.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "storage/buf_internals.h"
#include "utils/spccache.h"

#include "am/fetch.h"
#include "am/scan.h"
#include "cluster/base/relations.h"

/* Blocks in a part of the hints: few, since a scan of few rows touches many parts. */
#define PART_BITS	7
#define PART_SIZE	(1 << PART_BITS)

/* How many rows a stage goes on by, at least. */
#define STEP		8

/* Look-ups that are not guessed after a wrong guess, at most. */
#define MOST_NOT_GUESSED	1023

/* ---- hints ---- */

/* The hint of a block, InvalidBuffer, or its negative: not visited. */
static inline Buffer
get_hint(const PmhashHints *hints, BlockNumber block)
{
	const Buffer *part;

	if (unlikely(hints->part == NULL))
		return InvalidBuffer;
	part = hints->part[(block & hints->mask) >> PART_BITS];
	return part == NULL ? InvalidBuffer : part[block & (PART_SIZE - 1)];
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
 * Get ready to fetch rows of a heap, found by an index.
 *
 * context: where memory is taken from, until it goes.  index: what rows are
 * counted for.  Hints take 4 bytes for each block of the table, up to a quarter of
 * work_mem; if that is too few, several blocks share one.  Temporary tables, whose buffers
 * are our own, get none.
 */
void
pmhash_fetch_begin(PmhashFetch *fetch, MemoryContext context, Relation heap,
				   Relation index, Snapshot snapshot)
{
	PmhashHints *hints = &fetch->hints;
	uint64		most = Max((uint64) work_mem * (1024 / 4 / sizeof(Buffer)), PART_SIZE);
	uint64		size = PART_SIZE;
	BlockNumber nblocks = RelationGetNumberOfBlocks(heap);

	Assert(pmhash_is_heap_table(heap));
	Assert(CheckRelationLockedByMe(heap, AccessShareLock, true));
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	memset(fetch, 0, sizeof(*fetch));
	fetch->context = context;
	fetch->heap = heap;
	fetch->index = index;
	fetch->snapshot = snapshot;
	fetch->buffer = InvalidBuffer;
	fetch->reads_ahead = get_tablespace_io_concurrency(heap->rd_rel->reltablespace) > 0;
	if (RelationUsesLocalBuffers(heap))
		return;
	while (size < nblocks && size <= most / 2)
		size *= 2;
	hints->mask = (uint32) (size - 1);
	hints->nparts = (uint32) (size / PART_SIZE);
	hints->memory = hints->nparts * sizeof(Buffer *);
	hints->part = MemoryContextAllocZero(context, hints->memory);
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
	Assert(hint > 0 && hint <= NBuffers);
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
 *
 * Tables are mostly read into buffers that follow each other as their blocks do: so it is
 * guessed that a block is as far from its buffer as the last one that was found.  After
 * wrong guesses there are fewer and fewer.
 */
static pg_noinline Buffer
look_for_block(PmhashFetch *fetch, BlockNumber block)
{
	int64		guess = block + fetch->distance;
	Buffer		buffer = InvalidBuffer;

	if (fetch->no_guess > 0)
		fetch->no_guess--;
	else if (guess > 0 && guess <= NBuffers && seems_to_be(fetch, (Buffer) guess, block))
	{
		fetch->wrong = 0;
		buffer = (Buffer) guess;
	}
	else
	{
		fetch->wrong = Min(fetch->wrong * 2 + 1, MOST_NOT_GUESSED);
		fetch->no_guess = fetch->wrong;
	}
	if (buffer == InvalidBuffer && fetch->reads_ahead)
	{
		buffer = PrefetchBuffer(fetch->heap, MAIN_FORKNUM, block).recent_buffer;
		if (buffer != InvalidBuffer)
			fetch->distance = (int64) buffer - block;
	}
	if (buffer != InvalidBuffer)
		set_hint(fetch, block, -buffer);
	return buffer;
}

static inline void __attribute__((always_inline))
prefetch_page(PmhashFetch *fetch, PmhashPipe *pipe, BlockNumber block)
{
	Buffer		hint = abs(get_hint(&fetch->hints, block));

	if (unlikely(hint == InvalidBuffer))
		hint = look_for_block(fetch, block);
	pipe->page_block = block;
	pipe->page_hint = hint;
	if (unlikely(hint == InvalidBuffer))
		return;
	__builtin_prefetch(GetBufferDescriptor(hint - 1), 1);
	__builtin_prefetch(peek_page(hint));
}

/* Note where a block is, unless it seems to have gone from where it was. */
static inline void __attribute__((always_inline))
go_on_to_rows_of(PmhashFetch *fetch, PmhashPipe *pipe, BlockNumber block)
{
	Buffer		hint = abs(get_hint(&fetch->hints, block));

	pipe->row_block = block;
	if (hint != InvalidBuffer && unlikely(!seems_to_be(fetch, hint, block)))
	{
		look_for_block(fetch, block);
		hint = InvalidBuffer;
	}
	pipe->row_hint = hint;
}

static inline void __attribute__((always_inline))
prefetch_row(const PmhashPipe *pipe, uint64 value)
{
	ItemIdData	lp;
	char	   *row;

	memcpy(&lp, peek_line_pointer(pipe->row_hint, value), sizeof(lp));
	if (unlikely(!ItemIdIsNormal(&lp) || ItemIdGetOffset(&lp) >= BLCKSZ))
		return;
	row = peek_page(pipe->row_hint) + ItemIdGetOffset(&lp);
	__builtin_prefetch(row);
	__builtin_prefetch(row + PG_CACHE_LINE_SIZE / 2);
}

/*
 * Prefetch the cache lines of what comes after pipe->next.
 *
 * A stage goes on by several rows at once, so that its prefetches are under way
 * together.  Of values that are neighbours on a page only the first is looked for.
 */
void
pmhash_fetch_ahead(PmhashFetch *fetch, PmhashPipe *pipe)
{
	size_t		hint_end = Min(pipe->n, pipe->next + 3 * pipe->distance);
	size_t		page_end = Min(pipe->n, pipe->next + 2 * pipe->distance);
	size_t		row_end = Min(pipe->n, pipe->next + pipe->distance);

	if (unlikely(fetch->hints.part == NULL) ||
		(pipe->row > pipe->next && pipe->row + STEP > pipe->next + pipe->distance))
		return;
	for (pipe->hint = Max(pipe->hint, pipe->next); pipe->hint < hint_end; pipe->hint++)
	{
		BlockNumber block = pmhash_value_to_block(pipe->value[pipe->hint] >> pipe->shift);
		const Buffer *part;

		if (block == pipe->hint_block)
			continue;
		pipe->hint_block = block;
		part = fetch->hints.part[(block & fetch->hints.mask) >> PART_BITS];
		if (likely(part != NULL))
			__builtin_prefetch(&part[block & (PART_SIZE - 1)]);
	}
	for (pipe->page = Max(pipe->page, pipe->next); pipe->page < page_end; pipe->page++)
	{
		uint64		value = pipe->value[pipe->page] >> pipe->shift;

		if (pmhash_value_to_block(value) != pipe->page_block)
			prefetch_page(fetch, pipe, pmhash_value_to_block(value));
		if (likely(pipe->page_hint != InvalidBuffer))
			__builtin_prefetch(peek_line_pointer(pipe->page_hint, value));
	}
	for (pipe->row = Max(pipe->row, pipe->next); pipe->row < row_end; pipe->row++)
	{
		uint64		value = pipe->value[pipe->row] >> pipe->shift;

		if (pmhash_value_to_block(value) != pipe->row_block)
			go_on_to_rows_of(fetch, pipe, pmhash_value_to_block(value));
		if (likely(pipe->row_hint != InvalidBuffer))
			prefetch_row(pipe, value);
	}
}

/* Pin a block of the table. */
static Buffer
read_block(PmhashFetch *fetch, BlockNumber block)
{
	Buffer		raw_hint = get_hint(&fetch->hints, block);
	Buffer		hint = abs(raw_hint);
	Buffer		buffer;

	fetch->blocks++;
	if (hint != InvalidBuffer &&
		ReadRecentBuffer(pmhash_node(fetch->heap), MAIN_FORKNUM, block, hint))
	{
		if (raw_hint < 0)
		{
			/*
			 * A page that has been looked for, pinned now by what was found, counts as
			 * used, as PinBuffer has it.  If others change the state in that moment it
			 * does not.
			 */
			BufferDesc *desc = GetBufferDescriptor(hint - 1);
			PmhashBufferState state = pmhash_buffer_state(desc);

			if (!(state & BM_LOCKED) && BUF_STATE_GET_USAGECOUNT(state) < BM_MAX_USAGE_COUNT)
				pmhash_change_buffer_state(desc, &state, state + BUF_USAGECOUNT_ONE);
			set_hint(fetch, block, hint);
		}
		/* what ReadBuffer counts for the table */
		pgstat_count_buffer_read(fetch->heap);
		pgstat_count_buffer_hit(fetch->heap);
		fetch->hinted += raw_hint > 0;
		return hint;
	}
	buffer = ReadBuffer(fetch->heap, block);
	set_hint(fetch, block, buffer);
	return buffer;
}

static inline BlockNumber
block_of(const PmhashPipe *pipe, size_t at)
{
	return pmhash_value_to_block(pipe->value[at] >> pipe->shift);
}

/*
 * Find the rows of values [from, to) of the pipe, which are on the page that is pinned:
 * of the HOT chain that each leads to the member that the snapshot sees.  If the page
 * says that every snapshot sees all its rows that is so for those taken on a primary
 * (heapam.c, heapgetpage); serializable transactions lock each row.
 */
static void
find_rows(PmhashFetch *fetch, const PmhashPipe *pipe, size_t from, size_t to,
		  PmhashPageRows *rows)
{
	Page		page = BufferGetPage(fetch->buffer);
	bool		all_visible;

	Assert(IsMVCCSnapshot(fetch->snapshot) && to - from <= PMHASH_PAGE_ROWS);
	LockBuffer(fetch->buffer, BUFFER_LOCK_SHARE);
	all_visible = PageIsAllVisible(page) && !fetch->snapshot->takenDuringRecovery &&
		!IsolationIsSerializable();
	for (size_t i = from; i < to; i++)
	{
		uint64		value = pipe->value[i] >> pipe->shift;
		OffsetNumber offset = pmhash_value_to_offset(value);
		ItemPointerData tid;
		bool		dead;

		if (unlikely(fetch->dead_in != NULL) && pmhash_known_dead(fetch->dead_in, value))
			continue;

		/*
		 * Where every snapshot sees all rows a chain has one.  A row in the middle of a
		 * chain is not the one that the entry was made for.
		 */
		if (likely(all_visible) && likely(offset <= PageGetMaxOffsetNumber(page)))
		{
			ItemId		lp = PageGetItemId(page, offset);

			if (likely(ItemIdIsNormal(lp)) &&
				!HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, lp)))
			{
				rows->offset[rows->n++] = offset;
				continue;
			}
		}
		pmhash_value_to_tid(value, &tid);
		if (heap_hot_search_buffer(&tid, fetch->heap, fetch->buffer, fetch->snapshot,
								   &fetch->tuple, &dead, true))
			rows->offset[rows->n++] = ItemPointerGetOffsetNumber(&tid);
		else if (dead)
			rows->dead[rows->ndead++] = value;
	}
	LockBuffer(fetch->buffer, BUFFER_LOCK_UNLOCK);
}

/*
 * Find the rows of the next values of a pipe, as many as are on one page, up to
 * 'most' and PMHASH_PAGE_ROWS; there is one value at least.
 *
 * Its values are in the order of the heap.  Afterwards the page is pinned, until the next
 * call or pmhash_fetch_release; pipe->next is past the values; rows has what the snapshot
 * sees, in their order, for pmhash_fetch_found.  Locks rows for serializable
 * transactions, as index scans do.
 */
void
pmhash_fetch_page_rows(PmhashFetch *fetch, PmhashPipe *pipe, size_t most,
					   PmhashPageRows *rows)
{
	BlockNumber block = block_of(pipe, pipe->next);
	size_t		last = pipe->next + Min(most, PMHASH_PAGE_ROWS);
	size_t		end = pipe->next + 1;
	Buffer		pinned = fetch->buffer;

	Assert(most > 0 && pipe->next < pipe->n && last <= pipe->n);
	while (end < last && block_of(pipe, end) == block)
		end++;
	rows->n = rows->next = rows->ndead = 0;
	PMH_STOP_POINT("pages_before_page");
	fetch->buffer = InvalidBuffer;	/* not ours any more if there is an error */
	fetch->buffer = pmhash_fetch_page(fetch, pinned,
									  pipe->value[pipe->next] >> pipe->shift);
	fetch->block = block;
	find_rows(fetch, pipe, pipe->next, end, rows);
	Assert((size_t) (rows->n + rows->ndead) <= end - pipe->next);
	pgstat_count_index_tuples(fetch->index, end - pipe->next);
	for (int i = 0; i < rows->n; i++)
		pgstat_count_heap_fetch(fetch->index);
	pipe->next = end;
}

/*
 * Have the page of a value pinned in place of the one that is pinned now, or
 * InvalidBuffer: what ReleaseAndReadBuffer and heap_page_prune_opt do for an
 * index scan, by hints.  Returns its buffer, which is the caller's to release.
 */
Buffer
pmhash_fetch_page(PmhashFetch *fetch, Buffer pinned, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);
#if PG_VERSION_NUM >= 190000
	Buffer		map = InvalidBuffer;
#endif

	Assert(CritSectionCount == 0);
	if (BufferIsValid(pinned))
	{
		if (BufferGetBlockNumber(pinned) == block)
			return pinned;
		ReleaseBuffer(pinned);
	}
	pinned = read_block(fetch, block);

	/*
	 * Remove what is dead, if the page is full and no other process has it pinned.  From
	 * PostgreSQL 19 on that may mark it as all-visible, which whoever changes a row next has
	 * to undo.  We do not ask for that: VACUUM does it, and core's own scans.
	 */
#if PG_VERSION_NUM >= 190000
	heap_page_prune_opt(fetch->heap, pinned, &map, false);
	if (BufferIsValid(map))
		ReleaseBuffer(map);
#else
	heap_page_prune_opt(fetch->heap, pinned);
#endif
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

/*
 * The offsets of the members of the HOT chain that begins at a line pointer, aborted
 * ones too; returns how many (compare heap_get_root_tuples in pruneheap.c).
 *
 * page: that of a locked buffer, or a copy.  member: room for MaxHeapTuplesPerPage.
 */
int
pmhash_chain_members(Page page, OffsetNumber root, OffsetNumber *member)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	OffsetNumber offset = root;
	TransactionId before = InvalidTransactionId;
	int			n = 0;

	last = Min(last, MaxHeapTuplesPerPage);
	if (root < FirstOffsetNumber || root > last)
		return 0;
	if (ItemIdIsRedirected(PageGetItemId(page, root)))
		offset = ItemIdGetRedirect(PageGetItemId(page, root));
	while (offset >= FirstOffsetNumber && offset <= last && n < MaxHeapTuplesPerPage)
	{
		ItemId		lp = PageGetItemId(page, offset);
		HeapTupleHeader tuple;

		if (!ItemIdIsNormal(lp))
			break;
		tuple = (HeapTupleHeader) PageGetItem(page, lp);
		if (TransactionIdIsValid(before) &&
			!TransactionIdEquals(before, HeapTupleHeaderGetXmin(tuple)))
			break;
		member[n++] = offset;
		if (!HeapTupleHeaderIsHotUpdated(tuple))
			break;
		before = HeapTupleHeaderGetUpdateXid(tuple);
		offset = ItemPointerGetOffsetNumber(&tuple->t_ctid);
	}
	return n;
}
