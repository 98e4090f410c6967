/*-------------------------------------------------------------------------
 *
 * standby_files.c
 *	  The files of a standby: what each says of itself, which are good after a restart,
 *	  and which have to go.
 *
 * The header of a file that is LIVE has a note (S2): `begun` is the end of the last record
 * of which it may have something, stored before the first entry, and `applied` that of the
 * last one of which it has all, stored after the last entry.  Nothing is flushed: a
 * standby begins afresh after a loss of power, and a clean shutdown writes files back.
 *
 * Each word of the note is stored at once, and tells whether a bit of it has been flipped.
 * A file whose note is damaged is built again.
 *
 * What runs in the postmaster, or under the lock, raises no ERROR.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <unistd.h>

#include "port/pg_crc32c.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/standby/standby_state.h"

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
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &note->usable_xmin, offsetof(Note, crc) - offsetof(Note, usable_xmin));
	FIN_CRC32C(crc);
	return crc;
}

static void
fill_note(Note *note, const PmhashStandbyRow *row)
{
	memset(note, 0, sizeof(*note));
	note->usable_xmin = U64FromFullTransactionId(row->usable_xmin);
	note->heap = row->heap;
	note->made_under = row->timeline;
	note->crc = crc_of(note);
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
	Note		note;

	fill_note(&note, row);
	note.begun = of_lsn(begun);
	note.applied = of_lsn(applied);
	note.timeline = of_timeline(timeline);
	row->noted_timeline = timeline;
	return pmh_write_note(path, 0, (uint64 *) &note, PMH_NOTE_WORDS);
}

/* The table of a LIVE file is known by now.  Under the lock.  False with errno. */
bool
pmhash_standby_note_heap(const PmhashStandbyRow *row)
{
	char		path[MAXPGPATH];
	Note		note;

	fill_note(&note, row);
	pmhash_file_path(path, row->database, row->file_id);
	return pmh_write_note(path, WORD_OF(usable_xmin), &note.usable_xmin,
						  PMH_NOTE_WORDS - WORD_OF(usable_xmin));
}

/* The file at path is not LIVE any more.  Under the lock, or alone.  False with errno. */
bool
pmhash_standby_note_lost(const char *path)
{
	const uint64 not_live = 0;

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
is_work_file(const char *name)
{
	return strspn(name, "0123456789abcdef") == 16 &&
		(strcmp(name + 16, ".new") == 0 || strcmp(name + 16, ".delta") == 0);
}

/*
 * Called for each file of an index (<id>.pmh), and of a build, of which file_id is 0; false
 * ends the walk, and makes it false.
 */
typedef bool (*FileAction) (Oid database, const char *path, uint64 file_id, void *arg);

static bool
for_each_in_database(Oid database, FileAction action, void *arg)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH + NAMEDATALEN];
	DIR		   *dir;
	struct dirent *de;
	bool		ok = true;
	int			save_errno;

	pmhash_database_path(directory, database);
	dir = opendir(directory);
	if (dir == NULL)
		return errno == ENOENT;
	while (ok && (de = pmhash_next_name(dir, &ok)) != NULL)
	{
		uint64		file_id = 0;

		snprintf(path, sizeof(path), "%s/%.64s", directory, de->d_name);
		if (pmhash_parse_file_name(de->d_name, &file_id) || is_work_file(de->d_name))
			ok = action(database, path, file_id, arg);
	}
	save_errno = errno;
	closedir(dir);
	errno = save_errno;
	return ok;
}

/* Everything in the pool that belongs to an index.  One descriptor at a time. */
static bool
for_each_file(FileAction action, void *arg)
{
	DIR		   *dir = opendir(pmhash_pool_path());
	struct dirent *de;
	Oid			database;
	bool		ok = dir != NULL;
	int			save_errno;

	while (ok && (de = pmhash_next_name(dir, &ok)) != NULL)
	{
		if (pmhash_parse_database_name(de->d_name, &database))
			ok = for_each_in_database(database, action, arg);
	}
	save_errno = errno;
	if (dir != NULL)
		closedir(dir);
	errno = save_errno;
	return ok;
}

static bool
clear_work_file(Oid database, const char *path, uint64 file_id, void *arg)
{
	if (file_id == 0 && unlink(path) != 0 && errno != ENOENT)
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
	(void) for_each_file(clear_work_file, NULL);
}

/* Remove a file; with 'arg', unless it is LIVE. */
static bool
clear_file(Oid database, const char *path, uint64 file_id, void *arg)
{
	PmhashStandbyRow *row = arg == NULL ? NULL : pmhash_standby_find(file_id);

	if (row != NULL && row->database == database && row->status == PMHASH_STANDBY_LIVE)
		return true;
	return unlink(path) == 0 || errno == ENOENT;
}

/*
 * Remove all files but those that are LIVE; false with errno if one is still there.  Under
 * the lock.
 */
bool
pmhash_standby_clear_files(void)
{
	bool		all_but_live = true;

	return for_each_file(clear_file, &all_but_live);
}

/*
 * Remove the directory of a database, with all that is in it.  False with errno.  Under
 * the lock.
 */
bool
pmhash_standby_clear_database(Oid database)
{
	char		path[MAXPGPATH];

	if (!for_each_in_database(database, clear_file, NULL))
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
 * A file that was this server's own when it was the primary is LIVE.  Whether its index is
 * logged is not known here: the stub says so to each process that would use it.  Hence
 * its timeline is 0: under another primary it cannot be kept (S4).  And the table is not
 * known, until a builder has seen that the index is logged (pmhash_standby_wants).
 *
 * A file that this server had as a standby is LIVE if its note says so.
 */
static bool
find_file(Oid database, const char *path, uint64 file_id, void *arg)
{
	PmhashStandby *standby = pmhash_shared->standby;
	const Found *found = arg;
	PmhashIdentity id;
	PmhashStandbyRow *row;
	PmhError	error;
	Note		note;

	if (file_id == 0 || pmh_read_note(path, &id, (uint64 *) &note, &error) != PMH_OK ||
		id.file_id != file_id || id.database != database ||
		(id.flags & (PMHASH_IDENTITY_TEMP | PMHASH_IDENTITY_UNLOGGED)) != 0)
		return true;
	if (found->how == PMHASH_STANDBY_RESUME)
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

	pmhash_standby_reset();
	done = how == PMHASH_STANDBY_FRESH || for_each_file(find_file, &found) ||
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
