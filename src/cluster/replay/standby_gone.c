/*-------------------------------------------------------------------------
 *
 * standby_gone.c
 *	  FILE_GONE on a standby, in the startup process.
 *
 * A primary that marks a page which it cannot read does not know which file that has
 * named: its record has 0 for the id (stub.c, pmhash_stub_invalidate).  Our page, which
 * the record is about to replace, names it, if it is sound.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/replay/standby_redo.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/standby_lose.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/wal_record.h"

/* What the page named that the record being replayed replaces.  0: not known. */
static uint64 named = 0;

/*
 * Before the page of a record is restored: note which file it names, if the record does
 * not say.  Raises no error.
 */
void
pmhash_standby_note_named(XLogReaderState *record)
{
	PmhashWalRecord gone;
	PmhashNode	node;
	PmhashStub	stub;

	named = 0;
	if (pmhash_wal_decode(record, &gone) != PMHASH_WAL_OURS ||
		gone.type != PMHASH_WAL_FILE_GONE || gone.file_id != 0)
		return;
	XLogRecGetBlockTag(record, 0, &node, NULL, NULL);
	if (pmhash_stub_look_at(node, &stub) == PMHASH_LOOK_STUB)
		named = stub.file_id;
}

/* Is this a file of the record's database that has not had the record (S2)? */
static bool
is_meant(const PmhashStandbyRow *row, const PmhashWalRecord *gone, XLogRecPtr end)
{
	return row != NULL && row->file_id != 0 && row->database == gone->database &&
		!pmhash_standby_is_past(row, end);
}

static void
forget(PmhashStandbyRow *row)
{
	if (row->status != PMHASH_STANDBY_NONE)
		pmhash_standby_lose(row, false, 0, NULL);
	pmhash_standby_forget(row);
}

/*
 * It may be any of the database: our page did not tell, as after a crash that came when
 * it had been replaced.  Those that are still named are built again.
 */
static void
lose_database(const PmhashWalRecord *gone, XLogRecPtr end)
{
	PmhashStandby *standby = pmhash_shared->standby;
	int			n = 0;

	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		PmhashStandbyRow *row = &standby->row[i];

		if (is_meant(row, gone, end) && row->status != PMHASH_STANDBY_NONE)
		{
			pmhash_standby_lose(row, true, 0, NULL);
			n++;
		}
	}
	if (n == 0)
		return;					/* as when the record is replayed again */
	ereport(LOG,
			(errmsg("pmhash: all index files of database %u are given up on this server",
					gone->database),
			 errdetail("The primary has marked an index whose page it could not read, and it is not known which file that had. They are built again in the background.")));
}

/* FILE_GONE, of a record that ends there.  Takes the lock. */
void
pmhash_standby_file_gone(const PmhashWalRecord *gone, XLogRecPtr end)
{
	uint64		file_id = gone->file_id != 0 ? gone->file_id : named;
	PmhashStandbyRow *row;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = pmhash_standby_find(file_id);
	if (is_meant(row, gone, end))
		forget(row);
	else if (file_id == 0)
		lose_database(gone, end);
	named = 0;
	LWLockRelease(pmhash_standby_lock);
}
