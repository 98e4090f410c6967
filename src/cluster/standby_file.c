/*-------------------------------------------------------------------------
 *
 * standby_file.c
 *	  What a standby keeps in its pool: <pool>/standby, with how far records
 *	  have been applied and which files are LIVE.
 *
 * The first line has `applied` (S2): the end of the last record whose effects are
 * in all LIVE files, and its timeline.  The startup process stores it after each
 * record of RM_XLOG_ID, through a mapping.  The redo pointer of a restartpoint is
 * that of a checkpoint record, which is one of these, so a server that replays
 * with this pool never leaves a redo pointer past `applied`: one that is past it
 * has been moved there by a run that did not have the pool (trust.c).
 *
 * `touched`, if it is past that, is the end of a record of which LIVE files may have
 * something, all or a part: the server was killed in it.  It is stored before they have.
 *
 * After it there is a row for each in the table: the LIVE ones have the
 * file's id.  A file that is in none is not LIVE after a restart, whatever is in
 * the directory.
 *
 * The part that runs in the postmaster, or under the lock, raises no ERROR.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "port/pg_crc32c.h"
#include "storage/fd.h"

#include "cluster/cluster.h"
#include "cluster/control_file.h"
#include "cluster/durable.h"
#include "cluster/format.h"
#include "cluster/identity.h"
#include "cluster/pool.h"
#include "cluster/shared.h"
#include "cluster/standby_state.h"
#include "engine/pm.h"

#define STANDBY_FILE	"standby"
#define STANDBY_MAGIC	UINT64CONST(0x59424453484d50ff)
#define STANDBY_VERSION 3
#define HEADER_SIZE		4096	/* the rows begin there */

typedef struct Header
{
	uint64		magic;
	uint32		version;
	uint32		rows;
	uint64		applied;		/* XLogRecPtr */
	uint64		timeline;		/* stored before it */
	uint64		ended;			/* where replay ended, if a promotion has followed,
								 * on that timeline; or 0 */
	int64		ended_opts;		/* mtime of postmaster.opts then, ns */
	uint64		touched;		/* XLogRecPtr, on the same timeline */
	uint64		reserved;
} Header;

typedef struct KeptRow
{
	uint64		file_id;		/* 0: none */
	uint64		usable_xmin;	/* full transaction id */
	Oid			database;
	uint32		crc;			/* CRC-32C of all else */
	Oid			heap;			/* 0: not known */
	TimeLineID	timeline;		/* of the primary under which the file was made */
} KeptRow;

/*
 * Guards: another layout is another STANDBY_VERSION.  Rows do not cross sectors, nor
 * cache lines.
 */
PMHASH_AT(Header, magic, 0);
PMHASH_AT(Header, version, 8);
PMHASH_AT(Header, rows, 12);
PMHASH_AT(Header, applied, 16);
PMHASH_AT(Header, timeline, 24);
PMHASH_AT(Header, ended, 32);
PMHASH_AT(Header, ended_opts, 40);
PMHASH_AT(Header, touched, 48);
PMHASH_AT(Header, reserved, 56);
PMHASH_SIZE(Header, 64);

PMHASH_AT(KeptRow, file_id, 0);
PMHASH_AT(KeptRow, usable_xmin, 8);
PMHASH_AT(KeptRow, database, 16);
PMHASH_AT(KeptRow, crc, 20);
PMHASH_AT(KeptRow, heap, 24);
PMHASH_AT(KeptRow, timeline, 28);
PMHASH_SIZE(KeptRow, 32);

/* The mapping of the startup process. */
static PmFile mapping;			/* base NULL: not mapped */

static void
standby_path(char *path)
{
	snprintf(path, MAXPGPATH, "%s/" STANDBY_FILE, pmhash_pool_path());
}

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

/* ---- writing ---- */

static uint32
row_crc(const KeptRow *kept)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, kept, offsetof(KeptRow, crc));
	COMP_CRC32C(crc, &kept->heap, sizeof(kept->heap));
	COMP_CRC32C(crc, &kept->timeline, sizeof(kept->timeline));
	FIN_CRC32C(crc);
	return crc;
}

/* Write a piece of the file durably.  False with a reason. */
static bool
write_at(const void *data, size_t size, off_t offset, char *reason)
{
	char		path[MAXPGPATH];
	int			fd;
	bool		ok;
	int			save_errno;

	standby_path(path);
	ReserveExternalFD();
	fd = open(path, O_WRONLY | O_CLOEXEC);
	errno = fd < 0 ? errno : ENOSPC;	/* what a short write means */
	ok = fd >= 0 && pwrite(fd, data, size, offset) == (ssize_t) size &&
		fdatasync(fd) == 0;
	save_errno = errno;
	if (fd >= 0)
		close(fd);
	ReleaseExternalFD();
	return ok || pmhash_fail(reason, "could not write file \"%s\": %s", path,
							 strerror(save_errno));
}

static off_t
row_offset(const PmhashStandbyRow *row)
{
	return HEADER_SIZE +
		(off_t) (row - pmhash_shared->standby->row) * (off_t) sizeof(KeptRow);
}

static void
fill_kept(KeptRow *kept, const PmhashStandbyRow *row)
{
	memset(kept, 0, sizeof(*kept));
	kept->file_id = row->file_id;
	kept->usable_xmin = U64FromFullTransactionId(row->usable_xmin);
	kept->database = row->database;
	kept->heap = row->heap;
	kept->timeline = row->timeline;
	kept->crc = row_crc(kept);
}

/* A file has become LIVE: say so durably.  False with a reason. */
bool
pmhash_standby_keep(const PmhashStandbyRow *row, char *reason)
{
	KeptRow		kept;

	fill_kept(&kept, row);
	return write_at(&kept, sizeof(kept), row_offset(row), reason);
}

/* It is not any more.  False if that can't be said. */
bool
pmhash_standby_unkeep(const PmhashStandbyRow *row)
{
	KeptRow		kept;
	char		reason[PMHASH_REASON_SIZE];

	memset(&kept, 0, sizeof(kept));
	return write_at(&kept, sizeof(kept), row_offset(row), reason);
}

/*
 * A file that was built by what the heap is at 'lsn' becomes LIVE: no file is to
 * be used before replay has come there again.  Under the lock, exclusively, so the
 * startup process stores nothing meanwhile; all records of ours up to lsn are in
 * all LIVE files.  The heap may have something of the record that is being replayed, and
 * the delta all of it: that one ends at 'touched'.  False with a reason.
 */
bool
pmhash_standby_raise_applied(XLogRecPtr lsn, TimeLineID timeline, XLogRecPtr touched,
							 char *reason)
{
	PmhashStandby *standby = pmhash_shared->standby;
	XLogRecPtr	applied = pg_atomic_read_u64(&standby->applied);
	uint64		pair[2] = {lsn, timeline};

	if (touched > Max(lsn, applied) &&
		!write_at(&touched, sizeof(touched), offsetof(Header, touched), reason))
		return false;
	if (lsn <= applied)
		return true;
	if (!write_at(pair, sizeof(pair), offsetof(Header, applied), reason))
		return false;
	standby->applied_timeline = timeline;
	pg_atomic_write_u64(&standby->applied, lsn);
	return true;
}

/*
 * Write what it says durably once more: the page may have gone by itself.  Under the
 * lock, exclusively.  False with a reason.
 */
bool
pmhash_standby_restate_applied(char *reason)
{
	PmhashStandby *standby = pmhash_shared->standby;
	uint64		pair[2] = {pg_atomic_read_u64(&standby->applied),
	standby->applied_timeline};

	return write_at(pair, sizeof(pair), offsetof(Header, applied), reason);
}

/*
 * Replay is over, and what comes next is a promotion: say durably that the LIVE
 * files have all of it (trust.c, promotion_doubt).  By the startup process, after the
 * last record.  False with a reason.
 */
bool
pmhash_standby_note_end(const PmhashStandbyEnd *end, char *reason)
{
	PmhashStandby *standby = pmhash_shared->standby;
	uint64		mark[4] = {end->lsn, end->timeline, end->lsn, end->opts_mtime};

	if (!write_at(mark, sizeof(mark), offsetof(Header, applied), reason))
		return false;
	standby->applied_timeline = end->timeline;
	pg_atomic_write_u64(&standby->applied, end->lsn);
	return true;
}

/* Replay goes on, or is to: there is no such end any more. */
static bool
clear_end(char *reason)
{
	uint64		none[2] = {0, 0};

	return write_at(none, sizeof(none), offsetof(Header, ended), reason);
}

/* The head of the file, mapped by the startup process.  NULL if it can't be. */
static Header *
map_header(void)
{
	PmhError	error;
	char		path[MAXPGPATH];

	if (mapping.base == NULL)
	{
		standby_path(path);
		if (pm_open(&mapping, path, false, &error) != PMH_OK)
			return NULL;
		if (mapping.mapped < HEADER_SIZE)
		{
			pm_close(&mapping);
			return NULL;
		}
	}
	return (Header *) mapping.base;
}

/*
 * The startup process is about to apply a record that ends at lsn to a LIVE file: if it
 * is killed before it has stored `applied`, the file has more than that says (S2).  False
 * if the file can't be written.
 */
bool
pmhash_standby_store_touched(XLogRecPtr lsn)
{
	Header	   *header = map_header();

	if (header == NULL)
		return false;
	pm_store64(&header->touched, lsn);
	return !pm_is_lost(&mapping);
}

/*
 * The startup process has applied a record that ends at lsn.  A crash between the two
 * stores leaves the old LSN with the new timeline.  That does no harm: what was to be
 * given up for the new one is given up, durably, before the first of them (note_timeline,
 * standby_redo.c), and the record comes again.  Nothing is flushed: after a loss of
 * power a standby begins afresh, and a clean shutdown syncs (trust.c).  False if the file
 * can't be written.
 */
bool
pmhash_standby_store_applied(XLogRecPtr lsn, TimeLineID timeline)
{
	PmhashStandby *standby = pmhash_shared->standby;
	Header	   *header = map_header();

	if (header == NULL)
		return false;
	if (standby->applied_timeline != timeline)
	{
		pm_store64(&header->timeline, timeline);
		standby->applied_timeline = timeline;
	}
	pm_store64(&header->applied, lsn);
	pg_atomic_write_u64(&standby->applied, lsn);
	return !pm_is_lost(&mapping);
}

/* ---- reading, in the postmaster ---- */

/* Read the file's head; false if there is none that can be believed. */
static bool
read_header(Header *header)
{
	char		path[MAXPGPATH];

	standby_path(path);
	return pmhash_read_small(path, header, sizeof(*header)) == sizeof(*header) &&
		header->magic == STANDBY_MAGIC && header->version == STANDBY_VERSION &&
		header->rows == PMHASH_STANDBY_FILES;
}

/* How far the last run has applied records, or 0: not known. */
XLogRecPtr
pmhash_standby_read_applied(void)
{
	Header		header;

	return read_header(&header) ? header.applied : InvalidXLogRecPtr;
}

/* Where the last run's replay ended, if it did; false: not, or not known. */
bool
pmhash_standby_read_end(PmhashStandbyEnd *end)
{
	Header		header;

	if (!read_header(&header) || header.ended == InvalidXLogRecPtr ||
		header.ended != header.applied)
		return false;
	end->lsn = header.ended;
	end->timeline = header.timeline;
	end->opts_mtime = header.ended_opts;
	return true;
}

/* Make the file anew, with the LIVE rows of the table.  False with a reason. */
static bool
write_file(XLogRecPtr applied, TimeLineID timeline, char *reason)
{
	size_t		size = HEADER_SIZE + PMHASH_STANDBY_FILES * sizeof(KeptRow);
	char	   *bytes = calloc(1, size);
	Header	   *header = (Header *) bytes;
	bool		ok;

	if (bytes == NULL)
		return pmhash_fail(reason, "out of memory");
	header->magic = STANDBY_MAGIC;
	header->version = STANDBY_VERSION;
	header->rows = PMHASH_STANDBY_FILES;
	header->applied = applied;
	header->timeline = timeline;
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		const PmhashStandbyRow *row = &pmhash_shared->standby->row[i];

		if (row->status == PMHASH_STANDBY_LIVE)
			fill_kept((KeptRow *) (bytes + row_offset(row)), row);
	}
	ok = pmhash_replace_durably(pmhash_pool_path(), STANDBY_FILE, bytes, size, reason);
	free(bytes);
	return ok;
}

/* The LIVE files of the last run.  A row that is damaged has none. */
static bool
read_rows(char *reason)
{
	PmhashStandby *standby = pmhash_shared->standby;
	size_t		size = PMHASH_STANDBY_FILES * sizeof(KeptRow);
	KeptRow	   *rows = calloc(1, size);
	char		path[MAXPGPATH];
	int			fd;
	bool		ok;

	standby_path(path);
	fd = rows != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	ok = fd >= 0 && pread(fd, rows, size, HEADER_SIZE) == (ssize_t) size;
	if (fd >= 0)
		close(fd);
	for (int i = 0; ok && i < PMHASH_STANDBY_FILES; i++)
	{
		PmhashStandbyRow *row = &standby->row[i];

		if (rows[i].file_id == 0 || rows[i].crc != row_crc(&rows[i]))
			continue;
		row->file_id = standby->id[i] = rows[i].file_id;
		row->database = rows[i].database;
		row->heap = rows[i].heap;
		row->timeline = rows[i].timeline;
		row->usable_xmin = FullTransactionIdFromU64(rows[i].usable_xmin);
		row->status = PMHASH_STANDBY_LIVE;
		row->restored = true;
		row->life = ++standby->lives;
	}
	free(rows);
	return ok || pmhash_fail(reason, "could not read file \"%s\"", path);
}

/*
 * A file that was this server's own when it was the primary.  Whether its index is
 * logged is not known here: the stub says so to each process that would use it.  Hence
 * its timeline is 0: under another primary it cannot be kept (S4).  And the table is not
 * known, until a builder has seen that the index is logged (pmhash_standby_wants).
 */
static void
adopt(Oid database, uint64 file_id, int *next)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashStandbyRow *row = &standby->row[*next];
	char		path[MAXPGPATH];
	PmhashIdentity id;
	PmhError	error;

	if (*next == PMHASH_STANDBY_FILES)
		return;
	pmhash_file_path(path, database, file_id);
	if (pmh_read_identity(path, &id, &error) != PMH_OK || id.file_id != file_id ||
		id.database != database ||
		(id.flags & (PMHASH_IDENTITY_TEMP | PMHASH_IDENTITY_UNLOGGED)) != 0)
		return;
	row->file_id = standby->id[*next] = file_id;
	row->database = database;
	row->timeline = 0;
	row->heap = InvalidOid;
	row->usable_xmin = InvalidFullTransactionId;
	row->status = PMHASH_STANDBY_LIVE;
	row->restored = true;
	row->life = ++standby->lives;
	(*next)++;
}

/* ---- the pool's files ---- */

/* What a file in a database's directory is, by its name. */
typedef enum FileKind
{
	FOREIGN_FILE,
	INDEX_FILE,					/* <id>.pmh */
	WORK_FILE					/* <id>.new, <id>.delta */
} FileKind;

static FileKind
kind_of(const char *name, uint64 *file_id)
{
	if (pmhash_parse_file_name(name, file_id))
		return INDEX_FILE;
	if (strspn(name, "0123456789abcdef") != 16 ||
		(strcmp(name + 16, ".new") != 0 && strcmp(name + 16, ".delta") != 0))
		return FOREIGN_FILE;
	*file_id = strtoull(name, NULL, 16);
	return WORK_FILE;
}

/* Called for each file; false ends the walk, and makes it false. */
typedef bool (*FileAction) (Oid database, const char *path, FileKind kind,
							uint64 file_id, void *arg);

static bool
for_each_in_database(Oid database, FileAction action, void *arg)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH + NAMEDATALEN];
	DIR		   *dir;
	struct dirent *de;
	FileKind	kind;
	uint64		file_id;
	bool		ok = true;
	int			save_errno;

	pmhash_database_path(directory, database);
	dir = opendir(directory);
	if (dir == NULL)
		return errno == ENOENT;
	while (ok && (de = pmhash_next_name(dir, &ok)) != NULL)
	{
		kind = kind_of(de->d_name, &file_id);
		snprintf(path, sizeof(path), "%s/%.64s", directory, de->d_name);
		if (kind != FOREIGN_FILE)
			ok = action(database, path, kind, file_id, arg);
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
adopt_file(Oid database, const char *path, FileKind kind, uint64 file_id, void *arg)
{
	if (kind == INDEX_FILE)
		adopt(database, file_id, arg);
	return true;
}

static bool
clear_file(Oid database, const char *path, FileKind kind, uint64 file_id, void *arg)
{
	const bool *all = arg;

	if (all == NULL && kind == INDEX_FILE && pmhash_standby_owns(database, file_id))
		return true;
	return unlink(path) == 0 || errno == ENOENT;
}

static bool
clear_work_file(Oid database, const char *path, FileKind kind, uint64 file_id, void *arg)
{
	if (kind == WORK_FILE && unlink(path) != 0 && errno != ENOENT)
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

/*
 * Remove what is not LIVE: files that have missed records must not be there when the
 * server is promoted.  Under the lock.  False with errno if one can't be removed.
 */
bool
pmhash_standby_clear_files(void)
{
	return for_each_file(clear_file, NULL);
}

/*
 * Remove the directory of a database, with all that is in it.  False with errno.  Under
 * the lock.
 */
bool
pmhash_standby_clear_database(Oid database)
{
	bool		all = true;
	char		path[MAXPGPATH];

	if (!for_each_in_database(database, clear_file, &all))
		return false;
	pmhash_database_path(path, database);
	return rmdir(path) == 0 || errno == ENOENT;
}

/* ---- start and end ---- */

/*
 * The life before was a standby's that was promoted and killed before the first use:
 * the table as that has left it.  Its file stays as it is: a start that dies finds
 * the same.  What can't be read is not LIVE.
 */
static bool
load_promoted(char *reason)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashStandbyEnd end;

	if (!pmhash_standby_read_end(&end) || !read_rows(reason))
	{
		pmhash_standby_reset();
		return true;
	}
	standby->others_wrote = true;
	standby->promoted_end = end.lsn;
	standby->promoted_timeline = end.timeline;
	return true;
}

/*
 * Set the table up for a standby's run, and its file.  Called in the postmaster
 * when it has taken the pool, alone.  False with a reason if that can't be written.
 */
bool
pmhash_standby_load(PmhashStandbyStart how, const PmhashServerState *server,
					char *reason)
{
	PmhashStandby *standby = pmhash_shared->standby;
	Header		header;
	XLogRecPtr	applied = server->control.checkPoint;	/* if DEMOTED */
	XLogRecPtr	touched = InvalidXLogRecPtr;
	TimeLineID	timeline = server->control.checkPointCopy.ThisTimeLineID;
	int			n = 0;

	if (how == PMHASH_STANDBY_PROMOTED)
		return load_promoted(reason);
	if (how == PMHASH_STANDBY_DEMOTED && !for_each_file(adopt_file, &n))
		how = PMHASH_STANDBY_FRESH;
	if (how == PMHASH_STANDBY_RESUME &&
		!(read_header(&header) && clear_end(reason) && read_rows(reason)))
		how = PMHASH_STANDBY_FRESH;
	if (how == PMHASH_STANDBY_FRESH)
	{
		pmhash_standby_reset();
		applied = server->control.checkPointCopy.redo;
	}
	if (how == PMHASH_STANDBY_RESUME)
	{
		applied = header.applied;
		touched = header.touched;
		timeline = header.timeline;
	}
	else if (!write_file(applied, timeline, reason))
	{
		pmhash_standby_reset();
		return false;
	}
	standby->applied_timeline = timeline;
	standby->replay_timeline = server->control.checkPointCopy.ThisTimeLineID;
	pg_atomic_write_u64(&standby->applied, applied);
	standby->skip_to = how == PMHASH_STANDBY_FRESH ? InvalidXLogRecPtr : applied;
	standby->touched = Max(standby->skip_to, touched);
	standby->skip_timeline = timeline;
	pg_atomic_write_u32(&standby->reached, how == PMHASH_STANDBY_FRESH);
	pg_atomic_write_u32(&standby->resumed, how == PMHASH_STANDBY_FRESH);
	standby->others_wrote = how != PMHASH_STANDBY_DEMOTED;
	standby->nudge[PMHASH_NUDGE_SOON].all = true;
	standby->active = true;
	return true;
}

/* At the end of a clean shutdown: make what `applied` says durable.  errno if not. */
bool
pmhash_standby_sync(void)
{
	char		path[MAXPGPATH];
	int			fd;
	bool		ok;
	int			save_errno;

	standby_path(path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	ok = fsync(fd) == 0;
	save_errno = errno;
	close(fd);
	errno = save_errno;
	return ok;
}

/* The server is no standby any more. */
void
pmhash_standby_remove_file(void)
{
	char		path[MAXPGPATH];

	standby_path(path);
	(void) unlink(path);
}
