/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  What the processes of a server share, and what is set up with it; identity of files.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_SHARED_H
#define PMHASH_SHARED_H

#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#include "cluster/base/control_file.h"
#include "cluster/cluster.h"
#include "engine/table.h"

#define PMHASH_MAX_REQUESTS		256
#ifndef PMHASH_MAX_REBUILDS		/* fewer in tests with stop points */
#define PMHASH_MAX_REBUILDS		1024
#endif
#define PMHASH_LONGEST_PAUSE	300		/* s, between tries to build a file (pmhash_pause) */
#define PMHASH_REMOVAL_EPOCHS	256
#define PMHASH_QUEUE_COUNTS		4096
#define PMHASH_KEY_LOCKS		256		/* a power of two */
#define PMHASH_WORKERS			3		/* of the launcher, at most */
#define PMHASH_DEAD_LISTS		16		/* a power of two; each has a lock */

typedef enum PmhashLockId
{
	PMHASH_ASK_LOCK,			/* the kernel is being asked for failed writes */
	PMHASH_POOL_LOCK,			/* control file, undo at first use */
	PMHASH_CREATE_LOCK,			/* shared: a file is made that has no header yet */
	PMHASH_REMOVAL_LOCK,		/* exclusive: a removal epoch advances */
	PMHASH_REBUILD_LOCK,		/* rebuild[] */
	PMHASH_STANDBY_LOCK,		/* standby: states of files; see standby_state.h */
	PMHASH_NLOCKS				/* from here on: of the lists of dead entries */
} PmhashLockId;

/*
 * What a worker does in a database.  It removes files that no index owns, and builds those
 * that indexes lack.  Expressions and predicates run functions of users, which may take as
 * long as they like: what they hold up is other indexes of that kind, and nothing else.
 */
typedef enum PmhashJob
{
	PMHASH_JOB_PLAIN,
	PMHASH_JOB_EXPRESSIONS,		/* indexes that have expressions or a predicate */
	PMHASH_JOBS
} PmhashJob;

/* The rebuild of an invalid index, while it goes on; how that, or a build here, has failed. */
typedef struct PmhashRebuild
{
	Oid			database;		/* InvalidOid: a free row */
	Oid			index;
	bool		running;
	int			failures;
	int			sqlstate;		/* of the last failure */
	int64		next_try;		/* pmhash_clock_ms */
	char		failure[PMHASH_KEPT_MESSAGE];
} PmhashRebuild;

/*
 * Each statement reads what stands first, up to journal_next, and hardly anything writes
 * it.  What is on a cache line with journal_next, which each entry counts up, is missed
 * with each entry of others.
 */
typedef struct PmhashShared
{
	bool		usable;
	pg_atomic_uint32 ready;		/* undo is complete, the journal is there */
	pg_atomic_uint32 not_ready; /* that has failed, and will be tried again */
	PmhLocks   *locks;			/* engine lock table */
	LWLockPadded *lwlocks;
	uint64		journal_records;	/* as there are: fewer if there was no room */
	pg_atomic_uint64 *journal_lsn;	/* per record; PMHASH_RECORD_BUSY: being written */
	struct PmhashDeadList *dead_lists;	/* entries known to be dead (dead_list.c) */
	pg_atomic_uint64 stub_generation;	/* some stub has been changed in place */
	struct PmhashStandby *standby;	/* files of a server in recovery */
	LWLockPadded *key_locks;	/* pmhash_key_lock */
	uint64		instance;		/* of this life of shared memory; never 0 */

	pg_attribute_aligned(PG_CACHE_LINE_SIZE)
	pg_atomic_uint64 journal_next;

	pg_attribute_aligned(PG_CACHE_LINE_SIZE)
	char		reason[PMHASH_REASON_SIZE]; /* why it is not usable */
	PmhashControl control;		/* POOL_LOCK; start-up is alone anyway */
	uint64		journal_most;	/* records, as the setting has it */

	pg_atomic_uint64 removal_epoch[PMHASH_REMOVAL_EPOCHS];	/* by file id */
	pg_atomic_uint32 queues[PMHASH_QUEUE_COUNTS];	/* by file id: removal.c */
	pg_atomic_uint64 flush_wanted;	/* LSN that scans wait for, or 0 */

	pg_atomic_uint64 counted[PMHASH_NCOUNTERS]; /* by all, since shared memory was made */

	PmhashRebuild rebuild[PMHASH_MAX_REBUILDS];
	pg_atomic_uint32 worker_done[PMHASH_WORKERS];	/* 1: the last one has left nothing */
	pg_atomic_uint32 function_worker;	/* 1: there is one (worker.c, build) */
	pg_atomic_uint64 no_worker;	/* since when (pmhash_clock_ms) there is no launcher, or no
								 * slot free for a worker of ours; or 0 */

	pg_atomic_uint64 asked_redo;	/* checkpoint after which the kernel was asked for
									 * failed writes, or 0 */
	pg_atomic_uint64 ask_from;	/* pmhash_clock_ms: not to be asked before */

	Latch	   *volatile launcher;
	pg_atomic_uint32 request[PMHASH_JOBS * PMHASH_MAX_REQUESTS];	/* databases: requests.c */
} PmhashShared;

extern PmhashShared *pmhash_shared; /* NULL unless preloaded */

extern void pmhash_stub_changed(void);
extern void pmhash_disable(const char *reason);
extern void pmhash_disable_locked(const char *reason);

#define pmhash_lwlock(id)	(&pmhash_shared->lwlocks[id].lock)

/* ---- gucs.c ---- */

extern void pmhash_define_gucs(void);

/*
 * Locks of keys, for inserts into unique indexes.
 *
 * A session that inserts a key which must not be there twice holds its lock from
 * the look at the entries that are there to its own entry (am/unique.c).  One lock
 * serves many keys of many files; nothing else takes them.
 */

StaticAssertDecl((PMHASH_KEY_LOCKS & (PMHASH_KEY_LOCKS - 1)) == 0,
				 "the lock of a key is found without a division");

/* The lock of a hash in a file.  Both are as good as random. */
static inline LWLock *
pmhash_key_lock(const PmhashFile *file, uint64 hash)
{
	return &pmhash_shared->key_locks[(file->file_id ^ hash) % PMHASH_KEY_LOCKS].lock;
}

/* ---- identity.c ---- */

#define PMHASH_IDENTITY_VERSION		4
#define PMHASH_IDENTITY_TEMP		0x0001	/* goes with its backend */
#define PMHASH_IDENTITY_UNLOGGED	0x0002	/* of an unlogged table */
#define PMHASH_IDENTITY_LOGGED		0x0004	/* all changes are in WAL, for standbys */

typedef struct PmhashIdentity
{
	uint32		version;
	uint32		flags;
	uint64		system_identifier;
	uint64		file_id;
	PmhashSeed	seed;
	uint64		dax_era;
	uint64		cache_era;
	uint64		instance;		/* server life of its creation */
	uint64		creator_xid;	/* full transaction id, 0 of a temporary
								 * one, and on a standby */
	uint64		unused;			/* 0 */
	uint32		owner_pid;		/* of the creating backend */
	Oid			database;
	Oid			index_oid;		/* it may be another one's by now */
	uint32		reserved;
	uint64		predicate_key[2];	/* secret, and independent of the seed */
	uint64		spare[3];
} PmhashIdentity;

StaticAssertDecl(sizeof(PmhashIdentity) == PMH_IDENTITY_SIZE,
				 "identity must fill the engine's header field");
/* Guards: another layout is another PMHASH_IDENTITY_VERSION. */
PMHASH_AT(PmhashIdentity, version, 0);
PMHASH_AT(PmhashIdentity, flags, 4);
PMHASH_AT(PmhashIdentity, system_identifier, 8);
PMHASH_AT(PmhashIdentity, file_id, 16);
PMHASH_AT(PmhashIdentity, seed, 24);
PMHASH_AT(PmhashIdentity, dax_era, 48);
PMHASH_AT(PmhashIdentity, cache_era, 56);
PMHASH_AT(PmhashIdentity, instance, 64);
PMHASH_AT(PmhashIdentity, creator_xid, 72);
PMHASH_AT(PmhashIdentity, unused, 80);
PMHASH_AT(PmhashIdentity, owner_pid, 88);
PMHASH_AT(PmhashIdentity, database, 92);
PMHASH_AT(PmhashIdentity, index_oid, 96);
PMHASH_AT(PmhashIdentity, predicate_key, 104);

extern PmhEnv pmhash_engine_env(void);
extern PmhashReason pmhash_identity_doubt(const PmhashIdentity *id, bool pmem);
extern PmhashReason pmhash_table_doubt(const PmhTable *table);
extern void pmhash_identity_make(Relation index, uint64 file_id, PmhashSeed seed,
								 PmhashIdentity *id);

#endif							/* PMHASH_SHARED_H */
