/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  aminsert: one entry into the index file, journalled.
 *
 * What one statement needs again and again (open file, key functions) is
 * kept in indexInfo->ii_AmCache.  Once its key is hashed an entry is a (hash,
 * value) pair and nothing else.  The first entries of a statement are inserted
 * at once; from then on they are queued and inserted in groups, where that is
 * allowed (insert_queue.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/execnodes.h"
#include "storage/predicate.h"

#include "cluster/logged.h"

#include "am.h"
#include "insert_queue.h"
#include "keys.h"
#include "predicate.h"
#include "unique.h"

/* Short statements gain nothing by a queue. */
#define QUEUE_AFTER		16

typedef struct PmhashInsertState
{
	PmhashFile *file;			/* NULL: the index is invalid, skip it */
	PmhashKeys *keys;
	PmhashInsertQueue *queue;	/* NULL: insert at once */
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
 * Has this transaction given the table other files since the last row?  Two loads a
 * row, as a function of the statement may do it (ALTER TABLE ALL IN TABLESPACE).
 */
static inline void
look_at_table(PmhashInsertState *state, Relation index, Relation heap)
{
	if (likely(pmhash_node_subid(heap) == state->node_subid &&
			   pmhash_fork_subid(heap) == state->fork_subid))
		return;
	if (state->file != NULL && !pmhash_may_insert(heap, index, state->file))
		state->file = NULL;
	state->node_subid = pmhash_node_subid(heap);
	state->fork_subid = pmhash_fork_subid(heap);
}

/*
 * The queue for the next entry of this statement, or NULL: insert it at once.
 * The statement may have begun subtransactions since its last row, and ended
 * them.
 */
static inline PmhashInsertQueue *
queue_for(PmhashInsertState *state, Relation index, Relation heap,
		  IndexInfo *indexInfo)
{
	if (unlikely(state->inserted < QUEUE_AFTER))
	{
		if (++state->inserted == QUEUE_AFTER)
			state->may_queue = pmhash_may_queue(heap, index, indexInfo);
		return NULL;
	}
	if (!state->may_queue)
		return NULL;
	if (unlikely(state->generation != pmhash_queue_generation))
	{
		state->queue = pmhash_insert_queue(heap, state->file);
		state->generation = pmhash_queue_generation;
	}
	return state->queue;
}

/*
 * Make an entry durable, after its undo record if the file is journalled, and
 * before its record in WAL if it is logged.
 */
static void
insert_entry(Relation index, PmhashFile *file, const PmhEntry *entry)
{
	PmhResult	result;
	size_t		done;

	if (file->journaled)
		pmhash_journal_note(file, entry, 1);

	PMH_STOP_POINT("insert_after_journal");
	if (file->logged)
		result = pmhash_insert_and_log(file, entry, 1, &done);
	else
		result = pmh_insert(file->table, entry->hash, entry->value,
							file->journaled);
	pmhash_count(file, PMHASH_INSERTS, 1);
	if (result != PMH_OK)
		pmhash_insert_failed(index, file, result);
}

/* Is a column of the key NULL?  Such a key is equal to none. */
static bool
has_null(const PmhashKeys *keys, const bool *isnull)
{
	for (int i = 0; i < keys->ncolumns; i++)
	{
		if (isnull[i])
			return true;
	}
	return false;
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
 * once?  A key with a NULL is equal to none.  (Exclusion constraints are checked by
 * the executor afterwards.)
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
	PmhashInsertQueue *queue;
	PmhEntry	entry;
	uint64		hash;

	look_at_table(state, index, heap);
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
	if (checkUnique != UNIQUE_CHECK_NO && !has_null(state->keys, isnull))
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
		pmhash_enqueue_insert(queue, &entry);
		return true;
	}
	insert_entry(index, state->file, &entry);
	check_conflicts(index, heap, state, hash);
	return true;
}
