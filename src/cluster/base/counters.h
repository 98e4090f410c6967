/*-------------------------------------------------------------------------
 *
 * counters.h
 *	  Cumulative counters of indexes and of the server; see counters.c.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_COUNTERS_H
#define PMHASH_COUNTERS_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

/* In the order of the columns of the views. */
typedef enum PmhashCounter
{
	PMHASH_LOOKUPS,				/* keys looked up alone */
	PMHASH_GROUP_LOOKUPS,		/* groups of keys looked up together ... */
	PMHASH_GROUP_KEYS,			/* ... and how many keys they had */
	PMHASH_FULL_SCANS,			/* scans of the whole index */
	PMHASH_TABLE_SCANS,			/* of its table instead: it was invalid */
	PMHASH_INSERTS,				/* entries inserted alone */
	PMHASH_GROUP_INSERTS,		/* groups of entries inserted together ... */
	PMHASH_GROUP_ENTRIES,		/* ... and how many entries they had */
	PMHASH_VACUUM_REMOVED,		/* entries that VACUUM has removed */
	PMHASH_SCAN_REMOVED,		/* and scans that have met them */
	PMHASH_SPLITS,				/* of segments */
	PMHASH_GROWS,
	PMHASH_DOUBLINGS,			/* of the directory */
	PMHASH_JOURNAL_WAITS,		/* inserts that have flushed WAL for room */
	PMHASH_INVALIDATIONS,		/* marked as invalid while in use */
	PMHASH_REBUILDS,			/* in the background, complete */
	PMHASH_REBUILD_FAILURES,
	PMHASH_INDEX_COUNTERS,		/* those of an index; the others are sums alone */
	PMHASH_LOCK_WAITS = PMHASH_INDEX_COUNTERS,	/* for one of the engine, past a spin */
	PMHASH_NOT_TRACKED,			/* additions for an index that has found no row */
	PMHASH_NCOUNTERS
} PmhashCounter;

/* Counted by one process, not yet added to what all see. */
typedef struct PmhashCounts
{
	uint64		n[PMHASH_NCOUNTERS];
} PmhashCounts;

/* What all see. */
typedef struct PmhashCountersRow
{
	Oid			index;
	TimestampTz since;			/* counted from then on */
	PmhashCounts counts;
} PmhashCountersRow;

struct PmhashFile;

extern Size pmhash_counters_size(void);
extern void pmhash_counters_init(void);
extern void pmhash_counters_flush(struct PmhashFile *file);
extern void pmhash_counters_add(Oid index, PmhashCounter counter, uint64 n);
extern void pmhash_counters_lock_wait(void);
extern PmhashCountersRow *pmhash_counters_rows(Oid database, int *n);
extern int64 pmhash_counters_server(PmhashCountersRow *server);
extern void pmhash_counters_reset(Oid database, Oid index);
extern void pmhash_counters_forget_dropped(Oid database);

#endif							/* PMHASH_COUNTERS_H */
