/*-------------------------------------------------------------------------
 *
 * service.c
 *	  May pmhash be used now, and what is said if not?
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"

/*
 * DETAIL for a pmhash that is disabled: the reason can name directories, so it is
 * for those that may see these, and for the log.  Returns 0, for ereport.
 */
static int
detail_of_disabled(bool details)
{
	if (details)
		errdetail("The reason is: %s.", pmhash_shared->reason);
	else
		errdetail_log("The reason is: %s.", pmhash_shared->reason);
	return 0;
}

/* "index "..."" or "pmhash", for messages. */
static const char *
subject(Relation index)
{
	return index == NULL ? "pmhash" :
		psprintf("pmhash index \"%s\"", RelationGetRelationName(index));
}

void
pmhash_require_service(Relation index)
{
	if (unlikely(pmhash_shared == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s cannot be used: the pmhash library is not preloaded",
						subject(index)),
				 errhint("Add pmhash to shared_preload_libraries and restart the server.")));
	if (unlikely(!pmhash_shared->usable))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s cannot be used: pmhash is disabled", subject(index)),
				 detail_of_disabled(pmhash_may_see_details(index)),
				 errhint("Repair this and restart the server.")));
	pmhash_pool_ready();
}

/*
 * pmhash_service_doubt
 *		Why there is no file to be had of any index, or NONE.
 *
 * pmhash is disabled for this server life; or the pool is away, and has not been used in
 * this life yet, as when a standby is promoted without the file system that its files are
 * on.  It can't be made ready (first_use.c), and rows are to be written all the same.
 */
PmhashReason
pmhash_service_doubt(void)
{
	if (unlikely(pmhash_shared == NULL))
		return PMHASH_REASON_NONE;
	if (unlikely(!pmhash_shared->usable))
		return PMHASH_REASON_DISABLED;
	if (unlikely(pg_atomic_read_u32(&pmhash_shared->ready) == 0) &&
		!RecoveryInProgress() && !pmhash_pool_is_present())
		return PMHASH_REASON_MISSING;
	return PMHASH_REASON_NONE;
}

bool
pmhash_service_available(void)
{
	return pmhash_shared != NULL && pmhash_shared->usable &&
		(!RecoveryInProgress() || pmhash_standby_is_active());
}
