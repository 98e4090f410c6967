/*-------------------------------------------------------------------------
 *
 * requests.h
 *	  What processes ask the launcher for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_REQUESTS_H
#define PMHASH_REQUESTS_H

#include "nodes/pg_list.h"

#include "cluster/shared.h"

extern void pmhash_request_cleaning(Oid database);
extern void pmhash_request_look(Oid database);
extern void pmhash_request_rebuilder(Oid database, PmhashBuildKind kind);
extern bool pmhash_cleaners_run(void);
extern void pmhash_wake_launcher(void);
extern bool pmhash_has_requests(const PmhashRequests *requests);
extern List *pmhash_take_requests(PmhashRequests *requests, bool *all);
extern void pmhash_set_launcher(Latch *latch);

#endif							/* PMHASH_REQUESTS_H */
