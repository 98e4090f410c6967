/*-------------------------------------------------------------------------
 *
 * requests.h
 *	  What processes ask the launcher for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_REQUESTS_H
#define PMHASH_REQUESTS_H

#include "cluster/base/shared.h"

extern bool pmhash_has_launcher;

extern void pmhash_request(Oid database, PmhashJob job);
extern bool pmhash_launcher_is_there(void);
extern void pmhash_wake_launcher(void);
extern PmhashRequests pmhash_take_requests(void);
extern void pmhash_set_launcher(Latch *latch);
extern bool pmhash_workers_can_be_had(void);

#endif							/* PMHASH_REQUESTS_H */
