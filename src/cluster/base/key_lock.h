/*-------------------------------------------------------------------------
 *
 * key_lock.h
 *	  Locks of keys, for inserts into unique indexes.
 *
 * A session that inserts a key which must not be there twice holds its lock from
 * the look at the entries that are there to its own entry (am/unique.c).  One lock
 * serves many keys of many files; nothing else takes them.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_KEY_LOCK_H
#define PMHASH_KEY_LOCK_H

#include "cluster/base/shared.h"
#include "cluster/cluster.h"

StaticAssertDecl((PMHASH_KEY_LOCKS & (PMHASH_KEY_LOCKS - 1)) == 0,
				 "the lock of a key is found without a division");

/* The lock of a hash in a file.  Both are as good as random. */
static inline LWLock *
pmhash_key_lock(const PmhashFile *file, uint64 hash)
{
	return &pmhash_shared->key_locks[(file->file_id ^ hash) % PMHASH_KEY_LOCKS].lock;
}

#endif							/* PMHASH_KEY_LOCK_H */
