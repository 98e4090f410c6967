/*-------------------------------------------------------------------------
 *
 * key_types.h
 *	  The types that keys are made of.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_KEY_TYPES_H
#define PMHASH_KEY_TYPES_H

#include "access/attnum.h"
#include "utils/relcache.h"

/* Look at a type that values are compared under this collation in; true: enough. */
typedef bool (*PmhashTypeVisitor) (Oid type, Oid collation, void *arg);

extern bool pmhash_visit_types(Oid type, Oid collation, PmhashTypeVisitor visit,
							   void *arg);
extern AttrNumber pmhash_lock_row_types(Relation index);
extern bool pmhash_core_hash_misleads(Oid type, Oid collation);
extern bool pmhash_range_order_misleads(Oid type);

#endif							/* PMHASH_KEY_TYPES_H */
