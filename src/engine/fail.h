/*-------------------------------------------------------------------------
 *
 * fail.h
 *	  How functions of the engine report what went wrong (fail.c).
 *
 * Results beyond error.h, never seen by callers of the engine:
 *
 * 	PMH_RETRY	a writer has changed what we were reading: start again
 * 	PMH_NEED	something is missing that may only be had without locks (file
 * 				space, a longer mapping, a larger directory).  It is noted in
 * 				table->need.  The caller drops its locks, calls pmh_provide()
 * 				and starts again.
 * 	PMH_FAR		the key's list is too long to be searched while its segment is
 * 				locked: pmh_drain_one() does it
 * 	PMH_BUSY	it takes a lock that another process holds, and we are not to wait
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_FAIL_H
#define PMH_FAIL_H

#include "error.h"
#include "table.h"

#define PMH_RETRY			((PmhResult) 100)
#define PMH_NEED			((PmhResult) 101)
#define PMH_FAR				((PmhResult) 102)
#define PMH_BUSY			((PmhResult) 103)

/* PMH_ERR_LOST, PMH_CANCELLED: set t->error and return that. */
extern PmhResult pmh_fail_lost(PmhTable *t);
extern PmhResult pmh_fail_cancelled(PmhTable *t);

/* Set t->error and return code.  detail: a printf format for a sentence. */
extern PmhResult pmh_fail(PmhTable *t, PmhResult code, int sys_errno,
						  uint64_t offset, const char *detail, ...)
			__attribute__((format(printf, 5, 6)));
extern PmhResult pmh_fill_error(PmhError *error, PmhResult code, int sys_errno,
								uint64_t offset, const char *detail, ...)
			__attribute__((format(printf, 5, 6)));

#endif							/* PMH_FAIL_H */
