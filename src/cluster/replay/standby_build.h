/*-------------------------------------------------------------------------
 *
 * standby_build.h
 *	  Building the file of an index on a standby: the parts of it.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STANDBY_BUILD_H
#define PMHASH_STANDBY_BUILD_H

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/replay/standby_delta.h"

/* What is collected of a table and of a delta, from begin to end. */
typedef struct PmhashStandbyFill PmhashStandbyFill;

/*
 * What the access method does for a build; see am/standby_fill.c.  Memory is taken
 * from a child of the current context, which must outlive all transactions.
 */
typedef struct PmhashFiller
{
	PmhashStandbyFill *(*begin) (const PmhashStandbyBuild *build);

	/*
	 * Scan a part of the table, in a transaction with AccessShareLock on both.  False
	 * if there is more to scan: the locks are to be released meanwhile, as replay or
	 * a session may wait for them.
	 */
	bool		(*scan) (PmhashStandbyFill *fill, Relation heap, Relation index);

	/*
	 * Load an empty file with what the scan has found and with the operations that
	 * are in the delta by now; returns how many these are.
	 */
	uint64		(*load) (PmhashStandbyFill *fill, PmhashFile *file);

	/* Snapshots with an older xmin may see rows that have been left out. */
	TransactionId (*usable_xmin) (const PmhashStandbyFill *fill);

	void		(*end) (PmhashStandbyFill *fill);
} PmhashFiller;

/* To be called from _PG_init. */
extern void pmhash_set_filler(const PmhashFiller *filler);

/* ---- standby_build.c ---- */
extern PmhashWorkerResult pmhash_standby_build_database(PmhashBuildKind kind);

/* ---- standby_sweep.c ---- */
extern PmhashWorkerResult pmhash_standby_sweep_database(void);

#endif							/* PMHASH_STANDBY_BUILD_H */
