/*-------------------------------------------------------------------------
 *
 * standby_scan.h
 *	  The scan of a table from which a standby builds the file of an index.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STANDBY_SCAN_H
#define PMHASH_STANDBY_SCAN_H

#include "cluster/standby.h"

#include "am/build_scan.h"

/* A scan, from slice to slice. */
typedef struct PmhashStandbyScan
{
	const PmhashStandbyBuild *build;
	TransactionId n0;
	PmhashBuildScan rows;		/* keys: of the slice; entries: found so far */
	BlockNumber next;
	BlockNumber end;			/* InvalidBlockNumber: not begun */
	TransactionId usable_xmin;	/* InvalidTransactionId: any */
} PmhashStandbyScan;

extern void pmhash_standby_scan_init(PmhashStandbyScan *scan,
									 const PmhashStandbyBuild *build,
									 Relation index, PmhashSpool *spool);
extern bool pmhash_standby_scan_slice(PmhashStandbyScan *scan, Relation heap,
									  Relation index);

#endif							/* PMHASH_STANDBY_SCAN_H */
