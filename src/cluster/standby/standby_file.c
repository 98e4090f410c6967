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
 * The head stands twice, in two sectors, each with a checksum.  Whoever changes it stores
 * first the one, then the other, from what is in shared memory (never from what is in the
 * file, which may be damaged).  One that is wrong does not count: either it was being
 * stored when the process was killed, or a bit of it has been flipped, and in both cases
 * the other one is true.  The first, if it is right, is the newer.  If both are wrong
 * nothing is known, and all files are built anew.
 *
 * It says of which server life it is, as the control file does of the pool
 * (life_instance).  So a start notices one that is older than the last life, put back by
 * hand: the files have more than that says.  (Not one that was copied in the course of
 * the last life.)  A start that goes on with it says so in one copy before the control
 * file has the new life, and in the other one, which is of the last life, afterwards: if
 * it is killed in between, one of them is of the life that the control file has.
 *
 * After it there is a row for each in the table: the LIVE ones have the
 * file's id.  A file that is in none is not LIVE after a restart, whatever is in
 * the directory.  Nor is one whose row has a wrong checksum.
 *
 * The part that runs in the postmaster, or under the lock, raises no ERROR.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "port/pg_crc32c.h"
#include "storage/fd.h"

#include "cluster/base/control_file.h"
#include "cluster/base/durable.h"
#include "cluster/base/format.h"
#include "cluster/base/pool_names.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/standby/standby_state.h"
#include "engine/pm.h"

#define STANDBY_FILE	"standby"
#define STANDBY_MAGIC	UINT64CONST(0x59424453484d50ff)
#define STANDBY_VERSION 6
#define HEADER_SIZE		4096	/* the rows begin there */
#define HEADER_COPIES	2
#define HEADER_STRIDE	2048	/* from one copy to the other */

typedef struct Header
{
	uint64		magic;
	uint32		version;
	uint32		rows;
	uint64		applied;		/* XLogRecPtr */
	uint32		timeline;		/* of it */
	uint32		life;			/* the lower half of the server life's instance */
	uint64		touched;		/* XLogRecPtr, on the same timeline */
	uint32		crc;			/* CRC-32C of all before it */
	uint32		reserved[5];	/* 0 */
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
PMHASH_AT(Header, life, 28);
PMHASH_AT(Header, touched, 32);
PMHASH_AT(Header, crc, 40);
PMHASH_AT(Header, reserved, 44);
PMHASH_SIZE(Header, 64);

PMHASH_AT(KeptRow, file_id, 0);
PMHASH_AT(KeptRow, usable_xmin, 8);
PMHASH_AT(KeptRow, database, 16);
PMHASH_AT(KeptRow, crc, 20);
PMHASH_AT(KeptRow, heap, 24);
PMHASH_AT(KeptRow, timeline, 28);
PMHASH_SIZE(KeptRow, 32);

StaticAssertDecl(HEADER_COPIES * HEADER_STRIDE <= HEADER_SIZE,
				 "the rows would begin in a copy of the head");

/* The mapping of the startup process. */
static PmFile mapping;			/* base NULL: not mapped */

static void
standby_path(char *path)
{
	snprintf(path, MAXPGPATH, "%s/" STANDBY_FILE, pmhash_pool_path());
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

static uint32
header_crc(const Header *header)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, header, offsetof(Header, crc));
	FIN_CRC32C(crc);
	return crc;
}

/* The head that says this. */
static void
fill_header(Header *header, const PmhashStandbyHead *head)
{
	memset(header, 0, sizeof(*header));
	header->magic = STANDBY_MAGIC;
	header->version = STANDBY_VERSION;
	header->rows = PMHASH_STANDBY_FILES;
	header->applied = head->applied;
	header->timeline = head->timeline;
	header->life = (uint32) pmhash_shared->instance;
	header->touched = head->touched;
	header->crc = header_crc(header);
}

/*
 * Write a piece of the file durably, 'copies' times, HEADER_STRIDE apart, the first one
 * first.  False with a reason.
 */
static bool
write_at(const void *data, size_t size, off_t offset, int copies, char *reason)
{
	char		path[MAXPGPATH];
	int			fd;
	bool		ok;
	int			save_errno;

	standby_path(path);
	ReserveExternalFD();
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ok = fd >= 0;
	for (int i = 0; ok && i < copies; i++)
	{
		errno = ENOSPC;			/* what a short write means */
		ok = pwrite(fd, data, size, offset + i * HEADER_STRIDE) == (ssize_t) size;
	}
	ok = ok && fdatasync(fd) == 0;
	save_errno = errno;
	if (fd >= 0)
		close(fd);
	ReleaseExternalFD();
	return ok || pmhash_fail(reason, "could not write file \"%s\": %s", path,
							 strerror(save_errno));
}

/*
 * Write a head durably; then it is what shared memory has.  Under the lock, exclusively,
 * or by the postmaster, alone.  False with a reason.
 */
static bool
write_head(const PmhashStandbyHead *head, char *reason)
{
	PmhashStandby *standby = pmhash_shared->standby;
	Header		header;

	fill_header(&header, head);
	if (!write_at(&header, sizeof(header), 0, HEADER_COPIES, reason))
		return false;
	standby->head = *head;
	standby->applied_timeline = head->timeline;
	pg_atomic_write_u64(&standby->applied, head->applied);
	return true;
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
	return write_at(&kept, sizeof(kept), row_offset(row), 1, reason);
}

/* It is not any more.  False if that can't be said. */
bool
pmhash_standby_unkeep(const PmhashStandbyRow *row)
{
	KeptRow		kept;
	char		reason[PMHASH_REASON_SIZE];

	memset(&kept, 0, sizeof(kept));
	return write_at(&kept, sizeof(kept), row_offset(row), 1, reason);
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
	PmhashStandbyHead head = pmhash_shared->standby->head;

	if (touched <= Max(lsn, head.applied) && lsn <= head.applied)
		return true;
	if (touched > Max(lsn, head.applied))
		head.touched = touched;
	if (lsn > head.applied)
	{
		head.applied = lsn;
		head.timeline = timeline;
	}
	return write_head(&head, reason);
}

/*
 * Write what it says durably once more: the page may have gone by itself.  Under the
 * lock, exclusively.  False with a reason.
 */
bool
pmhash_standby_restate_applied(char *reason)
{
	PmhashStandbyHead head = pmhash_shared->standby->head;

	return write_head(&head, reason);
}

/* The head of the file, mapped by the startup process.  NULL if it can't be. */
static char *
map_header(void)
{
	PmhError	error;
	char		path[MAXPGPATH];

	if (mapping.base == NULL)
	{
		standby_path(path);
		if (pm_open(&mapping, path, false, &error) != PMH_OK)
			return NULL;
		if (mapping.bound < HEADER_SIZE)
		{
			pm_close(&mapping);
			return NULL;
		}
	}
	return mapping.base;
}

/*
 * Store a head through the mapping, one copy after the other; then it is what shared
 * memory has.  Nothing is flushed.  Under the lock, by the startup process.  False if the
 * file can't be written.
 */
static bool
store_head(const PmhashStandbyHead *head)
{
	union
	{
		Header		header;
		uint64		word[sizeof(Header) / sizeof(uint64)];
	}			u;
	char	   *base = map_header();

	if (base == NULL)
		return false;
	fill_header(&u.header, head);
	for (int i = 0; i < HEADER_COPIES; i++)
	{
		uint64	   *copy = (uint64 *) (base + i * HEADER_STRIDE);

		for (size_t k = 0; k < lengthof(u.word); k++)
			pm_store64(&copy[k], u.word[k]);
	}
	if (pm_is_lost(&mapping))
		return false;
	pmhash_shared->standby->head = *head;
	return true;
}

/*
 * The startup process is about to apply a record that ends at lsn to a LIVE file: if it
 * is killed before it has stored `applied`, the file has more than that says (S2).  False
 * if the file can't be written.
 */
bool
pmhash_standby_store_touched(XLogRecPtr lsn)
{
	PmhashStandbyHead head = pmhash_shared->standby->head;

	head.touched = lsn;
	return store_head(&head);
}

/*
 * The startup process has applied a record that ends at lsn.  Under a new timeline, what
 * was to be given up for that is given up, durably, before (note_timeline,
 * standby_redo.c); if the process is killed before this, the record comes again.
 * Nothing is flushed: after a loss of power a standby begins afresh, and a clean shutdown
 * syncs (trust.c).  False if the file can't be written.
 */
bool
pmhash_standby_store_applied(XLogRecPtr lsn, TimeLineID timeline)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashStandbyHead head = standby->head;

	head.applied = lsn;
	head.timeline = timeline;
	if (!store_head(&head))
		return false;
	standby->applied_timeline = timeline;
	pg_atomic_write_u64(&standby->applied, lsn);
	return true;
}

/* ---- reading, in the postmaster ---- */

/* Is this a head that can be believed? */
static bool
is_sound(const Header *header)
{
	return header->magic == STANDBY_MAGIC && header->version == STANDBY_VERSION &&
		header->rows == PMHASH_STANDBY_FILES && header->crc == header_crc(header);
}

/*
 * Read the file's head, the first copy of it that can be believed and is of this life, if
 * that is not NULL.  Returns which one; HEADER_COPIES, with what is no head, if there is
 * none.
 */
static int
read_copy(Header *header, const uint64 *instance)
{
	char		path[MAXPGPATH];
	int			fd;
	int			copy;

	standby_path(path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return HEADER_COPIES;
	for (copy = 0; copy < HEADER_COPIES; copy++)
		if (pread(fd, header, sizeof(*header), copy * HEADER_STRIDE) == sizeof(*header) &&
			is_sound(header) &&
			(instance == NULL || header->life == (uint32) *instance))
			break;
	close(fd);
	return copy;
}

static bool
read_header(Header *header, const uint64 *instance)
{
	return read_copy(header, instance) < HEADER_COPIES;
}

static void
take_head(PmhashStandbyHead *head, const Header *header)
{
	head->applied = header->applied;
	head->timeline = header->timeline;
	head->touched = header->touched;
}

/* Read what the file's head says; false if there is none that can be believed. */
static bool
read_head(PmhashStandbyHead *head)
{
	Header		header;

	if (!read_header(&header, NULL))
		return false;
	take_head(head, &header);
	return true;
}

/* How far the last run, of this server life, has applied records, or 0: not known. */
XLogRecPtr
pmhash_standby_read_applied(uint64 instance)
{
	Header		header;

	return read_header(&header, &instance) ? header.applied : InvalidXLogRecPtr;
}

/* Make the file anew, with the LIVE rows of the table.  False with a reason. */
static bool
write_file(const PmhashStandbyHead *head, char *reason)
{
	size_t		size = HEADER_SIZE + PMHASH_STANDBY_FILES * sizeof(KeptRow);
	char	   *bytes = calloc(1, size);
	bool		ok;

	if (bytes == NULL)
		return pmhash_fail(reason, "out of memory");
	for (int i = 0; i < HEADER_COPIES; i++)
		fill_header((Header *) (bytes + i * HEADER_STRIDE), head);
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

/* Is this the row of no file? */
static bool
is_empty(const KeptRow *kept)
{
	static const KeptRow empty = {0};

	return memcmp(kept, &empty, sizeof(empty)) == 0;
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
	int			damaged = 0;

	standby_path(path);
	fd = rows != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	ok = fd >= 0 && pread(fd, rows, size, HEADER_SIZE) == (ssize_t) size;
	if (fd >= 0)
		close(fd);
	for (int i = 0; ok && i < PMHASH_STANDBY_FILES; i++)
	{
		PmhashStandbyRow *row = &standby->row[i];

		if (is_empty(&rows[i]))
			continue;
		if (rows[i].file_id == 0 || rows[i].crc != row_crc(&rows[i]))
		{
			damaged++;
			continue;
		}
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
	if (damaged > 0)
		ereport(LOG,
				(errmsg("pmhash: %d entries of file \"%s\" are damaged", damaged, path),
				 errdetail("The index files that they named are not used, but built again in the background.")));
	return ok || pmhash_fail(reason, "could not read file \"%s\"", path);
}

/* ---- start and end ---- */

/*
 * This start will go on with what the file says, and the control file is about to have
 * its server life: so does one copy of the head.  Not the one of the life that the
 * control file has still: if the last start was killed that may be the second.  If that
 * can't be written a start that is killed now builds all files anew, and no more.
 */
void
pmhash_standby_foresee_resume(uint64 last_life)
{
	PmhashStandbyHead head;
	Header		header;
	char		reason[PMHASH_REASON_SIZE];
	int			last = read_copy(&header, &last_life);

	if (last == HEADER_COPIES)
		return;
	take_head(&head, &header);
	fill_header(&header, &head);
	(void) write_at(&header, sizeof(header), last == 0 ? HEADER_STRIDE : 0, 1, reason);
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
	PmhashStandbyHead head = {0};
	PmhashStandbyHead kept;

	head.applied = server->control.checkPoint;	/* if DEMOTED */
	head.timeline = server->control.checkPointCopy.ThisTimeLineID;
	if (how == PMHASH_STANDBY_DEMOTED && !pmhash_standby_adopt_files())
		how = PMHASH_STANDBY_FRESH;
	if (how == PMHASH_STANDBY_RESUME &&
		!(read_head(&kept) && write_head(&kept, reason) && read_rows(reason)))
		how = PMHASH_STANDBY_FRESH;
	if (how == PMHASH_STANDBY_FRESH)
	{
		pmhash_standby_reset();
		head.applied = server->control.checkPointCopy.redo;
	}
	if (how == PMHASH_STANDBY_RESUME)
		head = kept;
	else if (!write_file(&head, reason))
	{
		pmhash_standby_reset();
		return false;
	}
	standby->head = head;
	standby->applied_timeline = head.timeline;
	standby->replay_timeline = server->control.checkPointCopy.ThisTimeLineID;
	pg_atomic_write_u64(&standby->applied, head.applied);
	standby->skip_to = how == PMHASH_STANDBY_FRESH ? InvalidXLogRecPtr : head.applied;
	standby->touched = Max(standby->skip_to, head.touched);
	standby->skip_timeline = head.timeline;
	pg_atomic_write_u32(&standby->reached, how == PMHASH_STANDBY_FRESH);
	pg_atomic_write_u32(&standby->resumed, how == PMHASH_STANDBY_FRESH);
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
