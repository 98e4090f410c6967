/*-------------------------------------------------------------------------
 *
 * removal.c
 *	  Removal waits for WAL.
 *
 * With asynchronous commit a tuple can be dead to everyone while the commit
 * that killed it is still only in WAL buffers.  An entry removed durably at
 * this moment would be missing after a crash that revives the tuple.  Tuples
 * that vacuum has found dead were made so by WAL inserted earlier, so it is
 * enough to flush up to the end of what has been inserted when the removal
 * begins.  A record of our own is not needed: pmhash_insert_end is the exact
 * end of the last record reserved, and XLogFlush waits for insertions in
 * progress before it (xlog.c, WaitXLogInsertionsToFinish).
 *
 * That position is also noted in the journal, before anything is removed: a
 * data directory put back from before it has the tuples, but not the WAL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"

#include "cluster/internal.h"

/*
 * Flush all WAL inserted so far.  Nothing to do for indexes whose tables are
 * not WAL-logged: those do not outlive a crash.  May be called in a parallel
 * vacuum worker.  Errors: PANIC if WAL cannot be written, as everywhere; ERROR
 * if the journal can't be mapped.
 */
void
pmhash_removal_barrier(Relation index)
{
	XLogRecPtr	lsn;

	if (!RelationIsPermanent(index))
		return;
	lsn = pmhash_insert_end();
	XLogFlush(lsn);
	pmhash_journal_note_flushed(lsn);
}
