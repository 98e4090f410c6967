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
 * for all its purposes, of which a mapping takes one, and 3 KB.  So if there are more than
 * pmhash.mapped_files at the end of a transaction some are unmapped, whichever come first.
 *
 * A mapping keeps the space of a file that has been removed, unless that was cut off
 * (pmhash_remove_file).  So a relcache invalidation, which comes when another file has taken
 * its place, unmaps one that has gone: at once, or at the end of the transaction that has
 * used it.  An index that has handed its main fork to another (tablecmds.c, TryReuseIndex)
 * has no more invalidations; then it is that of its table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/standby/standby_state.h"
#include "cluster/wal/stub.h"

static HTAB *entries = NULL;	/* PmhashEntry by OID of the index */

static int	mapped = 0;			/* how many have a file */
static bool doubts = false;		/* some entries may be mapped and not valid */
static List *replaced = NIL;	/* handles to close at end of transaction */
static List *handed_out = NIL;	/* indexes whose files this transaction has been given */

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

/* Has a file that is mapped been removed? */
bool
pmhash_file_is_gone(const PmhashFile *file)
{
	struct stat st;

	return stat(file->path, &st) != 0 && errno == ENOENT;
}

static void
close_file(PmhashFile *file)
{
	pmhash_dead_batch_drop(file);
	pmh_close(file->table);
	pfree(file);
}

/* Take the mapping out of an entry. */
static PmhashFile *
take_file(PmhashEntry *entry)
{
	PmhashFile *file = entry->file;

	Assert(entry->file != NULL);
	mapped--;
	entry->file = NULL;
	return file;
}

/* Unmap the file of an entry that is idle.  One that is not valid goes. */
static void
unmap(PmhashEntry *entry)
{
	Assert(is_idle(entry));
	close_file(take_file(entry));
	if (!entry->valid)
		hash_search(entries, &entry->relid, HASH_REMOVE, NULL);
}

/*
 * The stub is to be read again.  An entry without a mapping is worth nothing then, nor is a
 * mapping of a file that has gone.
 */
static void
doubt(PmhashEntry *entry)
{
	entry->valid = false;
	if (entry->file == NULL)
		hash_search(entries, &entry->relid, HASH_REMOVE, NULL);
	else if (is_idle(entry) && pmhash_file_is_gone(entry->file))
		unmap(entry);
	else
		doubts = true;
}

/*
 * A relcache invalidation: the entry of that index must look at its stub again, or those
 * of that table that are in doubt.  InvalidOid: of all.  Most are of none of ours.
 */
static void
invalidate(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	PmhashEntry *entry = hash_search(entries, &relid, HASH_FIND, NULL);

	if (entry != NULL)
		doubt(entry);
	if (entry != NULL || (OidIsValid(relid) && !doubts))
		return;
	doubts = false;
	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (!OidIsValid(relid) || (!entry->valid && entry->heap == relid))
			doubt(entry);
		else
			doubts |= !entry->valid;
	}
}

static void
make_table(void)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(PmhashEntry);
	entries = hash_create("pmhash files", 64, &ctl, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(invalidate, (Datum) 0);
}

/* The entry of an index, whether it still counts or not; NULL if there is none. */
static PmhashEntry *
find_any(Oid relid)
{
	if (unlikely(entries == NULL))
		make_table();
	return hash_search(entries, &relid, HASH_FIND, NULL);
}

/* Has the index the main fork that the stub of this entry was read from? */
static inline bool
same_fork(const PmhashEntry *entry, Relation index)
{
	PmhashFork	fork = pmhash_fork_of(index);

	return memcmp(&entry->fork, &fork, sizeof(fork)) == 0;
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

	if (entry == NULL || !entry->valid ||
		entry->generation != pg_atomic_read_u64(&pmhash_shared->stub_generation) ||
		!same_fork(entry, index) || !pmhash_stub_serves(entry->stub.flags, use))
		return NULL;
	return entry;
}

/* ---- mappings ---- */

/*
 * Unmap what this transaction does not use, as long as more than 'most' are mapped.  False if
 * there was nothing.  Raises no error.
 */
bool
pmhash_entries_unmap(int most)
{
	HASH_SEQ_STATUS status;
	PmhashEntry *entry;
	int			before = mapped;

	if (mapped <= most)
		return false;
	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->file != NULL && is_idle(entry))
			unmap(entry);
		if (mapped <= most)
		{
			hash_seq_term(&status);
			break;
		}
	}
	return mapped < before;
}

/* The mapped file of an entry: it stays until the end of the transaction. */
PmhashFile *
pmhash_entry_use(PmhashEntry *entry)
{
	Assert(entry->file != NULL);
	if (unlikely(entry->used != transaction))
	{
		MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

		handed_out = lappend_oid(handed_out, entry->relid);
		entry->used = transaction;
		MemoryContextSwitchTo(old);
	}
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
	file->filling = (stub->flags & PMHASH_STUB_FILLING) != 0;
	file->filled_by = stub->filled_by;
	file->logged = pmhash_flags_logged(stub->flags);
	file->path = pmh_path(table);
	return file;
}

/* ---- entering ---- */

/* Take the mapping from an entry, and close it when it can be in use no longer. */
static void
drop_file(PmhashEntry *entry)
{
	MemoryContext old;

	Assert(entry->file != NULL);
	if (entry->used == transaction)
	{
		old = MemoryContextSwitchTo(TopMemoryContext);
		replaced = lappend(replaced, entry->file);
		MemoryContextSwitchTo(old);
		(void) take_file(entry);
	}
	else
		close_file(take_file(entry));
}

/*
 * The stub of the index has been read, after stub_generation was 'generation':
 * note what it says.  What is mapped stays if it is the file that the stub names.
 * Want of memory is an ERROR.
 */
PmhashEntry *
pmhash_entry_confirm(Relation index, const PmhashStub *stub, uint64 generation)
{
	Oid			relid = RelationGetRelid(index);
	PmhashEntry *entry = find_any(relid);
	bool		found;

	Assert(stub->file_id != 0);
	if (entry != NULL && entry->file != NULL && entry->stub.file_id != stub->file_id)
		drop_file(entry);
	entry = hash_search(entries, &relid, HASH_ENTER, &found);
	if (!found)
	{
		memset(entry, 0, sizeof(*entry));
		entry->relid = relid;
	}
	entry->heap = index->rd_index->indrelid;
	entry->fork = pmhash_fork_of(index);
	entry->stub = *stub;
	if (entry->file != NULL)
	{
		entry->file->filling = (stub->flags & PMHASH_STUB_FILLING) != 0;
		entry->file->filled_by = stub->filled_by;
		entry->file->generation = generation;
	}
	entry->generation = generation;
	entry->valid = true;
	return entry;
}

/*
 * The same for a file that has just been mapped.  It is idle unless pmhash_entry_use is
 * called for it.  ERROR closes it.
 */
PmhashEntry *
pmhash_entry_enter(Relation index, PmhTable *table, const PmhashStub *stub,
				   uint64 generation)
{
	PmhashFile *volatile file = NULL;
	PmhashEntry *volatile entry = NULL;

	PG_TRY();
	{
		file = make_handle(index, table, stub);
		entry = pmhash_entry_confirm(index, stub, generation);
		if (entry->file != NULL)
			drop_file(entry);
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
	file->generation = generation;
	entry->used = 0;
	mapped++;
	return entry;
}

/* A file has been removed: unmap it, whichever index it was mapped for. */
void
pmhash_entries_of_removed(uint64 file_id)
{
	HASH_SEQ_STATUS status;
	PmhashEntry *entry;

	if (mapped == 0)
		return;
	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->file != NULL && entry->stub.file_id == file_id)
			doubt(entry);
	}
}

/* The id of the file noted for the main fork that the index has; 0: none. */
uint64
pmhash_entry_in_fork(Relation index)
{
	PmhashEntry *entry = find_any(RelationGetRelid(index));

	return entry != NULL && same_fork(entry, index) ? entry->stub.file_id : 0;
}

/* This file as it is mapped for this index, or NULL. */
const PmhashFile *
pmhash_entry_mapped(Oid relid, uint64 file_id)
{
	PmhashEntry *entry = find_any(relid);

	if (entry == NULL || entry->file == NULL || entry->stub.file_id != file_id)
		return NULL;

	/* A standby gives the same id to a file that it builds again. */
	if (entry->file->standby_life != 0 &&
		entry->file->standby_life != pmhash_standby_life(file_id))
	{
		drop_file(entry);
		return NULL;
	}
	return entry->file;
}

/* ---- end of transactions ---- */

/*
 * End of a top-level transaction: unmap what was replaced or removed, and what
 * is too much.  Must not raise an error.
 */
void
pmhash_entries_at_end_of_transaction(void)
{
	ListCell   *lc;

	transaction++;
	foreach(lc, handed_out)
	{
		PmhashEntry *entry = find_any(lfirst_oid(lc));

		if (entry != NULL && entry->file != NULL && !entry->valid &&
			pmhash_file_is_gone(entry->file))
			unmap(entry);
	}
	handed_out = NIL;
	foreach(lc, replaced)
		close_file(lfirst(lc));
	list_free(replaced);
	replaced = NIL;

	/* by a quarter, so that this is not to be done after each of many transactions */
	if (mapped > pmhash_mapped_files)
		(void) pmhash_entries_unmap(pmhash_mapped_files / 4 * 3);
}
