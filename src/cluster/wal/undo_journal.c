/*-------------------------------------------------------------------------
 *
 * undo_journal.c
 *	  The undo journal: what is durable in index files before WAL is.
 *
 * An index entry is durable as soon as it is made; the WAL of its heap tuple
 * is not.  After a crash the tuple may be gone, and its TID reused.  So each
 * entry is noted here first, with the LSN its tuple depends on, and at the
 * next start the entries whose LSN is past the end of replay are taken out
 * (undo.c): such a transaction cannot have committed.
 *
 * The journal is a ring of one-line records in a file that is there from the first
 * start on and cleared for each server life, mapped by every backend.  Shared memory
 * keeps the LSN of each record. A record may be overwritten as soon as that LSN is
 * flushed; a writer that meets one that is not flushes WAL.  While a record is being
 * written it is marked busy, so that a writer that comes round the ring meanwhile takes
 * another one and never has its record overwritten by the slower first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/wal/undo_journal.h"
#include "engine/pm.h"
#include "engine/stop_point.h"

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

/* The CRC that belongs into a record. */
uint32
pmhash_journal_crc(const PmhashJournalRecord *record)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, record, offsetof(PmhashJournalRecord, crc));
	FIN_CRC32C(crc);
	return crc;
}

static void
journal_error(const char *path, const PmhError *error)
{
	const char *shown = pmhash_shown_path(NULL, path);

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

/* How large the journal of this server life is, or is to be if there is none yet. */
static size_t
journal_size(void)
{
	return size_of(pmhash_shared->journal_records);
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
 * Make a journal one that cannot be read: so no start can undo the server life
 * it is of, and none trusts any file.  As lasting as what it takes the trust
 * from.  One that is mapped takes no call of the operating system.  False with
 * a reason.
 */
bool
pmhash_journal_spoil(uint64 instance, char *reason)
{
	char		path[MAXPGPATH];
	PmFile		file;
	PmFile	   *spoiled = &journal;
	PmhashJournalHeader *header;
	PmhError	error;
	bool		done;

	if (instance == 0)
		return pmhash_fail(reason, "there is no journal");
	pmhash_journal_path(path);
	if (journal.base == NULL || instance != pmhash_shared->instance)
	{
		spoiled = &file;
		if (pm_open(&file, path, false, &error) != PMH_OK)
			return pmhash_fail(reason, "could not use file \"%s\": %s", path, error.detail);
	}
	header = (PmhashJournalHeader *) spoiled->base;
	pm_store64(&header->magic, 0);
	pm_flush(spoiled, &header->magic, sizeof(header->magic));
	pm_fence(spoiled);
	done = !pm_is_lost(spoiled);
	if (spoiled == &file)
		pm_close(&file);
	return done || pmhash_fail(reason, "file \"%s\" was lost", path);
}

/*
 * Is the journal of that server life there, and has that not been done to it?  What
 * can't be read is not known to be sound.
 */
bool
pmhash_journal_is_sound(uint64 instance)
{
	char		path[MAXPGPATH];
	PmhashJournalHeader header;

	pmhash_journal_path(path);
	return pmhash_read_small(path, &header, sizeof(header)) == sizeof(header) &&
		header.magic == PMHASH_JOURNAL_MAGIC && header.instance == instance;
}

/*
 * Take all records out of the journal; the header first, which is not to be believed
 * meanwhile.
 */
static void
clear_journal(PmFile *file)
{
	PmhashJournalHeader *header = (PmhashJournalHeader *) file->base;
	PmhashJournalRecord *record = (PmhashJournalRecord *) file->base;
	size_t		n = file->bound / sizeof(*record);

	pm_store64(&header->magic, 0);
	pm_flush(file, &header->magic, sizeof(header->magic));
	pm_fence(file);
	for (size_t i = 1; i < n; i++)
	{
		if (record[i].crc == 0)
			continue;
		pm_store32(&record[i].crc, 0);
		pm_flush(file, &record[i].crc, sizeof(record[i].crc));
	}
	pm_fence(file);
}

/*
 * Begin the journal of a server life, in the file that there is; nothing has been noted
 * in this life, and what is in it is not needed any more.  *pmem: whether it is
 * persistent memory.  If pmhash.journal_size has been raised, and there is no room, it
 * is as large as it was.  The caller holds the pool lock.  ERROR if that fails.
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
	pm_store64(&header->flushed, 0);
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
 * The journal cannot be used any more, so no entry may be made: from now on
 * this server life does without indexes.  What has been noted so far must not
 * be needed any more, in case that it is lost: all the WAL that it depends on
 * is flushed.  A backend that notes something now without meeting a fault can do
 * so, since that is in the file; if the next start cannot read it, no index
 * file is trusted.
 */
static void
give_up_journal(const char *path, const PmhError *error)
{
	char		reason[PMHASH_REASON_SIZE];

	XLogFlush(pmhash_insert_end());
	pmhash_fail(reason, "undo journal \"%s\" was lost: %s", path, error->detail);
	pmhash_disable(reason);
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

/* Is what has been mapped the journal of this server life? */
static bool
is_this_runs_journal(void)
{
	const PmhashJournalHeader *header = (const PmhashJournalHeader *) journal.base;

	return journal.bound >= journal_size() &&
		header->magic == PMHASH_JOURNAL_MAGIC &&
		header->instance == pmhash_shared->instance;
}

/*
 * Map the journal of this server life, if that has not been done.  Its path
 * goes into path[MAXPGPATH], what went wrong into *error.  Done whenever an
 * index file is opened, so that a process that has one mapped never lacks the
 * journal for it, whatever happens to the directory.
 */
PmhResult
pmhash_journal_map(char *path, PmhError *error)
{
	PmhResult	result;

	pmhash_journal_path(path);
	if (journal.base != NULL)
		return PMH_OK;
	result = pm_open(&journal, path, false, error);
	if (result == PMH_OK && !is_this_runs_journal())
	{
		pm_close(&journal);
		memset(error, 0, sizeof(*error));
		error->code = result = PMH_ERR_FORMAT;
		strlcpy(error->detail, "It is not the undo journal of the running server.",
				sizeof(error->detail));
	}
	if (result == PMH_ERR_FORMAT)
		give_up_journal(path, error);
	if (result != PMH_OK)
		return result;
	ring = (PmhashJournalRecord *) (journal.base + sizeof(PmhashJournalHeader));
	return PMH_OK;
}

/* The same, or ERROR. */
static void
map_journal(void)
{
	char		path[MAXPGPATH];
	PmhError	error;

	if (likely(journal.base != NULL))
		return;
	if (pmhash_journal_map(path, &error) != PMH_OK)
		journal_error(path, &error);
}

/* Make sure that WAL up to lsn, the end of a record, is flushed, for a file's sake. */
static void
ensure_flushed(PmhashFile *file, XLogRecPtr lsn)
{
	if (lsn > flushed_lsn)
		flushed_lsn = GetFlushRecPtr(NULL);
	if (lsn > flushed_lsn)
	{
		pmhash_count(file, PMHASH_JOURNAL_WAITS, 1);
		XLogFlush(lsn);
		flushed_lsn = GetFlushRecPtr(NULL);
	}
}

/* Draw n positions in the ring, one after the other; returns the first. */
static uint64
draw_positions(int n)
{
	return pg_atomic_fetch_add_u64(&pmhash_shared->journal_next, n);
}

/*
 * Take a record that is not needed any more and mark it busy: that of the
 * position, or, if another backend is at work there, of one drawn instead.
 */
static uint64
reserve_record(PmhashFile *file, uint64 position)
{
	for (;; position = draw_positions(1))
	{
		uint64		at = position % pmhash_shared->journal_records;
		pg_atomic_uint64 *state = &pmhash_shared->journal_lsn[at];
		uint64		old = pg_atomic_read_u64(state);

		if (old == PMHASH_RECORD_BUSY)
			continue;
		ensure_flushed(file, old);
		if (old > known_flushed)
			known_flushed = old;
		if (pg_atomic_compare_exchange_u64(state, &old, PMHASH_RECORD_BUSY))
			return at;
	}
}

/*
 * Records are overwritten when the ring has come round, and then WAL must have
 * been flushed.  In a long statement that is not done until then; so have the
 * WAL writer do it meanwhile, each time another piece of the ring is full. n
 * records were written, the first of them at 'position'.
 */
static void
hasten_flush(uint64 position, int n, XLogRecPtr lsn)
{
	uint64		piece = Max(pmhash_shared->journal_records / HASTENINGS, 1);

	if (position / piece != (position + n) / piece && lsn > flushed_lsn)
		XLogSetAsyncXactLSN(lsn);
}

/*
 * Store a record, the checksum last, and start writing the line back.  The old checksum
 * goes first: a record that a crash has torn has none, and one that is wrong is damage
 * (undo.c).
 */
static void
write_record(PmhashJournalRecord *to, const PmhashJournalRecord *from)
{
	const uint64 *source = (const uint64 *) from;
	uint64	   *target = (uint64 *) to;

	pm_store32(&to->crc, 0);
	for (size_t i = 0; i < sizeof(*from) / sizeof(uint64); i++)
		pm_store64(&target[i], source[i]);
	pm_flush(&journal, to, sizeof(*to));
}

/* The journal is mapped. */
static void
raise_flushed(XLogRecPtr lsn)
{
	PmhashJournalHeader *header = (PmhashJournalHeader *) journal.base;

	pm_raise64(&header->flushed, lsn);
	pm_flush(&journal, &header->flushed, sizeof(uint64));
	pm_fence(&journal);
}

/*
 * Note durably that WAL is flushed up to lsn, the end of a record.  If replay
 * ends before it, the data directory is an older one.
 */
void
pmhash_journal_note_flushed(XLogRecPtr lsn)
{
	map_journal();
	raise_flushed(lsn);
	require_journal();
}

/* The same, if the journal can be used just now.  Raises no error. */
void
pmhash_journal_try_note_flushed(XLogRecPtr lsn)
{
	char		path[MAXPGPATH];
	PmhError	error;

	if (pmhash_journal_map(path, &error) == PMH_OK)
		raise_flushed(lsn);
}

/*
 * Has WAL past lsn been noted in the header as flushed?  ERROR if the journal can't be
 * mapped, which it need not be before.
 */
bool
pmhash_journal_is_past(XLogRecPtr lsn)
{
	const PmhashJournalHeader *header;

	map_journal();
	header = (const PmhashJournalHeader *) journal.base;
	return header->flushed > lsn;
}

/*
 * What the entries made now depend on: the end of this transaction's last WAL
 * record, which is that of the heap tuple or a later one.  If it has written
 * none (the validate pass of CREATE INDEX CONCURRENTLY indexes the tuples of
 * others), everything inserted so far.
 */
static XLogRecPtr
entries_depend_on(void)
{
	return XactLastRecEnd != InvalidXLogRecPtr ? XactLastRecEnd : pmhash_insert_end();
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
	XLogRecPtr	lsn;
	uint64		position;

	if (!file->journaled)
		return;
	map_journal();
	lsn = entries_depend_on();
	if (last_noted <= flushed_lsn && last_noted > known_flushed)
		known_flushed = last_noted;

	memset(&record, 0, sizeof(record));
	record.file_id = file->file_id;
	record.database = MyDatabaseId;
	record.instance = pmhash_shared->instance;
	record.lsn = lsn;
	position = draw_positions(n);
	for (int i = 0; i < n; i++)
	{
		uint64		at = reserve_record(file, position + i);

		record.hash = entries[i].hash;
		record.value = entries[i].value;
		record.flushed = known_flushed;
		record.crc = pmhash_journal_crc(&record);
		write_record(&ring[at], &record);
		pg_write_barrier();
		pg_atomic_write_u64(&pmhash_shared->journal_lsn[at], lsn);
	}
	require_journal();
	last_noted = lsn;
	hasten_flush(position, n, lsn);
}
