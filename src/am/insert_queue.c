/*-------------------------------------------------------------------------
 *
 * insert_queue.c
 *	  Group insert: entries of a long statement wait in backend memory and go
 *	  into the table many at a time.
 *
 * One entry alone waits for its directory element, its lock and its bucket to
 * come from memory, one after the other.  A group has them all prefetched
 * (pmh_insert_group), and its journal records share a fence.
 *
 * Nobody may notice.  An entry is wanted by
 *	  - scans of this backend: they apply the queues when they begin to read,
 *		as everything else does that reads the table (pmhash_apply_inserts);
 *	  - parallel workers of this backend: applied when a plan that uses some is
 *		started.  Rows inserted after that are invisible to its snapshot, and
 *		in parallel mode none are;
 *	  - other backends' MVCC snapshots, when we have committed: applied before
 *		the commit record is written, and before PREPARE;
 *	  - other backends' checks of exclusion constraints and conflict checks of
 *		serializable transactions, at once: such entries are never queued;
 *	  - CREATE INDEX CONCURRENTLY and VACUUM of others, for rows of transactions
 *		that are over: as commit.  A row of ours that VACUUM may remove belongs
 *		to an aborted subtransaction, and then it does not matter whether its
 *		entry is there.
 * A queue belongs to one nesting level of subtransactions, as the statement
 * does that fills it.  It is applied when its subtransaction is about to
 * commit (where an error is still allowed, which it is not at the start of the
 * next one), and dropped when that aborts.
 *
 * A queue belongs to a file, too, not to an index: after REINDEX or TRUNCATE in the
 * same transaction it is applied to the file that goes away with the commit.
 * The handle is good until then (index_file.c closes none before the end of
 * the transaction).  Should somebody mark the file as invalid meanwhile, its
 * rebuild waits for our lock on the table, and finds our rows there.
 *
 * The idea is that of design section 8; the engine's part follows the batched
 * look-ups of bucketed hash tables.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "utils/memutils.h"

#include "am.h"

/*
 * Entries of one queue, at first and at most.  Those of a full queue are put in
 * the order of RANGE_BITS top hash bits, so that in an index of millions several
 * neighbours go to one segment: its directory element, its lock and its pages'
 * translations are found in the caches.
 */
#define FIRST_CAPACITY	1024
#define LAST_CAPACITY	16384
#define RANGE_BITS		11

/* Entries under one fence, and journalled together. */
#define GROUP_ENTRIES	256

struct PmhashInsertQueue
{
	PmhashInsertQueue *next;
	int			level;			/* of nested transactions */
	Oid			relid;			/* for messages */
	PmhashFile *file;
	int			n;
	int			capacity;
	PmhEntry   *entry;
};

static PmhashInsertQueue *queues = NULL;	/* in TopTransactionContext */
static PmhashInsertQueue *spare = NULL; /* those of subtransactions that ended */
static PmhEntry *ordered = NULL;	/* LAST_CAPACITY entries, or NULL */
static bool committing = false; /* our pre-commit callback has been called */
static ExecutorStart_hook_type previous_executor_start = NULL;

/* Raise the ERROR of a failed group, unless its index is gone anyhow. */
static void
group_failed(PmhashInsertQueue *queue, PmhResult result)
{
	Relation	index = try_relation_open(queue->relid, NoLock);

	if (index == NULL)
		return;
	pmhash_engine_error(index, queue->file, result);
}

/* Journal records for a group, then its entries. */
static void
insert_group(PmhashInsertQueue *queue, const PmhEntry *entries, int n)
{
	PmhashFile *file = queue->file;
	PmhResult	result;
	size_t		done;

	if (file->journaled)
		pmhash_journal_note(file, entries, n);
	PMH_STOP_POINT("group_after_journal");
	result = pmh_insert_group(file->table, entries, n, file->journaled, &done);
	if (result != PMH_OK)
		group_failed(queue, result);
}

/* Copy the entries of a full queue into ordered[], by ranges of their hash. */
static void
put_in_order(const PmhEntry *entries)
{
	const int	shift = 64 - RANGE_BITS;
	int			start[(1 << RANGE_BITS) + 1] = {0};

	if (ordered == NULL)
		ordered = MemoryContextAlloc(TopTransactionContext,
									 LAST_CAPACITY * sizeof(PmhEntry));
	for (int i = 0; i < LAST_CAPACITY; i++)
		start[(entries[i].hash >> shift) + 1]++;
	for (int range = 1; range < (1 << RANGE_BITS); range++)
		start[range] += start[range - 1];
	for (int i = 0; i < LAST_CAPACITY; i++)
		ordered[start[entries[i].hash >> shift]++] = entries[i];
}

static void
apply(PmhashInsertQueue *queue)
{
	const PmhEntry *entries = queue->entry;
	int			n = queue->n;

	if (n == LAST_CAPACITY)
	{
		put_in_order(entries);
		entries = ordered;
	}
	/* If it fails the transaction does, and nothing is to be tried again. */
	queue->n = 0;
	for (int i = 0; i < n; i += GROUP_ENTRIES)
		insert_group(queue, &entries[i], Min(GROUP_ENTRIES, n - i));
}

/*
 * Put everything queued in this transaction into its table.  Cheap if there is
 * nothing.  ERROR as pmhash_insert.
 */
void
pmhash_apply_inserts(void)
{
	for (PmhashInsertQueue *queue = queues; queue != NULL; queue = queue->next)
	{
		if (queue->n > 0)
			apply(queue);
	}
}

/* May entries of this index wait? */
static bool
may_queue(Relation index)
{
	return pmhash_group_insert && !committing && !IsolationIsSerializable() &&
		!index->rd_index->indisexclusion && !index->rd_index->indisunique;
}

/* An empty queue, perhaps one used before. */
static PmhashInsertQueue *
new_queue(void)
{
	PmhashInsertQueue *queue = spare;

	if (queue != NULL)
		spare = queue->next;
	else
	{
		queue = MemoryContextAlloc(TopTransactionContext,
								   sizeof(PmhashInsertQueue));
		queue->entry = MemoryContextAlloc(TopTransactionContext,
										  FIRST_CAPACITY * sizeof(PmhEntry));
		queue->capacity = FIRST_CAPACITY;
	}
	queue->n = 0;
	return queue;
}

/*
 * The queue for entries of file, which is that of index, or NULL if they must
 * not wait.  Good until the end of the (sub)transaction.
 */
PmhashInsertQueue *
pmhash_insert_queue(Relation index, PmhashFile *file)
{
	int			level = GetCurrentTransactionNestLevel();
	PmhashInsertQueue *queue;

	if (!may_queue(index))
		return NULL;
	for (queue = queues; queue != NULL; queue = queue->next)
	{
		if (queue->file == file && queue->level == level)
			return queue;
	}
	queue = new_queue();
	queue->level = level;
	queue->next = queues;
	queue->relid = RelationGetRelid(index);
	queue->file = file;
	queues = queue;
	return queue;
}

/*
 * Add an entry.  ERROR as pmhash_insert if that makes the queue full and it is
 * applied; and if memory is short.
 */
void
pmhash_enqueue_insert(PmhashInsertQueue *queue, const PmhEntry *entry)
{
	if (queue->n == queue->capacity)
	{
		queue->entry = repalloc(queue->entry,
								2 * queue->capacity * sizeof(PmhEntry));
		queue->capacity *= 2;
	}
	queue->entry[queue->n++] = *entry;
	if (queue->n == LAST_CAPACITY)
		apply(queue);
}

/*
 * The current subtransaction ends.  Its queues are the first of the list: each
 * level puts its own in front, and has none when it ends.
 */
static void
release_queues(void)
{
	int			level = GetCurrentTransactionNestLevel();
	PmhashInsertQueue *queue;

	while ((queue = queues) != NULL && queue->level >= level)
	{
		queues = queue->next;
		queue->next = spare;
		spare = queue;
	}
}

static void
transaction_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			pmhash_apply_inserts();
			committing = true;
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			queues = NULL;
			spare = NULL;
			ordered = NULL;
			committing = false;
			break;
	}
}

static void
subtransaction_callback(SubXactEvent event, SubTransactionId mySubid,
						SubTransactionId parentSubid, void *arg)
{
	if (event == SUBXACT_EVENT_PRE_COMMIT_SUB)
		pmhash_apply_inserts();
	if (event == SUBXACT_EVENT_PRE_COMMIT_SUB || event == SUBXACT_EVENT_ABORT_SUB)
		release_queues();
}

static void
executor_start(QueryDesc *queryDesc, int eflags)
{
	if (queues != NULL && queryDesc->plannedstmt->parallelModeNeeded)
		pmhash_apply_inserts();
	if (previous_executor_start)
		previous_executor_start(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
}

/* Install the callbacks.  Called once, while the library is preloaded. */
void
pmhash_insert_queue_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
	RegisterSubXactCallback(subtransaction_callback, NULL);
	previous_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}
