/*-------------------------------------------------------------------------
 *
 * prewarm.c
 *	  pmhash_prewarm: read the file of an index into the page cache.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/relation.h"
#include "catalog/index.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/acl.h"
#include "utils/rel.h"

#include "am.h"
#include "engine/stop_point.h"

PG_FUNCTION_INFO_V1(pmhash_prewarm);

/* Bytes read between two looks at interrupts. */
#define PIECE			(256 * 1024)

/* ERROR unless the user may read the table, as pg_prewarm wants it. */
static void
check_permission(Relation index)
{
	Oid			heap = IndexGetRelation(RelationGetRelid(index), false);

	if (pg_class_aclcheck(heap, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_INDEX,
					   RelationGetRelationName(index));
}

/* An error of a system call on the file; not returned from. */
static void
report_failure(Relation index, const char *path)
{
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not read file \"%s\" of index \"%s\": %m",
					pmhash_shown_path(index, path),
					RelationGetRelationName(index))));
}

/*
 * Read what is between two offsets.  Returns how many bytes there were: the file may
 * have become shorter.
 */
static int64
read_range(Relation index, const char *path, int fd, off_t from, off_t to,
			char *buffer)
{
	int64		bytes = 0;

	while (from < to)
	{
		ssize_t		n;

		CHECK_FOR_INTERRUPTS();
		n = pread(fd, buffer, Min(to - from, PIECE), from);
		if (n < 0 && errno != EINTR)
			report_failure(index, path);
		if (n == 0)
			break;
		if (n > 0)
		{
			bytes += n;
			from += n;
		}
	}
	return bytes;
}

/*
 * Read the parts of the file that have blocks.  Holes are left alone: read through a
 * file system without them, as tmpfs, they would take memory.
 */
static int64
read_file(Relation index, const char *path, int fd)
{
	char	   *buffer = palloc(PIECE);
	int64		bytes = 0;
	off_t		at = 0;

	for (;;)
	{
		off_t		data = lseek(fd, at, SEEK_DATA);
		off_t		hole;

		if (data < 0 && errno == ENXIO)
			break;				/* none past here */
		PMH_STOP_POINT("prewarm_before_hole");
		hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
		if (hole < 0 && data >= 0 && errno == ENXIO)
			break;				/* cut off since */
		if (hole < 0)
			report_failure(index, path);
		bytes += read_range(index, path, fd, data, hole, buffer);
		at = hole;
	}
	pfree(buffer);
	return bytes;
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
	int64		bytes;
	int			fd;

	if (index == NULL)
		PG_RETURN_NULL();
	pmhash_require_index(index);
	check_permission(index);
	file = pmhash_file_open(index, NULL);
	fd = OpenTransientFile(file->path, O_RDONLY | PG_BINARY);
	if (fd < 0)
		report_failure(index, file->path);
	bytes = read_file(index, file->path, fd);
	CloseTransientFile(fd);
	relation_close(index, AccessShareLock);
	PG_RETURN_INT64(bytes);
}
