/*-------------------------------------------------------------------------
 *
 * spool.h
 *	  What a build collects before it loads: entries in partitions by hash.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_SPOOL_H
#define PMHASH_SPOOL_H

#include "storage/fileset.h"

#include "cluster/cluster.h"

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

/* ---- sorting, with a look at interrupts ---- */

extern int	pmhash_compare_entries(const void *a, const void *b);
extern void pmhash_sort_entries(PmhEntry *entry, size_t n);
extern void pmhash_sort_numbers(uint64 *number, size_t n);

#endif							/* PMHASH_SPOOL_H */
