/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  What the processes of a server share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_SHARED_H
#define PMHASH_SHARED_H

#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#include "cluster/control_file.h"
#include "cluster/durable.h"
#include "cluster/kept_message.h"
#include "engine/table.h"

#define PMHASH_MAX_REQUESTS		32
#define PMHASH_MAX_REBUILDS		256
#define PMHASH_MAX_COMPLAINTS	64
#define PMHASH_REMOVAL_EPOCHS	256
#define PMHASH_QUEUE_COUNTS		4096
#define PMHASH_KEY_LOCKS		256		/* a power of two */
#define PMHASH_FILES_NOT_JUDGED	UINT32_MAX	/* a cleaner has not got that far */

typedef enum PmhashLockId
{
	PMHASH_ASK_LOCK,			/* the kernel is being asked for failed writes */
	PMHASH_POOL_LOCK,			/* control file, undo at first use */
	PMHASH_CREATE_LOCK,			/* shared: a file exists that no stub names yet */
	PMHASH_REMOVAL_LOCK,		/* exclusive: a removal epoch advances */
	PMHASH_REBUILD_LOCK,		/* rebuild[] */
	PMHASH_STANDBY_LOCK,		/* standby: states of files; see standby.h */
	PMHASH_COUNTERS_LOCK,		/* rows of counters; see counters.c */
	PMHASH_NLOCKS
} PmhashLockId;

/*
 * Indexes are rebuilt, and built on a standby, by workers of two kinds.  Expressions and
 * predicates run functions of users, which may take as long as they like: what they hold
 * up is other indexes of that kind, and nothing else.
 */
typedef enum PmhashBuildKind
{
	PMHASH_BUILD_PLAIN,
	PMHASH_BUILD_EXPRESSIONS,	/* the index has expressions or a predicate */
	PMHASH_BUILD_KINDS
} PmhashBuildKind;

#define PMHASH_KNOWN_WORDS		16

/*
 * The rebuild of an invalid index, while it goes on and after it has failed.
 * With no index: all indexes of the database and the kind that have failed and found
 * no row.
 */
typedef struct PmhashRebuild
{
	Oid			database;		/* InvalidOid: a free row */
	Oid			index;
	PmhashBuildKind kind;
	bool		running;
	Oid			heap;			/* if running: its table, or InvalidOid: not known */
	bool		waited_for;		/* the worker of the other kind wants that table, too */
	uint64		known[PMHASH_KNOWN_WORDS];	/* with no index: a bit for each that has
											 * failed, by its OID; some share one */
	int			failures;
	int			sqlstate;		/* of the last failure */
	int64		next_try;		/* pmhash_clock_ms */
	int64		next_request;	/* with no index: until then it holds requests back */
	char		failure[PMHASH_KEPT_MESSAGE];
} PmhashRebuild;

/* An index that a worker has complained about in this server life. */
typedef struct PmhashComplaint
{
	Oid			database;
	Oid			index;
} PmhashComplaint;

/* Databases that the launcher is to do something in. */
typedef struct PmhashRequests
{
	bool		all;			/* too many to be listed */
	int			n;
	Oid			database[PMHASH_MAX_REQUESTS];
} PmhashRequests;

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
	LWLockPadded *key_locks;	/* see key_lock.h */
	uint64		instance;		/* of this life of shared memory; never 0 */
	pg_atomic_uint64 files_removed; /* how many have been, by any process */

	pg_attribute_aligned(PG_CACHE_LINE_SIZE)
	pg_atomic_uint64 journal_next;

	pg_attribute_aligned(PG_CACHE_LINE_SIZE)
	char		reason[PMHASH_REASON_SIZE]; /* why it is not usable */
	PmhashControl control;		/* POOL_LOCK; start-up is alone anyway */
	uint64		journal_most;	/* records, as the setting has it */

	pg_atomic_uint64 removal_epoch[PMHASH_REMOVAL_EPOCHS];	/* by file id */
	pg_atomic_uint32 queues[PMHASH_QUEUE_COUNTS];	/* by file id: queue_count.c */
	pg_atomic_uint64 flush_wanted;	/* LSN that scans wait for, or 0 */

	PmhashRebuild rebuild[PMHASH_MAX_REBUILDS];
	pg_atomic_uint32 rebuilder_finished[PMHASH_BUILD_KINDS];	/* the last one did not
																 * fail */
	pg_atomic_uint32 function_worker;	/* pid, or 0: function_worker.c */
	pg_atomic_uint32 files_kept;	/* files the last cleaner could not judge, or
									 * PMHASH_FILES_NOT_JUDGED */
	pg_atomic_uint64 no_worker_last;	/* when one was tried in vain last */
	pg_atomic_uint64 no_worker;	/* since when (pmhash_clock_ms) no slot is free for a
								 * worker of ours, or 0 */

	pg_atomic_uint64 asked_redo;	/* checkpoint after which the kernel was asked for
									 * failed writes, or 0 */
	pg_atomic_uint64 ask_from;	/* pmhash_clock_ms: not to be asked before */
	pg_atomic_uint64 asked_under_way;	/* one that was not over when it was due, or 0 */

	PmhashComplaint complaint[PMHASH_MAX_COMPLAINTS];	/* under mutex */

	slock_t		mutex;			/* the rest */
	Latch	   *launcher;
	PmhashRequests clean;		/* orphans to be removed */
	PmhashRequests look[PMHASH_BUILD_KINDS];	/* for invalid indexes */
} PmhashShared;

extern PmhashShared *pmhash_shared; /* NULL unless preloaded */

#define pmhash_lwlock(id)	(&pmhash_shared->lwlocks[id].lock)

#endif							/* PMHASH_SHARED_H */
