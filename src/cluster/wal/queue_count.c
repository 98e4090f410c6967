/*-------------------------------------------------------------------------
 *
 * queue_count.c
 *	  Does any session have entries of a file that wait in its memory?
 *
 * Entries of rows that are not committed may wait in a queue of the session that has
 * inserted them (am/insert.c).  The few readers that need them (am/scan_table.c)
 * cannot get at them; so they have to know that there are any, and go without the index.
 *
 * Counts are in shared memory, striped by file id; sharing one costs a reader a
 * detour.  A session that ends by an error or FATAL aborts its transaction first, and one
 * that dies in the middle takes shared memory with it, so no count stays too high.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"

static pg_atomic_uint32 *
count_of(uint64 file_id)
{
	return &pmhash_shared->queues[file_id % PMHASH_QUEUE_COUNTS];
}

/*
 * A queue of this session begins to hold entries of a file.  To be called before the
 * first of them is in it.  A full memory barrier.
 */
void
pmhash_queue_opened(uint64 file_id)
{
	pg_atomic_fetch_add_u32(count_of(file_id), 1);
}

/*
 * It holds none any more: they are in the file's table, or their rows are dead.  A full
 * memory barrier.
 */
void
pmhash_queue_closed(uint64 file_id)
{
	pg_atomic_fetch_sub_u32(count_of(file_id), 1);
}

/*
 * May any session have entries of the file in a queue?  If not, all entries queued
 * before the call are in the table for whatever is read after it; those that are queued
 * later are of rows that are being inserted meanwhile.
 */
bool
pmhash_any_queue(const PmhashFile *file)
{
	bool		any = pg_atomic_read_u32(count_of(file->file_id)) != 0;

	pg_read_barrier();
	return any;
}
