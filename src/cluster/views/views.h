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

#endif							/* PMHASH_VIEWS_H */
