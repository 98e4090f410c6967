/*-------------------------------------------------------------------------
 *
 * buffer_lookup.c
 *	  Shared buffers of blocks that are looked at once: finding them, and letting
 *	  them go.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"

#include "cluster/cluster.h"

/*
 * What the kernel maps at once when a page that is in memory is read: its neighbours
 * within an aligned piece of this size as well (fault_around_bytes of Linux).
 */
#define MAPPED_AT_ONCE	65536

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

/* The piece of memory at 'start', of one size, as far as it is whole pages of buffers. */
static void
unmap_piece(uintptr_t start)
{
	uintptr_t	page = (uintptr_t) sysconf(_SC_PAGESIZE);
	uintptr_t	first = ((uintptr_t) BufferBlocks + page - 1) / page * page;
	uintptr_t	end = ((uintptr_t) BufferBlocks + (Size) NBuffers * BLCKSZ) / page * page;

	start = Max(start, first);
	end = Min(end, start / MAPPED_AT_ONCE * MAPPED_AT_ONCE + MAPPED_AT_ONCE);
	if (start < end)
		(void) madvise((void *) start, end - start, MADV_DONTNEED);
}

/*
 * pmhash_buffer_leave
 *		Have this process not keep a page mapped that it has looked at in passing.
 *
 * A process that looks at a page of thousands of relations would have all of shared
 * buffers resident in the end.  The page of the last call stays, with its neighbours,
 * since the next one is often among them.  What is taken away is the mapping alone: of
 * shared memory all is there at the next access (madvise(2), MADV_DONTNEED).  It is
 * refused if the memory is locked, or of huge pages, and nothing is lost by that.
 * Raises no error.
 */
void
pmhash_buffer_leave(Buffer buffer)
{
	static uintptr_t last = 0;
	uintptr_t	page = (uintptr_t) BufferGetBlock(buffer);
	uintptr_t	piece = page / MAPPED_AT_ONCE * MAPPED_AT_ONCE;

	if (last != 0 && last != piece)
		unmap_piece(last);
	last = piece;
}
