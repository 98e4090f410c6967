/*-------------------------------------------------------------------------
 *
 * dead_entries.c
 *	  Removal of entries that scans have found dead (kill_prior_tuple).
 *
 * btree and hash mark such an entry with a hint bit on its page.  We have no
 * page whose write-out would wait for WAL, so we either remove an entry for
 * good or not at all.  It may be removed if
 *
 *	- the tuple is dead to everyone: the heap's judgement;
 *	- its TID is still that tuple's.  It is as long as the removal epoch has
 *	  not advanced since the entry was read, and we hold the removal lock, so
 *	  that it does not advance while we remove;
 *	- the WAL that made the tuple dead is on disk, or a crash would revive
 *	  a row that has lost its entry.  The heap may call a tuple dead whose
 *	  deleter's commit record is not flushed (heapam_visibility.c,
 *	  SetHintBits: a page that carries the LSN of a later record may have the
 *	  hint).  Everything that it can have relied upon has been inserted into
 *	  WAL before, so we wait until WAL is flushed up to the end of what had
 *	  been inserted when the entries were handed to us.
 *
 * We wait by remembering: each backend keeps a few lots of entries, one per
 * file, and looks again when a scan of the same index hands over more.  While
 * a lot waits, more entries of its file are turned away: they will be found
 * again.  So memory is bounded, no lot's wait grows longer, and no read waits
 * for a write; the WAL writer is asked to flush within its next round.  A lot that nobody asks for is replaced by another, and is
 * gone with the backend.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/memutils.h"

#include "cluster/internal.h"

#define DEAD_LOTS	8

typedef struct DeadLot
{
	uint64		file_id;
	uint64		epoch;			/* removal epoch of the entries' reading */
	XLogRecPtr	waits_for;		/* WAL to be flushed first */
	int			n;				/* 0: the lot is free */
	PmhEntry	entries[PMHASH_DEAD_LOT];
} DeadLot;

static DeadLot *lots[DEAD_LOTS];	/* NULL: not allocated yet */
static int	next_lot;			/* the one to be replaced next */

/* The lot that waits for a file, or NULL. */
static DeadLot *
find_lot(uint64 file_id)
{
	for (int i = 0; i < DEAD_LOTS; i++)
	{
		if (lots[i] != NULL && lots[i]->n > 0 && lots[i]->file_id == file_id)
			return lots[i];
	}
	return NULL;
}

/*
 * Keep entries until WAL is flushed up to lsn, and ask for that: what a reader
 * prunes is WAL that nobody else may be in a hurry to flush.
 */
static void
keep_lot(const PmhashFile *file, uint64 epoch, const PmhEntry *entries, int n,
		 XLogRecPtr lsn)
{
	DeadLot    *lot = lots[next_lot];

	if (lot == NULL)
		lots[next_lot] = lot = MemoryContextAlloc(TopMemoryContext,
												  sizeof(DeadLot));
	next_lot = (next_lot + 1) % DEAD_LOTS;
	lot->file_id = file->file_id;
	lot->epoch = epoch;
	lot->waits_for = lsn;
	lot->n = n;
	memcpy(lot->entries, entries, n * sizeof(PmhEntry));
	XLogSetAsyncXactLSN(lsn);
}

/*
 * Take entries out, if their TIDs cannot have changed hands.  A scan must not
 * wait for anybody here: what is in the way of others stays for the next one,
 * or for VACUUM.
 */
static void
take_out(Relation index, PmhashFile *file, uint64 epoch,
		 const PmhEntry *entries, int n)
{
	PmhResult	result = PMH_OK;
	size_t		removed;

	PMH_STOP_POINT("dead_before_removal");
	if (!LWLockConditionalAcquire(pmhash_lwlock(PMHASH_REMOVAL_LOCK), LW_SHARED))
		return;
	if (pmhash_removal_epoch(file) == epoch)
		result = pmh_delete_group_nowait(file->table, entries, n, &removed);
	LWLockRelease(pmhash_lwlock(PMHASH_REMOVAL_LOCK));
	if (result != PMH_OK)
		pmhash_engine_error(index, file, result);
}

static bool
is_flushed(XLogRecPtr lsn)
{
	return GetFlushRecPtr(NULL) >= lsn;
}

/*
 * Take out the lot that waits for a file, if its time has come.  False if it
 * has to wait longer.
 */
static bool
settle_lot(Relation index, PmhashFile *file)
{
	DeadLot    *lot = find_lot(file->file_id);
	int			n;

	if (lot == NULL)
		return true;
	if (!is_flushed(lot->waits_for))
		return false;
	pmhash_journal_note_flushed(lot->waits_for);
	n = lot->n;
	lot->n = 0;
	take_out(index, file, lot->epoch, lot->entries, n);
	return true;
}

/*
 * pmhash_dead_entries
 *		Remove entries whose tuples are dead to everyone, now or later.
 *
 * n is at most PMHASH_DEAD_LOT.  epoch is the removal epoch that was there
 * before any of them was read.  The tuples must have been judged before the
 * call.  Entries that are not there (any more) do not matter.  The caller
 * holds a lock on the index.  ERROR if the file is damaged or the journal
 * cannot be used.  Not to be called during recovery.
 */
void
pmhash_dead_entries(Relation index, PmhashFile *file, uint64 epoch,
					const PmhEntry *entries, int n)
{
	XLogRecPtr	lsn;

	Assert(n <= PMHASH_DEAD_LOT);
	if (!file->journaled)
	{
		take_out(index, file, epoch, entries, n);
		return;
	}
	if (!settle_lot(index, file))
		return;

	lsn = pmhash_insert_end();
	if (!is_flushed(lsn))
	{
		keep_lot(file, epoch, entries, n, lsn);
		return;
	}
	pmhash_journal_note_flushed(lsn);
	take_out(index, file, epoch, entries, n);
}
