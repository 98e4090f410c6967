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
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#include "cluster/cluster.h"

/* how 64-bit ids look in file names and messages */
#define PMHASH_ID_FORMAT	"%016" PRIx64

/* ---- control file: <pool>/control, rewritten whole by durable rename ---- */

#define PMHASH_CONTROL_MAGIC	UINT64CONST(0x4c525443484d50ff)
#define PMHASH_POOL_VERSION		1
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
	uint64		clean_checkpoint;	/* the shutdown checkpoint, if CLEAN */
	uint64		dax_era;
	uint64		cache_era;
	uint64		journal_instance;	/* whose journal is to be kept, or 0 */
	uint64		undo_end;		/* end of replay after that run, or 0 */
	uint32		undo_inherited; /* a start has found it unfinished before */
	uint32		undo_doubt;		/* the end of replay can't be known */
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
	uint64		reserved[1];
} PmhashControl;

/* ---- identity of an index file: the engine's opaque bytes ---- */

#define PMHASH_IDENTITY_VERSION		1
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
	uint64		reserved[2];
} PmhashIdentity;

StaticAssertDecl(sizeof(PmhashIdentity) == PMH_IDENTITY_SIZE,
				 "identity must fill the engine's header field");

/* ---- stub page: block 0 of the main (or init) fork ---- */

#define PMHASH_STUB_MAGIC		0x48534d50
#define PMHASH_STUB_VERSION		1
#define PMHASH_STUB_NEW_FILE	0x0001	/* has no file yet: make one */
#define PMHASH_STUB_INVALID		0x0002	/* rows have been left out of the file,
										 * or will be: never use it again */

typedef struct PmhashStub
{
	uint32		magic;
	uint16		version;
	uint16		flags;
	uint64		file_id;
	uint64		seed;
	uint64		reason;			/* PmhashReason, if invalid */
	uint64		reserved[4];
} PmhashStub;

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

/* The rebuild of an invalid index, while it runs and after it has failed. */
typedef struct PmhashRebuild
{
	Oid			database;		/* InvalidOid: a free place */
	Oid			index;
	bool		running;
	int			failures;
	TimestampTz next_try;
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
	TimestampTz started_at;
	bool		usable;
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

	pg_atomic_uint64 stub_generation;	/* some stub has been changed in place */
	PmhashRebuild rebuild[PMHASH_MAX_REBUILDS];
	pg_atomic_uint32 rebuilder_finished;	/* the last one did not fail */

	PmhashComplaint complaint[PMHASH_MAX_COMPLAINTS];	/* the sweeper's */

	slock_t		mutex;			/* the rest */
	Latch	   *launcher;
	PmhashNudges sweep;
	PmhashNudges look;			/* for invalid indexes */
} PmhashShared;

extern PmhashShared *pmhash_shared; /* NULL unless preloaded */

#define pmhash_lwlock(id)	(&pmhash_shared->lwlocks[id].lock)

/* ---- pool.c ---- */
extern const char *pmhash_pool_path(void);
extern bool pmhash_pool_start(PmhashControl *control, uint64 instance,
							  char *reason);
extern void pmhash_pool_stop(uint64 instance);
extern bool pmhash_pool_in_place(void);
extern bool pmhash_pool_write_control(PmhashControl *control, char *reason);
extern bool pmhash_pool_renew_nonce(PmhashControl *control, char *reason);
extern void pmhash_pool_renew_eras(PmhashControl *control, bool dax);
extern int64 pmhash_postmaster_opts_mtime(void);
extern void pmhash_database_path(char *path, Oid database);
extern void pmhash_file_path(char *path, Oid database, uint64 file_id);
extern void pmhash_journal_path(char *path, uint64 instance);
extern bool pmhash_parse_file_name(const char *name, uint64 *file_id);
extern bool pmhash_parse_database_name(const char *name, Oid *database);

/* ---- startup.c ---- */
extern void pmhash_pool_ready(void);
extern void pmhash_require_pool_in_place(void);
extern void pmhash_disable(const char *reason);
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
extern PmhResult pmhash_journal_map(char *path, PmhError *error);
extern void pmhash_journal_note_flushed(XLogRecPtr lsn);
extern uint32 pmhash_journal_crc(const PmhashJournalRecord *record);

/* ---- undo.c ---- */
extern void pmhash_undo(PmhashControl *control);

/* ---- stub.c ---- */
extern bool pmhash_stub_read(Relation index, bool zero_on_error,
							 PmhashStub *stub);
extern void pmhash_stub_create(Relation index, uint64 file_id, uint64 seed);
extern void pmhash_stub_fill(Relation index, uint64 file_id, uint64 seed);
extern bool pmhash_stub_invalidate(Relation index, uint64 file_id,
								   PmhashReason reason);
extern void pmhash_stub_create_init(Relation index);

/* ---- index_file.c ---- */
extern PmhEnv pmhash_engine_env(void);
extern PmhashReason pmhash_identity_doubt(const PmhashIdentity *id, bool pmem);
extern PmhashReason pmhash_index_doubt(Relation index);
extern bool pmhash_index_plannable(Relation index);
extern void pmhash_files_aborted(void);
extern void pmhash_index_examine(Relation index, const PmhashStub *stub);
extern void pmhash_files_at_end_of_transaction(void);
extern void pmhash_file_begin_replacement(Relation index);
extern void pmhash_file_end_replacement(Relation index);
extern void pmhash_file_cancel_replacement(Oid relid);
extern bool pmhash_index_path(Relation index, bool zero_on_error, char *path);
extern int64 pmhash_stat_size(const struct stat *st);

/* ---- life_cycle.c ---- */
extern void pmhash_life_cycle_init(void);
extern void pmhash_pending_create(const char *path);
extern void pmhash_pending_keep(const char *path);
extern void pmhash_temp_file_created(const char *path);
extern void pmhash_unlink(const char *path);
extern void pmhash_nudge_at_commit(void);
extern bool pmhash_is_index(Relation rel);

/* ---- invalid.c ---- */
extern const char *pmhash_reason_text(PmhashReason reason);
extern void pmhash_stub_changed(void);

/* ---- rebuild.c ---- */
extern void pmhash_rebuild_wanted(Oid index);
extern void pmhash_rebuild_database(void);
extern bool pmhash_rebuild_state(Oid index, PmhashRebuild *state);
extern List *pmhash_rebuilds_due(TimestampTz now, TimestampTz *next);
extern void pmhash_rebuild_forget(Oid database);

/* ---- worker.c ---- */
extern void pmhash_worker_init(void);
extern void pmhash_nudge(Oid database);
extern void pmhash_nudge_look(Oid database);

/* ---- sweep.c ---- */
extern void pmhash_sweep_database(void);
extern void pmhash_sweep_dropped(Oid database);
extern void pmhash_sweep_distrusted(Oid database);
extern List *pmhash_list_indexes(bool temporary);

/* ---- planner_hook.c ---- */
extern void pmhash_planner_hook_init(void);

/* ---- gucs.c ---- */
extern void pmhash_define_gucs(void);

/* what tells our indexes from others; set by pmhash_cluster_init */
extern ambuild_function pmhash_am_build;

#endif							/* PMHASH_CLUSTER_INTERNAL_H */
