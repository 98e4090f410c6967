/*-------------------------------------------------------------------------
 *
 * wal_look.c
 *	  A look into WAL before the server replays it: is there anything to replay?
 *
 * If not, the server calls no resource manager, so the end of replay could not be
 * saved by one (startup.c, save_end_of_replay); but it can be known beforehand.
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
