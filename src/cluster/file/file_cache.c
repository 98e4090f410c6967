/*-------------------------------------------------------------------------
 *
 * file_cache.c
 *	  The files that this backend knows and has mapped.
 *
 * An entry stands for what the stub of an index said when it was read: which file the index
 * has.  It is found by the OID of the index and counts as long as
 *	- the index has the main fork that the stub was read from.  A main fork is
 *	  named by RelFileNode and backend: a temporary index may have the number of
 *	  a permanent one (catalog.c, GetNewRelFileNode looks for files of the same
 *	  kind only).  REINDEX and SET TABLESPACE change it, and so does their abort;
 *	- no relcache invalidation of the index has come since;
 *	- no stub has been changed in place since (stub_generation, invalid.c).
 * Else the stub is read again.  If it names the file that is mapped, that stays.
 *
 * A mapping that has been handed out stays until the end of the transaction, since users of it
 * do not say when they have finished.  A process has vm.max_map_count areas (65,530 by default)
 * for all its purposes, of which a mapping takes one, and 3 KB.  Of more than pmhash.mapped_files
 * some idle ones are unmapped, at the end of a transaction or when another comes.
 *
 * A mapping keeps the space of a file that has been removed, unless that was cut off
 * (pmhash_remove_file).  So a relcache invalidation, which comes when another file has taken
 * its place, or the index has gone, unmaps a file: at once, or at the end of the transaction
 * that uses it.  If it was another change of the index, the next use maps the file again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/standby/standby_state.h"
#include "cluster/wal/stub.h"

static HTAB *entries = NULL;	/* PmhashEntry by OID of the index */
static bool doubts = false;		/* some that this transaction uses may be not valid */
static List *replaced = NIL;	/* handles to close at end of transaction */

/*
 * Stands for this top-level transaction, and grows with each.  Files that have been handed
 * out in none have 0 for it.
 */
static uint64 transaction = 1;

/* ---- entries ---- */

/* The main fork of an index, as a key that can be compared. */
PmhashFork
pmhash_fork_of(Relation index)
{
	PmhashFork	fork;

	memset(&fork, 0, sizeof(fork));
	fork.node = pmhash_node(index);
	fork.backend = index->rd_backend;
	return fork;
}

/* Has this transaction not used the file of an entry? */
static bool
is_idle(const PmhashEntry *entry)
{
	return entry->used < transaction;
}

static void
close_file(PmhashFile *file)
{
	pmhash_dead_batch_drop(file);
	pmh_close(file->table);
	pfree(file);
}

/* Unmap the file of an entry that is idle, and forget it. */
static void
unmap(PmhashEntry *entry)
{
	Assert(is_idle(entry));
	close_file(entry->file);
	hash_search(entries, &entry->relid, HASH_REMOVE, NULL);
}

/* The stub is to be read again, and the file may have gone. */
static void
doubt(PmhashEntry *entry)
{
	entry->valid = false;
	if (is_idle(entry))
		unmap(entry);
	else
		doubts = true;
}

/* A relcache invalidation; InvalidOid: of all.  Most are of none of ours. */
static void
invalidate(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	PmhashEntry *entry = hash_search(entries, &relid, HASH_FIND, NULL);

	if (entry != NULL)
		doubt(entry);
	if (OidIsValid(relid))
		return;
	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
		doubt(entry);
}

/* The entry of an index, whether it still counts or not; NULL if there is none. */
static PmhashEntry *
find_any(Oid relid)
{
	static const HASHCTL ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(PmhashEntry)};

	if (unlikely(entries == NULL))
	{
		entries = hash_create("pmhash files", 64, &ctl, HASH_ELEM | HASH_BLOBS);
		CacheRegisterRelcacheCallback(invalidate, (Datum) 0);
	}
	return hash_search(entries, &relid, HASH_FIND, NULL);
}

/* May the file of a stub with these flags be used so?  See rebuild.c. */
bool
pmhash_stub_serves(uint16 flags, PmhashUse use)
{
	if (flags & PMHASH_STUB_INVALID)
		return false;
	if (flags & PMHASH_STUB_FILLING)
		return use == PMHASH_INSERT;
	return true;
}

/*
 * The entry of an index, if it still counts and its file may be used so; else
 * NULL, and the stub has to be read.
 */
PmhashEntry *
pmhash_entry_find(Relation index, PmhashUse use)
{
	PmhashEntry *entry = find_any(RelationGetRelid(index));
	PmhashFork	fork = pmhash_fork_of(index);

	if (entry == NULL || !entry->valid ||
		entry->file->generation != pg_atomic_read_u64(&pmhash_shared->stub_generation) ||
		memcmp(&entry->fork, &fork, sizeof(fork)) != 0 ||
		!pmhash_stub_serves(entry->stub.flags, use))
		return NULL;
	return entry;
}

/* ---- mappings ---- */

static long
n_mapped(void)
{
	return entries != NULL ? hash_get_num_entries(entries) : 0;
}

/*
 * Unmap what this transaction does not use, as long as more than 'most' are mapped.  False if
 * there was nothing.  Raises no error.
 */
bool
pmhash_entries_unmap(long most)
{
	HASH_SEQ_STATUS status;
	PmhashEntry *entry;
	long		before = n_mapped();

	if (before <= most)
		return false;
	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (is_idle(entry))
			unmap(entry);
		if (n_mapped() <= most)
		{
			hash_seq_term(&status);
			break;
		}
	}
	return n_mapped() < before;
}

/* The mapped file of an entry: it stays until the end of the transaction. */
PmhashFile *
pmhash_entry_use(PmhashEntry *entry)
{
	Assert(entry->file != NULL && entry->used <= transaction);
	entry->used = transaction;
	return entry->file;
}

/* A handle. */
static PmhashFile *
make_handle(Relation index, PmhTable *table, const PmhashStub *stub)
{
	PmhashFile *file = MemoryContextAllocZero(TopMemoryContext, sizeof(PmhashFile));
	PmhashIdentity id;

	file->table = table;
	file->file_id = stub->file_id;
	file->seed = stub->seed;
	memcpy(&id, pmh_identity(table), sizeof(id));
	memcpy(file->predicate_key, id.predicate_key, sizeof(file->predicate_key));
	file->journaled = RelationIsPermanent(index);
	file->logged = pmhash_flags_logged(stub->flags);
	file->path = pmh_path(table);
	return file;
}

/* ---- entering ---- */

/* Forget an entry; its file is closed when it can be in use no longer. */
static void
drop(PmhashEntry *entry)
{
	MemoryContext old;

	if (is_idle(entry))
	{
		unmap(entry);
		return;
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	replaced = lappend(replaced, entry->file);
	MemoryContextSwitchTo(old);
	hash_search(entries, &entry->relid, HASH_REMOVE, NULL);
}

/*
 * The file of an index, if it is mapped and is the one that this stub names; or NULL.  What
 * else is mapped for the index is forgotten.  Want of memory is an ERROR.
 */
PmhashEntry *
pmhash_entry_mapped(Relation index, const PmhashStub *stub)
{
	PmhashEntry *entry = find_any(RelationGetRelid(index));

	/* (A standby gives the same id to a file that it builds again.) */
	if (entry != NULL &&
		(entry->stub.file_id != stub->file_id ||
		 (entry->file->standby_life != 0 &&
		  entry->file->standby_life != pmhash_standby_life(stub->file_id))))
	{
		drop(entry);
		return NULL;
	}
	return entry;
}

/*
 * The stub of the index has been read, after stub_generation was 'generation', and names the
 * file of the entry, which may be used.
 */
void
pmhash_entry_confirm(PmhashEntry *entry, Relation index, const PmhashStub *stub,
					 uint64 generation)
{
	Assert(stub->file_id == entry->file->file_id && stub->file_id != 0);
	entry->valid = true;
	entry->fork = pmhash_fork_of(index);
	entry->stub = *stub;
	entry->file->filling = (stub->flags & PMHASH_STUB_FILLING) != 0;
	entry->file->filled_by = stub->filled_by;
	entry->file->generation = generation;
}

/*
 * The same for a file that has just been mapped.  It is idle unless pmhash_entry_use is
 * called for it.  ERROR closes it.
 */
PmhashEntry *
pmhash_entry_enter(Relation index, PmhTable *table, const PmhashStub *stub,
				   uint64 generation)
{
	Oid			relid = RelationGetRelid(index);
	PmhashFile *volatile file = NULL;
	PmhashEntry *volatile entry;

	Assert(stub->file_id != 0 && OidIsValid(relid));
	/* The planner maps all that it looks at: thousands of partitions in a transaction. */
	if (n_mapped() > pmhash_mapped_files)
		(void) pmhash_entries_unmap(pmhash_mapped_files / 4 * 3);
	PG_TRY();
	{
		entry = find_any(relid);
		file = make_handle(index, table, stub);
		if (entry != NULL)
			drop(entry);
		entry = hash_search(entries, &relid, HASH_ENTER, NULL);
	}
	PG_CATCH();
	{
		if (file != NULL)
			pfree(file);
		pmh_close(table);
		PG_RE_THROW();
	}
	PG_END_TRY();
	entry->file = file;
	entry->used = 0;
	pmhash_entry_confirm(entry, index, stub, generation);
	return entry;
}

/* A file has been removed: unmap it, whichever index it was mapped for. */
void
pmhash_entries_of_removed(uint64 file_id)
{
	HASH_SEQ_STATUS status;
	PmhashEntry *entry;

	if (n_mapped() == 0)
		return;
	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->stub.file_id == file_id)
			doubt(entry);
	}
}

/* ---- end of transactions ---- */

/*
 * End of a top-level transaction: unmap what was replaced or is in doubt, and what is too
 * much.  Must not raise an error.
 */
void
pmhash_entries_at_end_of_transaction(void)
{
	HASH_SEQ_STATUS status;
	PmhashEntry *entry;
	ListCell   *lc;

	transaction++;
	if (doubts)
	{
		hash_seq_init(&status, entries);
		while ((entry = hash_seq_search(&status)) != NULL)
		{
			if (!entry->valid)
				unmap(entry);
		}
		doubts = false;
	}
	foreach(lc, replaced)
		close_file(lfirst(lc));
	list_free(replaced);
	replaced = NIL;

	/* by a quarter, so that this is not to be done after each of many transactions */
	if (n_mapped() > pmhash_mapped_files)
		(void) pmhash_entries_unmap(pmhash_mapped_files / 4 * 3);
}
