/*-------------------------------------------------------------------------
 *
 * wal_look.c
 *	  A look into WAL before the server replays it: is there anything to replay?
 *
 * If not, the server calls no resource manager, so the end of replay could not be
 * saved by one (startup.c, save_end_of_replay); but it can be known beforehand.
 *
 * And whose checkpoint is it that pg_control has after a promotion?
 *
 * Records are read by the server's own reader, as replay will read them.
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

/* What the reader's callback needs and finds out. */
typedef struct Look
{
	TimeLineID	timeline;
	bool		failed;			/* a page that is there could not be read */
} Look;

/*
 * Read a page of WAL.  A segment that is not there ends WAL; any other failure may
 * be gone when the server reads the page.
 */
static int
read_page(XLogReaderState *reader, XLogRecPtr page, int wanted, XLogRecPtr record,
		  char *buffer)
{
	Look	   *look = reader->private_data;
	XLogSegNo	segment;
	char		name[MAXFNAMELEN];
	char		path[MAXPGPATH];
	ssize_t		n;
	int			fd;

	XLByteToSeg(page, segment, wal_segment_size);
	XLogFileName(name, look->timeline, segment, wal_segment_size);
	snprintf(path, MAXPGPATH, "%s/" XLOGDIR "/%s", DataDir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
	{
		look->failed |= errno != ENOENT;
		return -1;
	}
	n = pread(fd, buffer, XLOG_BLCKSZ, XLogSegmentOffset(page, wal_segment_size));
	close(fd);
	if (n == XLOG_BLCKSZ)
		return XLOG_BLCKSZ;
	look->failed = true;
	return -1;
}

/*
 * Where the record at 'checkpoint' ends, if it is there and none comes after it;
 * else 0.
 */
static XLogRecPtr
end_if_last(XLogReaderState *reader, XLogRecPtr checkpoint, const Look *look)
{
	XLogRecPtr	end;
	char	   *error;

	XLogBeginRead(reader, checkpoint);
	if (XLogReadRecord(reader, &error) == NULL)
		return InvalidXLogRecPtr;
	end = reader->EndRecPtr;
	if (XLogReadRecord(reader, &error) != NULL || look->failed)
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
	Look		look = {server->checkPointCopy.ThisTimeLineID, false};
	XLogReaderState *reader;
	XLogRecPtr	end;

	/* An online checkpoint is replayed itself; a promotion has two timelines. */
	if (server->state == DB_SHUTDOWNED || server->state == DB_SHUTDOWNED_IN_RECOVERY ||
		server->checkPointCopy.redo != server->checkPoint ||
		server->minRecoveryPoint != InvalidXLogRecPtr)
		return InvalidXLogRecPtr;
	reader = XLogReaderAllocate(wal_segment_size, NULL,
								XL_ROUTINE(.page_read = read_page), &look);
	if (reader == NULL)
		return InvalidXLogRecPtr;
	end = end_if_last(reader, server->checkPoint, &look);
	XLogReaderFree(reader);
	return end;
}

/* Is the record that was read last one of RM_XLOG_ID of this kind? */
static bool
is_xlog_record(const XLogReaderState *reader, uint8 kind)
{
	return XLogRecGetRmid(reader) == RM_XLOG_ID &&
		(XLogRecGetInfo(reader) & ~XLR_INFO_MASK) == kind;
}

/*
 * Read on to the record at 'checkpoint'.  One life only, that of the promotion?  It
 * begins with the record that ends recovery, and its checkpoints are online ones; each
 * later start, in single-user mode as well, ends its recovery with a checkpoint as of a
 * shutdown (xlog.c, PerformRecoveryXLogAction), and so does a shutdown.
 */
static bool
is_one_life(XLogReaderState *reader, XLogRecPtr checkpoint, const Look *look)
{
	int			promotions = 0;
	char	   *error;

	while (XLogReadRecord(reader, &error) != NULL && !look->failed)
	{
		if (is_xlog_record(reader, XLOG_CHECKPOINT_SHUTDOWN))
			return false;
		promotions += is_xlog_record(reader, XLOG_END_OF_RECOVERY);
		if (reader->ReadRecPtr >= checkpoint)
			return reader->ReadRecPtr == checkpoint && promotions == 1;
	}
	return false;
}

/*
 * A standby's replay has ended at 'end', it was promoted, and pg_control has a
 * checkpoint past that.  Is that one of the life that was promoted?  False also if that
 * can't be found out.  For the postmaster, as above.
 */
bool
pmhash_is_checkpoint_of_promoted(const ControlFileData *server, XLogRecPtr end)
{
	Look		look = {server->checkPointCopy.ThisTimeLineID, false};
	XLogReaderState *reader = XLogReaderAllocate(wal_segment_size, NULL,
												 XL_ROUTINE(.page_read = read_page),
												 &look);
	bool		is;

	if (reader == NULL)
		return false;
	/* Where a page begins, 15 wants the record after its header. */
	if (end % XLOG_BLCKSZ == 0)
		end += XLogSegmentOffset(end, wal_segment_size) == 0 ? SizeOfXLogLongPHD
			: SizeOfXLogShortPHD;
	XLogBeginRead(reader, end);
	is = is_one_life(reader, server->checkPoint, &look);
	XLogReaderFree(reader);
	return is;
}
