/*-------------------------------------------------------------------------
 *
 * build_scan.h
 *	  The scans of the table that fill the spool of a build.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_BUILD_SCAN_H
#define PMHASH_BUILD_SCAN_H

#include "access/tableam.h"
#include "lib/hyperloglog.h"
#include "port/atomics.h"

#include "am.h"
#include "keys.h"
#include "spool.h"

/* ---- build_scan.c ---- */

/* Blocks of a table, given out a piece at a time to all processes that scan it. */
typedef struct PmhashBlockRange
{
	BlockNumber nblocks;
	pg_atomic_uint64 next;		/* not given out yet */
} PmhashBlockRange;

extern bool pmhash_can_scan_pages(Relation heap, struct IndexInfo *indexInfo);
extern void pmhash_block_range_init(PmhashBlockRange *range, Relation heap);
extern double pmhash_scan_pages(Relation heap, Relation index,
								struct IndexInfo *indexInfo,
								PmhashBlockRange *range, bool progress,
								IndexBuildCallback callback, void *state);

/* ---- build_scan.c ---- */

/* A scan of the table for a build, or this process's part of it. */
typedef struct PmhashBuildScan
{
	PmhashKeys *keys;
	PmhashSpool *spool;			/* where entries go */
	double		entries;		/* how many */
	uint64		rows;			/* that were seen */
	hyperLogLogState distinct;	/* of their hashes */
} PmhashBuildScan;

/* A scan with workers, whose files are needed until the load is over. */
typedef struct PmhashParallelScan PmhashParallelScan;

extern void pmhash_build_scan_init(PmhashBuildScan *scan, Relation index,
								   PmhashSeed seed, PmhashSpool *spool);
extern void pmhash_spool_row(Relation index, ItemPointer tid, Datum *values,
							 bool *isnull, bool tupleIsAlive, void *state);
extern double pmhash_build_scan(Relation heap, Relation index,
								struct IndexInfo *indexInfo,
								PmhashBuildScan *scan);
extern PmhashParallelScan *pmhash_parallel_begin(Relation heap, Relation index,
												 struct IndexInfo *indexInfo,
												 PmhashSeed seed, size_t memory,
												 int *participants);
extern double pmhash_parallel_scan(PmhashParallelScan *parallel,
								   Relation heap, Relation index,
								   struct IndexInfo *indexInfo,
								   PmhashBuildScan *scan);
extern void pmhash_parallel_end(PmhashParallelScan *parallel);

/* ---- build.c ---- */
extern void pmhash_build_load(PmhashFile *file, int fillfactor,
							  const PmhashBuildScan *scan);

#endif							/* PMHASH_BUILD_SCAN_H */
