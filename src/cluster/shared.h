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
#include "engine/table.h"

#define PMHASH_MAX_REQUESTS		32
#define PMHASH_MAX_REBUILDS		256
#define PMHASH_MAX_COMPLAINTS	64
#define PMHASH_FAILURE_SIZE		160
#define PMHASH_REMOVAL_EPOCHS	256
#define PMHASH_QUEUE_COUNTS		4096
#define PMHASH_KEY_LOCKS		256		/* a power of two */

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
 * The rebuild of an invalid index, while it goes on and after it has failed.
 * With no index: all indexes of the database that have failed and found no
 * row.
 */
typedef struct PmhashRebuild
{
	Oid			database;		/* InvalidOid: a free row */
	Oid			index;
	bool		running;
	int			failures;
	int			sqlstate;		/* of the last failure */
	int64		next_try;		/* pmhash_clock_ms */
	char		failure[PMHASH_FAILURE_SIZE];
} PmhashRebuild;

/* An index that the cleaner has complained about in this server life. */
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
	LWLockPadded *key_locks;	/* see key_lock.h */

	uint64		journal_records;
	pg_atomic_uint64 journal_next;
	pg_atomic_uint64 *journal_lsn;	/* per record; PMHASH_RECORD_BUSY: being written */

	pg_atomic_uint64 removal_epoch[PMHASH_REMOVAL_EPOCHS];	/* by file id */
	pg_atomic_uint64 removal_lsn[PMHASH_REMOVAL_EPOCHS];	/* likewise */
	pg_atomic_uint32 queues[PMHASH_QUEUE_COUNTS];	/* by file id: queue_count.c */
	struct PmhashDeadList *dead_lists;	/* entries known to be dead (dead_list.c) */
	pg_atomic_uint64 flush_wanted;	/* LSN that scans wait for, or 0 */

	pg_atomic_uint64 stub_generation;	/* some stub has been changed in place */
	pg_atomic_uint64 files_removed; /* how many have been, by any process */
	pg_atomic_uint32 logging_begun; /* of a file that was in use; see logged.c */
	PmhashRebuild rebuild[PMHASH_MAX_REBUILDS];
	pg_atomic_uint32 rebuilder_finished;	/* the last one did not fail */
	pg_atomic_uint32 files_kept;	/* files the last cleaner could not judge */
	pg_atomic_uint32 no_worker;	/* no slot is free for a worker of ours */

	pg_atomic_uint64 asked_redo;	/* checkpoint after which the kernel was asked for
									 * failed writes, or 0 */
	pg_atomic_uint64 asked_under_way;	/* one that was not over when it was due, or 0 */

	PmhashComplaint complaint[PMHASH_MAX_COMPLAINTS];	/* the cleaner's */

	struct PmhashStandby *standby;	/* files of a server in recovery */

	slock_t		mutex;			/* the rest */
	Latch	   *launcher;
	PmhashRequests clean;		/* orphans to be removed */
	PmhashRequests look;			/* for invalid indexes */
} PmhashShared;

extern PmhashShared *pmhash_shared; /* NULL unless preloaded */

#define pmhash_lwlock(id)	(&pmhash_shared->lwlocks[id].lock)

#endif							/* PMHASH_SHARED_H */
