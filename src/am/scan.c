/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Plain, index-only and bitmap index scans.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/itup.h"
#include "access/tupmacs.h"
#include "access/visibilitymap.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "nodes/tidbitmap.h"
#include "pgstat.h"
#include "storage/predicate.h"
#include "utils/memutils.h"

#include "am/scan.h"
#include "cluster/base/relations.h"
#include "engine/sort.h"

/*
 * Entries whose rows the executor has found dead to all transactions.
 *
 * A scan collects them and hands them over many at a time (cluster's
 * pmhash_dead_entries), by which they are removed, unless their TIDs may have
 * been given to other rows since they were read: the removal epoch says so.
 */

/* Room at first, in entries. */
#define FIRST_CAPACITY	64

StaticAssertDecl(FIRST_CAPACITY <= PMHASH_DEAD_MAX, "room is never beyond the most");

/* Have the entries collected so far removed from the file of an index. */
void
pmhash_hand_over_dead(PmhashScanDead *dead, Relation index, PmhashFile *file)
{
	int			n = dead->n;

	Assert(n >= 0 && n <= PMHASH_DEAD_MAX);
	Assert(n == 0 || file != NULL);

	dead->n = 0;
	if (n > 0)
		pmhash_dead_entries(index, file, dead->epoch, dead->entry, n);
}

/*
 * An entry's tuple is dead to all: collect such entries until there are
 * enough or the epoch changes.
 *
 * epoch: the removal epoch from before the entry was read.  context: where memory is taken
 * from.
 */
void
pmhash_note_dead(PmhashScanDead *dead, MemoryContext context, Relation index,
				 PmhashFile *file, uint64 epoch, PmhEntry entry)
{
	if (dead->enough)
		return;
	if (dead->n > 0 && dead->epoch != epoch)
		pmhash_hand_over_dead(dead, index, file);
	Assert(dead->n < PMHASH_DEAD_MAX);
	if (dead->n == dead->capacity)
	{
		dead->capacity = Min(Max(dead->capacity * 2, FIRST_CAPACITY), PMHASH_DEAD_MAX);
		if (dead->entry == NULL)
			dead->entry = MemoryContextAlloc(context, dead->capacity * sizeof(PmhEntry));
		else
			dead->entry = repalloc(dead->entry, dead->capacity * sizeof(PmhEntry));
	}
	dead->epoch = epoch;
	dead->entry[dead->n++] = entry;
	if (dead->n == PMHASH_DEAD_MAX)
	{
		pmhash_hand_over_dead(dead, index, file);
		dead->enough = true;
	}
}

/* The current element's tuple, which has just been judged, is dead to all. */
static void
note_dead_tuple(IndexScanDesc scan, PmhashScan *so)
{
	PmhEntry	entry;

	if (so->batch_hashes == NULL || so->dead.enough)
		return;
	entry.hash = pmhash_scan_hash(so);
	entry.value = pmhash_scan_value(so);
	pmhash_note_dead(&so->dead, so->context, scan->indexRelation, so->file, so->epoch,
					 entry);
}

/*
 * Have the next step of a cursor leave out the values whose rows are known to be
 * dead to all, if that is wanted.
 */
void
pmhash_leave_out_dead(PmhCursor *cursor, PmhashFile *file, bool wanted)
{
	cursor->leave_out = NULL;
	if (!wanted || !pmhash_any_known_dead(file))
		return;
	cursor->leave_out = pmhash_drop_known_dead;
	cursor->leave_out_argument = file;
}

/*
 * Is the row of the current element known to be dead to all?  It is to be passed over
 * then, as if it had been visited.
 */
static inline bool
is_known_dead(const PmhashScan *so)
{
	return unlikely(so->any_known_dead) &&
		pmhash_known_dead(so->file, pmhash_scan_value(so));
}

/*
 * Index-only scans, and the heap pages that scans visit.
 *
 * An index-only scan returns a key without a visit to its row if the row's page
 * is all-visible.  A TID may be removed and used again by VACUUM between our
 * reading of it and that look at the visibility map, or the visit, since no pin or lock
 * holds VACUUM back; the removal epoch says whether that can have happened.  See
 * src/README, "Scans and VACUUM".
 */

/*
 * A row of this page of the table is about to be taken without a visit, as the page is
 * all-visible.  For serializable transactions: lock the page in place of the row, and
 * say whether it is all-visible still.
 *
 * The lock first, then the map: a later deletion of the row meets our lock; after an
 * earlier one the page is not all-visible any more, and the visit to the row finds
 * the conflict.  (The executor's own scans have it the other way round.)  Only a
 * deletion that has looked for locks and not cleared the bit yet is missed.
 *
 * map: as for visibilitymap_get_status.
 */
bool
pmhash_lock_all_visible(Relation heap, BlockNumber block, Snapshot snapshot, Buffer *map)
{
	bool		all_visible;

	PMH_STOP_POINT("all_visible");
	PredicateLockPage(heap, block, snapshot);
	all_visible = VM_ALL_VISIBLE(heap, block, map);
	PMH_STOP_POINT("all_visible_locked");
	return all_visible;
}

/*
 * May the executor take the current element, whose TID is in scan->xs_heaptid, for a row if
 * it finds its page all-visible a moment later?  Its look at the visibility map comes after
 * VACUUM may have given the TID away, so we have to know it here: either the
 * page is all-visible and the TID was not given away until after we looked, or
 * the TID leads to a row that the snapshot sees.
 */
static bool
may_return(IndexScanDesc scan, PmhashScan *so)
{
	BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);
	ItemPointerData tid = scan->xs_heaptid; /* changed by the look-up */
	bool		call_again = false;
	bool		all_dead = false;
	bool		found;

	Assert(IsMVCCSnapshot(scan->xs_snapshot));
	PMH_STOP_POINT("scan_before_visibility");
	if (VM_ALL_VISIBLE(scan->heapRelation, block, &so->visibility_map) &&
		pmhash_removal_none_since(so->file, so->epoch) &&
		(likely(!IsolationIsSerializable()) ||
		 pmhash_lock_all_visible(scan->heapRelation, block, scan->xs_snapshot,
								 &so->visibility_map)))
		return true;
	if (so->slot == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(so->context);

		so->slot = table_slot_create(scan->heapRelation, NULL);
		MemoryContextSwitchTo(old);
	}
	found = table_index_fetch_tuple(scan->xs_heapfetch, &tid,
									scan->xs_snapshot, so->slot,
									&call_again, &all_dead);
	ExecClearTuple(so->slot);
	if (all_dead && !scan->xactStartedInRecovery)
		note_dead_tuple(scan, so);
	return found;
}

/*
 * Put the key that the current element was found by into xs_itup.  An index
 * tuple of one column of fixed length is its header and the datum; it is
 * allocated once per scan and filled again whenever the key changes.
 */
static void
return_key(IndexScanDesc scan, PmhashScan *so)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(scan->indexRelation), 0);
	uint64		hash = pmhash_scan_hash(so);
	Datum		key;
	char	   *data;

	Assert(so->keys->can_return && column->attlen > 0);
	if (scan->xs_itup == NULL)
	{
		Size		size = MAXALIGN(IndexInfoFindDataOffset(0) + column->attlen);

		scan->xs_itup = MemoryContextAllocZero(so->context, size);
		scan->xs_itup->t_info = size;
		scan->xs_itupdesc = RelationGetDescr(scan->indexRelation);
	}
	else if (hash == so->key_hash)
		return;

	key = pmhash_keys_unhash(so->keys, hash);
	data = (char *) scan->xs_itup + IndexInfoFindDataOffset(0);
	if (column->attbyval)
		store_att_byval(data, key, column->attlen);
	else
	{
		memcpy(data, DatumGetPointer(key), column->attlen);
		pfree(DatumGetPointer(key));
	}
	so->key_hash = hash;
}

/*
 * A scan is one of five kinds, found out when its first tuple is wanted:
 *
 *	nothing	 some argument is NULL, or equal to no key that there can be
 *	one		 one hash: a cursor streams its values in growing batches
 *	array	 = ANY: the hashes, sorted, none twice, are looked up in groups
 *			 (scan_keys.c); if several arrays multiply to more hashes than
 *			 work_mem holds, one range of hashes after the other (scan_keys.c)
 *	all		 not every column is bound, or there are so many hashes that it is
 *			 quicker to sweep the whole index, every tuple to be rechecked
 *	table	 the index has become invalid since the plan was made, or a subscriber
 *			 looks for what it does not have, or logical decoding for what has
 *			 been: every row of its table, to be rechecked (scan_table.c)
 *
 * Whatever the kind, fill_batch() puts values (TIDs as numbers) into the
 * batch, in heap order, and gettuple and getbitmap hand them out.  No row comes twice: one
 * TID is under one hash only, and a cursor and a sweep give no value twice unless it was
 * removed in between and inserted again.  Then it is the TID of two rows.  The first was
 * dead to everybody, and the second came after our snapshot, so that an MVCC snapshot
 * sees neither; who uses another one (SnapshotDirty) wants both.
 *
 * Everything is allocated in a context of the scan's own and used again by
 * rescans; a probe of a nested loop allocates nothing.
 */

/*
 * Scans that read a queue: FOR UPDATE SKIP LOCKED.
 *
 * A process that takes a row out of a queue passes over those that others have locked,
 * and those that they have just deleted, which are not dead to all yet: all of what
 * the others have taken lately, if all begin in the same place.  So such scans begin in
 * different places.  Others begin in one place, lest two that lock all rows of a key do
 * so crosswise, and deadlock.
 *
 * The choice is one scan's, not one statement's: of UPDATE job ... WHERE id = (SELECT id
 * FROM job ... FOR UPDATE SKIP LOCKED) the inner scan never waits for a row, the outer
 * one does; so do those of functions and triggers that it calls.  An access method gets
 * no word of where in a plan its scan is.  But the statement is known (hooks.c); and
 * in that one's plan the scan is found, and with it its entry in the range table, of
 * which the row marks tell (plannodes.h, PlanRowMark).  A scan that is not found begins
 * where all do: those that EvalPlanQual runs anew, and those of nodes that other modules
 * have brought.
 */

/* A scan that is looked for, and its entry in the range table. */
typedef struct LockSearch
{
	IndexScanDesc scan;
	Index		rti;
} LockSearch;

/* Rows that are locked have their TIDs from an index scan, not from an index-only one. */
static bool
find_scan(PlanState *node, void *context)
{
	LockSearch *search = context;

	if (node == NULL)
		return false;
	if (IsA(node, IndexScanState) &&
		((IndexScanState *) node)->iss_ScanDesc == search->scan)
	{
		search->rti = ((const Scan *) node->plan)->scanrelid;
		return true;
	}
	return planstate_tree_walker(node, find_scan, search);
}

/*
 * Where in the buffers of a long list is a scan to begin?  0: at their beginning;
 * else it reads a queue, and this is a cursor's 'start'.
 *
 * It is a queue if what is locked is passed over and any rows are known to be dead.
 * Each scan begins somewhere else than the one before (multiples of the golden ratio lie
 * evenly), so none of the rows that come first is left for good.
 */
static uint32
start_position(IndexScanDesc scan, const PmhashScan *so)
{
	static uint32 start = 0;
	const PmhashStatement *statement;
	LockSearch	search = {scan, 0};

	if (!scan->ignore_killed_tuples || likely(!pmhash_any_known_dead(so->file)))
		return 0;
	statement = pmhash_statement_in(MemoryContextGetParent(so->context));
	if (statement == NULL || !statement->skips_locked ||
		!find_scan(statement->plan, &search) ||
		!pmhash_skips_locked(statement->planned, search.rti))
		return 0;
	if (start == 0)
		start = (uint32) MyProcPid * UINT32_C(0x85ebca6b);
	start += UINT32_C(0x9e3779b9);
	return Max(start, 1);
}

/*
 * The heap pages of a plain index scan: prefetched, and found by hints.
 *
 * The executor visits a row as soon as its TID is handed out, and waits for some
 * cache lines, one after the other.  The TIDs that come next are in the batch: their
 * lines are prefetched meanwhile (fetch.c).  The longest wait, for the buffer table,
 * is left out for a page that has been met before: we pin it by a hint, in the place
 * where the heap's access method keeps the page it has pinned
 * (heapam_handler.c, heapam_index_fetch_tuple).  That finds its page there and has
 * only to lock it.  So it serves all plans with an index scan in them, whatever the
 * executor does with the row.
 *
 * How far ahead grows with the rows handed out, so that LIMIT and EXISTS prefetch,
 * and read from disk, at most two pages for each one that is visited.
 */

/*
 * Rows at the beginning of a scan, and of a batch, that are not worth the trouble: a
 * queue takes one row and passes by some ten that others have locked.
 */
#define FIRST_ROWS	24
#define LEAST_BATCH	8

/*
 * The current element is about to be handed out, and visited: prefetch for those that
 * come after it, and pin its page.
 *
 * Nothing is done for rows that an invalid index has from the table itself, nor where we
 * do not know how pages are pinned and laid out.
 */
static void
fetch_ahead(IndexScanDesc scan, PmhashScan *so)
{
	IndexFetchHeapData *heap = (IndexFetchHeapData *) scan->xs_heapfetch;
	PmhashPipe *pipe = &so->pipe;
	Buffer		pinned;

	if (so->rows_ahead < FIRST_ROWS || so->batch_n < LEAST_BATCH)
	{
		so->rows_ahead++;
		return;
	}
	if (so->kind == SCAN_TABLE)
		return;
	if (so->fetch == NULL)
	{
		if (heap == NULL || !pmhash_is_heap_table(scan->heapRelation) ||
			RelationUsesLocalBuffers(scan->heapRelation))
			return;
		so->fetch = MemoryContextAlloc(so->context, sizeof(PmhashFetch));
		pmhash_fetch_begin(so->fetch, so->context, scan->heapRelation,
						   scan->indexRelation, scan->xs_snapshot);
	}

	/* bring the pipe to the element being handed out, in the batch that there is now */
	if (pipe->value == NULL)
		pmhash_pipe_begin(pipe, so->batch, so->batch_n, so->batch_shift, 0);
	pipe->next = so->batch_next - 1;
	pipe->distance = Min(so->rows_ahead, PMHASH_FETCH_DISTANCE);
	so->rows_ahead++;
	Assert(pipe->value == so->batch && pipe->n == so->batch_n);
	pmhash_fetch_ahead(so->fetch, pipe);
	pinned = heap->xs_cbuf;
	heap->xs_cbuf = InvalidBuffer;	/* not ours any more if there is an error */
#if PG_VERSION_NUM >= 190000
	heap->xs_blk = InvalidBlockNumber;
#endif
	heap->xs_cbuf = pmhash_fetch_page(so->fetch, pinned, pmhash_scan_value(so));
#if PG_VERSION_NUM >= 190000
	/* by this the heap knows which block it has pinned (heapam_indexscan.c) */
	heap->xs_blk = BufferGetBlockNumber(heap->xs_cbuf);
#endif
}

/*
 * Values wanted of a cursor at first, and in a queue, where a scan meets few rows that
 * others have; PMHASH_CURSOR_VALUES after doubling.
 */
#define FIRST_WANT		32
#define FIRST_OF_QUEUE	16

static void
end_sweep(PmhashScan *so)
{
	if (so->sweeping)
	{
		so->sweeping = false;
		pmh_sweep_end(&so->sweep);
	}
}

/*
 * Called when the scan's context goes: by endscan, or at some point of the
 * clean-up after an error, when the file may be closed already.
 */
static void
free_engine_memory(void *arg)
{
	PmhashScan *so = arg;

	end_sweep(so);
	pmh_cursor_free(&so->cursor);
}

/* Make values[] large enough for n; what was in it is lost. */
void
pmhash_scan_reserve_values(PmhashScan *so, size_t n)
{
	so->values = pmhash_reserve(so->context, so->values, &so->values_capacity, n,
								sizeof(uint64));
}

/* ---- starting ---- */

static void
start_one(IndexScanDesc scan, PmhashScan *so, const PmhashBoundColumns *bound)
{
	uint64		words[INDEX_MAX_KEYS];
	uint64		hash;

	Assert(!so->sweeping && bound->complete && bound->arrays == 0);
	for (int i = 0; i < so->keys->ncolumns; i++)
	{
		if (pmhash_keys_words(so->keys, i, bound->key[i]->sk_argument,
							  bound->key[i]->sk_subtype, &words[i]) == 0)
		{
			so->kind = SCAN_NOTHING;
			return;
		}
	}
	hash = pmhash_keys_hash_words(so->keys, words);
	pmhash_lock_keys(scan->indexRelation, so->file, so->keys, &hash, 1,
					 scan->xs_snapshot);
	pmh_cursor_open(so->file->table, &so->cursor, hash);
	pmhash_count(PMHASH_LOOKUPS, 1);
	if (!so->start_chosen)
		so->start = start_position(scan, so);
	so->start_chosen = true;
	so->cursor.start = so->start;
	so->want = so->start != 0 ? FIRST_OF_QUEUE : FIRST_WANT;
	so->streaming = true;
	so->kind = SCAN_ONE;
}

/*
 * Without the index, as it is invalid, not built yet, or has no entries of NULLs or of
 * rows that others are inserting: it is found out row by row which of them match.
 */
static void
start_table(IndexScanDesc scan, PmhashScan *so, bool invalid)
{
	pmhash_count(PMHASH_TABLE_SCANS, 1);
	so->walk = pmhash_table_walk(scan, so->walk, invalid, so->is_taken_as_is,
								 so->context);
	Assert(!so->sweeping);
	pmhash_scan_reserve_values(so, MaxHeapTuplesPerPage);
	so->recheck = !pmhash_scan_is_of_decoding(scan);
	so->any_known_dead = false;
	so->kind = SCAN_TABLE;
}

/*
 * Reading the file has failed.  If it has been removed, this session has what it had
 * mapped of it, and no more: the index is invalid, and the scan goes on as one of
 * a plan that is older than that, by a walk through the table.
 *
 * ERROR if anything else has failed, if rows have been handed out already, which the walk
 * would hand out again (to a bitmap that is all the same), or if such a scan needs the
 * index (pmhash_table_walk).
 */
void
pmhash_scan_leave_file(IndexScanDesc scan, PmhashScan *so, PmhResult result)
{
	if (result != PMH_ERR_NO_FILE || (so->handing_out && !so->repeats))
		pmhash_engine_error(scan->indexRelation, so->file, result);
	pmhash_index_lost_file(scan->indexRelation, so->file);
	end_sweep(so);
	start_table(scan, so, true);
}

static void
start_all(IndexScanDesc scan, PmhashScan *so)
{
	PmhResult	result;

	Assert(!so->sweeping);
	pmhash_lock_all_keys(scan->indexRelation, so->file, scan->xs_snapshot);
	result = pmh_sweep_begin_reading(so->file->table, &so->sweep);
	if (result != PMH_OK)
	{
		pmhash_scan_leave_file(scan, so, result);
		return;
	}
	pmhash_count(PMHASH_FULL_SCANS, 1);
	so->sweeping = true;
	so->recheck = true;
	so->kind = SCAN_ALL;
}

/*
 * Decide what kind of scan this is and begin it.
 *
 * A scan without a key on the first column is an error: rows with a NULL
 * there are not in the index.  (amoptionalkey is false, so the planner makes
 * none.)
 */
static void
start_scan(IndexScanDesc scan, PmhashScan *so)
{
	Relation	index = scan->indexRelation;
	PmhashBoundColumns bound;

	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	Assert(scan->xs_snapshot != NULL && !so->sweeping);
	so->is_taken_as_is = pmhash_scan_is_taken_as_is(scan);
	if (unlikely(so->is_taken_as_is && pmhash_scan_wants_table(scan)))
	{
		start_table(scan, so, false);
		return;
	}
	if (unlikely(so->keys == NULL)) /* once per scan */
	{
		MemoryContext old;

		so->file = pmhash_open_for_scan(index, scan->xs_snapshot);
		if (so->file == NULL)
		{
			start_table(scan, so, true);
			return;
		}
		old = MemoryContextSwitchTo(so->context);
		so->keys = pmhash_keys_make(index, so->file->seed);
		MemoryContextSwitchTo(old);
	}
	pmhash_apply_inserts(so->file);

	/*
	 * May there be rows that the worker wants and whose entries are not in the file yet?
	 * This session's own queues have been applied.  Entries of a constraint never wait.
	 */
	if (unlikely(so->is_taken_as_is) && pmhash_any_queue(so->file) &&
		!index->rd_index->indisunique && !index->rd_index->indisexclusion)
	{
		start_table(scan, so, false);
		return;
	}
	pgstat_count_index_scan(index);
#if PG_VERSION_NUM >= 180000
	if (scan->instrument)
		scan->instrument->nsearches++;
#endif

	pmhash_dead_entries_settle(index, so->file);
	so->recheck = !so->keys->exact || !IsMVCCSnapshot(scan->xs_snapshot);
	if (!pmhash_scan_bind(scan, so, &bound))
	{
		so->kind = SCAN_NOTHING;
		return;
	}
	if (bound.key[0] == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" cannot be scanned without a condition on its first column",
						RelationGetRelationName(index))));

	if (!bound.complete)
		start_all(scan, so);
	else if (bound.arrays == 0)
		start_one(scan, so, &bound);
	else if (!pmhash_scan_hash_arrays(scan, so, &bound))
		start_all(scan, so);
}

/*
 * The next values of the key being streamed; false at its end.  In a queue those that
 * are known to be dead come first, by the hundred: the cursor leaves them out.
 */
static bool
fill_from_cursor(IndexScanDesc scan, PmhashScan *so)
{
	PmhResult	result;

	pmhash_leave_out_dead(&so->cursor, so->file, scan->ignore_killed_tuples);
	Assert(so->want > 0 && so->want <= PMHASH_CURSOR_VALUES);
	result = pmh_cursor_next(so->file->table, &so->cursor, so->want);
	if (result == PMH_DONE)
	{
		so->streaming = false;
		return false;
	}
	if (result != PMH_OK)
	{
		pmhash_scan_leave_file(scan, so, result);
		return false;
	}
	so->want = Min(so->want * 2, PMHASH_CURSOR_VALUES);
	return pmhash_scan_set_batch(so, so->cursor.batch.value, so->cursor.batch.n, 0,
								 &so->cursor.hash);
}

/*
 * Get more values, or begin with it.  False if the scan is through; else there is a new
 * batch, which may be empty.
 */
static bool
fill_batch(IndexScanDesc scan, PmhashScan *so)
{
	bool		more = false;

	CHECK_FOR_INTERRUPTS();
	if (so->kind == SCAN_UNBOUND)
		start_scan(scan, so);
	else
		PMH_STOP_POINT("scan_between_batches");
	Assert(so->kind != SCAN_UNBOUND);
	Assert(so->kind == SCAN_TABLE || (so->file != NULL && so->keys != NULL));

	if (so->kind != SCAN_TABLE)
		so->epoch = pmhash_removal_epoch(so->file);
	if (so->kind == SCAN_ONE)
		more = so->streaming && fill_from_cursor(scan, so);
	else if (so->kind == SCAN_ARRAY)
		more = pmhash_scan_array_fill(scan, so);
	else if (so->kind == SCAN_ALL && so->sweeping)
	{
		PmhResult	result = pmh_sweep_next(so->file->table, &so->sweep);

		if (result == PMH_DONE)
			end_sweep(so);
		else if (result != PMH_OK)
			pmhash_scan_leave_file(scan, so, result);
		else
		{
			pmhash_scan_reserve_values(so, so->sweep.n);
			for (size_t i = 0; i < so->sweep.n; i++)
				so->values[i] = so->sweep.entries[i].value;
			(void) pmh_sort_numbers(so->values, so->sweep.n, NULL);
			more = pmhash_scan_set_batch(so, so->values, so->sweep.n, 0, NULL);
		}
	}
	if (unlikely(so->kind == SCAN_TABLE))	/* it may have left the file just now */
	{
		/* the roots of the next page of the table */
		int			n = pmhash_table_walk_next(so->walk, so->values);

		more = n >= 0 && pmhash_scan_set_batch(so, so->values, n, 0, NULL);
	}
	else
		so->any_known_dead = more && scan->ignore_killed_tuples &&
			pmhash_any_known_dead(so->file);
	so->handing_out |= more && so->batch_n > 0;
	return more;
}

/* ---- callbacks ---- */

/* ambeginscan.  Touches no file yet: a plan may open more scans than it runs. */
IndexScanDesc
pmhash_beginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	MemoryContext context;
	PmhashScan *so;

	Assert(nkeys >= 0 && norderbys == 0);
	context = AllocSetContextCreate(CurrentMemoryContext, "pmhash scan",
									ALLOCSET_SMALL_SIZES);
	so = MemoryContextAllocZero(context, sizeof(PmhashScan));
	so->context = context;
	so->cleanup.func = free_engine_memory;
	so->cleanup.arg = so;
	MemoryContextRegisterResetCallback(context, &so->cleanup);
	scan->opaque = so;
	return scan;
}

/* amrescan: new arguments (or the same ones again if keys is NULL). */
void
pmhash_rescan(IndexScanDesc scan, ScanKey keys, int nkeys,
			  ScanKey orderbys, int norderbys)
{
	PmhashScan *so = scan->opaque;

	Assert(so != NULL && nkeys == scan->numberOfKeys);
	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys, scan->numberOfKeys * sizeof(ScanKeyData));
	end_sweep(so);
	so->kind = SCAN_UNBOUND;
	so->handing_out = false;
	so->dead.enough = false;
	so->batch_n = so->batch_next = 0;
	so->any_known_dead = false;
	so->rows_ahead = 0;
}

/*
 * amgettuple: the next TID into scan->xs_heaptid and, if wanted, its key into
 * scan->xs_itup.  False if there is none.
 */
bool
pmhash_gettuple(IndexScanDesc scan, ScanDirection dir)
{
	PmhashScan *so = scan->opaque;

	Assert(ScanDirectionIsForward(dir));	/* amcanbackward is false */
	if (scan->kill_prior_tuple)
		note_dead_tuple(scan, so);
	for (;;)
	{
		do
		{
			while (so->batch_next >= so->batch_n)
			{
				so->batch_n = so->batch_next = 0;
				if (!fill_batch(scan, so))
					return false;
			}
			so->batch_next++;
		} while (is_known_dead(so));
		pmhash_value_to_tid(pmhash_scan_value(so), &scan->xs_heaptid);
		if (unlikely(so->is_taken_as_is) && !pmhash_scan_row_fits(scan, so))
			continue;
		scan->xs_recheck = so->recheck;
		if (!scan->xs_want_itup)
		{
			fetch_ahead(scan, so);
			return true;
		}
		if (may_return(scan, so))
		{
			return_key(scan, so);
			return true;
		}
	}
}

/*
 * amgetbitmap: add all TIDs to tbm; returns how many.  To the bitmap a TID that comes
 * twice is one.
 */
int64
pmhash_getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	PmhashScan *so = scan->opaque;
	ItemPointerData tids[256];
	int64		total = 0;

	Assert(!scan->xs_want_itup && tbm != NULL);
	so->array.no_hurry = true;
	so->repeats = true;
	while (fill_batch(scan, so))
	{
		while (so->batch_next < so->batch_n)
		{
			int			n = 0;

			while (n < (int) lengthof(tids) && so->batch_next < so->batch_n)
			{
				so->batch_next++;
				if (!is_known_dead(so))
					pmhash_value_to_tid(pmhash_scan_value(so), &tids[n++]);
			}
			tbm_add_tuples(tbm, tids, n, so->recheck || so->is_taken_as_is);
			total += n;
		}
	}
	return total;
}

void
pmhash_endscan(IndexScanDesc scan)
{
	PmhashScan *so = scan->opaque;

	end_sweep(so);
	pmhash_hand_over_dead(&so->dead, scan->indexRelation, so->file);
	if (BufferIsValid(so->visibility_map))
		ReleaseBuffer(so->visibility_map);
	if (so->slot != NULL)
		ExecDropSingleTupleTableSlot(so->slot);
	if (so->row != NULL)
		pmhash_row_end(so->row);
	if (so->walk != NULL)
		pmhash_table_walk_end(so->walk);
	MemoryContextDelete(so->context);
	scan->opaque = NULL;
}
