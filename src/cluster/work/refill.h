/*-------------------------------------------------------------------------
 *
 * refill.h
 *	  Filling the file of an index while others write.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_REFILL_H
#define PMHASH_REFILL_H

#include "cluster/cluster.h"

extern bool pmhash_index_is_invalid(Relation index, PmhashReason *reason);
extern void pmhash_refill(Oid relid);
extern void pmhash_refill_failed(void);
extern void pmhash_refill_forget(void);
extern void pmhash_refill_scanned(void);

#endif							/* PMHASH_REFILL_H */
