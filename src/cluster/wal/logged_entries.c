/*-------------------------------------------------------------------------
 *
 * logged_entries.c
 *	  Changes of entries, and their records in WAL.
 *
 * Inserts: entry first, then its record (P1).  Removals: the record first, flushed,
 * then the entry (P3, P4).  So at every moment, and after every crash, a standby
 * that has replayed all WAL there is has no entry that we lack, but for one: an
 * entry that is about to be removed.  What we have and it lacks belongs to a
 * transaction that cannot have committed, or not yet.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"

#include "cluster/base/tid_value.h"
#include "cluster/cluster.h"
#include "cluster/wal/logged.h"
#include "cluster/wal/undo_journal.h"
#include "cluster/wal/wal_record.h"

/* Entries as records have them, one record's worth. */
typedef struct Unpacked
{
	uint64		hash[PMHASH_WAL_MAX_ENTRIES];
	ItemPointerData tid[PMHASH_WAL_MAX_ENTRIES];
} Unpacked;

static void
unpack(Unpacked *to, const PmhEntry *entries, int n)
{
	Assert(n <= PMHASH_WAL_MAX_ENTRIES);
	for (int i = 0; i < n; i++)
	{
		to->hash[i] = entries[i].hash;
		pmhash_value_to_tid(entries[i].value, &to->tid[i]);
	}
}

/*
 * Nothing can raise an error between entry and record: the engine raises none, and
 * writing WAL is a critical section of its own (xlog.c, XLogInsertRecord).  An
 * interrupt would be a transaction that goes on to commit after all, as one that
 * catches a cancel does, with an entry that standbys lack.
 */
PmhResult
pmhash_insert_and_log(PmhashFile *file, const PmhEntry *entries, int n,
					  size_t *done)
{
	PmhResult	result;
	Unpacked	unpacked;

	if (n == 1)
	{
		result = pmh_insert(file->table, entries[0].hash, entries[0].value,
							file->journaled);
		*done = result == PMH_OK;
	}
	else
		result = pmh_insert_group(file->table, entries, n, file->journaled, done);
	PMH_STOP_POINT("insert_before_wal");
	if (*done > 0)
	{
		HOLD_INTERRUPTS();
		unpack(&unpacked, entries, (int) *done);
		(void) pmhash_wal_log_inserts(file->file_id, (int) *done, unpacked.hash,
									  unpacked.tid);
		RESUME_INTERRUPTS();
	}
	PMH_STOP_POINT("insert_after_wal");
	return result;
}

/*
 * Log the removal of entries; returns the end of the last record, up to which WAL is
 * to be flushed before they go.
 */
XLogRecPtr
pmhash_log_deletes(const PmhashFile *file, TransactionId horizon, uint8 flags,
				   const PmhEntry *entries, int n)
{
	XLogRecPtr	end = InvalidXLogRecPtr;
	Unpacked	unpacked;

	for (int i = 0; i < n; i += PMHASH_WAL_MAX_ENTRIES)
	{
		int			part = Min(n - i, PMHASH_WAL_MAX_ENTRIES);

		unpack(&unpacked, &entries[i], part);
		end = pmhash_wal_log_deletes(file->file_id, MyDatabaseId, horizon, flags,
									 part, unpacked.hash, unpacked.tid);
	}
	return end;
}

/*
 * The records carry no horizon: VACUUM removes entries of line pointers that pruning
 * has made dead, whose record had the conflict (btree relies on the same; nbtpage.c,
 * _bt_delitems_vacuum).  The flush is the barrier of removal.c as well.
 */
void
pmhash_log_dead(PmhashFile *file, const PmhEntry *entries, int n)
{
	XLogRecPtr	end = pmhash_log_deletes(file, InvalidTransactionId, 0, entries, n);

	PMH_STOP_POINT("vacuum_after_log");
	XLogFlush(end);
	pmhash_journal_note_flushed(end);
	PMH_STOP_POINT("vacuum_after_flush");
}

void
pmhash_log_bulk_delete(PmhashFile *file)
{
	(void) pmhash_wal_log_swept(file->file_id);
}
