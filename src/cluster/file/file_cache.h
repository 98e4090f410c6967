/*-------------------------------------------------------------------------
 *
 * file_cache.h
 *	  The files that a backend knows and has mapped.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FILE_CACHE_H
#define PMHASH_FILE_CACHE_H

#include "lib/ilist.h"

#include "cluster/file/mappings.h"
#include "cluster/wal/stub.h"

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
	bool		suspect;		/* in the list of those to be looked after: it may be gone */
	PmhashFork	fork;			/* that the stub was read from */
	uint64		generation;		/* stub_generation before that */
	uint64		file_id;		/* that it named */
	uint16		flags;			/* that it had */
	PmhashSeed	seed;			/* that it had */
	uint64		filled_by;		/* that it had */
	PmhashFile *file;			/* NULL: not mapped just now */
	uint64		used;			/* the last transaction it was handed out in */
	PmhashMapping mapping;		/* if mapped */
	dlist_node	look;			/* if suspect */
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
extern PmhashFile *pmhash_entry_use_for_build(PmhashEntry *entry);
extern PmhashEntry *pmhash_entry_confirm(Relation index, const PmhashStub *stub,
										 uint64 generation);
extern PmhashEntry *pmhash_entry_enter(Relation index, PmhTable *table,
									   const PmhashStub *stub, uint64 generation);
extern bool pmhash_entries_make_room(void);
extern void pmhash_entry_doubt(Oid relid);
extern uint64 pmhash_entry_in_fork(Relation index);
extern const PmhashFile *pmhash_entry_mapped(Oid relid, uint64 file_id);
extern bool pmhash_file_is_gone(const PmhashFile *file);
extern void pmhash_entries_at_end_of_transaction(void);

#endif							/* PMHASH_FILE_CACHE_H */
