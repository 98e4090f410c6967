/*-------------------------------------------------------------------------
 *
 * cluster.h
 *	  What the access method needs to know of pmhash's life in a cluster:
 *	  index files, the undo journal, the rule of removal, pseudo-pages.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_CLUSTER_H
#define PMHASH_CLUSTER_H

#include "access/amapi.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

#include "cluster/base/versions.h"
#include "engine/stop_point.h"
#include "engine/table.h"

/* What a serializable transaction has locked of its keys; see am/predicate.c. */
typedef struct PmhashKeyLocks
{
	LocalTransactionId lxid;	/* the transaction */
	int			count;			/* keys by themselves, and */
	BlockNumber last[16];		/* the pages of the last ones */
} PmhashKeyLocks;

/* What makes the hashes of a file its own; secret. */
typedef struct PmhashSeed
{
	uint64		xxh;			/* of XXH3, and of hash functions */
	uint64		key[2];			/* of the permutation after that, am/keyhash.h */
} PmhashSeed;

/*
 * An index file as this backend has it open.  Cached per backend and mapped
 * at first use; valid until the end of the transaction at least, as long as
 * the caller holds a lock on the index.
 */
typedef struct PmhashFile
{
	PmhTable   *table;			/* the engine's handle */
	uint64		file_id;		/* identity, as in the stub */
	PmhashSeed	seed;			/* of the key hash, per file */
	uint64		predicate_key[2];	/* of the pseudo-pages of predicate locks */
	PmhashKeyLocks key_locks;
	bool		journaled;		/* false for unlogged and temporary indexes */
	uint64		standby_life;	/* opened on a standby: which file of this id */
	bool		filling;		/* was being filled when it was opened; see
								 * pmhash_insert_failed */
	uint64		filled_by;		/* as in the stub */
	uint64		generation;		/* stub_generation before that was read */
	bool		logged;			/* its changes are, see logged.c */
	const char *path;			/* the engine's, for messages */
} PmhashFile;

/* ---- counters ---- */

/* What is counted, in the order of the columns of pmhash.stat. */
typedef enum PmhashCounter
{
	PMHASH_LOOKUPS,				/* keys looked up alone */
	PMHASH_GROUP_LOOKUPS,		/* groups of keys looked up together ... */
	PMHASH_GROUP_KEYS,			/* ... and how many keys they had */
	PMHASH_FULL_SCANS,			/* scans of a whole index */
	PMHASH_TABLE_SCANS,			/* of its table instead: it was invalid */
	PMHASH_INSERTS,				/* entries inserted alone */
	PMHASH_GROUP_INSERTS,		/* groups of entries inserted together ... */
	PMHASH_GROUP_ENTRIES,		/* ... and how many entries they had */
	PMHASH_VACUUM_REMOVED,		/* entries that VACUUM has removed */
	PMHASH_SCAN_REMOVED,		/* and scans that have met them */
	PMHASH_JOURNAL_WAITS,		/* inserts that have flushed WAL for room */
	PMHASH_INVALIDATIONS,		/* marked as invalid while in use */
	PMHASH_REBUILDS,			/* in the background, complete */
	PMHASH_REBUILD_FAILURES,
	PMHASH_LOCK_WAITS,			/* for one of the engine, past a spin */
	PMHASH_NCOUNTERS
} PmhashCounter;

/* Counted by this process, and not yet added to what all see; see shared.c. */
typedef struct PmhashCounts
{
	bool		any;
	uint64		n[PMHASH_NCOUNTERS];
} PmhashCounts;

extern PmhashCounts pmhash_counts;

extern void pmhash_counts_flush(void);

static inline void
pmhash_count(PmhashCounter counter, uint64 n)
{
	pmhash_counts.n[counter] += n;
	pmhash_counts.any = true;
}

/* What rd_options of a pmhash index points to; see handler.c. */
typedef enum PmhashWalOption
{
	PMHASH_WAL_BY_DEFAULT,		/* as pmhash.wal says */
	PMHASH_WAL_ON,
	PMHASH_WAL_OFF
} PmhashWalOption;

typedef struct PmhashOptions
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			fillfactor;
	PmhashWalOption wal;
} PmhashOptions;

/* ---- why an index is invalid; stands in stubs, so never renumber ---- */

typedef enum PmhashReason
{
	PMHASH_REASON_NONE = 0,
	PMHASH_REASON_NO_STUB = 1,
	PMHASH_REASON_MISSING = 2,
	PMHASH_REASON_DAMAGED = 3,
	PMHASH_REASON_UNREADABLE = 4,
	PMHASH_REASON_VERSION = 5,
	PMHASH_REASON_OTHER_CLUSTER = 6,
	PMHASH_REASON_OTHER_DATABASE = 7,
	PMHASH_REASON_OTHER_INDEX = 8,
	PMHASH_REASON_APART = 9,
	PMHASH_REASON_POWER = 10,
	PMHASH_REASON_DISABLED = 11,
	PMHASH_REASON_OUTDATED = 12,
	PMHASH_REASON_FILLING = 13,
	PMHASH_REASON_EMPTIED = 14,
	PMHASH_REASON_MOVED = 15,
	PMHASH_REASON_WRITE_FAILED = 16,
	PMHASH_REASON_START_DIED = 17,
	PMHASH_REASON_NOT_LOGGED = 18,	/* from here on of a standby, and in no stub */
	PMHASH_REASON_NOT_BUILT = 19
} PmhashReason;

/* ---- init.c ---- */

/* Fills the file of an index while others insert into it; see rebuild.c. */
typedef void (*PmhashFillFunction) (Relation heap, Relation index,
									struct IndexInfo *indexInfo,
									PmhashFile *file);

/*
 * Set everything up; called once from _PG_init.  build is the ambuild
 * callback of our access method: it distinguishes our indexes from others; fill
 * is what rebuilds call.  Does nothing but remember them unless
 * shared_preload_libraries is being loaded.
 */
extern void pmhash_cluster_init(ambuild_function build, PmhashFillFunction fill);

extern bool pmhash_is_interrupted(void);

/* ---- startup.c ---- */

extern void pmhash_startup_init(void);

/* ---- gucs.c ---- */
extern char *pmhash_directory;	/* as set; empty: the default */
extern int	pmhash_journal_size;	/* kB */
extern int	pmhash_cleaner_naptime;	/* seconds */
extern int	pmhash_warm_up;			/* MB, -1: what memory there is */
extern bool pmhash_rebuild;		/* rebuild invalid indexes? */
extern bool pmhash_group_insert;	/* may entries be queued? */
extern bool pmhash_vacuum_shrink;	/* does VACUUM give space back? */
extern bool pmhash_enable_join; /* may the planner use src/join? */
extern bool pmhash_enable_pagescan; /* and the scans there? */
extern bool pmhash_wal;			/* are indexes logged that do not say? */
extern int	pmhash_mapped_files;	/* that a session keeps mapped */

/* ---- pool_life.c ---- */

/*
 * ERROR with the hint unless the library was preloaded, the pool is usable
 * and the server is not in recovery.  Every entry from SQL calls it, directly
 * or through pmhash_file_open/create.  index is for the message and may be
 * NULL.  Completes the undo of the last server life if that has not been done
 * yet.
 */
extern void pmhash_require_service(Relation index);

/* The same as a question, for the planner.  No ERROR, no waiting. */
extern bool pmhash_service_available(void);

/* ---- file_open.c ---- */

/*
 * The open file of an index.  Reads the stub, maps the file, checks that they
 * belong together (recovering it if this is the first open in this server
 * life).  ERROR if there is no usable file: the message names index and file,
 * the hint says whether it is rebuilt in the background (pmhash_rebuild_hint).
 */
extern PmhashFile *pmhash_file_open(Relation index, Snapshot snapshot);

/*
 * The same for callers that may leave an invalid index alone, which are inserts
 * and VACUUM: NULL if the index is invalid.  Before that it is marked so in its
 * stub for good, in front of whatever the transaction writes to WAL afterwards;
 * so the file will not be used again before it has been rebuilt, for which the
 * rebuild waits until this transaction is over.  The caller holds
 * RowExclusiveLock or ShareUpdateExclusiveLock on the table, and keeps it.
 * ERROR if the index cannot be opened for a reason that may pass, as want of
 * memory; and for inserts if it enforces a constraint or is temporary.
 */
extern PmhashFile *pmhash_file_open_or_skip(Relation index, bool inserting);

/*
 * The same for a scan, which may have another way: NULL if the index is
 * invalid.  It has then been marked as such, and plans that use it are made
 * anew.
 */
extern PmhashFile *pmhash_file_open_for_scan(Relation index, Snapshot snapshot);

/* The ERROR for such an index, if there is no other way. */
pg_noreturn extern void pmhash_invalid_error(Relation index);

/*
 * The id of the file that the index's stub names; whether it is there or valid is not looked
 * at.  0: there is no such stub, or pmhash is disabled.  The caller holds a lock on the index.
 */
extern uint64 pmhash_index_file(Relation index);

/*
 * Bytes of the index file, without opening it in the engine; 0 if there is none.  False,
 * and 0, if that cannot be known: pmhash is disabled, or the file cannot be looked at.
 */
extern bool pmhash_file_size(Relation index, int64 *bytes);

/* ---- file_create.c ---- */

/*
 * Make a new file for an index being built, and its WAL-logged stub page in
 * the main fork.  Removed again if the (sub)transaction aborts.  The file
 * that the same main fork had before, if any, goes at the end of transaction.
 */
extern PmhashFile *pmhash_file_create(Relation index);

/* ---- life_cycle.c ---- */
extern uint64 pmhash_made_for(Relation index);

/* ---- file_create.c ---- */

/* Write the stub of an unlogged index's init fork: invalid, as what it is after a crash. */
extern void pmhash_file_create_init(Relation index);

/* ---- invalid.c ---- */

/*
 * Mark an index as invalid because its file is found to be damaged, unless it
 * has another file by now or is temporary.  This stays, and is flushed, even
 * if the transaction aborts.  pmhash_engine_error does it for errors that say
 * so.  The caller holds a lock on the index; not during recovery.
 */
extern void pmhash_index_invalidate(Relation index, const PmhashFile *file,
									PmhashReason reason);

/*
 * The same for an open file of which the engine says that it has been removed
 * (PMH_ERR_NO_FILE), unless the whole pool has: that may come back.
 */
extern void pmhash_index_lost_file(Relation index, const PmhashFile *file);

/*
 * May entries of heap's rows be made in the open file of one of its indexes?  Not if this
 * transaction may give the table back files that it had before, and not the index: then
 * the index has been marked as invalid.  ERROR if it enforces a constraint or is
 * temporary.  To be asked once a statement, and again whenever pmhash_node_subid(heap) or
 * pmhash_fork_subid(heap) have changed, if the former is a level.
 */
extern bool pmhash_may_insert(Relation heap, Relation index, const PmhashFile *file);
extern void pmhash_require_not_moved(Relation index);

/* Raise the ERROR for a failed engine call on file. */
pg_noreturn extern void pmhash_engine_error(Relation index, PmhashFile *file,
											PmhResult result);

/* The same for a file that a standby is making (standby_build.c). */
pg_noreturn extern void pmhash_standby_engine_error(const PmhashFile *file,
													PmhResult result);

/*
 * The same for an insert, which must not fail because of a file that is only
 * being filled, or has been removed: then it marks the index as invalid and
 * returns, and what was to be inserted into this file needs not be.  (Constraints
 * and temporary indexes get the ERROR.)
 */
extern void pmhash_insert_failed(Relation index, PmhashFile *file,
								 PmhResult result);

/* ---- relations.c ---- */

extern Buffer pmhash_buffer_of(PmhashNode node, BlockNumber block);

/* ---- invalid.c ---- */

/* What to do about an invalid index: an errhint. */
extern const char *pmhash_rebuild_hint(Relation index);

/* ---- databases.c ---- */

/*
 * May this user see where the index's file is, and what may reveal its rows?  InvalidOid:
 * what is of no index.
 */
extern bool pmhash_may_see_details(Oid index);

/* ---- control_file.c ---- */

/* A path in the pool from there on, for messages: where that is, not all users may see. */
extern const char *pmhash_shown_path(const char *path);

/* ---- undo_journal.c ---- */

/*
 * Note that (hash, value) pairs are about to become durable in file before
 * the WAL of their heap tuples is.  Stored and flushed, not fenced: call
 * pmh_insert with fence_first.  May flush WAL if the ring is full of records
 * that are not flushed yet.
 */
extern void pmhash_journal_note(PmhashFile *file, const PmhEntry *entries,
								int n);

/* ---- removal.c ---- */

extern void pmhash_removal_barrier(XLogRecPtr end);
extern uint64 pmhash_removal_epoch(const PmhashFile *file);
extern bool pmhash_removal_none_since(const PmhashFile *file, uint64 epoch);
extern void pmhash_removal_finished(uint64 file_id);
extern void pmhash_queue_opened(uint64 file_id);
extern void pmhash_queue_closed(uint64 file_id);
extern bool pmhash_any_queue(const PmhashFile *file);

/* ---- dead_entries.c ---- */

#define PMHASH_DEAD_MAX		16384	/* entries at most per call */

extern void pmhash_dead_entries(Relation index, PmhashFile *file, uint64 epoch,
								const PmhEntry *entries, int n);
extern void pmhash_dead_entries_settle(Relation index, PmhashFile *file);

/* ---- dead_list.c ---- */

extern bool pmhash_known_dead(const PmhashFile *file, uint64 value);
extern size_t pmhash_drop_known_dead(const void *file, uint64_t *value, size_t n);
extern bool pmhash_any_known_dead(const PmhashFile *file);

/* ---- files_view.c ---- */
extern char *pmhash_shown_state(Oid relid);

#endif							/* PMHASH_CLUSTER_H */
