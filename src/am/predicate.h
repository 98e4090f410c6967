/*-------------------------------------------------------------------------
 *
 * predicate.h
 *	  Predicate locks of serializable transactions, by key.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_PREDICATE_H
#define PMHASH_PREDICATE_H

#include "utils/snapshot.h"

#include "am/keys.h"
#include "cluster/cluster.h"

extern void pmhash_lock_keys(Relation index, PmhashFile *file, const PmhashKeys *keys,
							 const uint64 *hash, size_t n, Snapshot snapshot);
extern void pmhash_lock_all_keys(Relation index, PmhashFile *file, Snapshot snapshot);
extern void pmhash_check_readers(Relation index, const PmhashFile *file,
								 const PmhashKeys *keys, uint64 hash);

#endif							/* PMHASH_PREDICATE_H */
