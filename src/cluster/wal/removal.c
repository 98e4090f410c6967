/*-------------------------------------------------------------------------
 *
 * removal.c
 *	  Rules for removing entries: after their WAL, and never unnoticed.  Which entries wait.
 *
 * Removal waits for WAL.
 *
 * With asynchronous commit a tuple can be dead to all while the commit that
 * killed it is still only in WAL buffers.  An entry removed durably at this
 * moment would be missing after a crash that revives the tuple.  Tuples that
 * vacuum has found dead were made so by WAL inserted earlier, so it is enough
 * to flush up to the end of what has been inserted when the removal begins.  A
 * record of our own is not needed: pmhash_insert_end is the exact end of the
 * last record reserved, and XLogFlush waits for insertions in progress before
 * it (xlog.c, WaitXLogInsertionsToFinish).
 *
 * That position is also noted in the journal, before anything is removed: a
 * data directory put back from before it has the tuples, but not the WAL.
 *
 * Removal epochs: which TIDs can have been given to other rows since a scan read them.
 * src/README, "Scans and VACUUM", has the proof and what it is used for.  Counters are
 * striped by file id; sharing one costs its users some wasted caution, no more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/wal/undo_journal.h"

/*
 * Flush what a removal waits for, before its first entry goes: the records of it, up to the
 * end of the last one; or (InvalidXLogRecPtr) all WAL that can have made rows dead.  Nothing
 * to do for indexes whose tables are not WAL-logged: those do not outlive a crash.  May be
 * called in a parallel vacuum worker.  Errors: PANIC if WAL cannot be written, as everywhere;
 * ERROR if the journal can't be mapped.
 */
void
pmhash_removal_barrier(XLogRecPtr end)
{
	Assert(!RecoveryInProgress());
	Assert(!LWLockHeldByMe(pmhash_lwlock(PMHASH_REMOVAL_LOCK)));	/* it waits for the disk */
	if (end == InvalidXLogRecPtr)
		end = pmhash_insert_end();
	PMH_STOP_POINT("vacuum_after_log");
	XLogFlush(end);
	pmhash_journal_note_flushed(end);
	PMH_STOP_POINT("vacuum_after_flush");
}

/* ---- removal epochs ---- */

static pg_atomic_uint64 *
epoch_of(uint64 file_id)
{
	return &pmhash_shared->removal_epoch[file_id % PMHASH_REMOVAL_EPOCHS];
}

/*
 * The removal epoch of a file: as long as it is the one that was there before an entry was
 * read, the entry's TID has not been given to another row.  A read barrier on both sides: what
 * is read before the call is read before the epoch, what comes after it after.
 */
uint64
pmhash_removal_epoch(const PmhashFile *file)
{
	uint64		epoch;

	Assert(file->file_id != 0);
	pg_read_barrier();
	epoch = pg_atomic_read_u64(epoch_of(file->file_id));
	pg_read_barrier();
	return epoch;
}

/*
 * VACUUM takes nothing out of a file that the index does not have any more, or that a standby
 * has given up (pmhash_standby_set_status), and a scan that goes on with one finds what is
 * left in it at any time.
 */
bool
pmhash_removal_none_since(const PmhashFile *file, uint64 epoch)
{
	return pmhash_removal_epoch(file) == epoch &&
		pg_atomic_read_u64(&pmhash_shared->stub_generation) == file->generation;
}

/*
 * Advance the epoch of a file, or, for an invalid index, of whose file nothing is known, all
 * of them (file_id 0).  To be called by every bulk
 * delete before it returns, also if it has removed nothing itself: an earlier one that failed
 * half way may have removed what this one would have.  Waits for the processes that hold
 * the removal lock; that is a bounded number of removals.  Raises no ERROR in recovery.
 */
void
pmhash_removal_finished(uint64 file_id)
{
	Assert(!LWLockHeldByMe(pmhash_lwlock(PMHASH_REMOVAL_LOCK)));
	LWLockAcquire(pmhash_lwlock(PMHASH_REMOVAL_LOCK), LW_EXCLUSIVE);
	for (int i = 0; file_id == 0 && i < PMHASH_REMOVAL_EPOCHS; i++)
		pg_atomic_fetch_add_u64(&pmhash_shared->removal_epoch[i], 1);
	if (file_id != 0)
		pg_atomic_fetch_add_u64(epoch_of(file_id), 1);
	LWLockRelease(pmhash_lwlock(PMHASH_REMOVAL_LOCK));
}

/* ---- entries in queues ---- */

/*
 * Entries of rows that are not committed may wait in a queue of the session that has
 * inserted them (am/insert.c).  The few readers that need them (am/scan_table.c)
 * cannot get at them; so they have to know that there are any, and go without the index.
 *
 * Counts are in shared memory, striped by file id; sharing one costs a reader a
 * detour.  A session that ends by an error or FATAL aborts its transaction first, and one
 * that dies in the middle takes shared memory with it, so no count stays too high.
 */

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
	uint32		before = pg_atomic_fetch_sub_u32(count_of(file_id), 1);

	Assert(before > 0);
	(void) before;
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
