/*-------------------------------------------------------------------------
 *
 * scan_history.c
 *	  What a scan has handed out, so that it can be gone through backward.
 *
 * An index of ours has no order that could be read in the other direction:
 * what stands where may have changed by the time when a cursor turns back.  So
 * scans that a scrollable cursor may turn back remember.  Entries are kept in
 * memory as long as they fit in work_mem, and what comes before them in a
 * temporary file.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"

#include "scan.h"
#include "temp_file.h"

/* Entries read from the file at once: a block of it. */
#define PIECE		(BLCKSZ / sizeof(PmhEntry))

StaticAssertDecl(BLCKSZ % sizeof(PmhEntry) == 0, "pieces are whole blocks");

struct PmhashScanHistory
{
	MemoryContext context;
	BufFile    *file;			/* the first entries, whole pieces; or NULL */
	uint64		in_file;		/* how many they are */
	PmhEntry   *recent;			/* those after them */
	size_t		nrecent;
	size_t		capacity;		/* of recent[] */
	PmhEntry   *piece;			/* one piece of the file, or NULL */
	uint64		piece_no;		/* which one */
};

/* ---- which scans may turn back ---- */

/* A scan that is looked for. */
typedef struct ScrollSearch
{
	IndexScanDesc scan;
	bool		below_custom;	/* it has been found below a CustomScan */
} ScrollSearch;

/*
 * Is the scan in the part of a plan that runs backward when the whole of it does?
 * These are the nodes by which execAmi.c, ExecSupportsBackwardScan, goes down; the
 * planner puts a Material on top of others (planner.c, standard_planner).  What is
 * below a Sort or Material, or in a subplan (nodeSubplan.c), only goes forward.
 */
static bool
runs_backward(PlanState *node, void *context)
{
	ScrollSearch *search = context;

	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_IndexScanState:
			return ((IndexScanState *) node)->iss_ScanDesc == search->scan;
		case T_IndexOnlyScanState:
			return ((IndexOnlyScanState *) node)->ioss_ScanDesc == search->scan;
		case T_ResultState:
		case T_LimitState:
		case T_LockRowsState:
			return runs_backward(outerPlanState(node), search);
		case T_SubqueryScanState:
			return runs_backward(((SubqueryScanState *) node)->subplan, search);
		case T_AppendState:
			for (int i = 0; i < ((AppendState *) node)->as_nplans; i++)
			{
				if (runs_backward(((AppendState *) node)->appendplans[i], search))
					return true;
			}
			return false;
		case T_CustomScanState: /* not known: any scan below it */
			search->below_custom = planstate_tree_walker(node, runs_backward, search);
			return search->below_custom;
		default:
			return false;
	}
}

/*
 * Can this scan, which is about to begin, be turned back later?  An access method
 * gets no word of it.  Only portals run a plan backward, those with the option SCROLL
 * (pquery.c, PortalRunSelect); while they run they are the ActivePortal, but so
 * they are for all queries of the functions they call.  A portal that is being put
 * away for the time after its transaction goes forward once more, and that is its
 * end (portalcmds.c, PersistHoldablePortal).
 *
 * Such a scan is rewound as well (ExecutorRewind), and what had been handed out before is
 * then expected first: so many rows are skipped of what a held cursor stores, and
 * FETCH ABSOLUTE counts.  There is no parameter above it that could change, unless
 * another extension's node is.  (A key that is a STABLE function of something that SET
 * changes while the cursor is open stays what it was.)
 */
PmhashTurns
pmhash_scan_turns(IndexScanDesc scan)
{
	Portal		portal = ActivePortal;
	ScrollSearch search = {scan, false};

	if (portal == NULL || (portal->cursorOptions & CURSOR_OPT_SCROLL) == 0 ||
		portal->holdStore != NULL || portal->queryDesc == NULL ||
		!runs_backward(portal->queryDesc->planstate, &search))
		return PMHASH_ONLY_FORWARD;
	return search.below_custom ? PMHASH_MAY_TURN_BACK : PMHASH_MAY_BE_REWOUND;
}

/* ---- what was handed out ---- */

/* An empty history, which lives in context. */
PmhashScanHistory *
pmhash_history_make(MemoryContext context)
{
	PmhashScanHistory *history = MemoryContextAllocZero(context,
														sizeof(PmhashScanHistory));

	history->context = context;
	return history;
}

/*
 * Forget everything.  Also to be called when a scan ends in order; after an
 * error its resource owner closes the file.
 */
void
pmhash_history_clear(PmhashScanHistory *history)
{
	if (history->file != NULL)
		BufFileClose(history->file);
	history->file = NULL;
	history->in_file = 0;
	history->nrecent = 0;
}

/* How many entries are in it? */
uint64
pmhash_history_length(const PmhashScanHistory *history)
{
	return history->in_file + history->nrecent;
}

/* As many entries as fit in work_mem, in whole pieces. */
static size_t
most_recent(void)
{
	return Max((Size) work_mem * 1024 / BLCKSZ, 1) * PIECE;
}

/* Write recent[], which is whole pieces, to the file. */
static void
spill(PmhashScanHistory *history)
{
	MemoryContext old = MemoryContextSwitchTo(history->context);

	Assert(history->nrecent % PIECE == 0);
	if (history->file == NULL)
	{
		history->file = BufFileCreateTemp(false);
		history->piece_no = PG_UINT64_MAX;
		if (history->piece == NULL)
			history->piece = palloc(PIECE * sizeof(PmhEntry));
	}
	if (BufFileSeekBlock(history->file, history->in_file / PIECE) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek in temporary file: %m")));
	BufFileWrite(history->file, history->recent,
				 history->nrecent * sizeof(PmhEntry));
	history->in_file += history->nrecent;
	history->nrecent = 0;
	MemoryContextSwitchTo(old);
}

/* Make room for another entry in recent[]. */
static void
make_room(PmhashScanHistory *history)
{
	size_t		most = most_recent();

	if (history->nrecent >= most && history->nrecent % PIECE == 0)
		spill(history);
	if (history->nrecent < history->capacity)
		return;
	history->capacity = Min(Max(history->capacity * 2, PIECE),
							Max(most, history->nrecent + PIECE));
	if (history->recent == NULL)
		history->recent = MemoryContextAllocHuge(history->context,
												 history->capacity * sizeof(PmhEntry));
	else
		history->recent = repalloc_huge(history->recent,
										history->capacity * sizeof(PmhEntry));
}

/* Add an entry at the end.  ERROR for want of memory, or of space for temporary files. */
void
pmhash_history_add(PmhashScanHistory *history, PmhEntry entry)
{
	if (history->nrecent % PIECE == 0)
		make_room(history);
	history->recent[history->nrecent++] = entry;
}

/* Entry number 'at', from 0 on, which there must be. */
PmhEntry
pmhash_history_get(PmhashScanHistory *history, uint64 at)
{
	if (at >= history->in_file)
		return history->recent[at - history->in_file];
	if (history->piece_no != at / PIECE)
	{
		history->piece_no = PG_UINT64_MAX;
		if (BufFileSeekBlock(history->file, at / PIECE) != 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not seek in temporary file: %m")));
		pmhash_temp_read(history->file, history->piece, PIECE * sizeof(PmhEntry));
		history->piece_no = at / PIECE;
	}
	return history->piece[at % PIECE];
}
