/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  aminsert: one entry into the table, journalled.
 *
 * What one statement needs again and again (open file, key functions, a
 * scratch context) is kept in indexInfo->ii_AmCache.  From make_entry() on an
 * entry is a (hash, value) pair and nothing else, so that entries can wait in
 * a queue between the two steps (group insert) without their rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/execnodes.h"
#include "storage/predicate.h"
#include "utils/memutils.h"

#include "am.h"

typedef struct PmhashInsertState
{
	PmhashFile *file;
	PmhashKeys *keys;
	MemoryContext scratch;		/* what hashing a key may allocate */
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
	state->file = pmhash_file_open(index);
	state->keys = pmhash_keys_make(index, state->file->seed);
	state->scratch = AllocSetContextCreate(indexInfo->ii_Context,
										   "pmhash insert",
										   ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(old);

	indexInfo->ii_AmCache = state;
	return state;
}

/*
 * Hash one row's values into *entry.  False if the row is not indexed.
 * Hash functions may allocate and the caller's context may live as long as
 * the statement, hence the scratch context.
 */
static bool
make_entry(PmhashInsertState *state, const Datum *values, const bool *isnull,
		   ItemPointer tid, PmhEntry *entry)
{
	MemoryContext old = MemoryContextSwitchTo(state->scratch);
	uint64		hash;
	bool		indexed;

	indexed = pmhash_keys_hash(state->keys, values, isnull, &hash);
	MemoryContextSwitchTo(old);
	MemoryContextReset(state->scratch);

	entry->hash = hash;
	entry->value = pmhash_tid_to_value(tid);
	return indexed;
}

/* Make an entry durable, after its undo record if the file is journalled. */
static void
insert_entry(Relation index, PmhashFile *file, const PmhEntry *entry)
{
	PmhResult	result;

	if (file->journaled)
		pmhash_journal_note(file, entry, 1);

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
 * ERROR if the file cannot be used or is full; the row is then not indexed
 * and the transaction is to abort.  Takes no lock but the engine's.
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

	if (!make_entry(state, values, isnull, tid, &entry))
		return false;

	insert_entry(index, state->file, &entry);
	CheckForSerializableConflictIn(index, NULL,
								   pmhash_predicate_block(entry.hash));
	return false;
}
