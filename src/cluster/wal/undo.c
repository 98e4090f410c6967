/*-------------------------------------------------------------------------
 *
 * undo.c
 *	  Take out of the index files what a crash has taken out of the heap.
 *
 * Input is the journal of the crashed server life and the end of replay after
 * it, which the server knows (xlogrecovery.c, PerformWalRecovery; if there was nothing to
 * replay it is the end of the checkpoint's record).  Every record past the end of replay
 * names an entry whose transaction cannot have committed: it is deleted, if it is there.
 * It is done in the first start after the crash, or not at all: one that is killed before
 * has WAL of its own past that end.  An error in here is followed by the same again.
 *
 * If WAL was replayed that is not that of the crashed server life, nothing can be said
 * about any entry: no file is trusted.
 *
 * An error that says nothing about a file (no descriptor, no memory, no space,
 * an interrupted call) is no reason to give up that file, or all of them: it is
 * an ERROR here, pmhash is not ready, and the next caller tries again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/wal/undo_journal.h"
#include "engine/pm.h"

/* What the records of a journal say, and what is to be done about it. */
typedef struct Undo
{
	PmhashJournalRecord *records;	/* valid ones, sorted by file */
	size_t		n;
	XLogRecPtr	flushed;		/* highest LSN known to have been flushed */
	XLogRecPtr	end;			/* end of replay */
	uint64		undone;
} Undo;

static int
compare_records(const void *a, const void *b)
{
	const PmhashJournalRecord *ra = a;
	const PmhashJournalRecord *rb = b;

	if (ra->database != rb->database)
		return ra->database < rb->database ? -1 : 1;
	if (ra->file_id != rb->file_id)
		return ra->file_id < rb->file_id ? -1 : 1;
	return 0;
}

/* Does an error of the engine say nothing about the file?  See above. */
static bool
is_passing(const PmhError *error)
{
	return error->code == PMH_ERR_NO_DESCRIPTOR || error->code == PMH_ERR_NO_MEMORY ||
		error->code == PMH_ERR_NO_SPACE ||
		(error->code == PMH_ERR_IO &&
		 (error->sys_errno == EINTR || error->sys_errno == EAGAIN));
}

/* ERROR if that is so.  Nothing of the file is open or mapped. */
static void
try_again_if_passing(const char *path, const PmhError *error)
{
	if (!is_passing(error))
		return;
	errno = error->sys_errno;
	ereport(ERROR,
			(error->sys_errno != 0 ? errcode_for_file_access()
			 : errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("pmhash could not use file \"%s\" to take out what a crash has lost", path),
			 errdetail("%s", error->detail),
			 errhint("This is tried again.")));
}

/*
 * Take the records of a server life out of the ring, into undo->records.  One that a
 * crash has torn has no checksum, and is none: its entry was not made yet.  False if
 * one has a wrong checksum: it may be one of that life, damaged.
 */
static bool
take_records(const PmhashJournalRecord *record, uint64 nrecords, uint64 instance,
			 Undo *undo)
{
	bool		sound = true;

	for (uint64 i = 0; i < nrecords; i++, record++)
	{
		if (record->crc != pmhash_journal_crc(record))
			sound = sound && record->crc == 0;
		else if (record->instance == instance)
		{
			undo->records[undo->n++] = *record;
			undo->flushed = Max(undo->flushed, record->flushed);
		}
	}
	return sound;
}

/*
 * Read the valid records of a journal into undo->records.  False if the file is
 * not there, cannot be read, is not a journal of that server life, or has a damaged
 * record.  ERROR if it can't be read just now.
 */
static bool
read_journal(const char *path, uint64 instance, Undo *undo)
{
	PmFile		file;
	PmhError	error;
	const PmhashJournalHeader *header;
	const PmhashJournalRecord *record;
	uint64		nrecords;
	bool		complete;

	if (pm_open(&file, path, false, &error) != PMH_OK)
	{
		try_again_if_passing(path, &error);
		return false;
	}
	header = (const PmhashJournalHeader *) file.base;
	if (file.bound < sizeof(*header) || header->magic != PMHASH_JOURNAL_MAGIC ||
		header->instance != instance ||
		header->records != file.bound / sizeof(*record) - 1)
	{
		pm_close(&file);
		return false;
	}

	nrecords = header->records;
	undo->flushed = header->flushed;
	record = (const PmhashJournalRecord *) (header + 1);
	undo->records = palloc_extended(nrecords * sizeof(*record),
									MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
	if (undo->records == NULL)
	{
		pm_close(&file);
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("There is no room for the records of file \"%s\".", path)));
	}
	complete = take_records(record, nrecords, instance, undo) && !pm_is_lost(&file);
	pm_close(&file);
	qsort(undo->records, undo->n, sizeof(*undo->records), compare_records);
	return complete;
}

/* A file that can't be put right: its index is rebuilt. */
static void
condemn(const char *path, const char *why)
{
	if (unlink(path) != 0 && errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
	ereport(LOG,
			(errmsg("pmhash: removed index file \"%s\": %s", path, why),
			 errhint("Its index is rebuilt in the background if pmhash.rebuild is on; else it needs REINDEX.")));
}

/*
 * Take the lost entries of one file out.  ERROR if that has to wait.  A file is not
 * there only if the one attempt to open it says so: what can't be looked at (EIO,
 * EACCES, ESTALE) may be there again tomorrow, with its entries, when the journal is
 * forgotten.
 */
static void
undo_file(Undo *undo, const char *path, const PmhashJournalRecord *records,
		  size_t n)
{
	PmhEnv		env = pmhash_engine_env();
	PmhTable   *table;
	PmhError	error;
	PmhResult	result;

	result = pmh_open(path, &env, &table, NULL, &error);
	if (result == PMH_ERR_NO_FILE)
		return;
	if (result != PMH_OK)
	{
		try_again_if_passing(path, &error);
		condemn(path, error.detail);
		return;
	}
	for (size_t i = 0; i < n && result == PMH_OK; i++)
	{
		if (records[i].lsn <= undo->end)
			continue;
		result = pmh_delete(table, records[i].hash, records[i].value);
		if (result == PMH_OK)
			undo->undone++;
		else if (result == PMH_NOT_FOUND)
			result = PMH_OK;
	}
	if (result != PMH_OK)
		error = *pmh_error(table);
	pmh_close(table);
	if (result == PMH_OK)
		return;
	try_again_if_passing(path, &error);
	condemn(path, error.detail);
}

/* Deal with the records of one file. */
static void
deal_with_file(Undo *undo, const PmhashJournalRecord *records, size_t n)
{
	char		path[MAXPGPATH];
	bool		lost = false;

	for (size_t i = 0; i < n; i++)
		lost |= records[i].lsn > undo->end;
	pmhash_file_path(path, records[0].database, records[0].file_id);
	if (lost)
		undo_file(undo, path, records, n);
}

static void
deal_with_all(Undo *undo)
{
	size_t		first = 0;

	for (size_t i = 1; i <= undo->n; i++)
	{
		if (i < undo->n &&
			compare_records(&undo->records[i], &undo->records[first]) == 0)
			continue;
		deal_with_file(undo, &undo->records[first], i - first);
		first = i;
	}
}

/* Why does the end of replay say nothing about the journal?  NULL: it does. */
static const char *
undo_doubt(const PmhashControl *control, const Undo *undo)
{
	if (undo->end == InvalidXLogRecPtr || undo->end < undo->flushed)
		return "WAL that had been flushed was not replayed";

	/*
	 * Replay began at a checkpoint that was not seen in the crashed server
	 * life.  Another one's is no earlier than the end of all WAL that was ever
	 * flushed in that one.
	 */
	if (control->undo_redo != 0 && control->undo_redo >= undo->flushed)
		return "it is not known whether the server has run without the pool";
	return NULL;
}

/*
 * Complete the undo of the server life control->journal_instance.  The caller
 * holds the pool lock, the server is out of recovery, no index file has been
 * opened in this server life.  Leaves the control structure to the caller
 * except for new eras, if nothing can be trusted.  ERROR if a file can't be
 * dealt with.
 */
void
pmhash_undo(PmhashControl *control)
{
	char		path[MAXPGPATH];
	Undo		undo = {0};
	const char *doubt;

	undo.end = GetXLogReplayRecPtr(NULL);
	pmhash_journal_path(path);
	if (!read_journal(path, control->journal_instance, &undo))
		doubt = "the undo journal is missing or damaged";
	else
		doubt = undo_doubt(control, &undo);

	if (doubt != NULL)
	{
		ereport(LOG,
				(errmsg("pmhash: index files in \"%s\" are not trusted: %s",
						pmhash_pool_path(), doubt),
				 errhint("Such indexes are rebuilt in the background if pmhash.rebuild is on; else they need REINDEX.")));
		pmhash_renew_eras(control, PMHASH_ALL_FILES, PMHASH_REASON_APART);
	}
	else
	{
		deal_with_all(&undo);
		ereport(LOG,
				(errmsg("pmhash: undo journal: %llu records, replay ended at %X/%X, %llu entries taken out",
						(unsigned long long) undo.n,
						LSN_FORMAT_ARGS(undo.end),
						(unsigned long long) undo.undone)));
	}
	if (undo.records)
		pfree(undo.records);
}
