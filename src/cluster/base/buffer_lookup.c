/*-------------------------------------------------------------------------
 *
 * buffer_lookup.c
 *	  Shared buffers of blocks that are looked at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"

#include "cluster/cluster.h"

/*
 * pmhash_buffer_of
 *		The shared buffer that has a block of a main fork, or InvalidBuffer.
 *
 * Of a relation that is not temporary.  It may be another's when this returns:
 * ReadRecentBuffer finds out.  Takes the lock of a partition of the buffer table, as
 * every read of a block does (bufmgr.c, BufferAlloc).  Raises no error.
 */
Buffer
pmhash_buffer_of(PmhashNode node, BlockNumber block)
{
	BufferTag	tag;
	uint32		hash;
	LWLock	   *lock;
	int			number;

#if PG_VERSION_NUM >= 160000
	InitBufferTag(&tag, &node, MAIN_FORKNUM, block);
#else
	INIT_BUFFERTAG(tag, node, MAIN_FORKNUM, block);
#endif
	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);
	LWLockAcquire(lock, LW_SHARED);
	number = BufTableLookup(&tag, hash);
	LWLockRelease(lock);
	return number < 0 ? InvalidBuffer : number + 1;
}
