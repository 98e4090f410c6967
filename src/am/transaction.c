/*-------------------------------------------------------------------------
 *
 * transaction.c
 *	  What is done at the ends of transactions and subtransactions, and in which order.
 *
 * The only callbacks of this library for these events: the server would call several
 * in the reverse order of their registration (xact.c, CallXactCallbacks).
 *
 * What may fail is done before the commit; after it, and in aborts, nothing may, and
 * catalogs and shared buffers of relations can't be read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/inval.h"

#include "am/am.h"
#include "am/insert_queue.h"
#include "am/row_types.h"
#include "cluster/file_cache.h"
#include "cluster/life_cycle.h"
#include "cluster/logged.h"
#include "cluster/planner_hook.h"
#include "cluster/try.h"

static void
transaction_begins_to_end(XactEvent event)
{
	Assert(IsTransactionState() && !pmhash_transaction_is_ending);
	pmhash_transaction_is_ending = true;

	/* An error of the user's making comes before anything is written for nothing. */
	pmhash_row_types_check();

	/* Entries that wait; those of rows that are inserted from here on don't. */
	pmhash_apply_inserts(NULL);
	pmhash_queue_generation++;

	/*
	 * The records that have standbys give up files that go are the last: if the commit
	 * fails after them, they have to build theirs again.
	 */
	if (event == XACT_EVENT_PRE_PREPARE)
		pmhash_logged_before_prepare();
	else
		pmhash_files_before_commit();

	/* The next transaction's plans: not before the catalogs have been read here. */
	pmhash_forget_plans_for_now();
}

static void
transaction_has_ended(XactEvent event)
{
	Assert(!IsTransactionState());
	pmhash_row_types_forget();

	/* Queues have pointers to the handles of files, which are closed last. */
	pmhash_queues_forget();

	/*
	 * Standbys hear of new files before those of old are removed, which may take its
	 * time.  A file that an abort removes is none that they are to hear of.
	 */
	if (event == XACT_EVENT_COMMIT)
		pmhash_logged_committed();
	pmhash_logged_forget();
	if (event == XACT_EVENT_PREPARE)
		pmhash_files_prepared();
	else if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT)
		pmhash_files_aborted(0);
	else
		pmhash_files_committed();
	pmhash_files_over();
	pmhash_entries_at_end_of_transaction();
	pmhash_transaction_is_ending = false;
}

static void
transaction_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			transaction_begins_to_end(event);
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:	/* workers write nothing of their own */
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			transaction_has_ended(event);
			break;
	}
}

static void
subtransaction_callback(SubXactEvent event, SubTransactionId mySubid,
						SubTransactionId parentSubid, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	pmhash_queue_generation++;
	switch (event)
	{
		case SUBXACT_EVENT_START_SUB:
			break;
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			Assert(IsTransactionState());
			pmhash_queues_apply(level);
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
			pmhash_row_types_level_ends(event);
			pmhash_queues_to_parent(level);
			pmhash_logged_level_ends(event);
			pmhash_files_to_parent(level, mySubid, parentSubid);
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			pmhash_row_types_level_ends(event);
			pmhash_queues_drop(level);	/* before their files are removed */
			pmhash_logged_level_ends(event);
			pmhash_files_aborted(level);

			/*
			 * What has failed for the sake of its plan may be tried again in this
			 * transaction, in a loop of PL/pgSQL for one, and that has to be made anew.
			 * If the transaction has all locks from before, nothing has it read the
			 * message that says so (lmgr.c, LockRelationOid), which may be a parallel
			 * worker's.  Core reads messages in transactions that have failed, too
			 * (postgres.c, ProcessClientReadInterrupt).
			 */
			AcceptInvalidationMessages();
			break;
	}
}

/* Install the callbacks; children of the postmaster inherit them. */
void
pmhash_transaction_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
	RegisterSubXactCallback(subtransaction_callback, NULL);
}
