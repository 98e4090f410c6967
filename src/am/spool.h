/*-------------------------------------------------------------------------
 *
 * spool.h
 *	  What a build collects before it loads: entries in partitions by hash,
 *	  and the scans of the table that fill them.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_SPOOL_H
#define PMHASH_SPOOL_H

#include "access/tableam.h"
#include "lib/hyperloglog.h"
#include "port/atomics.h"
#include "storage/fileset.h"

#include "am.h"

/* ---- spool.c ---- */

/* A spool has at most 2^PMHASH_SPOOL_BITS partitions. */
#define PMHASH_SPOOL_BITS	8
#define PMHASH_SPOOL_PARTITIONS	(1 << PMHASH_SPOOL_BITS)

/*
 * Entries whose hashes begin with the same 'bits' bits, partitioned by the
 * next 'partition_bits' bits.  partition_n[i] entries are in partition i.
 */
typedef struct PmhashSpool
{
	int			bits;
	int			partition_bits;
	uint64		partition_n[PMHASH_SPOOL_PARTITIONS];
	struct PmhashSpoolPrivate *priv;
} PmhashSpool;

/* Where in its file a spool has told what the file contains. */
typedef struct PmhashSpoolExport
{
	int			fileno;			/* a place in a BufFile */
	off_t		offset;
	uint32		nextents;		/* 0: there is no file */
} PmhashSpoolExport;

extern PmhashSpool *pmhash_spool_make(MemoryContext context, size_t memory,
									  int bits, int partition_bits,
									  FileSet *files, const char *name);
extern void pmhash_spool_add(PmhashSpool *spool, uint64 hash, uint64 value);
extern void pmhash_spool_write(PmhashSpool *spool);
extern void pmhash_spool_take(PmhashSpool *spool, int i, PmhEntry *entries,
							  uint64 n);
extern void pmhash_spool_free(PmhashSpool *spool);
extern void pmhash_spool_export(PmhashSpool *spool, PmhashSpoolExport *told);
extern void pmhash_spool_import(PmhashSpool *spool, FileSet *files,
								const char *name,
								const PmhashSpoolExport *told);

/* ---- build_pages.c ---- */

/* Blocks of a table, given out a piece at a time to all who scan it. */
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
	hyperLogLogState distinct;	/* of their hashes */
} PmhashBuildScan;

/* A scan with workers, whose files are needed until the load is over. */
typedef struct PmhashParallelScan PmhashParallelScan;

extern void pmhash_build_scan_init(PmhashBuildScan *scan, Relation index,
								   uint64 seed, PmhashSpool *spool);
extern double pmhash_build_scan(Relation heap, Relation index,
								struct IndexInfo *indexInfo,
								PmhashBuildScan *scan);
extern PmhashParallelScan *pmhash_parallel_begin(Relation heap, Relation index,
												 struct IndexInfo *indexInfo,
												 uint64 seed, size_t memory,
												 int *participants);
extern double pmhash_parallel_scan(PmhashParallelScan *parallel,
								   Relation heap, Relation index,
								   struct IndexInfo *indexInfo,
								   PmhashBuildScan *scan);
extern void pmhash_parallel_end(PmhashParallelScan *parallel);

#endif							/* PMHASH_SPOOL_H */
