/*-------------------------------------------------------------------------
 *
 * wal_look.c
 *	  A look into WAL before the server replays it: is there anything to replay?
 *
 * If not, the server calls no resource manager, so the end of replay could not be
 * saved by one (replay.c, save_end_of_replay); but it can be known beforehand.
 *
 * And whose checkpoint is it that pg_control has after a promotion?  Has a server that
 * has recovered written to WAL since?
 *
 * Records are read by the server's own reader, as replay will read them, at a gigabyte
 * in some seconds.  The postmaster does that, before it serves or can be ended: so no
 * more is read than takes a moment.  A replication slot may hold back any amount.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"

#include "cluster/wal_look.h"
#include "cluster/wal_record.h"

/* What the reader's callback needs and finds out. */
typedef struct Look
{
	XLogReaderState *reader;
	TimeLineID	timeline;
	XLogRecPtr	limit;			/* what begins here or later is not read */
	int			fd;				/* of the segment that was read last, or -1 */
	XLogSegNo	segment;
	bool		failed;			/* a page that may be there was not read */
} Look;

/*
 * Have the segment open in which a page is.  False if it can't be; that it is not there
 * is no failure.
 */
static bool
open_segment(Look *look, XLogRecPtr page)
{
	XLogSegNo	segment;
	char		name[MAXFNAMELEN];
	char		path[MAXPGPATH];

	XLByteToSeg(page, segment, wal_segment_size);
	if (look->fd >= 0 && look->segment == segment)
		return true;
	if (look->fd >= 0)
		close(look->fd);
	XLogFileName(name, look->timeline, segment, wal_segment_size);
	snprintf(path, MAXPGPATH, "%s/" XLOGDIR "/%s", DataDir, name);
	look->fd = open(path, O_RDONLY | O_CLOEXEC);
	look->segment = segment;
	look->failed |= look->fd < 0 && errno != ENOENT;
	return look->fd >= 0;
}

/*
 * Read a page of WAL.  A segment that is not there ends WAL; any other failure may
 * be gone when the server reads the page, which also reads what is past the limit.
 */
static int
read_page(XLogReaderState *reader, XLogRecPtr page, int wanted, XLogRecPtr record,
		  char *buffer)
{
	Look	   *look = reader->private_data;

	if (page < look->limit)
	{
		if (!open_segment(look, page))
			return -1;
		if (pread(look->fd, buffer, XLOG_BLCKSZ,
				  XLogSegmentOffset(page, wal_segment_size)) == XLOG_BLCKSZ)
			return XLOG_BLCKSZ;
	}
	look->failed = true;
	return -1;
}

/* Begin to look at WAL of the server's timeline, from that LSN on.  False: no memory. */
static bool
begin_look(Look *look, const ControlFileData *server, XLogRecPtr from)
{
	memset(look, 0, sizeof(*look));
	look->timeline = server->checkPointCopy.ThisTimeLineID;
	look->limit = from + PMHASH_LONGEST_LOOK;
	look->fd = -1;
	look->reader = XLogReaderAllocate(wal_segment_size, NULL,
									  XL_ROUTINE(.page_read = read_page), look);
	return look->reader != NULL;
}

static void
end_look(Look *look)
{
	if (look->fd >= 0)
		close(look->fd);
	XLogReaderFree(look->reader);
}

/*
 * Where the record at 'checkpoint' ends, if it is there and none comes after it;
 * else 0.
 */
static XLogRecPtr
end_if_last(const Look *look, XLogRecPtr checkpoint)
{
	XLogRecPtr	end;
	char	   *error;

	XLogBeginRead(look->reader, checkpoint);
	if (XLogReadRecord(look->reader, &error) == NULL)
		return InvalidXLogRecPtr;
	end = look->reader->EndRecPtr;
	if (XLogReadRecord(look->reader, &error) != NULL || look->failed)
		return InvalidXLogRecPtr;
	return end;
}

/*
 * The server has crashed, and this is what pg_control says.  Where its replay will
 * end, if there is nothing to replay: at the end of the checkpoint's record
 * (xlogrecovery.c, PerformWalRecovery).  0: there is, or it is not known.  For the
 * postmaster, before it starts any process; raises no error.
 */
XLogRecPtr
pmhash_end_without_replay(const ControlFileData *server)
{
	Look		look;
	XLogRecPtr	end;

	/* An online checkpoint is replayed itself; a promotion has two timelines. */
	if (server->state == DB_SHUTDOWNED || server->state == DB_SHUTDOWNED_IN_RECOVERY ||
		server->checkPointCopy.redo != server->checkPoint ||
		server->minRecoveryPoint != InvalidXLogRecPtr)
		return InvalidXLogRecPtr;
	if (!begin_look(&look, server, server->checkPoint))
		return InvalidXLogRecPtr;
	end = end_if_last(&look, server->checkPoint);
	end_look(&look);
	return end;
}

/*
 * Read on to the record at 'checkpoint'.  One life only, that of the promotion?  It
 * begins with the record that ends recovery, and its checkpoints are online ones; each
 * later start, in single-user mode as well, ends its recovery with a checkpoint as of a
 * shutdown (xlog.c, PerformRecoveryXLogAction), and so does a shutdown.
 */
static bool
is_one_life(const Look *look, XLogRecPtr checkpoint)
{
	XLogReaderState *reader = look->reader;
	int			promotions = 0;
	char	   *error;

	while (XLogReadRecord(reader, &error) != NULL && !look->failed)
	{
		if (pmhash_is_xlog_record(reader, XLOG_CHECKPOINT_SHUTDOWN))
			return false;
		promotions += pmhash_is_xlog_record(reader, XLOG_END_OF_RECOVERY);
		if (reader->ReadRecPtr >= checkpoint)
			return reader->ReadRecPtr == checkpoint && promotions == 1;
	}
	return false;
}

/*
 * Can the reader's record not be from a recovery's end?  That writes records of
 * RM_XLOG_ID only (xlog.c, StartupXLOG), but no image of a page: no process but the
 * startup process may write before its checkpoint, and that one changes no page.  With
 * checksums, an image for hint bits is often the last record that a life has written.
 */
static bool
is_no_end_of_recovery(XLogReaderState *reader)
{
	return XLogRecGetRmid(reader) != RM_XLOG_ID ||
		pmhash_is_xlog_record(reader, XLOG_FPI_FOR_HINT) ||
		pmhash_is_xlog_record(reader, XLOG_FPI) ||
		pmhash_is_xlog_record(reader, XLOG_NOOP);
}

/*
 * Read on from the record at 'redo' to the end of WAL.  Has it all been written by the
 * life that crashed?  The last record that ends a recovery is a checkpoint as of a
 * shutdown.  One that may come before that, at the end of WAL, as well as none at all, is
 * answered no: it may be one of the life's own, too.
 */
static bool
is_all_of_crashed_life(const Look *look, XLogRecPtr redo)
{
	XLogReaderState *reader = look->reader;
	bool		others = false;
	char	   *error;

	while (XLogReadRecord(reader, &error) != NULL)
	{
		if (reader->ReadRecPtr > redo &&
			(pmhash_is_xlog_record(reader, XLOG_CHECKPOINT_SHUTDOWN) ||
			 pmhash_is_xlog_record(reader, XLOG_END_OF_RECOVERY)))
			return false;
		others = is_no_end_of_recovery(reader);
	}
	return others && !look->failed;
}

/*
 * The server has crashed, something has begun to recover it since, and this is what
 * pg_control says.  Is WAL as the crash has left it?  False also if that can't be found
 * out, as when there is more than PMHASH_LONGEST_LOOK of it, or where the server may have
 * got WAL from elsewhere.  For the postmaster, before it starts any process; raises no
 * error.
 */
bool
pmhash_wal_is_as_crash_left_it(const ControlFileData *server)
{
	Look		look;
	bool		is;

	if (server->state != DB_IN_CRASH_RECOVERY ||
		server->minRecoveryPoint != InvalidXLogRecPtr ||
		server->backupStartPoint != InvalidXLogRecPtr ||
		!begin_look(&look, server, server->checkPointCopy.redo))
		return false;
	XLogBeginRead(look.reader, server->checkPointCopy.redo);
	is = is_all_of_crashed_life(&look, server->checkPointCopy.redo);
	end_look(&look);
	return is;
}

/*
 * Has a server written the checkpoint that pg_control has?  pg_resetwal makes its own,
 * where the next segment begins: its record has none before it.  False also if it can't
 * be read.  For the postmaster, as above.
 */
bool
pmhash_is_checkpoint_of_server(const ControlFileData *server)
{
	Look		look;
	char	   *error;
	bool		is;

	if (!begin_look(&look, server, server->checkPoint))
		return false;
	XLogBeginRead(look.reader, server->checkPoint);
	is = XLogReadRecord(look.reader, &error) != NULL &&
		XLogRecGetPrev(look.reader) != InvalidXLogRecPtr;
	end_look(&look);
	return is;
}

/*
 * A standby's replay has ended at 'end', it was promoted, and pg_control has a
 * checkpoint past that.  Is that one of the life that was promoted?  False also if that
 * can't be found out, as when there is more than PMHASH_LONGEST_LOOK in between.  For
 * the postmaster, as above.
 */
bool
pmhash_is_checkpoint_of_promoted(const ControlFileData *server, XLogRecPtr end)
{
	Look		look;
	bool		is;

	if (!begin_look(&look, server, end))
		return false;
	/* Where a page begins, 15 wants the record after its header. */
	if (end % XLOG_BLCKSZ == 0)
		end += XLogSegmentOffset(end, wal_segment_size) == 0 ? SizeOfXLogLongPHD
			: SizeOfXLogShortPHD;
	XLogBeginRead(look.reader, end);
	is = is_one_life(&look, server->checkPoint);
	end_look(&look);
	return is;
}
