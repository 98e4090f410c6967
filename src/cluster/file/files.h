/*-------------------------------------------------------------------------
 *
 * files.h
 *	  The files that a process knows and has mapped; which entries are known to be dead; files
 *	  follow the transactions and sessions that make and drop them.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FILES_H
#define PMHASH_FILES_H

#include "cluster/cluster.h"
#include "cluster/wal/stub.h"
#include "engine/table.h"

/* ---- file_cache.c ---- */

/* A main fork: number and, for temporary relations, backend. */
typedef struct PmhashFork
{
	PmhashNode	node;
	int			backend;
} PmhashFork;

/* What this backend knows of the file of an index; see file_cache.c. */
typedef struct PmhashEntry
{
	Oid			relid;			/* of the index: the key */
	bool		valid;			/* no invalidation since the stub was read */
	PmhashFork	fork;			/* that the stub was read from */
	PmhashStub	stub;			/* as it was */
	PmhashFile *file;			/* mapped */
	uint64		used;			/* the last transaction it was handed out in */
} PmhashEntry;

/* What an index is opened for. */
typedef enum PmhashUse
{
	PMHASH_READ,
	PMHASH_INSERT,
	PMHASH_REMOVE				/* by VACUUM */
} PmhashUse;

extern bool pmhash_stub_serves(uint16 flags, PmhashUse use);
extern PmhashFork pmhash_fork_of(Relation index);
extern PmhashEntry *pmhash_entry_find(Relation index, PmhashUse use);
extern PmhashFile *pmhash_entry_use(PmhashEntry *entry);
extern PmhashEntry *pmhash_entry_mapped(Relation index, const PmhashStub *stub);
extern void pmhash_entry_confirm(PmhashEntry *entry, Relation index,
								 const PmhashStub *stub, uint64 generation);
extern PmhashEntry *pmhash_entry_enter(Relation index, PmhTable *table,
									   const PmhashStub *stub, uint64 generation);
extern bool pmhash_entries_unmap(long most);
extern void pmhash_entries_of_removed(uint64 file_id);
extern void pmhash_entries_at_end_of_transaction(void);

/* ---- dead_list.c ---- */

/* What waits in the list of a file at some moment. */
typedef struct PmhashDeadWaiting
{
	int			n;				/* entries, at least one */
	int64		since;			/* when the first was noted; pmhash_clock_ms */
	XLogRecPtr	first;			/* what it waits for */
	XLogRecPtr	last;			/* what the last one waits for */
} PmhashDeadWaiting;

/* What a session has taken out of a file's list, and is removing of that file. */
typedef struct PmhashDeadBatch
{
	PmhashFile *file;
	uint64		epoch;			/* removal epoch of the entries' reading */
	PmhRemoval	removal;
	int			n;
	PmhEntry	entry[FLEXIBLE_ARRAY_MEMBER];	/* known to be dead as long as it is there */
} PmhashDeadBatch;

extern Size pmhash_dead_lists_size(void);
extern void pmhash_dead_lists_init(void);
extern int	pmhash_dead_list_room(const PmhashFile *file, uint64 epoch);
extern void pmhash_dead_list_add(const PmhashFile *file, uint64 epoch,
								 XLogRecPtr end, const PmhEntry *entries, int n);
extern bool pmhash_dead_list_look(const PmhashFile *file, PmhashDeadWaiting *waiting);
extern int	pmhash_dead_list_take(const PmhashFile *file,
								  XLogRecPtr flushed, XLogRecPtr *noted,
								  PmhEntry *entries, int room, uint64 *epoch);

extern PmhashDeadBatch *pmhash_dead_batch(const PmhashFile *file);
extern void pmhash_dead_batch_keep(PmhashDeadBatch *batch);
extern void pmhash_dead_batch_drop(const PmhashFile *file);

/* ---- life_cycle.c ---- */
extern void pmhash_note_drop(Oid relid, bool concurrently);
extern void pmhash_note_database(Oid database);
extern void pmhash_pending_create(uint64 file_id, Relation index);
extern void pmhash_pending_keep(uint64 file_id);
extern bool pmhash_goes_with_table(uint64 file_id, Relation heap);
extern void pmhash_fork_replaced(Relation index);
extern void pmhash_visit_at_commit(Oid database);
extern void pmhash_files_before_commit(void);
extern void pmhash_files_committed(void);
extern void pmhash_files_prepared(void);
extern void pmhash_files_aborted(SubTransactionId subid);
extern void pmhash_files_to_parent(SubTransactionId subid, SubTransactionId parent);
extern void pmhash_remove_file(Oid database, uint64 file_id, bool cut_off);

#endif							/* PMHASH_FILES_H */
