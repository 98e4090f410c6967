/*-------------------------------------------------------------------------
 *
 * standby_view.h
 *	  What a server in recovery shows of its pmhash indexes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STANDBY_VIEW_H
#define PMHASH_STANDBY_VIEW_H

#include "cluster/wal/stub.h"

extern const char *pmhash_standby_index_state(const PmhashStub *stub, bool details);

#endif							/* PMHASH_STANDBY_VIEW_H */
