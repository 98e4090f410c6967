/*-------------------------------------------------------------------------
 *
 * internal.h
 *	  Private to the cluster layer: the pool, shared memory, stub pages,
 *	  identities.
 *
 * Include postgres.h first.  src/README, part II, explains how these parts
 * play together.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_CLUSTER_INTERNAL_H
#define PMHASH_CLUSTER_INTERNAL_H

#include <inttypes.h>
#include <sys/stat.h>

#include "access/xlogdefs.h"
#include "catalog/pg_control.h"
#include "datatype/timestamp.h"
#include "lib/ilist.h"
#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#include "cluster/cluster.h"

/* how 64-bit ids look in file names and messages */
#define PMHASH_ID_FORMAT	"%016" PRIx64

/* ---- control file: <pool>/control, rewritten whole (durable.c) ---- */

#define PMHASH_CONTROL_MAGIC	UINT64CONST(0x4c525443484d50ff)
#define PMHASH_POOL_VERSION		2
#define PMHASH_NONCE_SIZE		16
#define PMHASH_BOOT_ID_SIZE		48
#define PMHASH_REASON_SIZE		512

typedef enum PmhashPoolState
{
	PMHASH_POOL_RUNNING = 1,	/* a server runs on it, or died */
	PMHASH_POOL_CLEAN = 2		/* shut down, everything synced */
} PmhashPoolState;

/*
 * Eras are the way to distrust files durably and at once: a file carries the
 * eras of its birth, and counts only while the control file still has them.
 * Doubt about everything renews both; an unclean reboot renews that of the
 * files that lived in page cache.
 */
typedef struct PmhashControl
{
	uint64		magic;
	uint32		version;
	uint32		crc;			/* of all else, this field taken as 0 */
	uint64		system_identifier;
	uint64		start_counter;	/* starts of a server on this pool */
	uint8		nonce[PMHASH_NONCE_SIZE];	/* also in the data directory */
	uint8		old_nonce[PMHASH_NONCE_SIZE];	/* valid too while pending */
	uint32		nonce_pending;
	uint32		state;			/* PmhashPoolState */
	char		boot_id[PMHASH_BOOT_ID_SIZE];
	uint32		pmem;			/* the journal was on persistent memory */
	uint32		timeline;		/* of the last run that used the pool, or 0 */
	uint64		start_checkpoint;	/* pg_control's checkpoint at start */
	uint64		clean_checkpoint;	/* the shutdown checkpoint, or 0 */
	uint64		dax_era;
	uint64		cache_era;
	uint64		journal_instance;	/* whose journal is to be kept, or 0 */
	uint64		undo_end;		/* end of replay after that run, or 0 */
	uint32		undo_inherited; /* a start has found it unfinished before */
	uint32		undo_doubt;		/* that end can't be known any more */
	int64		opts_mtime;		/* of postmaster.opts in the last run: ns */
	uint64		power_dax_era;	/* the dax_era that loss of power has ended, or 0 */
	uint64		lock_inode;		/* of the lock file in this run, and when it */
	uint64		lock_birth;		/* was made, in ns; 0: not known */
	uint64		shut;			/* stamp of all files at the last clean
								 * shutdown, or 0 */
	uint64		next_shut;		/* stamp of the coming one */
	uint64		shut_begun;		/* of one that was not completed, or 0 */
	uint32		all_shut;		/* that was the end of the last run */
	uint32		undo_again;		/* a start has begun the undo and not saved the
								 * end of replay: it may have had none */
	uint64		run_instance;	/* whose run it is, or was */
	uint64		seen_redo;		/* pg_control's redo pointer, seen in that run */
	uint64		undo_redo;		/* the one found after the run whose journal is
								 * kept, if it is later than that; or 0 */
	uint64		reserved[1];
} PmhashControl;

/*
 * Token of trust: <data directory>/pmhash.nonce.  It is there only if all that
 * the server has done since it was written was done with the pool whose control
 * file has the same nonce: a start that can't use the pool removes it, unless
 * the run before has ended in order and 'checkpoint' is still pg_control's.
 */
#define PMHASH_TOKEN_MAGIC		UINT64CONST(0x4e454b4f54484d50)

typedef struct PmhashToken
{
	uint64		magic;
	uint8		nonce[PMHASH_NONCE_SIZE];
	uint64		checkpoint;		/* at the end in order of the run that wrote it,
								 * if nothing is left to be undone; else 0 */
	uint32		reserved;
	uint32		crc;			/* CRC-32C of all before */
} PmhashToken;

StaticAssertDecl(sizeof(PmhashToken) == 40, "no padding in the token");

/* ---- identity of an index file: the engine's opaque bytes ---- */

#define PMHASH_IDENTITY_VERSION		2
#define PMHASH_IDENTITY_TEMP		0x0001	/* goes with its backend */
#define PMHASH_IDENTITY_UNLOGGED	0x0002

typedef struct PmhashIdentity
{
	uint32		version;
	uint32		flags;
	uint64		system_identifier;
	uint64		file_id;
	uint64		seed;
	uint64		dax_era;
	uint64		cache_era;
	uint64		instance;		/* run of its creation */
	uint64		creator_xid;	/* full transaction id, 0 if not tied to one */
	int64		created_at;		/* TimestampTz */
	uint64		created_lsn;	/* insert position then */
	Oid			database;
	Oid			tablespace;		/* informational from here on: REINDEX, */
	Oid			index_oid;		/* SET TABLESPACE and ALTER TYPE keep the */
	Oid			relfilenode;	/* file and change these */
	uint32		owner_pid;		/* the creating backend */
	uint32		timeline;
	int64		owner_start;	/* TimestampTz */
	uint64		predicate_key[2];	/* secret, and independent of the seed */
} PmhashIdentity;

StaticAssertDecl(sizeof(PmhashIdentity) == PMH_IDENTITY_SIZE,
				 "identity must fill the engine's header field");

/* ---- stub page: block 0 of the main (or init) fork ---- */

#define PMHASH_STUB_MAGIC		0x48534d50
#define PMHASH_STUB_VERSION		1
#define PMHASH_STUB_NEW_FILE	0x0001	/* has no file yet: make one */
#define PMHASH_STUB_INVALID		0x0002	/* rows have been left out of the file,
										 * or will be: never use it again */
#define PMHASH_STUB_FILLING		0x0004	/* for inserts only: see refill.c */
#define PMHASH_STUB_FILLED		0x0008	/* for inserts and VACUUM */
#define PMHASH_STUB_LOGGED		0x0010	/* changes are logged; see logged.c */
#define PMHASH_STUB_STANDBY		0x0020	/* and have been since then, by everybody:
										 * standbys may build a file like it */
#define PMHASH_STUB_WAL			(PMHASH_STUB_LOGGED | PMHASH_STUB_STANDBY)

typedef struct PmhashStub
{
	uint32		magic;
	uint16		version;
	uint16		flags;
	uint64		file_id;
	uint64		seed;
	uint64		reason;			/* PmhashReason, if invalid */
	uint64		older;			/* if filled: rows may be missing that snapshots
								 * see whose xmin is not after this one */
	uint64		reserved[3];
} PmhashStub;

StaticAssertDecl(sizeof(PmhashStub) == 64, "the stub is of a fixed size");

/* ---- shared memory ---- */

#define PMHASH_MAX_NUDGES		32
#define PMHASH_MAX_REBUILDS		256
#define PMHASH_MAX_COMPLAINTS	64
#define PMHASH_FAILURE_SIZE		160
#define PMHASH_REMOVAL_EPOCHS	256

typedef enum PmhashLockId
{
	PMHASH_POOL_LOCK,			/* control file, undo at first use */
	PMHASH_CREATE_LOCK,			/* shared: a file exists that no stub names yet */
	PMHASH_REMOVAL_LOCK,		/* exclusive: a removal epoch advances */
	PMHASH_REBUILD_LOCK,		/* rebuild[] */
	PMHASH_NLOCKS
} PmhashLockId;

/*
 * The rebuild of an invalid index, while it runs and after it has failed.  With no
 * index: all indexes of the database that have failed and found no place.
 */
typedef struct PmhashRebuild
{
	Oid			database;		/* InvalidOid: a free place */
	Oid			index;
	bool		running;
	int			failures;
	int			sqlstate;		/* of the last failure */
	int64		next_try;		/* pmhash_clock_ms */
	char		failure[PMHASH_FAILURE_SIZE];
} PmhashRebuild;

/* An index that the sweeper has complained about in this run. */
typedef struct PmhashComplaint
{
	Oid			database;
	Oid			index;
} PmhashComplaint;

/* Databases that the launcher is asked to do something in. */
typedef struct PmhashNudges
{
	bool		all;			/* too many to be listed */
	int			n;
	Oid			database[PMHASH_MAX_NUDGES];
} PmhashNudges;

typedef struct PmhashShared
{
	uint64		instance;		/* of this life of shared memory; never 0 */
	bool		usable;
	bool		retried;		/* if not: the launcher goes on trying */
	char		reason[PMHASH_REASON_SIZE]; /* why not */
	pg_atomic_uint32 ready;		/* undo is complete, the journal is there */
	pg_atomic_uint32 not_ready; /* that has failed, and will be tried again */
	PmhashControl control;		/* POOL_LOCK; start-up is alone anyway */
	PmhLocks   *locks;			/* engine lock table */
	LWLockPadded *lwlocks;

	uint64		journal_slots;
	pg_atomic_uint64 journal_next;
	pg_atomic_uint64 *journal_lsn;	/* per slot; PMHASH_SLOT_BUSY: being written */

	pg_atomic_uint64 removal_epoch[PMHASH_REMOVAL_EPOCHS];	/* by file id */
	pg_atomic_uint64 removal_lsn[PMHASH_REMOVAL_EPOCHS];	/* likewise */
	pg_atomic_uint64 dead_wait[PMHASH_REMOVAL_EPOCHS];	/* likewise: LSN that a
														 * lot waits for */
	pg_atomic_uint64 flush_wanted;	/* LSN that scans wait for, or 0 */

	pg_atomic_uint64 stub_generation;	/* some stub has been changed in place */
	PmhashRebuild rebuild[PMHASH_MAX_REBUILDS];
	pg_atomic_uint32 rebuilder_finished;	/* the last one did not fail */
	pg_atomic_uint32 sweep_kept;	/* files the last sweep could not judge */
	pg_atomic_uint32 no_worker;	/* no slot is free for a worker of ours */

	PmhashComplaint complaint[PMHASH_MAX_COMPLAINTS];	/* the sweeper's */

	slock_t		mutex;			/* the rest */
	Latch	   *launcher;
	PmhashNudges sweep;
	PmhashNudges look;			/* for invalid indexes */
} PmhashShared;

extern PmhashShared *pmhash_shared; /* NULL unless preloaded */

#define pmhash_lwlock(id)	(&pmhash_shared->lwlocks[id].lock)

/* ---- durable.c ---- */
#define PMHASH_SMALL_FILE	512	/* bytes: no file of durable.c is longer */

extern bool pmhash_fail(char *reason, const char *format,...) pg_attribute_printf(2, 3);
extern ssize_t pmhash_read_small(const char *path, void *data, size_t size);
extern bool pmhash_fsync_directory(const char *path);
extern bool pmhash_replace_durably(const char *directory, const char *name,
								   const void *data, size_t size, char *reason);
extern bool pmhash_remove_durably(const char *directory, const char *name,
								  size_t size, char *reason);

/* ---- pool.c ---- */
extern const char *pmhash_pool_path(void);
extern bool pmhash_pool_start(PmhashControl *control, uint64 instance,
							  char *reason);
extern bool pmhash_pool_start_late(PmhashControl *control, uint64 instance,
								   char *reason);
extern void pmhash_pool_stop(uint64 instance);
extern bool pmhash_pool_in_place(void);
extern bool pmhash_pool_is_locked(void);
extern bool pmhash_pool_forget(char *reason);
extern bool pmhash_pool_revoke(char *reason);
extern bool pmhash_pool_written_back(char *reason);
extern bool pmhash_pool_write_control(PmhashControl *control, char *reason);
extern bool pmhash_pool_renew_nonce(PmhashControl *control, uint64 checkpoint,
									char *reason);
extern void pmhash_database_path(char *path, Oid database);
extern void pmhash_file_path(char *path, Oid database, uint64 file_id);
extern void pmhash_journal_path(char *path, uint64 instance);
extern bool pmhash_parse_file_name(const char *name, uint64 *file_id);
extern bool pmhash_parse_database_name(const char *name, Oid *database);

/* ---- trust.c ---- */

/* What a start finds in the data directory. */
typedef struct PmhashServerState
{
	ControlFileData control;
	bool		from_elsewhere; /* a backup or a standby is being started */
	bool		has_token;
	PmhashToken token;
} PmhashServerState;

/* What is known of the way to here when the pool is entered. */
typedef struct PmhashEntryState
{
	int			lock_fd;		/* of the pool's lock file */
	bool		lock_kept;		/* this postmaster had it in the last run, too */
	bool		late;			/* the server has been running without the pool */
	bool		has_control;	/* the control file is there and sound */
	bool		is_damaged;		/* it is there */
} PmhashEntryState;

extern uint64 pmhash_random_id(void);
extern void pmhash_renew_eras(PmhashControl *control, bool dax);
extern bool pmhash_read_pg_control(ControlFileData *data, char *reason);
extern void pmhash_see_redo(PmhashControl *control);
extern int64 pmhash_postmaster_opts_mtime(void);
extern bool pmhash_read_server_state(PmhashServerState *server, char *reason);
extern void pmhash_decide(PmhashControl *control, const PmhashEntryState *entry,
						  const PmhashServerState *server, uint64 instance);
extern void pmhash_set_witness(int lock_fd);
extern bool pmhash_revoke_trust(int lock_fd);
extern bool pmhash_trust_is_revoked(int lock_fd);
extern bool pmhash_trust_stands(const PmhashControl *control, int lock_fd);
extern bool pmhash_write_token(const PmhashControl *control, uint64 checkpoint,
							   char *reason);
extern void pmhash_refuse_trust(void);
extern void pmhash_continue_without_pool(void);

/* ---- startup.c ---- */
extern void pmhash_pool_ready(void);
extern void pmhash_require_pool_in_place(void);
extern void pmhash_disable(const char *reason);
extern bool pmhash_try_again(void);
extern void pmhash_distrust_all(const char *why);
extern void pmhash_renew_nonce(void);

/* ---- undo_journal.c ---- */

#define PMHASH_JOURNAL_MAGIC	UINT64CONST(0x4c4e4a48534d50ff)
#define PMHASH_SLOT_BUSY		PG_UINT64_MAX

/* The first line of a journal file. */
typedef struct PmhashJournalHeader
{
	uint64		magic;
	uint64		instance;		/* whose journal it is */
	uint64		slots;
	uint64		flushed;		/* end of a WAL record known to be flushed */
	uint64		reserved[4];
} PmhashJournalHeader;

/* One record: a cache line.  All zeroes: never used. */
typedef struct PmhashJournalRecord
{
	uint64		file_id;
	uint64		hash;
	uint64		value;
	uint64		lsn;			/* end of WAL the entry depends on */
	uint64		flushed;		/* end of a record known to be flushed, or 0 */
	uint64		instance;
	Oid			database;
	uint32		reserved[2];
	uint32		crc;			/* CRC-32C of all before */
} PmhashJournalRecord;

StaticAssertDecl(sizeof(PmhashJournalHeader) == 64, "one cache line");
StaticAssertDecl(sizeof(PmhashJournalRecord) == 64, "one cache line");

extern XLogRecPtr pmhash_insert_end(void);
extern void pmhash_journal_create(uint64 instance, bool *pmem);
extern void pmhash_journal_retire(uint64 instance);
extern bool pmhash_journal_spoil(uint64 instance, char *reason);
extern bool pmhash_journal_is_spoiled(uint64 instance);
extern bool pmhash_journal_is_spare(const char *name);
extern PmhResult pmhash_journal_map(char *path, PmhError *error);
extern void pmhash_journal_note_flushed(XLogRecPtr lsn);
extern bool pmhash_journal_is_past(XLogRecPtr lsn);
extern uint32 pmhash_journal_crc(const PmhashJournalRecord *record);

/* ---- undo.c ---- */
extern void pmhash_undo(PmhashControl *control);

/* ---- stub.c ---- */
extern bool pmhash_stub_read(Relation index, bool zero_on_error,
							 PmhashStub *stub);
extern uint64 pmhash_stub_of_fork(PmhashNode node, uint16 *flags);
extern void pmhash_stub_create(Relation index, uint16 flags, uint64 file_id,
							   uint64 seed);
extern void pmhash_stub_fill(Relation index, uint16 flags, uint64 file_id,
							 uint64 seed);
extern bool pmhash_stub_filled(Relation index, uint64 file_id,
							   TransactionId older);
extern bool pmhash_stub_validate(Relation index, uint64 file_id);
extern bool pmhash_stub_invalidate(Relation index, uint64 file_id,
								   PmhashReason reason);
extern void pmhash_stub_create_init(Relation index);
extern bool pmhash_stub_set_wal(Relation index, uint64 file_id, uint16 wal);

/* ---- open_files.c ---- */

/* Mappings that a backend keeps from one transaction to the next. */
#define PMHASH_MAPPED_FILES		1000

/* A main fork: number and, for temporary relations, backend. */
typedef struct PmhashFork
{
	PmhashNode	node;
	int			backend;
} PmhashFork;

/* What this backend knows of the file of an index; see open_files.c. */
typedef struct PmhashEntry
{
	Oid			relid;			/* of the index: the key */
	bool		valid;			/* no invalidation since the stub was read */
	bool		suspect;		/* in the list of those to be looked after */
	PmhashFork	fork;			/* that the stub was read from */
	uint64		generation;		/* stub_generation before that */
	uint64		file_id;		/* that it named */
	uint16		flags;			/* that it had */
	PmhashFile *file;			/* NULL: not mapped just now */
	uint64		used;			/* the last transaction it was handed out in */
	int64		next_look;		/* pmhash_clock_ms; 0: at once */
	dlist_node	lru;			/* if mapped */
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
									   const PmhashStub *stub, const char *path,
									   uint64 generation);
extern bool pmhash_entries_make_room(void);
extern void pmhash_entry_doubt(Oid relid);
extern uint64 pmhash_entry_in_fork(Relation index);
extern const PmhashFile *pmhash_entry_mapped(Oid relid, uint64 file_id);
extern void pmhash_entries_file_removed(uint64 file_id);
extern void pmhash_entries_at_end_of_transaction(void);

/* ---- index_file.c ---- */
extern PmhEnv pmhash_engine_env(void);
extern PmhashReason pmhash_identity_doubt(const PmhashIdentity *id, bool pmem);
extern PmhashReason pmhash_index_doubt(Relation index);
extern bool pmhash_index_plannable(Relation index);
extern bool pmhash_index_is_pmem(Relation index);
extern void pmhash_index_examine(Relation index, const PmhashStub *stub);
extern uint64 pmhash_file_begin_filling(Relation index);
extern PmhashFile *pmhash_file_open_filling(Relation index, uint64 file_id);
extern bool pmhash_index_path(Relation index, bool zero_on_error,
							  uint64 *file_id, char *path);
extern int64 pmhash_stat_size(const struct stat *st);

/* ---- life_cycle.c ---- */
extern void pmhash_life_cycle_init(void);
extern void pmhash_pending_create(const char *path, Relation index);
extern bool pmhash_pending_created(Relation index, char *path);
extern void pmhash_pending_keep(const char *path);
extern void pmhash_temp_file_created(const PmhashFile *file, Relation index);
extern bool pmhash_temp_file_of(Relation index, char *path);
extern void pmhash_temp_file_replaced(Oid heap);
extern void pmhash_fork_replaced(void);
extern void pmhash_unlink(const char *path);
extern void pmhash_nudge_at_commit(void);
extern bool pmhash_is_index(Relation rel);

/* ---- engine_hooks.c ---- */
extern void pmhash_engine_hooks_init(void);
extern void pmhash_engine_hooks_name(void);

/* ---- invalid.c ---- */
extern const char *pmhash_reason_text(PmhashReason reason);
extern void pmhash_stub_changed(void);

/* ---- refill.c ---- */
extern void pmhash_refill(Oid relid);
extern void pmhash_refill_failed(void);
extern void pmhash_refill_forget(void);

/* ---- rebuild.c ---- */
extern bool pmhash_index_is_invalid(Relation index, PmhashReason *reason);
extern void pmhash_rebuild_wanted(Oid index);
extern void pmhash_rebuild_database(void);
extern bool pmhash_rebuild_state(Oid index, PmhashRebuild *state);
extern const char *pmhash_rebuild_failure_hint(int sqlstate);
extern bool pmhash_rebuild_keeps_failing(Oid index, PmhashRebuild *state);
extern List *pmhash_rebuilds_due(int64 now, int64 *next);
extern void pmhash_rebuild_forget(Oid database);

/* ---- worker.c ---- */
extern void pmhash_worker_init(void);
extern void pmhash_nudge(Oid database);
extern void pmhash_nudge_look(Oid database);
extern void pmhash_wake_launcher(void);

/* ---- dead_entries.c ---- */
extern long pmhash_flush_for_scans(void);
extern void pmhash_dead_entries_forget(const PmhashFile *file);

/* ---- sweep.c ---- */
extern void pmhash_sweep_database(void);
extern void pmhash_sweep_dropped(Oid database);
extern void pmhash_sweep_distrusted(Oid database);
extern List *pmhash_list_indexes(bool temporary);

/* ---- logged.c ---- */
extern void pmhash_logged_init(void);
extern bool pmhash_wants_wal(Relation index);
extern uint16 pmhash_new_wal_flags(Relation index);
extern bool pmhash_flags_logged(uint16 flags);
extern void pmhash_file_announce(Relation index, uint64 file_id);
extern void pmhash_wal_examine(Relation index, const PmhashStub *stub);
extern void pmhash_file_is_new(Relation index, uint64 file_id);
extern void pmhash_file_is_not_new(uint64 file_id);

/* ---- logged_entries.c ---- */
extern XLogRecPtr pmhash_log_deletes(const PmhashFile *file, TransactionId horizon,
									 uint8 flags, const PmhEntry *entries, int n);

/* ---- conflict_horizon.c ---- */
extern bool pmhash_conflict_horizon(Relation heap, const PmhEntry *entries, int n,
									TransactionId *horizon);

/* ---- planner_hook.c ---- */
extern void pmhash_planner_hook_init(void);

/* ---- gucs.c ---- */
extern void pmhash_define_gucs(void);
extern bool pmhash_directory_allowed(char *reason);

/* what tells our indexes from others; set by pmhash_cluster_init */
extern ambuild_function pmhash_am_build;
extern PmhashFillFunction pmhash_am_fill;

#endif							/* PMHASH_CLUSTER_INTERNAL_H */
