/*-------------------------------------------------------------------------
 *
 * transaction.c
 *	  What is done at the ends of transactions and subtransactions, in which order.
 *
 * The only callbacks of this library for that: the server would call several in the
 * reverse order of their registration.  What may fail is done before the commit; after it,
 * and in aborts, nothing may, and no relation can be read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/inval.h"

#include "am/am.h"
#include "cluster/base/tools.h"
#include "cluster/file/files.h"
#include "cluster/open/open.h"

static void
transaction_callback(XactEvent event, void *arg)
{
	pmhash_queue_generation++;
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
	{
		Assert(IsTransactionState() && !pmhash_transaction_is_ending);
		pmhash_transaction_is_ending = true;
		pmhash_row_types_check();	/* the user's errors, before anything is written */
		pmhash_apply_inserts(NULL); /* and no row inserted from here on is queued */
		if (event == XACT_EVENT_PRE_COMMIT)
			pmhash_files_before_commit();	/* last: standbys rebuild if the commit fails then */
	}
	else if (event != XACT_EVENT_PARALLEL_PRE_COMMIT)	/* workers write nothing */
	{
		Assert(!IsTransactionState());
		pmhash_row_types_level_ends(1, false);
		pmhash_queues_forget();		/* they have pointers to files, which are closed last */
		if (event == XACT_EVENT_PREPARE)
			pmhash_files_prepared();
		else if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT)
			pmhash_files_aborted(InvalidSubTransactionId);
		else
			pmhash_files_committed();
		pmhash_entries_at_end_of_transaction();
		pmhash_counts_flush();
		pmhash_transaction_is_ending = false;
	}
}

static void
subtransaction_callback(SubXactEvent event, SubTransactionId mySubid,
						SubTransactionId parentSubid, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	Assert(level > 1);
	pmhash_queue_generation++;
	if (event == SUBXACT_EVENT_PRE_COMMIT_SUB)
		pmhash_queues_apply(level);
	else if (event != SUBXACT_EVENT_START_SUB)
	{
		bool		committed = event == SUBXACT_EVENT_COMMIT_SUB;

		pmhash_row_types_level_ends(level, committed);
		pmhash_queues_level_ends(level, committed); /* before files are removed */
		if (committed)
			pmhash_files_to_parent(mySubid, parentSubid);
		else
			pmhash_files_aborted(mySubid);
	}

	/*
	 * What has failed for the sake of its plan may be tried again in this transaction, in
	 * a loop of PL/pgSQL for one, and that has to be made anew.  If we have all locks from
	 * before, nothing else has us read the message that says so (lmgr.c, LockRelationOid).
	 * Core does it here, too (postgres.c, ProcessClientReadInterrupt).
	 */
	if (event == SUBXACT_EVENT_ABORT_SUB)
		AcceptInvalidationMessages();
}

/* Install the callbacks; children of the postmaster inherit them. */
void
pmhash_transaction_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
	RegisterSubXactCallback(subtransaction_callback, NULL);
}
