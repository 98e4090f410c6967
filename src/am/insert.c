/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  Inserts: one entry at once, or many in a group.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "catalog/partition.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/plannodes.h"
#include "storage/predicate.h"
#include "utils/catcache.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#if PG_VERSION_NUM >= 180000
#include "replication/logicalrelation.h"
#endif

#include "am/scan.h"
#include "cluster/base/relations.h"
#include "cluster/base/tools.h"
#include "cluster/wal/logged.h"

/*
 * Group insert: entries of a long statement wait in backend memory and go
 * into the file many at a time.
 *
 * One entry alone waits for its directory element, its lock and its bucket to
 * come from memory, one after the other.  A group has them all prefetched
 * (pmh_insert_group), and its journal records share a fence.
 *
 * No reader may notice.  An entry is wanted by
 * - what reads the table in this backend: it applies the queues of its file when it
 *		opens it (pmhash_open_for_scan), which a plan does right before its first
 *		look-up.  What is queued later is invisible to the plan's snapshot.  Index
 *		scans, which are not of plans alone, apply them each time that they begin, too;
 * - parallel workers of this backend: applied when a plan that uses some is
 *		run, and in parallel mode no rows are inserted.  (Not when it is started: a
 *		portal of the extended protocol is started by Bind and run by Execute.  Rows
 *		inserted in between are invisible to its snapshot, but not to those that its
 *		functions take.)  Builds of indexes start workers as well: applied
 *		when a utility statement begins that may come to one, and until it is over
 *		nothing is queued (hooks.c);
 * - other backends' MVCC snapshots, when we have committed: applied before
 *		the commit record is written, and before PREPARE;
 * - other backends' checks of exclusion constraints and conflict checks of
 *		serializable transactions, at once: such entries are never queued;
 * - workers of logical replication, at once, for tables of a subscription that have
 *		no key, from PostgreSQL 18 on (scan_table.c): such entries are not queued.
 *		A table may get into a subscription while its entries wait, which takes no
 *		lock that we hold up.  So queues are counted (removal.c), and as long as
 *		there are any the workers read the table;
 * - CREATE INDEX CONCURRENTLY and VACUUM of others, for rows of transactions
 *		that are over: as commit.
 * And no reader may meet an entry whose TID belongs to another row by now: only
 * rows that VACUUM cannot remove while they wait are queued.
 *
 * Nothing that is queued is forgotten while a transaction that owns it can
 * still commit.  All queues belong to one nesting level of subtransactions, that of the
 * statements that fill them; when another one begins to what waits is applied.
 * They are dropped when the level aborts, since
 * their rows are dead then; and in no other way but by being applied.  Applying
 * may fail at any group, with any error, in a statement or subtransaction that
 * is not the queue's own, and that error may be caught.  So 'first' is stepped
 * after each group by what has gone in, and the rest waits until the queue is
 * applied again: by the commit of its level at the latest, which fails if it still
 * does not go in.  The level applies its queues when it is about to commit, where an
 * error is still allowed (SUBXACT_EVENT_PRE_COMMIT_SUB); what is left or new
 * after that, because another callback has inserted something, becomes the
 * parent's, when the level cannot be aborted by itself any more
 * (SUBXACT_EVENT_COMMIT_SUB; xact.c, CommitSubTransaction).
 *
 * A queue belongs to a file, not to an index: after TRUNCATE in the
 * same transaction it is applied to the file that goes away with the commit, as
 * a subtransaction's ROLLBACK may bring that back.  The handle is good until
 * the end of the transaction (file_cache.c).  An error of such a file is one
 * only if some index of the table has it still.
 *
 * One statement may fill as many queues as a partitioned table has indexes, and
 * a statement looks its queue up again after each subtransaction, a scan applies
 * those of its file each time that it starts.  So queues are found by file in a
 * hash table, and nothing that is done per row or per scan walks them all.
 *
 * The engine's part follows the batched look-ups of bucketed hash tables.
 */

/*
 * Where the rows come from that aminsert gets: may their entries wait?
 *
 * An entry that waits in a queue must not lose its row meanwhile.  Should
 * VACUUM remove the row and another one take its TID, the queue would go on to
 * put (old hash, TID) into the file: a wrong row for ever.  A row that a
 * transaction has inserted and that this transaction does not roll back is not
 * removable while it runs, even if it deletes it (HeapTupleSatisfiesVacuum),
 * with one exception: heap_abort_speculative makes it dead to all at once.
 * test/CASES.md has all cases.
 *
 * Speculative are the rows of INSERT ... ON CONFLICT.  aminsert does not see it
 * (the token is in the row, on a page that is not pinned any more), so it is
 * turned round: which statements are known to insert no such rows?
 *	  - a ModifyTable without ON CONFLICT: the index was opened in the context
 *		of a statement that we have seen start (nodeModifyTable.c: ExecInsert
 *		and ExecUpdatePrologue open indexes in es_query_cxt;
 *		ExecInitPartitionInfo does in the one that its PartitionTupleRouting was
 *		made in, which is that too), and whose plan has no ON CONFLICT anywhere;
 *	  - COPY: the index was opened in the context in which the command was
 *		called (copyfrom.c, CopyFrom).
 * All other entries do not wait: those of the workers of logical replication (they
 * have a ResultRelInfo for each row, so there is nothing to gain), of modules
 * that call the table and index access methods by themselves, in ways of their
 * own; and all of tables of another access method than heap, of whose rows we
 * know nothing.
 *
 * Nor do those of tables without a key into which a subscription brings changes, as its
 * worker has to find their rows at once.
 */

/* Has this plan no ON CONFLICT, as far as it is a ModifyTable? */
static bool
is_plain(const Plan *plan)
{
	return !IsA(plan, ModifyTable) ||
		((const ModifyTable *) plan)->onConflictAction == ONCONFLICT_NONE;
}

/*
 * Is every row that this statement inserts a plain one?  ModifyTable is at the top
 * of a plan, or of that of a WITH query, which is among the subplans.  A module
 * may put a node of its own there, of which we know nothing.
 */
static bool
inserts_plain_rows(const PlannedStmt *statement)
{
	ListCell   *lc;

	if (statement->commandType != CMD_SELECT && !IsA(statement->planTree, ModifyTable))
		return false;
	if (!is_plain(statement->planTree))
		return false;
	foreach(lc, statement->subplans)
	{
		const Plan *plan = lfirst(lc);

		if (plan == NULL)
			continue;
		if (!is_plain(plan) || (statement->hasModifyingCTE && IsA(plan, CustomScan)))
			return false;
	}
	return true;
}

/*
 * May a worker of logical replication look for rows of the table by an index that is not
 * unique?  It does so if the table has neither a replica identity index nor a primary
 * key (relation.c, FindLogicalRepLocalIndex), in tables that have a row in
 * pg_subscription_rel (worker.c, should_apply_changes_for_rel), and in their partitions
 * (apply_handle_tuple_routing).  ERROR as for any look at the catalogs.  Before PostgreSQL
 * 18 it uses indexes of core's methods only.
 */
static bool
subscriber_looks(Relation heap)
{
	bool		found = false;
#if PG_VERSION_NUM >= 180000
	List	   *tables = NIL;
	ListCell   *lc;

	if (OidIsValid(GetRelationIdentityOrPK(heap)))
		return false;
	if (heap->rd_rel->relispartition)
		tables = get_partition_ancestors(RelationGetRelid(heap));
	tables = lcons_oid(RelationGetRelid(heap), tables);
	foreach(lc, tables)
	{
		CatCList   *list = SearchSysCacheList1(SUBSCRIPTIONRELMAP,
											   ObjectIdGetDatum(lfirst_oid(lc)));

		found |= list->n_members > 0;
		ReleaseSysCacheList(list);
	}
	list_free(tables);
#endif
	return found;
}

/*
 * Entries of one queue, at first and when it is applied.  Those of a full queue
 * are put in the order of RANGE_BITS top hash bits, so that in an index of
 * millions several neighbours go to one segment: its directory element, its
 * lock and its pages' translations are found in the caches.
 */
#define FIRST_CAPACITY	64
#define FULL			16384
#define RANGE_BITS		11

/* Entries that are journalled together, with one fence. */
#define GROUP_ENTRIES	256

StaticAssertDecl(FULL % FIRST_CAPACITY == 0 &&
				 ((FULL / FIRST_CAPACITY) & (FULL / FIRST_CAPACITY - 1)) == 0,
				 "doubling a queue ends at a full one");

typedef struct InsertQueue
{
	uint64		file_id;		/* key of the hash table */
	PmhashFile *file;
	struct InsertQueue *next;
	Oid			heapid;			/* the table */
	int			first;			/* entries before this one are in the file */
	int			n;
	int			capacity;
	PmhEntry   *entry;			/* NULL if capacity is 0; else it is counted */
} InsertQueue;

uint32		pmhash_queue_generation = 1;

static MemoryContext context = NULL;	/* of this transaction's queues, or NULL */
static MemoryContext entries_context;	/* below it, of their entries */
static HTAB *queue_of_file;		/* InsertQueue by file_id, in context */
static InsertQueue *queues = NULL;	/* the same as a list */
static int	queue_level;		/* of nested transactions: whose they are */
static Size queued_bytes = 0;	/* of all entry arrays */
static uint64 left_out = 0;		/* how often entries have not gone in, for good */

/* ---- applying ---- */

/* Put the entries of a full queue in the order of ranges of their hash, if memory allows. */
static void
put_in_order(InsertQueue *queue)
{
	const int	shift = 64 - RANGE_BITS;
	int			start[(1 << RANGE_BITS) + 1] = {0};
	PmhEntry   *ordered = MemoryContextAllocExtended(entries_context,
													 queue->capacity * sizeof(PmhEntry),
													 MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);

	Assert(queue->n - queue->first >= FULL && queue->n <= queue->capacity);
	if (ordered == NULL)
		return;
	for (int i = queue->first; i < queue->n; i++)
		start[(queue->entry[i].hash >> shift) + 1]++;
	for (int range = 1; range < (1 << RANGE_BITS); range++)
		start[range] += start[range - 1];
	for (int i = queue->first; i < queue->n; i++)
		ordered[start[queue->entry[i].hash >> shift]++] = queue->entry[i];
	pfree(queue->entry);
	queue->entry = ordered;
	queue->n -= queue->first;
	queue->first = 0;
}

/*
 * A group has failed.  That is an ERROR, unless the entries will not be missed
 * should this transaction commit: no index has their file any more, or the one
 * that has it has been marked as invalid, for good, and its rebuild waits for
 * our lock on the table.  A ROLLBACK to a savepoint may bring the file back in
 * the first case, so they go on waiting.  In the second they are left out, and whoever
 * is about to read the file is not to, though it has opened it (pmhash_open_for_scan).
 *
 * The index that the file belongs to as things stand in this transaction need not be
 * the one that the entries were made for: ALTER INDEX SET TABLESPACE gives it another file
 * number, and ALTER TABLE may hand the file on to another index of the table, under another
 * OID (tablecmds.c, TryReuseIndex; as a utility statement it has queues applied first).
 */
static void
group_failed(InsertQueue *queue, PmhResult result)
{
	Relation	heap = try_relation_open(queue->heapid, AccessShareLock);
	List	   *indexes;
	ListCell   *lc;

	Assert(IsTransactionState() && queue->first < queue->n);
	if (heap == NULL)
		return;
	indexes = RelationGetIndexList(heap);
	relation_close(heap, NoLock);
	foreach(lc, indexes)
	{
		Relation	index = relation_open(lfirst_oid(lc), AccessShareLock);

		if (queue->first < queue->n && index->rd_indam->aminsert == pmhash_insert)
		{
			uint64		file_id = pmhash_index_file(index);

			/* 0: not known, as pmhash is disabled or the stub is damaged: then that is marked */
			if (file_id == 0 || file_id == queue->file->file_id)
			{
				if (pmhash_file_open_or_skip(index, true) != NULL)
					pmhash_insert_failed(index, queue->file, result);
				left_out++;
			}
			if (file_id == queue->file->file_id)
				queue->first = queue->n;
		}
		relation_close(index, NoLock);
	}
	list_free(indexes);
}

/*
 * Put what a queue holds into its table: for each group journal records, then its
 * entries, then a record of WAL if the file is logged.  'first' goes on by those that are
 * in, whatever else happens.  On ERROR what is not in yet stays; so it does, without one,
 * if it will not be missed (group_failed).
 */
static void
apply(InsertQueue *queue)
{
	PmhashFile *file = queue->file;

	Assert(IsTransactionState() && CritSectionCount == 0);
	Assert(queue->first <= queue->n && queue->n <= queue->capacity);
	if (queue->n - queue->first >= FULL)
		put_in_order(queue);
	while (queue->first < queue->n)
	{
		const PmhEntry *entries = &queue->entry[queue->first];
		int			n = Min(GROUP_ENTRIES, queue->n - queue->first);
		PmhResult	result;
		size_t		done;

		CHECK_FOR_INTERRUPTS();
		if (file->journaled)
			pmhash_journal_note(file, entries, n);
		PMH_STOP_POINT("group_after_journal");
		result = file->logged ? pmhash_insert_and_log(file, entries, n, &done) :
			pmh_insert_group(file->table, entries, n, file->journaled, &done);
		pmhash_count(PMHASH_GROUP_INSERTS, 1);
		pmhash_count(PMHASH_GROUP_ENTRIES, done);
		Assert(done <= (size_t) n);
		queue->first += (int) done;
		if (result != PMH_OK)
		{
			group_failed(queue, result);
			break;
		}
	}
	if (queue->first == queue->n)
		queue->first = queue->n = 0;
}

/* The same, and give its memory back; the last one gives what its context has kept, too. */
static void
apply_and_free(InsertQueue *queue)
{
	apply(queue);
	if (queue->n > 0 || queue->entry == NULL)
		return;
	Assert(queued_bytes >= queue->capacity * sizeof(PmhEntry));
	pfree(queue->entry);
	pmhash_queue_closed(queue->file_id);
	queued_bytes -= queue->capacity * sizeof(PmhEntry);
	queue->entry = NULL;
	queue->capacity = 0;
	if (queued_bytes == 0)
		MemoryContextReset(entries_context);
}

/*
 * Put everything queued for a file (NULL: for any) in this transaction into its
 * table.  Cheap if there is nothing.  ERROR as pmhash_insert, and if the query
 * is cancelled; what is not in then stays queued.
 */
void
pmhash_apply_inserts(const PmhashFile *file)
{
	InsertQueue *queue;

	if (likely(queued_bytes == 0))
		return;
	Assert(context != NULL && IsTransactionState());
	if (file != NULL)
	{
		queue = hash_search(queue_of_file, &file->file_id, HASH_FIND, NULL);
		if (queue != NULL && queue->capacity > 0)
			apply_and_free(queue);
		return;
	}
	for (queue = queues; queue != NULL; queue = queue->next)
	{
		if (queue->capacity > 0)
			apply_and_free(queue);
	}
}

/*
 * pmhash_file_open_for_scan, and what this transaction has queued for the file is
 * in it.
 *
 * That may turn out to be impossible, which leaves an index that is invalid: NULL.
 * Errors as of that, and of inserting.
 */
PmhashFile *
pmhash_open_for_scan(Relation index, Snapshot snapshot)
{
	PmhashFile *file;
	uint64		before;

	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	do
	{
		before = left_out;
		file = pmhash_file_open_for_scan(index, snapshot);
		if (file != NULL)
			pmhash_apply_inserts(file);
	} while (file != NULL && left_out != before);
	return file;
}

/* pmhash_file_open, in the same way: ERROR if the index is invalid. */
PmhashFile *
pmhash_open_for_reading(Relation index, Snapshot snapshot)
{
	PmhashFile *file = pmhash_open_for_scan(index, snapshot);

	if (file == NULL)
		pmhash_invalid_error(index);
	return file;
}

/* ---- filling ---- */

/*
 * The queue for entries of file, which is that of an index of the table heap; NULL if
 * they are to be inserted directly: nothing can wait any more, or something waits that
 * can't be applied for the moment (group_failed).  Good as long as
 * pmhash_queue_generation is the same.  ERROR as pmhash_apply_inserts.
 */
static InsertQueue *
queue_of(Relation heap, PmhashFile *file)
{
	int			level = GetCurrentTransactionNestLevel();
	InsertQueue *queue;
	bool		found;

	Assert(file != NULL && level >= 1);
	if (pmhash_transaction_is_ending)
		return NULL;
	if (queue_level != level)
		pmhash_apply_inserts(NULL);
	if (queue_level != level && queued_bytes > 0)
		return NULL;
	queue_level = level;
	if (context == NULL)
	{
		HASHCTL		control = {
			.keysize = sizeof(uint64),
			.entrysize = sizeof(InsertQueue)
		};

		Assert(queues == NULL && queued_bytes == 0);
		control.hcxt = AllocSetContextCreate(TopTransactionContext, "pmhash insert queues",
											 ALLOCSET_SMALL_SIZES);
		queue_of_file = hash_create("pmhash insert queues", 32, &control,
									HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		entries_context = AllocSetContextCreate(control.hcxt, "pmhash queued entries",
												ALLOCSET_DEFAULT_SIZES);
		context = control.hcxt;
	}
	queue = hash_search(queue_of_file, &file->file_id, HASH_ENTER, &found);
	if (!found)
	{
		memset((char *) queue + sizeof(uint64), 0, sizeof(*queue) - sizeof(uint64));
		queue->heapid = RelationGetRelid(heap);
		queue->file = file;
		queue->next = queues;
		queues = queue;
	}
	if (queue->file != file && queue->capacity > 0)
		apply_and_free(queue);
	if (queue->n > queue->first && queue->file != file)
		return NULL;
	queue->file = file;
	return queue;
}

/*
 * Add an entry.  ERROR if memory is short; and as pmhash_apply_inserts if this
 * queue is full, or if all of them take too much memory: more than one sort, or than a full
 * queue twice over (it is put in order by copying).  The entry is queued then or not: its
 * row is of a statement that has failed.
 */
static void
enqueue(InsertQueue *queue, const PmhEntry *entry)
{
	Assert(entry->value <= PMH_VALUE_MAX);
	if (unlikely(queue->n == queue->capacity))
	{
		if (MemoryContextMemAllocated(entries_context, false) +
			queue->capacity * sizeof(PmhEntry) >
			Max((Size) work_mem * 1024, 2 * FULL * sizeof(PmhEntry)))
			pmhash_apply_inserts(NULL);
		if (queue->n == queue->capacity)
		{
			/* the queue is as it was if memory is short */
			int			capacity = queue->capacity == 0 ? FIRST_CAPACITY :
				2 * queue->capacity;
			PmhEntry   *array = MemoryContextAllocHuge(entries_context,
													   capacity * sizeof(PmhEntry));

			Assert(queue->entry != NULL || queue->first == 0);
			queue->n -= queue->first;
			if (queue->entry != NULL)
			{
				memcpy(array, queue->entry + queue->first, queue->n * sizeof(PmhEntry));
				pfree(queue->entry);
			}
			else
				pmhash_queue_opened(queue->file_id);
			queue->first = 0;
			queued_bytes += (capacity - queue->capacity) * sizeof(PmhEntry);
			queue->entry = array;
			queue->capacity = capacity;
		}
	}
	Assert(queue->n < queue->capacity && !pmhash_transaction_is_ending);
	queue->entry[queue->n++] = *entry;
	if (unlikely(queue->n - queue->first >= FULL))
		apply(queue);
}

/* ---- ends of transactions ---- */

/* A level is about to commit: an error of its entries is its own. */
void
pmhash_queues_apply(int level)
{
	Assert(level >= 1 && IsTransactionState());
	if (queues != NULL && queue_level == level)
		pmhash_apply_inserts(NULL);
}

/* The level has ended: its queues are its parent's, or go with its rows. */
void
pmhash_queues_level_ends(int level, bool committed)
{
	MemoryContext made = context;

	if (queues == NULL || queue_level != level)
		return;
	Assert(level > 1 && made != NULL);
	if (committed)
		queue_level = level - 1;
	else
	{
		pmhash_queues_forget();
		MemoryContextDelete(made);
	}
}

/*
 * The level, or the transaction, is over: then the memory goes with TopTransactionContext.
 * Handles of files may have gone already.
 */
void
pmhash_queues_forget(void)
{
	for (InsertQueue *queue = queues; queue != NULL; queue = queue->next)
	{
		if (queue->entry != NULL)
			pmhash_queue_closed(queue->file_id);
	}
	context = NULL;
	queues = NULL;
	queued_bytes = 0;
}

/*
 * aminsert: one entry into the file, journalled.
 *
 * What one statement needs again and again (open file, key functions) is
 * kept in indexInfo->ii_AmCache.  Once its key is hashed an entry is a (hash,
 * value) pair and nothing else.  The first entries of a statement are inserted
 * at once; from then on they are queued and inserted in groups, where that is
 * allowed.
 */

/* Short statements gain nothing by a queue. */
#define QUEUE_AFTER		16

typedef struct PmhashInsertState
{
	PmhashFile *file;			/* NULL: the index is invalid, skip it */
	PmhashKeys *keys;
	InsertQueue *queue;	/* NULL: insert at once */
	uint32		generation;		/* the queue is good as long as it is this */
	SubTransactionId node_subid;	/* of the table, when that was looked at */
	SubTransactionId fork_subid;
	int			inserted;		/* entries, up to QUEUE_AFTER */
	bool		may_queue;
} PmhashInsertState;

/* The state of this statement for index, made at its first row. */
static PmhashInsertState *
insert_state(Relation index, IndexInfo *indexInfo)
{
	PmhashInsertState *state = indexInfo->ii_AmCache;
	MemoryContext old;

	if (state != NULL)
		return state;

	Assert(CheckRelationLockedByMe(index, RowExclusiveLock, true));
	old = MemoryContextSwitchTo(indexInfo->ii_Context);
	state = palloc0(sizeof(PmhashInsertState));
	state->file = pmhash_file_open_or_skip(index, true);
	if (state->file != NULL)
		state->keys = pmhash_keys_make(index, state->file->seed);
	MemoryContextSwitchTo(old);

	indexInfo->ii_AmCache = state;
	return state;
}

/*
 * The queue for the next entry of this statement, or NULL: insert it at once.
 * The statement may have begun subtransactions since its last row, and ended
 * them.  (Whether it has begun already to end this transaction is looked at in queue_of.)
 */
static inline InsertQueue *
queue_for(PmhashInsertState *state, Relation index, Relation heap,
		  IndexInfo *indexInfo)
{
	if (unlikely(state->inserted < QUEUE_AFTER))
	{
		const PmhashStatement *statement;

		if (++state->inserted < QUEUE_AFTER)
			return NULL;
		statement = pmhash_statement_in(indexInfo->ii_Context);
		state->may_queue = pmhash_group_insert && !IsolationIsSerializable() &&
			!pmhash_index_builder_runs() &&
			!index->rd_index->indisexclusion && !index->rd_index->indisunique &&
			pmhash_is_heap_table(heap) && statement != NULL && statement->inserts &&
			(statement->planned == NULL || inserts_plain_rows(statement->planned)) &&
			!subscriber_looks(heap);
		return NULL;
	}
	if (!state->may_queue)
		return NULL;
	if (unlikely(state->generation != pmhash_queue_generation))
	{
		state->queue = queue_of(heap, state->file);
		state->generation = pmhash_queue_generation;
	}
	return state->queue;
}

/*
 * The entry is there.  Serializable readers may have locked its key, or had their locks
 * moved to the table since heap_insert has looked at that one: this statement may have
 * opened the file before the index was marked.  In this order, as they are moved all at
 * once.
 */
static void
check_conflicts(Relation index, Relation heap, const PmhashInsertState *state,
				uint64 hash)
{
	PMH_STOP_POINT("insert_before_conflict_check");
	pmhash_check_readers(index, state->file, state->keys, hash);
	CheckForSerializableConflictIn(heap, NULL, InvalidBlockNumber);
}

/*
 * aminsert: index the row at tid.
 *
 * Returns what a unique index is to say (unique.c): is the key known to be there
 * once?  (Exclusion constraints are checked by the executor afterwards.)
 * ERROR if the file is full or can't be opened for the moment; the row is then
 * not indexed and the transaction is to abort.  Into an invalid index nothing
 * is inserted; its rebuild waits for our transaction and finds the row, which
 * is why the choice is made anew for each statement (and by none while a rebuild
 * is under way).  Takes no lock but the engine's.
 */
bool
pmhash_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid,
			  Relation heap, IndexUniqueCheck checkUnique,
			  bool indexUnchanged, struct IndexInfo *indexInfo)
{
	PmhashInsertState *state = insert_state(index, indexInfo);
	InsertQueue *queue;
	PmhEntry	entry;
	uint64		hash;
	size_t		done;
	PmhResult	result;

	Assert(IsTransactionState() && CritSectionCount == 0);

	/*
	 * Has this transaction given the table other files since the last row?  Two loads a
	 * row, as a function of the statement may do it (ALTER TABLE ALL IN TABLESPACE).
	 */
	if (unlikely(pmhash_node_subid(heap) != state->node_subid ||
				 pmhash_fork_subid(heap) != state->fork_subid))
	{
		if (state->file != NULL && !pmhash_may_insert(heap, index, state->file))
			state->file = NULL;
		state->node_subid = pmhash_node_subid(heap);
		state->fork_subid = pmhash_fork_subid(heap);
	}
	if (unlikely(state->file == NULL))
	{
		/* Serializable readers have had their locks moved to the table. */
		CheckForSerializableConflictIn(heap, NULL, InvalidBlockNumber);
		return false;
	}
	if (!pmhash_keys_hash(state->keys, values, isnull, &hash))
		return true;
	entry.hash = hash;
	entry.value = pmhash_entry_value(index, tid);
	/* a key with a NULL is equal to none */
	if (checkUnique != UNIQUE_CHECK_NO && !memchr(isnull, true, state->keys->ncolumns))
	{
		bool		unique = pmhash_insert_unique(heap, index, state->file, state->keys,
												  &entry, values, isnull, checkUnique);

		if (checkUnique != UNIQUE_CHECK_EXISTING)
			check_conflicts(index, heap, state, hash);
		return unique;
	}
	queue = queue_for(state, index, heap, indexInfo);
	if (queue != NULL)
	{
		enqueue(queue, &entry);
		return true;
	}

	/* durable after its undo record, and before its record in WAL */
	if (state->file->journaled)
		pmhash_journal_note(state->file, &entry, 1);
	PMH_STOP_POINT("insert_after_journal");
	result = state->file->logged ? pmhash_insert_and_log(state->file, &entry, 1, &done) :
		pmh_insert(state->file->table, hash, entry.value, state->file->journaled);
	pmhash_count(PMHASH_INSERTS, 1);
	if (result != PMH_OK)
		pmhash_insert_failed(index, state->file, result);
	check_conflicts(index, heap, state, hash);
	return true;
}
