/*-------------------------------------------------------------------------
 *
 * standby_delta.h
 *	  Logged indexes on a server in recovery: what the builder (standby_build.c and beside
 *	  it) does to the states of their files (standby_state.h).
 *
 * Include postgres.h first.  src/README, "Standbys", has the rules S1 to S7.
 *
 * The startup process sends a file to NONE at any moment: a record that says so, a
 * full disk, damage.  So each call of the builder may find that its build is over
 * (false, PMHASH_PUBLISH_OVER): it throws its work away.
 *
 * None of these functions raises an ERROR while it holds the lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STANDBY_DELTA_H
#define PMHASH_STANDBY_DELTA_H

#include "cluster/standby/standby_state.h"

/* One operation of a delta: 16 bytes in the file, in the order of WAL. */
#define PMHASH_DELTA_DELETE		(UINT64CONST(1) << 63)	/* else an insert */
#define PMHASH_DELTA_VALUE(op)	((op)->value & ~PMHASH_DELTA_DELETE)
#define PMHASH_DELTA_IS_DELETE(op)	(((op)->value & PMHASH_DELTA_DELETE) != 0)

typedef struct PmhashDeltaOp
{
	uint64		hash;
	uint64		value;			/* the TID as in entries, and PMHASH_DELTA_DELETE */
} PmhashDeltaOp;

PMHASH_AT(PmhashDeltaOp, hash, 0);
PMHASH_AT(PmhashDeltaOp, value, 8);
PMHASH_SIZE(PmhashDeltaOp, 16);

/* Operations that may be left for pmhash_standby_publish, which stops replay. */
#define PMHASH_PUBLISH_MAX		1000

/* An index that is to have a file here. */
typedef struct PmhashStandbyIndex
{
	uint64		file_id;		/* as in its stub */
	PmhashSeed	seed;
	Oid			database;
	Oid			heap;
	Oid			index;
} PmhashStandbyIndex;

/* A build that has begun.  The builder's own; nothing in it is shared. */
typedef struct PmhashStandbyBuild
{
	PmhashStandbyIndex of;
	FullTransactionId n0;		/* read when the state was DELTA already */
	uint64		number;			/* which build: no two have the same */
	int			row;			/* in the table */
	char		path[MAXPGPATH];	/* <id>.pmh: where it goes in the end */
	char		new_path[MAXPGPATH];	/* <id>.new: where the builder makes it; any
										 * old one has been removed */
	char		delta_path[MAXPGPATH];	/* <id>.delta */
} PmhashStandbyBuild;

typedef enum PmhashPublishResult
{
	PMHASH_PUBLISH_DONE,		/* LIVE: close the handle, do not use it any more */
	PMHASH_PUBLISH_BEHIND,		/* more than PMHASH_PUBLISH_MAX are left: catch up */
	PMHASH_PUBLISH_OVER			/* it is NONE by now, and the files are gone; or it
								 * has failed just now (reason[] says why) */
} PmhashPublishResult;

/* ---- the builder's side (standby_delta.c) ---- */

/*
 * NONE becomes DELTA, then N0 is read: what is replayed from here on, and hence
 * each entry of a transaction that is not before N0, comes into the delta.  False
 * with a reason if that cannot be: the file is DELTA or LIVE already, the table is
 * full, recovery is over, a file cannot be made.  The caller holds AccessShareLock
 * on table and index and has just read the stub.
 */
extern bool pmhash_standby_begin(const PmhashStandbyIndex *of,
								 PmhashStandbyBuild *build, char *reason);

/* Is it still DELTA, and ours?  Cheap: once a page, or so. */
extern bool pmhash_standby_building(const PmhashStandbyBuild *build);

/* Operations in the delta so far. */
extern uint64 pmhash_standby_delta_length(const PmhashStandbyBuild *build);

/*
 * Read up to max operations from number 'from' (0: the first) on into ops[]; *n
 * says how many there were.  False with a reason if it is over, or the file can't
 * be read (then give up).  Takes no lock: what has been counted is complete.
 */
extern bool pmhash_standby_read_delta(const PmhashStandbyBuild *build, uint64 from,
									  PmhashDeltaOp *ops, size_t max, size_t *n,
									  char *reason);

/*
 * Apply operations in their order to a table: what the builder does to catch up,
 * and publish with the rest.  For operations that came after the scan had ended,
 * which none of its entries is of; those before are folded.  What is not there need
 * not be removed.
 */
extern PmhResult pmhash_standby_apply_ops(PmhTable *table,
										  const PmhashDeltaOp *ops, size_t n);

/*
 * Under the lock, exclusively: apply what the delta has from number 'from' on to
 * table, which is open on build->new_path; rename that to build->path; LIVE.  The
 * caller has made the file as durable as a build is.  usable_xmin: snapshots may
 * use it whose xmin is not before this one; InvalidTransactionId: all.
 */
extern PmhashPublishResult pmhash_standby_publish(const PmhashStandbyBuild *build,
												  uint64 from, PmhTable *table,
												  TransactionId usable_xmin,
												  char *reason);

/*
 * A build has failed, or is not to go on: NONE if it is still ours; <id>.new and
 * the delta are removed.  The next try comes after 1, 2, 4, ... 300 s; sqlstate and
 * message are kept for pmhash.indexes.  To be called from PG_CATCH as well, and
 * before_shmem_exit: takes the lock, allocates nothing.  sqlstate 0: no
 * fault (cancelled by a conflict, shutdown): try again after a second.
 */
extern void pmhash_standby_give_up(const PmhashStandbyBuild *build, int sqlstate,
								   const char *message);

/* For the views.  xid: the one waited for, else InvalidTransactionId. */
extern void pmhash_standby_progress(const PmhashStandbyBuild *build,
									PmhashStandbyPhase phase, uint64 done,
									uint64 total, TransactionId xid);

/* ---- what is to be built (standby.c) ---- */

/*
 * The builder's own list of an index's logged stubs, in the database that it is
 * connected to, is held against this: should this index have a build now?  False
 * if its file is DELTA or LIVE, or has failed and its time has not come.  ERROR: never.
 * A LIVE file from when this server was a primary is known to be logged from then on.
 */
extern bool pmhash_standby_wants(const PmhashStandbyIndex *of);

/*
 * The primary has not completed this index yet: look at it again from time to time,
 * until it has or the index goes.  ERROR: never.
 */
extern void pmhash_standby_wanted_later(const PmhashStandbyIndex *of);

/*
 * Databases in which something may be to be built by now, as FILE_NEW records or failed
 * builds say.  For the launcher.  *next: when the next one is due.  The list is of Oids,
 * in CurrentMemoryContext.
 */
extern List *pmhash_standby_due_databases(int64 *next);

#endif							/* PMHASH_STANDBY_DELTA_H */
