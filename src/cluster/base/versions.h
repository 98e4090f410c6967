/*-------------------------------------------------------------------------
 *
 * versions.h
 *	  What PostgreSQL names otherwise from version to version.
 *
 * Differences in behaviour stand where they matter, under PG_VERSION_NUM.
 *
 * 15 to 18 pass all tests.  19 is prepared: with its first release candidate (Debian's
 * experimental, 2026-12-01) this compiles without warnings and passes the SQL and isolation
 * tests, and the TAP tests but those for the night.  What removal of entries and index-only
 * scans rest on there (src/README, "Scans and VACUUM"; read in sources of June 2026):
 *	- heap_hot_search_buffer (heapam_indexscan.c) calls a chain dead by
 *	  HeapTupleIsSurelyDead alone, as before.
 *	- A page with a dead line pointer does not become all-visible (pruneheap.c,
 *	  heap_page_prune_and_freeze), so a mark that a scan has made says what VACUUM's does:
 *	  a line pointer is free only after bulk delete, and then the epoch has advanced.
 *	- A hint bit for a commit is set if that was flushed, or the page's LSN is past it
 *	  (SetHintBitsExt).
 *	- A transaction leaves the array of running ones after its commit record (xact.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_VERSIONS_H
#define PMHASH_VERSIONS_H

#if PG_VERSION_NUM < 150000
#error "pmhash needs PostgreSQL 15 or later"
#endif

#include "access/htup_details.h"
#include "storage/smgr.h"
#include "utils/rel.h"

#if PG_VERSION_NUM >= 160000

#include "varatt.h"

/* Where a relation's files are, and its parts. */
typedef RelFileLocator PmhashNode;

#define pmhash_node(rel)				((rel)->rd_locator)

#define pmhash_make_node(tablespace, database, number) \
	((RelFileLocator) {(tablespace), (database), (number)})

/*
 * The subtransaction whose abort gives a relation the files it had before this
 * transaction, and the one that gave it its present ones, if the server remembers.
 */
#define pmhash_node_subid(rel)			((rel)->rd_firstRelfilelocatorSubid)
#define pmhash_fork_subid(rel)			((rel)->rd_newRelfilelocatorSubid)

#define pmhash_materialized(fcinfo)		InitMaterializedSRF(fcinfo, 0)

#else

typedef RelFileNode PmhashNode;

#define pmhash_node(rel)				((rel)->rd_node)
#define pmhash_make_node(tablespace, database, number) \
	((RelFileNode) {(tablespace), (database), (number)})
#define pmhash_node_subid(rel)			((rel)->rd_firstRelfilenodeSubid)
#define pmhash_fork_subid(rel)			((rel)->rd_newRelfilenodeSubid)

/* (its new name came in 15.1) */
#define pmhash_materialized(fcinfo)		SetSingleFuncCall(fcinfo, 0)

#endif

/*
 * heap_getattr of a column, without what minor releases have put into it: 15.20 calls
 * heap_datum_check, for values of row types, which 15.18 does not have.
 */
static inline Datum
pmhash_column(HeapTuple tuple, int column, TupleDesc columns, bool *isnull)
{
	Assert(column > 0);
	if (column > HeapTupleHeaderGetNatts(tuple->t_data))
		return getmissingattr(columns, column, isnull);
	return fastgetattr(tuple, column, columns, isnull);
}

#if PG_VERSION_NUM < 180000
#define pg_noreturn						pg_attribute_noreturn()
#endif

/* The buffer of a page that is read or written without shared buffers. */
#if PG_VERSION_NUM < 160000
#define PGIOAlignedBlock				PGAlignedBlock
#endif

/* Is a page as it was written?  Says nothing of it, and counts nothing. */
#if PG_VERSION_NUM >= 180000
#define pmhash_page_is_sound(page, block) \
	PageIsVerified(page, block, 0, &(bool) {false})
#else
#define pmhash_page_is_sound(page, block) \
	PageIsVerifiedExtended(page, block, 0)
#endif

/* PostgreSQL 19: further parameters, set to what earlier versions do. */
#if PG_VERSION_NUM >= 190000
#define pmhash_set_checksum(page, block) \
	PageSetChecksum(page, block)
#define pmhash_beginscan_parallel(heap, scan) \
	table_beginscan_parallel(heap, scan, SO_NONE)
#define pmhash_index_fetch_begin(heap) \
	table_index_fetch_begin(heap, SO_NONE)
#define pmhash_plan_query(query, text) \
	pg_plan_query(query, text, 0, NULL, NULL)
#else
#define pmhash_plan_query(query, text) \
	pg_plan_query(query, text, 0, NULL)
#define NodeInstrumentation				Instrumentation
#define pmhash_index_fetch_begin(heap) \
	table_index_fetch_begin(heap)
#define pmhash_set_checksum(page, block) \
	PageSetChecksumInplace(page, block)
#define pmhash_beginscan_parallel(heap, scan) \
	table_beginscan_parallel(heap, scan)
#endif

/*
 * For a worker, before it connects: its transactions may take their time, as those of
 * core's workers.  Else no worker might ever come to its end.
 */
#if PG_VERSION_NUM >= 170000
#define pmhash_no_transaction_timeout() \
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE)
#else
#define pmhash_no_transaction_timeout()	((void) 0)
#endif

/* The state of a shared buffer (storage/buf_internals.h). */
#if PG_VERSION_NUM >= 190000
typedef uint64 PmhashBufferState;

#define pmhash_buffer_state(desc)		pg_atomic_read_u64(&(desc)->state)
#define pmhash_change_buffer_state(desc, old, changed) \
	pg_atomic_compare_exchange_u64(&(desc)->state, old, changed)
#else
typedef uint32 PmhashBufferState;

#define pmhash_buffer_state(desc)		pg_atomic_read_u32(&(desc)->state)
#define pmhash_change_buffer_state(desc, old, changed) \
	pg_atomic_compare_exchange_u32(&(desc)->state, old, changed)
#endif

#endif							/* PMHASH_VERSIONS_H */
