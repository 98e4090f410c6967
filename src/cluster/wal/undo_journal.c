/*-------------------------------------------------------------------------
 *
 * undo_journal.c
 *	  The undo journal: what is durable in index files before WAL is, and what is undone.
 *
 * src/README, "Commit safety" and "Undo journal", says what it is for and how the ring of
 * records is used.  The file is there from the first start on, and is cleared for each server
 * life.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"
#include "cluster/wal/undo_journal.h"
#include "engine/pm.h"

static PmFile journal;			/* base NULL: not mapped yet */
static PmhashJournalRecord *ring;
static XLogRecPtr flushed_lsn;	/* lower bound of GetFlushRecPtr */
static XLogRecPtr last_noted;	/* LSN of our last record */
static XLogRecPtr known_flushed;	/* end of a record, at most flushed_lsn */

/* How often the WAL writer is woken to flush while the ring comes round once. */
#define HASTENINGS		8

/*
 * The exact end of the last WAL record reserved so far.  GetXLogInsertRecPtr
 * says where the next record would start, which at a page boundary is past the
 * page header: more than has been inserted, so XLogFlush would fail on it, and
 * more than replay could ever reach (xlog.c, XLogBytePosToRecPtr and
 * XLogBytePosToEndRecPtr).
 */
XLogRecPtr
pmhash_insert_end(void)
{
	XLogRecPtr	lsn = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(lsn, wal_segment_size) == SizeOfXLogLongPHD)
		return lsn - SizeOfXLogLongPHD;
	if (lsn % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return lsn - SizeOfXLogShortPHD;
	return lsn;
}

static void
journal_error(const char *path, const PmhError *error)
{
	const char *shown = pmhash_shown_path(path);

	errno = error->sys_errno;
	ereport(ERROR,
			(error->sys_errno != 0 ? errcode_for_file_access()
			 : errcode(ERRCODE_IO_ERROR),
			 error->sys_errno != 0 ?
			 errmsg("could not use the pmhash undo journal \"%s\": %m", shown) :
			 errmsg("could not use the pmhash undo journal \"%s\"", shown),
			 errdetail("%s", error->detail)));
}

/* How large a journal of so many records is. */
static size_t
size_of(uint64 records)
{
	return (records + 1) * sizeof(PmhashJournalRecord);
}

/* Map the file; if there is none, or only a piece of one, make it. */
static PmhResult
open_or_make(PmFile *file, const char *path, PmhError *error)
{
	PmhResult	result = pm_open(file, path, false, error);

	if (result == PMH_ERR_FORMAT)
		(void) unlink(path);
	if (result == PMH_ERR_FORMAT || result == PMH_ERR_NO_FILE)
		result = pm_create(file, path, size_of(pmhash_shared->journal_most), false,
						   error);
	return result;
}

/*
 * There is to be a file for the journals of all server lives, so that none needs space
 * for its own.  Make it if there is none.  That it can be mapped shows that index files
 * can be, which some file systems don't allow.  For the postmaster, at a start; false
 * with a reason.
 */
bool
pmhash_journal_provide(char *reason)
{
	char		path[MAXPGPATH];
	PmFile		file;
	PmhError	error;

	pmhash_journal_path(path);
	if (open_or_make(&file, path, &error) == PMH_OK)
	{
		pm_close(&file);
		return true;
	}
	if (error.sys_errno == ENODEV || error.sys_errno == EINVAL)
		return pmhash_fail(reason, "the file system of directory \"%s\" cannot map files",
						   pmhash_pool_path());
	return pmhash_fail(reason, "could not use file \"%s\": %s", path, error.detail);
}

/*
 * Take all records out of the journal: what is damaged of them must not be found in a later
 * life.  The fence is that of the new header.
 */
static void
clear_journal(PmFile *file)
{
	PmhashJournalHeader *header = (PmhashJournalHeader *) file->base;
	PmhashJournalRecord *record = (PmhashJournalRecord *) file->base;
	size_t		n = file->bound / sizeof(*record);

	pm_store64(&header->magic, 0);
	for (size_t i = 1; i < n; i++)
	{
		if (record[i].crc == 0)
			continue;
		pm_store32(&record[i].crc, 0);
		pm_flush(file, &record[i].crc, sizeof(record[i].crc));
	}
}

/*
 * Begin the journal of a server life, in the file that there is; nothing has been noted
 * in this life, and what is in it is not needed any more.  *pmem: whether it is
 * persistent memory.  If pmhash.journal_size has been raised, and there is no room, it
 * is as large as it was.  ERROR if that fails.
 */
void
pmhash_journal_begin(uint64 instance, bool *pmem)
{
	char		path[MAXPGPATH];
	PmFile		file;
	PmhError	error = {0};
	PmhashJournalHeader *header;
	size_t		size = size_of(pmhash_shared->journal_most);
	uint64		records;
	XLogRecPtr	flushed = pmhash_insert_end();	/* past the checkpoint of this start */

	Assert(LWLockHeldByMeInMode(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE));
	Assert(!RecoveryInProgress() && journal.base == NULL && instance != 0);
	XLogFlush(flushed);
	pmhash_journal_path(path);
	if (open_or_make(&file, path, &error) != PMH_OK)
		journal_error(path, &error);
	if (file.bound < size)
	{
		PmhError	full = {0};

		(void) pm_extend(&file, file.bound, size, &full);
		pm_close(&file);
		if (open_or_make(&file, path, &error) != PMH_OK)
			journal_error(path, &error);
		if (file.bound < size)
			ereport(LOG,
					(errmsg("pmhash: the undo journal has %zu bytes instead of %zu: %s",
							file.bound, size, full.detail)));
	}
	records = file.bound / sizeof(PmhashJournalRecord) - 1;
	pmhash_shared->journal_records = Min(pmhash_shared->journal_most, records);
	clear_journal(&file);
	PMH_STOP_POINT("journal_begun");
	header = (PmhashJournalHeader *) file.base;
	pm_store64(&header->flushed, flushed);
	pm_store64(&header->instance, instance);
	pm_store64(&header->records, records);
	pm_store64(&header->magic, PMHASH_JOURNAL_MAGIC);
	pm_flush(&file, header, sizeof(*header));
	pm_fence(&file);
	*pmem = file.is_pmem;
	error.code = pm_is_lost(&file) ? pmh_fill_lost(&error, &file) : PMH_OK;
	pm_close(&file);
	if (error.code == PMH_ERR_LOST)
	{
		(void) unlink(path);	/* a new one has other pages */
		journal_error(path, &error);
	}
}

/*
 * The journal cannot be used any more, so no entry may be made: this server life does
 * without indexes, and none of their files is trusted afterwards.  In case that the token
 * of trust can't be removed all the WAL is flushed that what has been noted depends on.
 */
static void
give_up_journal(const char *path, const PmhError *error)
{
	char		reason[PMHASH_REASON_SIZE];

	Assert(CritSectionCount == 0);
	XLogFlush(pmhash_insert_end());
	pmhash_fail(reason, "undo journal \"%s\" was lost: %s", path, error->detail);
	pmhash_disable(reason);
	(void) pmhash_remove_token(reason);	/* now the launcher makes no new one */
}

/* ERROR if a page of the journal has been lost to this process. */
static void
require_journal(void)
{
	char		path[MAXPGPATH];
	PmhError	error;

	if (likely(!pm_is_lost(&journal)))
		return;
	pmhash_journal_path(path);
	(void) pmh_fill_lost(&error, &journal);
	give_up_journal(path, &error);
	journal_error(path, &error);
}

/*
 * Map the journal of this server life, if that has not been done.  Done whenever an
 * index file is opened, so that a process that has one mapped never lacks the
 * journal for it, whatever happens to the directory.  ERROR if it can't be mapped; if it has
 * gone, or is another one, it is given up, too.
 */
void
pmhash_journal_map(void)
{
	char		path[MAXPGPATH];
	PmhError	error;
	PmhResult	result;
	const PmhashJournalHeader *header;

	if (likely(journal.base != NULL))
		return;
	Assert(!RecoveryInProgress() && pmhash_shared->journal_records > 0);
	pmhash_journal_path(path);
	result = pm_open(&journal, path, false, &error);
	header = (const PmhashJournalHeader *) journal.base;
	if (result == PMH_OK && (journal.bound < size_of(pmhash_shared->journal_records) ||
							 header->magic != PMHASH_JOURNAL_MAGIC ||
							 header->instance != pmhash_shared->instance))
	{
		pm_close(&journal);
		memset(&error, 0, sizeof(error));
		result = PMH_ERR_FORMAT;
		strlcpy(error.detail, "It is not the undo journal of the running server.",
				sizeof(error.detail));
	}
	if (result != PMH_OK)
	{
		/* Other errors may be gone at the next try. */
		if ((result == PMH_ERR_NO_FILE || result == PMH_ERR_FORMAT) && pmhash_pool_is_present())
			give_up_journal(path, &error);
		journal_error(path, &error);
	}
	ring = (PmhashJournalRecord *) (journal.base + sizeof(PmhashJournalHeader));
}

/*
 * Take a record that is not needed any more, as its WAL is flushed, and mark it busy: that of
 * the position, or, if another backend is at work there, of one drawn instead.
 */
static uint64
reserve_record(uint64 position)
{
	Assert(journal.base != NULL && pmhash_shared->journal_records > 0);
	for (;; position = pg_atomic_fetch_add_u64(&pmhash_shared->journal_next, 1))
	{
		uint64		at = position % pmhash_shared->journal_records;
		pg_atomic_uint64 *state = &pmhash_shared->journal_lsn[at];
		uint64		old = pg_atomic_read_u64(state);

		if (old == PMHASH_RECORD_BUSY)
			continue;
		if (old > flushed_lsn)
			flushed_lsn = GetFlushRecPtr(NULL);
		if (old > flushed_lsn)
		{
			pmhash_count(PMHASH_JOURNAL_WAITS, 1);
			XLogFlush(old);
			flushed_lsn = GetFlushRecPtr(NULL);
		}
		if (old > known_flushed)
			known_flushed = old;
		if (pg_atomic_compare_exchange_u64(state, &old, PMHASH_RECORD_BUSY))
			return at;
	}
}

/*
 * Store a record, the checksum last, and start writing the line back.  The old checksum
 * goes first: a record that a crash has torn has none, and one that is wrong is damage
 * (take_records).
 */
static void
write_record(PmhashJournalRecord *to, const PmhashJournalRecord *from)
{
	const uint64 *source = (const uint64 *) from;
	uint64	   *target = (uint64 *) to;

	Assert(from->file_id != 0 && from->lsn != InvalidXLogRecPtr);
	pm_store32(&to->crc, 0);
	for (size_t i = 0; i < sizeof(*from) / sizeof(uint64); i++)
		pm_store64(&target[i], source[i]);
	pm_flush(&journal, to, sizeof(*to));
}

/*
 * Note durably that WAL is flushed up to lsn, the end of a record.  If replay
 * ends before it, the data directory is an older one.
 */
void
pmhash_journal_note_flushed(XLogRecPtr lsn)
{
	PmhashJournalHeader *header;

	pmhash_journal_map();
	Assert(lsn <= GetFlushRecPtr(NULL));
	header = (PmhashJournalHeader *) journal.base;
	pm_raise64(&header->flushed, lsn);
	pm_flush(&journal, &header->flushed, sizeof(uint64));
	pm_fence(&journal);
	require_journal();
}

/*
 * Note n entries about to be made in file.  See cluster.h.  Nothing between
 * reserving a record and releasing it can raise an error or be interrupted, so
 * a record stays busy only if its process is killed, and then shared memory is
 * made anew.
 */
void
pmhash_journal_note(PmhashFile *file, const PmhEntry *entries, int n)
{
	PmhashJournalRecord record;
	uint64		piece = Max(pmhash_shared->journal_records / HASTENINGS, 1);
	XLogRecPtr	lsn;
	uint64		position;

	if (!file->journaled)
		return;
	Assert(n >= 1 && !RecoveryInProgress());
	pmhash_journal_map();

	/*
	 * What the entries depend on: the end of this transaction's last WAL record, which is
	 * that of the heap tuple or a later one.  If it has written none (the validate pass of
	 * CREATE INDEX CONCURRENTLY indexes the tuples of others), everything inserted so far.
	 */
	lsn = XactLastRecEnd != InvalidXLogRecPtr ? XactLastRecEnd : pmhash_insert_end();
	if (last_noted <= flushed_lsn && last_noted > known_flushed)
		known_flushed = last_noted;

	memset(&record, 0, sizeof(record));
	record.file_id = file->file_id;
	record.database = MyDatabaseId;
	record.instance = pmhash_shared->instance;
	record.lsn = lsn;
	position = pg_atomic_fetch_add_u64(&pmhash_shared->journal_next, n);	/* n in a row */
	for (int i = 0; i < n; i++)
	{
		uint64		at = reserve_record(position + i);

		record.hash = entries[i].hash;
		record.value = entries[i].value;
		record.flushed = known_flushed;
		record.crc = pmhash_crc(&record, offsetof(PmhashJournalRecord, crc));
		write_record(&ring[at], &record);
		pg_write_barrier();
		pg_atomic_write_u64(&pmhash_shared->journal_lsn[at], lsn);
	}
	require_journal();
	last_noted = lsn;

	/*
	 * Records are overwritten when the ring has come round, and then WAL must have been
	 * flushed.  In a long statement that is not done until then; so have the WAL writer do
	 * it meanwhile, each time another piece of the ring is full.
	 */
	if (position / piece != (position + n) / piece && lsn > flushed_lsn)
		XLogSetAsyncXactLSN(lsn);
}

/* ---- undo ---- */

/*
 * Take out of the index files what a crash has taken out of the heap.
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
 */

/* What a journal says. */
typedef struct Undo
{
	PmhashJournalRecord *lost;	/* records past the end of replay, sorted by file */
	size_t		nlost;
	size_t		n;				/* of all records */
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

/* ERROR if an error of the engine says nothing about the file.  That is not open or mapped. */
static void
try_again_if_passing(const char *path, const PmhError *error)
{
	if (error->code != PMH_ERR_NO_DESCRIPTOR && error->code != PMH_ERR_NO_MEMORY &&
		error->code != PMH_ERR_NO_SPACE &&
		(error->code != PMH_ERR_IO || (error->sys_errno != EINTR && error->sys_errno != EAGAIN)))
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
 * Read the records that a server life has left in its journal.  One that a crash has torn
 * has no checksum, and is none: its entry was not made yet.  False if the file is not there,
 * cannot be read, is not a journal of that life, or has a record with a wrong checksum, which
 * may be one of that life, damaged.  ERROR if it can't be read just now.
 */
static bool
read_journal(const char *path, uint64 instance, Undo *undo)
{
	PmFile		file;
	PmhError	error;
	const PmhashJournalHeader *header;
	const PmhashJournalRecord *record;
	uint64		nrecords;
	bool		sound = true;

	if (pm_open(&file, path, false, &error) != PMH_OK)
	{
		try_again_if_passing(path, &error);
		return false;
	}
	header = (const PmhashJournalHeader *) file.base;
	nrecords = file.bound / sizeof(*record) - 1;
	if (file.bound < sizeof(*header) || header->magic != PMHASH_JOURNAL_MAGIC ||
		header->instance != instance || header->records != nrecords)
	{
		pm_close(&file);
		return false;
	}
	undo->lost = palloc_extended(nrecords * sizeof(*record),
								 MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
	if (undo->lost == NULL)
	{
		pm_close(&file);
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("There is no room for the records of file \"%s\".", path)));
	}
	undo->flushed = header->flushed;
	record = (const PmhashJournalRecord *) (header + 1);
	for (uint64 i = 0; i < nrecords; i++, record++)
	{
		if (record->crc != pmhash_crc(record, offsetof(PmhashJournalRecord, crc)))
			sound = sound && record->crc == 0;
		else if (record->instance == instance)
		{
			undo->n++;
			undo->flushed = Max(undo->flushed, record->flushed);
			if (record->lsn > undo->end)
				undo->lost[undo->nlost++] = *record;
		}
	}
	sound = sound && !pm_is_lost(&file);
	pm_close(&file);
	qsort(undo->lost, undo->nlost, sizeof(*undo->lost), compare_records);
	return sound;
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
	PmhEntry   *entries = palloc_extended(n * sizeof(PmhEntry), MCXT_ALLOC_HUGE);
	PmhTable   *table;
	PmhError	error;
	PmhResult	result;
	size_t		removed = 0;

	for (size_t i = 0; i < n; i++)
		entries[i] = (PmhEntry) {records[i].hash, records[i].value};
	result = pmh_open(path, &env, &table, &error);
	if (result == PMH_OK)
	{
		/* together: a key's list may be long, and is walked once then */
		result = pmh_delete_group(table, entries, n, &removed);
		undo->undone += removed;
		if (result != PMH_OK)
			error = *pmh_error(table);
		pmh_close(table);
	}
	else if (result == PMH_ERR_NO_FILE)
		result = PMH_OK;
	pfree(entries);
	if (result == PMH_OK)
		return;
	try_again_if_passing(path, &error);

	/* it can't be put right: its index is rebuilt */
	if (unlink(path) != 0 && errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
	ereport(LOG,
			(errmsg("pmhash: removed index file \"%s\": %s", path, error.detail),
			 errhint("Its index is rebuilt in the background if pmhash.rebuild is on; else it needs REINDEX.")));
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
	const char *doubt = NULL;
	size_t		first = 0;		/* record of a file */

	Assert(LWLockHeldByMeInMode(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE));
	Assert(!RecoveryInProgress() && journal.base == NULL);
	undo.end = GetXLogReplayRecPtr(NULL);
	pmhash_journal_path(path);
	if (!read_journal(path, control->journal_instance, &undo))
		doubt = "the undo journal is missing or damaged";
	else if (undo.end == InvalidXLogRecPtr || undo.end < undo.flushed)
		doubt = "WAL that had been flushed was not replayed";
	if (doubt != NULL)
		pmhash_trust_none(control, PMHASH_REASON_APART, doubt);
	for (size_t i = 0; doubt == NULL && i < undo.nlost; i++)
	{
		const PmhashJournalRecord *record = &undo.lost[i];

		if (i + 1 < undo.nlost && compare_records(record, record + 1) == 0)
			continue;
		pmhash_file_path(path, record->database, record->file_id);
		undo_file(&undo, path, &undo.lost[first], i + 1 - first);
		first = i + 1;
	}
	if (doubt == NULL)
		ereport(LOG,
				(errmsg("pmhash: undo journal: %llu records, replay ended at %X/%X, %llu entries taken out",
						(unsigned long long) undo.n,
						LSN_FORMAT_ARGS(undo.end),
						(unsigned long long) undo.undone)));
	if (undo.lost != NULL)
		pfree(undo.lost);
}
