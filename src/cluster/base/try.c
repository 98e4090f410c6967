/*-------------------------------------------------------------------------
 *
 * try.c
 *	  Doing something that may fail, and going on if it does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "cluster/base/try.h"

bool		pmhash_transaction_is_ending = false;

/*
 * pmhash_try
 *		Do something, and go on if it can't be done.
 *
 * Runs in a subtransaction, which gives back what an error leaves of the doing; what
 * is opened has to be closed in it.  Returns NULL if all went well; the error (in the
 * current memory context) if 'at_fault' says of its SQLSTATE that what is looked at is
 * at fault; any other is raised again.  Not to be called in a parallel operation, with
 * a lock of shared memory, or when the transaction has begun to end.
 */
ErrorData *
pmhash_try(PmhashTried tried, void *arg, bool (*at_fault) (int sqlstate))
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	Assert(IsTransactionState() && !pmhash_transaction_is_ending);
	Assert(!IsInParallelMode());
	Assert(InterruptHoldoffCount == 0 && CritSectionCount == 0);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		tried(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		if (!at_fault(error->sqlerrcode))
			ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}
