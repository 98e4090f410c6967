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

#include "cluster/base/control_file.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"
#include "cluster/standby/standby_state.h"

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
 * What is known of a file of our database; all zeroes if it has no row.  False if it could not
 * have one, as none is free.  A copied stub names a file of another database; so do those that
 * ALTER INDEX has made of copies, in WAL of earlier versions.
 */
bool
pmhash_standby_look(uint64 file_id, PmhashStandbyRow *copy)
{
	const PmhashStandbyRow *row;
	bool		has_place;

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = pmhash_standby_find(file_id);
	if (row != NULL && row->database != MyDatabaseId)
		row = NULL;
	has_place = row != NULL || search(0, 0) != NULL;
	*copy = row == NULL ? (PmhashStandbyRow) {0} : *row;
	LWLockRelease(pmhash_standby_lock);
	return has_place;
}

/*
 * The row of a file, made if there is none: then it is NONE.  NULL, and the log says so once,
 * if the table is full, which is that of all databases.
 */
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
		if (pg_atomic_exchange_u32(&standby->full, 1) == 0)
			ereport(LOG,
					(errmsg("pmhash: no more than %d logged indexes can have files on a standby",
							PMHASH_STANDBY_FILES),
					 errdetail("Queries on this standby do without the others, of any database. pmhash.indexes shows which these are."),
					 errhint("Indexes that are not needed here need not be logged (storage parameter wal).")));
		return NULL;
	}
	memset(row, 0, sizeof(*row));
	pg_atomic_init_u64(&row->delta_ops, 0);
	row->file_id = standby->id[row - standby->row] = file_id;
	row->database = database;
	return row;
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
	row->life = ++standby->lives;
	row->restored = false;
	pg_atomic_fetch_add_u64(&standby->changes, 1);
	pmhash_stub_changed();
	pmhash_forget_plans(row->database, row->heap);
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
	PmhashStandbyRow row;

	(void) pmhash_standby_look(file_id, &row);
	return row.status == PMHASH_STANDBY_LIVE ? row.life : 0;
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

/* The file lacks rows that snapshots with an xmin before this one may see. */
void
pmhash_standby_raise_usable_xmin(PmhashStandbyRow *row, FullTransactionId xmin)
{
	pg_atomic_uint64 *highest = &pmhash_shared->standby->usable_xmin;

	Assert(LWLockHeldByMeInMode(pmhash_standby_lock, LW_EXCLUSIVE) || !IsUnderPostmaster);
	if (FullTransactionIdPrecedes(row->usable_xmin, xmin))
		row->usable_xmin = xmin;
	if (pg_atomic_read_u64(highest) < U64FromFullTransactionId(xmin))
		pg_atomic_write_u64(highest, U64FromFullTransactionId(xmin));
}

/*
 * Does a snapshot see only what the file has?  Not if its xmin is before usable_xmin.  NULL:
 * any that is taken from now on.
 */
static bool
file_fits(const PmhashStandbyRow *row, Snapshot snapshot)
{
	return snapshot == NULL || U64FromFullTransactionId(row->usable_xmin) == 0 ||
		(snapshot->snapshot_type == SNAPSHOT_MVCC &&
		 !FullTransactionIdPrecedes(pmhash_standby_widen(snapshot->xmin), row->usable_xmin));
}

/*
 * May a scan with this snapshot use the file, which the index's stub names and which has
 * had this life, on a server in recovery?  NULL: any snapshot that is taken from now on.
 */
bool
pmhash_standby_serves(uint64 file_id, uint64 life, Snapshot snapshot)
{
	PmhashStandbyRow row;

	if (!pmhash_standby_is_active())
		return false;
	(void) pmhash_standby_look(file_id, &row);
	return row.status == PMHASH_STANDBY_LIVE && row.life == life &&
		(!row.restored || pmhash_standby_reached()) && file_fits(&row, snapshot);
}

/*
 * May a snapshot use a file, if it is from before the promotion of this server?  A file that
 * is not in the table was made afterwards, and its stub says which scans may use it.  Nearly
 * all snapshots are younger than all that any file lacks; numbers that have come round since
 * are compared whole.
 */
bool
pmhash_standby_fits_promoted(uint64 file_id, Snapshot snapshot)
{
	uint64		highest = pg_atomic_read_u64(&pmhash_shared->standby->usable_xmin);
	PmhashStandbyRow row;

	Assert(snapshot->snapshot_type == SNAPSHOT_MVCC);
	if (likely(!TransactionIdPrecedes(snapshot->xmin, (TransactionId) highest)))
		return true;
	(void) pmhash_standby_look(file_id, &row);
	return row.file_id == 0 || file_fits(&row, snapshot);
}

/* ---- notes ---- */

typedef struct Note
{
	uint64		begun;			/* of_lsn; 0: the file is not LIVE */
	uint64		unused;
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
PMHASH_AT(Note, unused, 8);
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
		note->timeline == of_timeline((TimeLineID) note->timeline) &&
		note->crc == crc_of(note);
}

/* The file at path is about to become LIVE, of that row.  False with errno. */
bool
pmhash_standby_note(const char *path, PmhashStandbyRow *row, XLogRecPtr begun,
					TimeLineID timeline)
{
	Note		note = {
		.begun = of_lsn(begun),
		.timeline = of_timeline(timeline),
		.usable_xmin = U64FromFullTransactionId(row->usable_xmin),
		.heap = row->heap,
		.made_under = row->timeline
	};

	Assert(begun != InvalidXLogRecPtr && timeline != 0);
	note.crc = crc_of(&note);
	row->noted_timeline = timeline;
	return pmh_write_note(path, 0, (uint64 *) &note, PMH_NOTE_WORDS);
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

/* ---- the pool's files ---- */

/* Where the delta of a file is: MAXPGPATH bytes. */
void
pmhash_standby_delta_path(Oid database, uint64 file_id, char *path)
{
	char		directory[MAXPGPATH];

	pmhash_database_path(directory, database);
	snprintf(path, MAXPGPATH, "%s/" PMHASH_ID_FORMAT ".delta", directory, file_id);
}

/* Remove a file, or at least what is in it, for good.  False with errno. */
bool
pmhash_standby_remove(const char *path)
{
	return unlink(path) == 0 || errno == ENOENT || truncate(path, 0) == 0;
}

/*
 * Remove the deltas that builds of an earlier life have left, whatever this server is now: no
 * process knows them.  For the postmaster.
 */
void
pmhash_standby_remove_deltas(void)
{
	PmhashFileWalk walk = {0};

	Assert(!IsUnderPostmaster);
	while (pmhash_next_file(&walk))
	{
		const char *name = last_dir_separator(walk.path) + 1;

		if (OidIsValid(walk.database) && strspn(name, "0123456789abcdef") == 16 &&
			strcmp(name + 16, ".delta") == 0)
			(void) unlink(walk.path);
	}
	pmhash_end_walk(&walk);
}

/* ---- the start ---- */

/*
 * A file that is trusted is LIVE.  If it was this server's own when that was the primary it
 * has to be logged: it was made under this server itself.  Of one that this server had as a
 * standby its note has to say so.  All others are removed: after a promotion they would be
 * taken for good.  False with errno if that fails, or a note can't be written.
 */
static bool
find_file(const PmhashFileWalk *file, PmhashStandbyStart how, const ControlFileData *control)
{
	PmhashStandby *standby = pmhash_shared->standby;
	bool		demoted = how == PMHASH_STANDBY_DEMOTED;
	PmhashIdentity id;
	PmhashStandbyRow *row = NULL;
	PmhHead		head;
	PmhError	error;
	Note		note;

	Assert(file->file_id != 0);
	if (pmh_examine(file->path, &head, &error) != PMH_OK)
		memset(&head, 0, sizeof(head));
	memcpy(&id, head.identity, sizeof(id));
	memcpy(&note, head.note, sizeof(note));
	if (how != PMHASH_STANDBY_FRESH && id.file_id == file->file_id &&
		id.database == file->database &&
		pmhash_identity_doubt(&id, true) == PMHASH_REASON_NONE &&
		(demoted ? (id.flags & PMHASH_IDENTITY_LOGGED) != 0 : note.begun != 0))
	{
		if (demoted || is_sound(&note))
			row = pmhash_standby_enter(file->file_id, file->database);
		else
			ereport(LOG,
					(errmsg("pmhash: the header of index file \"%s\" is damaged", file->path),
					 errdetail("It is built again in the background.")));
	}
	if (row == NULL)
		return pmhash_standby_remove(file->path);
	row->status = PMHASH_STANDBY_LIVE;
	row->restored = true;
	row->life = ++standby->lives;
	row->index = id.index_oid;
	if (demoted)
	{
		row->begun = control->checkPoint;	/* that of the shutdown, which files have */
		row->timeline = control->checkPointCopy.ThisTimeLineID;
		return pmhash_standby_note(file->path, row, row->begun, row->timeline);
	}
	row->begun = lsn_of(note.begun);
	row->noted_timeline = (TimeLineID) note.timeline;
	row->heap = note.heap;
	row->timeline = note.made_under;
	pmhash_standby_raise_usable_xmin(row, FullTransactionIdFromU64(note.usable_xmin));
	return true;
}

/*
 * Set the table up for a standby's run, by what the files say.  Called in the postmaster
 * when it has taken the pool, alone, and before the control file says that this is a
 * standby: to adopt a primary's files may be begun anew.  False with a reason if the files
 * can't be listed, noted or removed; then the table is empty, and none is to be trusted.
 */
bool
pmhash_standby_load(PmhashStandbyStart how, const PmhashServerState *server,
					char *reason)
{
	PmhashStandby *standby = pmhash_shared->standby;
	XLogRecPtr	redo = server->control.checkPointCopy.redo;
	TimeLineID	timeline = server->control.checkPointCopy.ThisTimeLineID;
	PmhashFileWalk walk = {0};
	bool		done = true;

	Assert(!IsUnderPostmaster && search(0, 0) == standby->row);
	while (done && pmhash_next_file(&walk))
		done = walk.file_id == 0 || find_file(&walk, how, &server->control);
	if (done && walk.error != 0)
	{
		errno = walk.error;
		done = false;
	}
	if (!done)
	{
		pmhash_fail(reason, "could not read or remove the files in \"%s\": %s", pmhash_pool_path(),
					strerror(errno));
		memset(standby->id, 0, sizeof(standby->id));
		memset(standby->row, 0, sizeof(standby->row));
	}
	pmhash_end_walk(&walk);
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		const PmhashStandbyRow *row = &standby->row[i];

		if (standby->id[i] == 0)
			continue;
		if (row->begun > standby->last_begun)
		{
			standby->last_begun = row->begun;
			standby->last_timeline = row->noted_timeline;
		}
	}

	/* Replay has come to redo with these files: the control file has noted it (trust.c). */
	pg_atomic_write_u32(&standby->reached, standby->last_begun <= redo);
	standby->applied_timeline = standby->last_begun <= redo ? timeline :
		standby->last_timeline;
	standby->replay_timeline = timeline;
	pg_atomic_write_u64(&standby->applied, Max(redo, standby->last_begun));
	standby->active = true;
	return done;
}
