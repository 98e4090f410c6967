/*-------------------------------------------------------------------------
 *
 * scan_queue.c
 *	  Scans that read a queue: FOR UPDATE SKIP LOCKED.
 *
 * A process that takes a row out of a queue passes over those that others have locked,
 * and those that they have just deleted, which are not dead to all yet: all of what
 * the others have taken lately, if all begin in the same place.  So such scans begin in
 * different places.  Others begin in one place, lest two that lock all rows of a key do
 * so crosswise, and deadlock.
 *
 * The choice is one scan's, not one statement's: of UPDATE job ... WHERE id = (SELECT id
 * FROM job ... FOR UPDATE SKIP LOCKED) the inner scan never waits for a row, the outer
 * one does; so do those of functions and triggers that it calls.  An access method gets
 * no word of where in a plan its scan is.  But the statement is known (statements.c); and
 * in that one's plan the scan is found, and with it its entry in the range table, of
 * which the row marks tell (plannodes.h, PlanRowMark).  A scan that is not found begins
 * where all do: those that EvalPlanQual runs anew, and those of nodes that other modules
 * have brought.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "utils/memutils.h"

#include "scan.h"
#include "statements.h"

/* A scan that is looked for, and its entry in the range table. */
typedef struct LockSearch
{
	IndexScanDesc scan;
	Index		rti;
} LockSearch;

/* Rows that are locked have their TIDs from an index scan, not from an index-only one. */
static bool
find_scan(PlanState *node, void *context)
{
	LockSearch *search = context;

	if (node == NULL)
		return false;
	if (IsA(node, IndexScanState) &&
		((IndexScanState *) node)->iss_ScanDesc == search->scan)
	{
		search->rti = ((const Scan *) node->plan)->scanrelid;
		return true;
	}
	return planstate_tree_walker(node, find_scan, search);
}

/* Are the rows that this scan finds passed over if they are locked? */
static bool
reads_queue(IndexScanDesc scan)
{
	PmhashScan *so = scan->opaque;
	const PmhashStatement *statement =
		pmhash_statement_in(MemoryContextGetParent(so->context));
	LockSearch	search = {scan, 0};

	return statement != NULL && statement->skips_locked &&
		find_scan(statement->plan, &search) &&
		pmhash_skips_locked(statement->planned, search.rti);
}

/*
 * pmhash_scan_start
 *		Where in the buffers of a long list is a scan to begin?  0: at their beginning;
 *		else it reads a queue, and this is a cursor's 'start'.
 *
 * It is a queue if what is locked is passed over and any rows are known to be dead.
 * Each scan begins somewhere else than the one before (multiples of the golden ratio lie
 * evenly), so none of the rows that come first is left for good.
 */
uint32
pmhash_scan_start(IndexScanDesc scan, const PmhashFile *file)
{
	static uint32 start = 0;

	if (!scan->ignore_killed_tuples || likely(!pmhash_any_known_dead(file)) ||
		!reads_queue(scan))
		return 0;
	if (start == 0)
		start = (uint32) MyProcPid * UINT32_C(0x85ebca6b);
	start += UINT32_C(0x9e3779b9);
	return Max(start, 1);
}
