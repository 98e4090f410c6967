/*-------------------------------------------------------------------------
 *
 * replay.h
 *	  Logged indexes on a server in recovery: replay, builds.
 *
 * Include postgres.h first.  src/README, "Standbys", has the rules S1 to S7 and B1 to B7.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_REPLAY_H
#define PMHASH_REPLAY_H

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/standby/standby_state.h"

/*
 * A delta is a file of entries, in the order of WAL: those that were inserted, and with this
 * in their values those that were deleted.
 */
#define PMHASH_DELTA_DELETE		(UINT64CONST(1) << 63)

/* That a builder applies while replay waits. */
#define PMHASH_PUBLISH_MAX		1000

/* What is collected of a table. */
typedef struct PmhashStandbyFill PmhashStandbyFill;

/* What the access method does for a build; see am/standby_fill.c. */
typedef struct PmhashFiller
{
	/*
	 * Scan a part of the table, in a transaction with AccessShareLock on both.  False
	 * if there is more to scan: the locks are to be released meanwhile, as replay or
	 * a session may wait for them.  *fill is NULL at first; its memory and temporary files
	 * outlive transactions.  n0: the next transaction id when the delta had begun.
	 */
	bool		(*scan) (PmhashStandbyFill **fill, TransactionId n0, PmhashSeed seed,
						 Relation heap, Relation index);

	/*
	 * Load an empty file with what the scan has found.  Snapshots with an xmin before
	 * *usable_xmin may see rows that have been left out.  Frees fill.
	 */
	void		(*load) (PmhashStandbyFill *fill, PmhashFile *file, TransactionId *usable_xmin);
} PmhashFiller;

extern const PmhashFiller *pmhash_filler;	/* set by _PG_init */

/* ---- standby_redo.c ---- */
extern void pmhash_standby_redo_init(void);

/* ---- standby_build.c ---- */
extern bool pmhash_standby_build_database(PmhashJob job);

/*
 * Is it still DELTA, and ours?  The startup process sends a file to NONE at any moment (a
 * record that says so, a full disk, damage), and then the builder throws its work away.
 * Cheap: once a page, or so.
 */
extern bool pmhash_standby_building(void);

/* For the views.  xid: the one waited for, else InvalidTransactionId. */
extern void pmhash_standby_progress(uint64 done, uint64 total, TransactionId xid);

#endif							/* PMHASH_REPLAY_H */
