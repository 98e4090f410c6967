/*-------------------------------------------------------------------------
 *
 * build.h
 *	  What the files that build an index share: the scans of the table, the spool
 *	  that they fill, and the load.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_BUILD_H
#define PMHASH_BUILD_H

#include "access/tableam.h"
#include "lib/hyperloglog.h"
#include "port/atomics.h"
#include "storage/buffile.h"
#include "storage/fileset.h"

#include "am/am.h"
#include "am/keys.h"

/* ---- spool.c: entries in partitions by hash ---- */

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

/* Where in its file a spool has listed what the file contains. */
typedef struct PmhashSpoolExport
{
	int			fileno;			/* a position in a BufFile */
	off_t		offset;
	uint32		npieces;		/* 0: there is no file */
} PmhashSpoolExport;

extern PmhashSpool *pmhash_spool_make(MemoryContext context, size_t memory,
									  int bits, int partition_bits,
									  FileSet *files, const char *name);
extern void pmhash_spool_outlive_transaction(PmhashSpool *spool);
extern void pmhash_spool_add(PmhashSpool *spool, uint64 hash, uint64 value);
extern void pmhash_spool_write(PmhashSpool *spool);
extern void pmhash_spool_take(PmhashSpool *spool, int i, PmhEntry *entries,
							  uint64 n);
extern void pmhash_spool_free(PmhashSpool *spool);
extern void pmhash_spool_export(PmhashSpool *spool, PmhashSpoolExport *list);
extern void pmhash_spool_import(PmhashSpool *spool, FileSet *files,
								const char *name,
								const PmhashSpoolExport *list);

/* ---- temporary files, read back ---- */

/* Go to a position that BufFileTell has given.  ERROR if it is not there. */
static inline void
pmhash_temp_seek(BufFile *file, int fileno, off_t offset)
{
	if (BufFileSeek(file, fileno, offset, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek in temporary file: %m")));
}

/* Read exactly 'bytes' from where the file stands.  ERROR if there are fewer. */
static inline void
pmhash_temp_read(BufFile *file, void *to, size_t bytes)
{
#if PG_VERSION_NUM >= 160000
	BufFileReadExact(file, to, bytes);
#else
	if (BufFileRead(file, to, bytes) != bytes)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from temporary file")));
#endif
}

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

/* ---- unique.c ---- */

/* Finds keys that a build meets twice. */
typedef struct PmhashBuildUnique PmhashBuildUnique;

extern PmhashBuildUnique *pmhash_build_unique_make(MemoryContext context,
												   Relation heap, Relation index);
extern void pmhash_build_unique_check(PmhashBuildUnique *unique,
									  const PmhEntry *entries, size_t n);
extern void pmhash_build_unique_remember(PmhashBuildUnique *unique,
										 const PmhEntry *entries, size_t n);
extern void pmhash_build_unique_check_remembered(PmhashBuildUnique *unique,
												 PmhashFile *file);

/* ---- build.c ---- */
extern void pmhash_build_load(PmhashFile *file, int fillfactor,
							  const PmhashBuildScan *scan);

#endif							/* PMHASH_BUILD_H */
