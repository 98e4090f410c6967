/*-------------------------------------------------------------------------
 *
 * views.h
 *	  The state of an index, as users are shown it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_VIEWS_H
#define PMHASH_VIEWS_H

#include "cluster/wal/stub.h"

extern char *pmhash_shown_state(Oid relid);
extern const char *pmhash_standby_index_state(const PmhashStub *stub, bool details);

#endif							/* PMHASH_VIEWS_H */
