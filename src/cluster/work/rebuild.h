/*-------------------------------------------------------------------------
 *
 * rebuild.h
 *	  Rebuilding invalid indexes in the background.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_REBUILD_H
#define PMHASH_REBUILD_H

#include "cluster/base/shared.h"

extern PmhashWorkerResult pmhash_rebuild_database(PmhashBuildKind kind);

#endif							/* PMHASH_REBUILD_H */
