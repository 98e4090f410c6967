/*-------------------------------------------------------------------------
 *
 * service.h
 *	  What may be used now (the rest is in cluster.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_SERVICE_H
#define PMHASH_SERVICE_H

#include "cluster/cluster.h"

extern PmhashReason pmhash_service_doubt(void);

#endif							/* PMHASH_SERVICE_H */
