/*-------------------------------------------------------------------------
 *
 * standby.c
 *	  The files of a server in recovery: the table of their states, what each says of
 *	  itself, which are good after a restart, and which have to go.
 *
 * standby_state.h says what the states mean, and src/README which rules hold: "Standbys".
 *
 * The note in the header of a file that is LIVE (S2) is never flushed: a standby begins afresh
 * after a loss of power, and a clean shutdown writes files back.  Each word of it is stored at
 * once, and tells whether a bit of it has been flipped.
 *
 * What runs in the postmaster, or under the lock, raises no ERROR.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/transam.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "storage/sinval.h"
#include "utils/snapmgr.h"
#include "utils/elog.h"

#include "cluster/base/control_file.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"
#include "cluster/standby/standby_state.h"
#include "engine/stop_point.h"

#define MAKER_PAUSE		500		/* ms between looks for a commit (follow_maker) */

/* ---- shared memory ---- */

Size
pmhash_standby_shmem_size(void)
{
	return sizeof(PmhashStandby);
}

/* Forget all files. */
void
pmhash_standby_reset(void)
{
	PmhashStandby *standby = pmhash_shared->standby;

	Assert(!IsUnderPostmaster);
	memset(standby->id, 0, sizeof(standby->id));
	memset(standby->row, 0, sizeof(standby->row));
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
		pg_atomic_init_u64(&standby->row[i].delta_ops, 0);
}

void
pmhash_standby_shmem_init(void)
{
	bool		found;
	PmhashStandby *standby = ShmemInitStruct("pmhash standby", sizeof(PmhashStandby),
											 &found);

	memset(standby, 0, sizeof(*standby));
	pg_atomic_init_u64(&standby->changes, 1);
	pg_atomic_init_u64(&standby->applied, InvalidXLogRecPtr);
	pg_atomic_init_u32(&standby->reached, 0);
	pg_atomic_init_u32(&standby->slot_wanted, 0);
	pg_atomic_init_u32(&standby->full, 0);
	pmhash_shared->standby = standby;
	pmhash_standby_reset();
}

/* Is this a server in recovery that keeps files? */
bool
pmhash_standby_is_active(void)
{
	return pmhash_shared != NULL && pmhash_shared->usable &&
		pmhash_shared->standby->active;
}

/* ---- rows ---- */

/*
 * The row that has this id, or for 0 a free one, or NULL.  From 'place' on: what is there
 * is found at once, as ids are random; what is not takes 2 us.
 */
static PmhashStandbyRow *
search(uint64 id, uint64 place)
{
	PmhashStandby *standby = pmhash_shared->standby;

	Assert(LWLockHeldByMe(pmhash_standby_lock) || !IsUnderPostmaster);
	for (uint64 i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		int			n = (int) ((place + i) % PMHASH_STANDBY_FILES);

		if (standby->id[n] == id)
			return &standby->row[n];
	}
	return NULL;
}

/* The row of a file, or NULL. */
PmhashStandbyRow *
pmhash_standby_find(uint64 file_id)
{
	return file_id == 0 ? NULL : search(file_id, file_id % PMHASH_STANDBY_FILES);
}

/*
 * The row of a file of our database, or NULL.  A copied stub names one of another
 * database; so do those that ALTER INDEX has made of copies, in WAL of earlier versions.
 */
PmhashStandbyRow *
pmhash_standby_find_own(uint64 file_id)
{
	PmhashStandbyRow *row = pmhash_standby_find(file_id);

	return row != NULL && row->database == MyDatabaseId ? row : NULL;
}

/* A file has found no row.  The rows are those of all databases: say so, once. */
static void
note_full(void)
{
	if (pg_atomic_exchange_u32(&pmhash_shared->standby->full, 1) == 0)
		ereport(LOG,
				(errmsg("pmhash: no more than %d logged indexes can have files on a standby",
						PMHASH_STANDBY_FILES),
				 errdetail("Queries on this standby do without the others, of any database. pmhash.indexes shows which these are."),
				 errhint("Indexes that are not needed here need not be logged (storage parameter wal).")));
}

/* Is there a row for one more file?  If not the log says so. */
bool
pmhash_standby_has_room(void)
{
	bool		room = search(0, 0) != NULL;

	if (!room)
		note_full();
	return room;
}

/* The row of a file, made if there is none: then it is NONE.  NULL if the table is full. */
PmhashStandbyRow *
pmhash_standby_enter(uint64 file_id, Oid database)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashStandbyRow *row = pmhash_standby_find(file_id);

	Assert(LWLockHeldByMeInMode(pmhash_standby_lock, LW_EXCLUSIVE) || !IsUnderPostmaster);
	if (row != NULL || file_id == 0)
		return row;
	row = search(0, file_id % PMHASH_STANDBY_FILES);
	if (row == NULL)
	{
		note_full();
		return NULL;
	}
	memset(row, 0, sizeof(*row));
	pg_atomic_init_u64(&row->delta_ops, 0);
	row->file_id = standby->id[row - standby->row] = file_id;
	row->database = database;
	return row;
}

/* No record will come for this file again. */
void
pmhash_standby_forget(PmhashStandbyRow *row)
{
	PmhashStandby *standby = pmhash_shared->standby;

	Assert(LWLockHeldByMeInMode(pmhash_standby_lock, LW_EXCLUSIVE));
	Assert(row->status == PMHASH_STANDBY_NONE && row->file_id != 0);
	standby->id[row - standby->row] = 0;
	row->file_id = 0;
	row->maker = InvalidTransactionId;
}

/* A row has another status from now on; all backends learn of it. */
void
pmhash_standby_set_status(PmhashStandbyRow *row, PmhashStandbyStatus status)
{
	PmhashStandby *standby = pmhash_shared->standby;

	Assert(LWLockHeldByMeInMode(pmhash_standby_lock, LW_EXCLUSIVE));
	Assert(status == PMHASH_STANDBY_NONE || row->status == status - 1);	/* one step on */
	Assert(row->file_id != 0 && OidIsValid(row->database));
	row->status = status;
	row->maker = InvalidTransactionId;
	row->life = ++standby->lives;
	row->restored = false;
	pg_atomic_fetch_add_u64(&standby->changes, 1);
	pmhash_stub_changed();
	pmhash_forget_plans(row->database, row->heap);
}

/* Note a failure, for views and for the next try.  sqlstate 0: no fault. */
void
pmhash_standby_note_failure(PmhashStandbyRow *row, int sqlstate, const char *why)
{
	Assert(LWLockHeldByMeInMode(pmhash_standby_lock, LW_EXCLUSIVE));
	Assert(row->status == PMHASH_STANDBY_NONE);
	row->sqlstate = sqlstate;
	pmhash_keep_message(row->message, sizeof(row->message), why == NULL ? "" : why);
	if (sqlstate == 0)
		row->next_try = 0;
	else
	{
		row->failures++;
		row->next_try = pmhash_clock_ms() + pmhash_pause(row->failures, PMHASH_LONGEST_PAUSE);
	}
}

/* The databases that files are of, in the current memory context. */
List *
pmhash_standby_databases(void)
{
	PmhashStandby *standby = pmhash_shared->standby;
	List	   *databases = NIL;

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		if (standby->id[i] != 0)
			databases = list_append_unique_oid(databases, standby->row[i].database);
	}
	LWLockRelease(pmhash_standby_lock);
	return databases;
}

/*
 * WAL has said that there is a new file: has the transaction committed that has made it, so
 * that its index can be seen?  If it was aborted the row is free.  Without the lock, as
 * pg_xact may have to be read.
 */
static void
follow_maker(PmhashStandbyRow *row, TransactionId maker, int64 *next)
{
	int64		soon = pmhash_clock_ms() + MAKER_PAUSE;
	bool		committed;

	Assert(!LWLockHeldByMe(pmhash_standby_lock));
	if (TransactionIdIsInProgress(maker))
	{
		*next = Min(*next, soon);
		return;
	}
	committed = TransactionIdDidCommit(maker);
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	if (row->maker == maker)
	{
		row->maker = InvalidTransactionId;
		row->next_try = 1;
		if (!committed)
			pmhash_standby_forget(row);
	}
	LWLockRelease(pmhash_standby_lock);
}

/*
 * Databases in which a build that has failed is to be tried again by now, and those with
 * files *to_sweep (standby_sweep.c).  For the launcher, which sees to it that this is done.
 * *next: when the next one is due.  The lists are made in CurrentMemoryContext.
 */
List *
pmhash_standby_due_databases(List **to_sweep, int64 *next)
{
	PmhashStandby *standby = pmhash_shared->standby;
	int64		now = pmhash_clock_ms();
	List	   *databases = NIL;

	*to_sweep = NIL;
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		PmhashStandbyRow *row = &standby->row[i];
		TransactionId maker = row->maker;
		Oid			due = InvalidOid;

		if (standby->id[i] == 0)
			continue;
		if (TransactionIdIsValid(maker))
			follow_maker(row, maker, next);
		if (pmhash_standby_is_to_be_swept(row))
			*to_sweep = list_append_unique_oid(*to_sweep, row->database);
		if (row->next_try == 0)
			continue;
		LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
		if (row->file_id != 0 && row->status == PMHASH_STANDBY_NONE)
		{
			if (row->next_try > now)
				*next = Min(*next, row->next_try);
			else if (row->next_try != 0)
			{
				row->next_try = 0;
				due = row->database;
			}
		}
		LWLockRelease(pmhash_standby_lock);
		if (OidIsValid(due))
			databases = list_append_unique_oid(databases, due);
	}
	return databases;
}

/* ---- which scans may use a file ---- */

/*
 * Has replay come past all records of which files that were LIVE before this run may have
 * something (S3)?  On another timeline than that was on, the startup process gives these
 * files up (S4), at the record that switches to it.
 */
bool
pmhash_standby_reached(void)
{
	PmhashStandby *standby = pmhash_shared->standby;
	TimeLineID	timeline;

	if (pg_atomic_read_u32(&standby->reached) != 0)
		return true;
	if (GetXLogReplayRecPtr(&timeline) < standby->last_begun ||
		timeline != standby->last_timeline)
		return false;
	pg_atomic_write_u32(&standby->reached, 1);
	return true;
}

/*
 * Which of the files that have had this id here is LIVE?  0: none.  Takes the lock.
 * It stays so after a promotion, for backends that have mapped an earlier one.
 */
uint64
pmhash_standby_life(uint64 file_id)
{
	PmhashStandbyRow *row;
	uint64		life = 0;

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = pmhash_standby_find_own(file_id);
	if (row != NULL && row->status == PMHASH_STANDBY_LIVE)
		life = row->life;
	LWLockRelease(pmhash_standby_lock);
	return life;
}

/* Is a file that was opened on a standby still LIVE?  Cheap, mostly. */
bool
pmhash_standby_still_live(PmhashFile *file)
{
	uint64		changes = pg_atomic_read_u64(&pmhash_shared->standby->changes);

	if (likely(file->standby_changes == changes))
		return true;
	pg_read_barrier();
	if (pmhash_standby_life(file->file_id) != file->standby_life)
		return false;
	file->standby_changes = changes;
	return true;
}

/* The 64-bit number of a transaction id that is not older than 2^31 ids. */
FullTransactionId
pmhash_standby_widen(TransactionId xid)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);

	Assert(FullTransactionIdIsNormal(next));
	if (!TransactionIdIsNormal(xid))
		return InvalidFullTransactionId;
	if (xid > XidFromFullTransactionId(next))
		epoch--;
	return FullTransactionIdFromEpochAndXid(epoch, xid);
}

/* Is a snapshot's xmin not before that? */
static bool
snapshot_fits(FullTransactionId usable_xmin, Snapshot snapshot)
{
	if (snapshot == NULL || U64FromFullTransactionId(usable_xmin) == 0)
		return true;
	return snapshot->snapshot_type == SNAPSHOT_MVCC &&
		FullTransactionIdFollowsOrEquals(pmhash_standby_widen(snapshot->xmin),
										 usable_xmin);
}

/*
 * Does a snapshot see only what the file has?  Who has taken it here had been waited for,
 * or was cancelled, before entries were removed that it needs (standby_redo.c,
 * resolve_conflicts).  But that lists once who has such a one, and a snapshot may be handed
 * on meanwhile: who may have one that was not waited for does without.
 */
static bool
file_fits(const PmhashStandbyRow *row, Snapshot snapshot)
{
	return snapshot_fits(row->usable_xmin, snapshot) &&
		(snapshot == NULL || !pmhash_snapshot_may_be_older());
}

/*
 * May a scan with this snapshot use the file, which the index's stub names and which has
 * had this life, on a server in recovery?  NULL: any snapshot that is taken from now on.
 */
bool
pmhash_standby_serves(uint64 file_id, uint64 life, Snapshot snapshot)
{
	PmhashStandbyRow *row;
	bool		serves;

	if (!pmhash_standby_is_active())
		return false;
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = pmhash_standby_find_own(file_id);
	serves = row != NULL && row->status == PMHASH_STANDBY_LIVE &&
		row->life == life &&
		(!row->restored || pmhash_standby_reached()) &&
		file_fits(row, snapshot);
	LWLockRelease(pmhash_standby_lock);
	return serves;
}

/*
 * May a snapshot that is from before the promotion of this server use a file?  One that
 * is not in the table was made afterwards, and its stub says which scans may use it.
 */
bool
pmhash_standby_fits_promoted(uint64 file_id, Snapshot snapshot)
{
	PmhashStandbyRow *row;
	bool		fits;

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = pmhash_standby_find_own(file_id);
	fits = row == NULL || file_fits(row, snapshot);
	LWLockRelease(pmhash_standby_lock);
	return fits;
}

/*
 * For views: what is known of a file, all zeroes if it has no row.  False if it could not
 * have one, as none is free.
 */
bool
pmhash_standby_look(uint64 file_id, PmhashStandbyRow *copy)
{
	PmhashStandbyRow *row;
	bool		has_place;

	memset(copy, 0, sizeof(*copy));
	if (!pmhash_standby_is_active())
		return true;
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = pmhash_standby_find_own(file_id);
	has_place = row != NULL || search(0, 0) != NULL;
	if (row != NULL)
		*copy = *row;
	LWLockRelease(pmhash_standby_lock);
	return has_place;
}

/* ---- notes ---- */

typedef struct Note
{
	uint64		begun;			/* of_lsn; 0: the file is not LIVE */
	uint64		applied;		/* of_lsn */
	uint64		timeline;		/* of begun; the upper half is its complement */
	uint64		usable_xmin;	/* full transaction id */
	Oid			heap;			/* as in PmhashStandbyRow */
	TimeLineID	made_under;
	uint32		crc;			/* CRC-32C of the three before it */
	uint32		reserved;		/* 0 */
	uint64		spare[2];		/* 0 */
} Note;

#define WORD_OF(field)	((int) (offsetof(Note, field) / sizeof(uint64)))

/* Guards: another layout is another PMHASH_IDENTITY_VERSION. */
PMHASH_AT(Note, begun, 0);
PMHASH_AT(Note, applied, 8);
PMHASH_AT(Note, timeline, 16);
PMHASH_AT(Note, usable_xmin, 24);
PMHASH_AT(Note, heap, 32);
PMHASH_AT(Note, made_under, 36);
PMHASH_AT(Note, crc, 40);
PMHASH_SIZE(Note, PMH_NOTE_WORDS * sizeof(uint64));

/* An LSN at which a record ends, a multiple of 8, with the number of its bits in the rest. */
static uint64
of_lsn(XLogRecPtr lsn)
{
	Assert(lsn % 8 == 0);
	return lsn | (__builtin_popcountll(lsn) & 7);
}

static XLogRecPtr
lsn_of(uint64 word)
{
	return word & ~UINT64CONST(7);
}

static uint64
of_timeline(TimeLineID timeline)
{
	return (uint64) ~timeline << 32 | timeline;
}

static uint32
crc_of(const Note *note)
{
	return pmhash_crc(&note->usable_xmin, offsetof(Note, crc) - offsetof(Note, usable_xmin));
}

/* Has no bit of it been flipped? */
static bool
is_sound(const Note *note)
{
	return note->begun == of_lsn(lsn_of(note->begun)) &&
		note->applied == of_lsn(lsn_of(note->applied)) &&
		note->timeline == of_timeline((TimeLineID) note->timeline) &&
		note->crc == crc_of(note);
}

/* The file at path is about to become LIVE, of that row.  False with errno. */
bool
pmhash_standby_note(const char *path, PmhashStandbyRow *row, XLogRecPtr applied,
					XLogRecPtr begun, TimeLineID timeline)
{
	Note		note = {
		.begun = of_lsn(begun),
		.applied = of_lsn(applied),
		.timeline = of_timeline(timeline),
		.usable_xmin = U64FromFullTransactionId(row->usable_xmin),
		.heap = row->heap,
		.made_under = row->timeline
	};

	Assert(applied <= begun && timeline != 0);
	note.crc = crc_of(&note);
	row->noted_timeline = timeline;
	return pmh_write_note(path, 0, (uint64 *) &note, PMH_NOTE_WORDS);
}

/* The file at path is not LIVE any more.  False with errno. */
bool
pmhash_standby_note_lost(const char *path)
{
	const uint64 not_live = 0;

	Assert(LWLockHeldByMeInMode(pmhash_standby_lock, LW_EXCLUSIVE) || !IsUnderPostmaster);
	return pmh_write_note(path, WORD_OF(begun), &not_live, 1);
}

/*
 * The startup process is about to apply a record to a LIVE file.  The timeline comes
 * second: a kill between the two costs the file, while the other way round replay would not
 * look at what a new timeline means for the others (standby_redo.c, note_timeline).
 */
PmhResult
pmhash_standby_note_begun(PmhTable *table, PmhashStandbyRow *row, XLogRecPtr end,
						  TimeLineID timeline)
{
	PmhResult	result = pmh_store_note(table, WORD_OF(begun), of_lsn(end));

	Assert(AmStartupProcess() && LWLockHeldByMe(pmhash_standby_lock));
	Assert(row->status == PMHASH_STANDBY_LIVE && timeline != 0);
	if (result == PMH_OK && unlikely(row->noted_timeline != timeline))
	{
		row->noted_timeline = timeline;
		result = pmh_store_note(table, WORD_OF(timeline), of_timeline(timeline));
	}
	return result;
}

PmhResult
pmhash_standby_note_applied(PmhTable *table, XLogRecPtr end)
{
	return pmh_store_note(table, WORD_OF(applied), of_lsn(end));
}

/* ---- the pool's files ---- */

/* Where a file is, is being made, and its delta: MAXPGPATH bytes each. */
void
pmhash_standby_paths(Oid database, uint64 file_id, char *path, char *new_path,
					 char *delta_path)
{
	char		directory[MAXPGPATH];

	pmhash_database_path(directory, database);
	pmhash_file_path(path, database, file_id);
	snprintf(new_path, MAXPGPATH, "%s/" PMHASH_ID_FORMAT ".new", directory, file_id);
	snprintf(delta_path, MAXPGPATH, "%s/" PMHASH_ID_FORMAT ".delta", directory,
			 file_id);
}

/* Is this <id>.new or <id>.delta? */
static bool
is_work_file(const char *path)
{
	const char *name = last_dir_separator(path) + 1;

	return strspn(name, "0123456789abcdef") == 16 &&
		(strcmp(name + 16, ".new") == 0 || strcmp(name + 16, ".delta") == 0);
}

static bool
clear_work_file(const char *path, Oid database, uint64 file_id, void *arg)
{
	if (OidIsValid(database) && is_work_file(path) && unlink(path) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not remove file \"%s\": %m", path)));
	return true;
}

/*
 * Remove what builds of an earlier life have left, whatever this server is now: no
 * process knows it.  For the postmaster, or when there is no builder.
 */
void
pmhash_standby_clear_work(void)
{
	(void) pmhash_visit_files(InvalidOid, clear_work_file, NULL);
}

/* Remove a file; with 'arg', unless it is LIVE. */
static bool
clear_file(const char *path, Oid database, uint64 file_id, void *arg)
{
	PmhashStandbyRow *row = arg == NULL ? NULL : pmhash_standby_find(file_id);

	if (file_id == 0 && !(OidIsValid(database) && is_work_file(path)))
		return true;
	if (row != NULL && row->database == database && row->status == PMHASH_STANDBY_LIVE)
		return true;
	return unlink(path) == 0 || errno == ENOENT;
}

/* Remove all files but those that are LIVE; false with errno if one is still there. */
bool
pmhash_standby_clear_files(void)
{
	bool		all_but_live = true;

	Assert(LWLockHeldByMeInMode(pmhash_standby_lock, LW_EXCLUSIVE));
	return pmhash_visit_files(InvalidOid, clear_file, &all_but_live);
}

/* Remove the directory of a database, with all that is in it.  False with errno. */
bool
pmhash_standby_clear_database(Oid database)
{
	char		path[MAXPGPATH];

	Assert(LWLockHeldByMeInMode(pmhash_standby_lock, LW_EXCLUSIVE) && OidIsValid(database));
	if (!pmhash_visit_files(database, clear_file, NULL))
		return false;
	pmhash_database_path(path, database);
	return rmdir(path) == 0 || errno == ENOENT;
}

/* ---- the start ---- */

/* What the files that are found have in common. */
typedef struct Found
{
	PmhashStandbyStart how;
	XLogRecPtr	shut_down;		/* if DEMOTED: the checkpoint of that, which files have */
	TimeLineID	timeline;
} Found;

/*
 * A file that was this server's own when it was the primary is LIVE if it is logged: it was
 * made under this server itself.  A file that this server had as a standby is LIVE if its
 * note says so.
 */
static bool
find_file(const char *path, Oid database, uint64 file_id, void *arg)
{
	PmhashStandby *standby = pmhash_shared->standby;
	const Found *found = arg;
	PmhashIdentity id;
	PmhashStandbyRow *row;
	PmhError	error;
	Note		note;

	if (file_id == 0 || pmh_read_note(path, &id, (uint64 *) &note, &error) != PMH_OK ||
		id.file_id != file_id || id.database != database)
		return true;
	if (found->how == PMHASH_STANDBY_DEMOTED)
	{
		if ((id.flags & PMHASH_IDENTITY_LOGGED) == 0)
			return pmhash_standby_note_lost(path);	/* it may be from an earlier time */
	}
	else
	{
		if (note.begun == 0 || pmhash_identity_doubt(&id, true) != PMHASH_REASON_NONE)
			return true;
		if (!is_sound(&note))
		{
			ereport(LOG,
					(errmsg("pmhash: the header of index file \"%s\" is damaged", path),
					 errdetail("It is built again in the background.")));
			return true;
		}
	}
	row = pmhash_standby_enter(file_id, database);
	if (row == NULL)
		return pmhash_standby_note_lost(path);
	row->status = PMHASH_STANDBY_LIVE;
	row->restored = true;
	row->life = ++standby->lives;
	if (found->how == PMHASH_STANDBY_DEMOTED)
	{
		row->applied = row->begun = found->shut_down;
		row->timeline = found->timeline;
		return pmhash_standby_note(path, row, found->shut_down, found->shut_down,
								   found->timeline);
	}
	row->applied = lsn_of(note.applied);
	row->begun = lsn_of(note.begun);
	row->noted_timeline = (TimeLineID) note.timeline;
	row->heap = note.heap;
	row->timeline = note.made_under;
	row->usable_xmin = FullTransactionIdFromU64(note.usable_xmin);
	return true;
}

/*
 * Set the table up for a standby's run, by what the files say.  Called in the postmaster
 * when it has taken the pool, alone, and before the control file says that this is a
 * standby: to adopt a primary's files may be begun anew.  False with a reason if the files
 * can't be listed or noted; then the table is empty, and none is to be trusted.
 */
bool
pmhash_standby_load(PmhashStandbyStart how, const PmhashServerState *server,
					char *reason)
{
	PmhashStandby *standby = pmhash_shared->standby;
	Found		found = {how, server->control.checkPoint,
		server->control.checkPointCopy.ThisTimeLineID};
	XLogRecPtr	redo = server->control.checkPointCopy.redo;
	bool		done;

	Assert(!IsUnderPostmaster);
	pmhash_standby_reset();
	done = how == PMHASH_STANDBY_FRESH || pmhash_visit_files(InvalidOid, find_file, &found) ||
		pmhash_fail(reason, "could not read the files in \"%s\": %s", pmhash_pool_path(),
					strerror(errno));
	if (!done)
		pmhash_standby_reset();
	standby->last_applied = standby->last_begun = InvalidXLogRecPtr;
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		const PmhashStandbyRow *row = &standby->row[i];

		if (standby->id[i] == 0)
			continue;
		standby->last_applied = Max(standby->last_applied, row->applied);
		if (row->begun > standby->last_begun)
		{
			standby->last_begun = row->begun;
			standby->last_timeline = row->noted_timeline;
		}
	}

	/* Replay has come to redo with these files: the control file has noted it (trust.c). */
	pg_atomic_write_u32(&standby->reached, standby->last_begun <= redo);
	standby->applied_timeline = standby->last_begun <= redo ? found.timeline :
		standby->last_timeline;
	standby->replay_timeline = found.timeline;
	pg_atomic_write_u64(&standby->applied, Max(redo, standby->last_applied));
	standby->active = true;
	return done;
}
