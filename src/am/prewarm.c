/*-------------------------------------------------------------------------
 *
 * prewarm.c
 *	  Reading index files into memory, as a whole: by a worker when the server starts,
 *	  and by pmhash_prewarm.
 *
 * Sessions have the kernel read a page at a time (engine/map.c), so an index that fits
 * into memory would be slow to come there.  What is built later is in memory already.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "access/relation.h"
#include "catalog/index.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/rel.h"

#include "am.h"
#include "cluster/pool_files.h"
#include "cluster/shared.h"
#include "engine/stop_point.h"

PG_FUNCTION_INFO_V1(pmhash_prewarm);
PGDLLEXPORT void pmhash_warmer_main(Datum arg);

/* Bytes read between two looks at interrupts, and asked for ahead. */
#define PIECE			((off_t) 256 * 1024)
#define AHEAD			(8 * PIECE)

/*
 * Read the parts of a file that have blocks.  Holes are left alone: read through a
 * file system without them, as tmpfs, they would take memory.  Returns the bytes that
 * were read; -1, with errno, if that cannot be.  The file may become shorter meanwhile.
 */
static int64
read_file(int fd)
{
	char	   *buffer = palloc(PIECE);
	int64		bytes = 0;
	off_t		at = 0;
	off_t		hole = 0;

	for (;;)
	{
		ssize_t		n;

		CHECK_FOR_INTERRUPTS();
		if (at == hole)
		{
			at = lseek(fd, at, SEEK_DATA);
			if (at < 0 && errno == ENXIO)
				break;			/* none past here */
			PMH_STOP_POINT("prewarm_before_hole");
			hole = at < 0 ? -1 : lseek(fd, at, SEEK_HOLE);
			if (hole < 0 && at >= 0 && errno == ENXIO)
				break;
			if (hole < 0)
				return -1;
		}
		(void) posix_fadvise(fd, at, Min(hole - at, AHEAD), POSIX_FADV_WILLNEED);
		n = pread(fd, buffer, Min(hole - at, PIECE), at);
		if (n < 0 && errno != EINTR)
			return -1;
		bytes += Max(n, 0);
		at = n == 0 ? hole : at + Max(n, 0);
	}
	pfree(buffer);
	return bytes;
}

static int64 room;				/* bytes of memory that are left for files */
static int	files_read = 0;
static int	files_left = 0;		/* too large */
static int64 bytes_read = 0;

/*
 * Read a file if there is room for it.  Not on persistent memory: it is memory.  One that
 * cannot be read is for those to complain of who use it.
 */
static bool
warm_file(int fd, const char *path)
{
	PmhInode	inode;
	int64		bytes;

	if (!pmh_look(path, &inode) || !inode.never_pmem)
		return true;
	if ((int64) Min(inode.size, inode.allocated) > room)
		files_left++;
	else if ((bytes = read_file(fd)) >= 0)
	{
		room -= bytes;
		bytes_read += bytes;
		files_read++;
	}
	return true;
}

/*
 * The worker, once in the life of a server, as soon as there may be sessions.  It is in
 * no database, and does no more with files than to read them.
 *
 * Shared buffers have hardly begun to take their memory then.  (In huge pages they are
 * not in what is available, but whether they are only PostgreSQL 17 tells.)
 */
void
pmhash_warmer_main(Datum arg)
{
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	if (pmhash_shared == NULL || !pmhash_shared->usable)
		proc_exit(0);
	room = ((int64) pmh_available_memory("") - NBuffers * (int64) BLCKSZ) / 4 * 3;
	if (pmhash_warm_up >= 0)
		room = pmhash_warm_up * INT64CONST(1024) * 1024;
	if (room > 0)
		(void) pmhash_pool_ask_files(0, warm_file, NULL);
	elog(DEBUG1, "pmhash: read %d files into memory, " INT64_FORMAT " bytes; left %d that are too large",
		 files_read, bytes_read, files_left);
}

/*
 * pmhash_prewarm(regclass) returns bigint
 *
 * Read the file of an index, so that its pages are in the page cache, which the
 * mappings of all sessions share.  Returns the bytes that were read; NULL if the index
 * has been dropped.  ERROR if the file cannot be used.
 */
Datum
pmhash_prewarm(PG_FUNCTION_ARGS)
{
	Relation	index = try_relation_open(PG_GETARG_OID(0), AccessShareLock);
	PmhashFile *file;
	Oid			heap;
	int64		bytes = -1;
	int			fd;

	if (index == NULL)
		PG_RETURN_NULL();
	pmhash_require_index(index);
	/* as pg_prewarm wants it */
	heap = IndexGetRelation(RelationGetRelid(index), false);
	if (pg_class_aclcheck(heap, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_INDEX, RelationGetRelationName(index));
	file = pmhash_file_open(index, NULL);
	fd = OpenTransientFile(file->path, O_RDONLY | PG_BINARY);
	if (fd >= 0)
		bytes = read_file(fd);
	if (bytes < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\" of index \"%s\": %m",
						pmhash_shown_path(index, file->path),
						RelationGetRelationName(index))));
	CloseTransientFile(fd);
	relation_close(index, AccessShareLock);
	PG_RETURN_INT64(bytes);
}
