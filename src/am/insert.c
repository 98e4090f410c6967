/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  aminsert: one entry into the table, journalled.
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

#include "am.h"

/* Short statements gain nothing by a queue. */
#define QUEUE_AFTER		16

typedef struct PmhashInsertState
{
	PmhashFile *file;			/* NULL: the index is invalid, skip it */
	PmhashKeys *keys;
	PmhashInsertQueue *queue;	/* NULL: insert at once */
	int			inserted;		/* entries, up to QUEUE_AFTER */
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

/* Does the next entry of this statement go to the queue? */
static inline bool
is_queued(PmhashInsertState *state, Relation index)
{
	if (likely(state->queue != NULL))
		return true;
	if (state->inserted < QUEUE_AFTER && ++state->inserted == QUEUE_AFTER)
		state->queue = pmhash_insert_queue(index, state->file);
	return false;
}

/* Make an entry durable, after its undo record if the file is journalled. */
static void
insert_entry(Relation index, PmhashFile *file, const PmhEntry *entry)
{
	PmhResult	result;

	if (file->journaled)
		pmhash_journal_note(file, entry, 1);

	PMH_STOP_POINT("insert_after_journal");
	result = pmh_insert(file->table, entry->hash, entry->value,
						file->journaled);
	if (result != PMH_OK)
		pmhash_engine_error(index, file, result);
}

/*
 * aminsert: index the row at tid.
 *
 * Always returns false: uniqueness is never checked here (amcanunique is
 * false; exclusion constraints are checked by the executor afterwards).
 * ERROR if the file is full or can't be opened for the moment; the row is then
 * not indexed and the transaction is to abort.  Into an invalid index nothing
 * is inserted; its rebuild waits for our transaction and finds the row, which
 * is why the choice is made anew for each statement (and nobody makes it while
 * a rebuild is under way).  Takes no lock but the engine's.
 *
 * A serializable reader locks its key's pseudo-page first and reads then; we
 * insert first and look for such locks then.  So one of us always sees the
 * other: if the reader did not see the entry, its lock was there before we
 * looked; if it did, it visits the heap tuple and finds the conflict there.
 * (btree and hash can check first because reader and writer meet in a buffer
 * lock, which we do not have.)
 */
bool
pmhash_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid,
			  Relation heap, IndexUniqueCheck checkUnique,
			  bool indexUnchanged, struct IndexInfo *indexInfo)
{
	PmhashInsertState *state = insert_state(index, indexInfo);
	PmhEntry	entry;
	uint64		hash;

	if (unlikely(state->file == NULL))
	{
		/* Serializable readers have had their locks moved to the table. */
		CheckForSerializableConflictIn(heap, NULL, InvalidBlockNumber);
		return false;
	}
	if (!pmhash_keys_hash(state->keys, values, isnull, &hash))
		return false;

	entry.hash = hash;
	entry.value = pmhash_tid_to_value(tid);
	if (is_queued(state, index))
	{
		pmhash_enqueue_insert(state->queue, &entry);
		return false;
	}
	insert_entry(index, state->file, &entry);
	PMH_STOP_POINT("insert_before_conflict_check");
	CheckForSerializableConflictIn(index, NULL,
								   pmhash_predicate_block(hash));
	return false;
}
