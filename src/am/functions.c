/*-------------------------------------------------------------------------
 *
 * functions.c
 *	  SQL functions about one index: pmhash.stats, pmhash.size,
 *	  pmhash.total_relation_size, pmhash.prewarm.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

#include "am/am.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/pool/pool.h"
#include "engine/stop_point.h"

PG_FUNCTION_INFO_V1(pmhash_stats);
PG_FUNCTION_INFO_V1(pmhash_size);
PG_FUNCTION_INFO_V1(pmhash_total_relation_size);

#define STATS_COLUMNS	24

/*
 * ERROR unless a relation that a user has named is a pmhash index with a file
 * that this session can read.
 */
void
pmhash_require_index(Relation index)
{
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	pmhash_require_ours(index);
	if (RELATION_IS_OTHER_TEMP(index))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary indexes of other sessions")));
}

/*
 * Open the index that a user has named, with AccessShareLock.  NULL if it has
 * been dropped; ERROR if it is something else than a pmhash index with a file
 * that we can read.
 */
static Relation
open_index(Oid oid)
{
	Relation	index = try_relation_open(oid, AccessShareLock);

	if (index == NULL)
		return NULL;
	pmhash_require_index(index);
	return index;
}

/*
 * pmhash.stats(regclass) returns record
 *
 * Exact figures by walking the whole index, which blocks no other process.  NULL if the
 * index has been dropped.  ERROR if its file cannot be used or the user may
 * not know: roles that may read the table do, and so do those that may scan tables for
 * statistics (pg_monitor, for one).
 */
Datum
pmhash_stats(PG_FUNCTION_ARGS)
{
	Relation	index = open_index(PG_GETARG_OID(0));
	TupleDesc	tupdesc;
	PmhashFile *file;
	PmhStats	stats;
	const uint64 *const counts[] = {&stats.segments, &stats.segments_single,
		&stats.segments_two_choice, &stats.segments_stash, &stats.entries_elsewhere,
		&stats.entries_stash, &stats.lists, &stats.list_entries, &stats.list_bytes,
		&stats.value_bytes, &stats.splits, &stats.grows, &stats.doublings, &stats.compactions,
		&stats.strategy_changes};
	Datum		value[STATS_COLUMNS];
	bool		isnull[STATS_COLUMNS] = {false};
	int			i = 0;

	if (index == NULL)
		PG_RETURN_NULL();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != STATS_COLUMNS)
		elog(ERROR, "unexpected result type of pmhash.stats");
	if (pg_class_aclcheck(index->rd_index->indrelid, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		!has_privs_of_role(GetUserId(), ROLE_PG_STAT_SCAN_TABLES))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_INDEX, RelationGetRelationName(index));
	file = pmhash_open_for_reading(index, NULL);
	pmhash_check_result(index, file, pmh_stats(file->table, &stats));

	/* in the order of the OUT parameters */
	value[i++] = CStringGetTextDatum(pmhash_shown_path(file->path));
	value[i++] = CStringGetTextDatum(pmh_is_pmem(file->table) ? "dax" : "cache");
	value[i++] = Int64GetDatum(stats.file_bytes);
	value[i++] = Int64GetDatum(stats.used_bytes);
	value[i++] = Int64GetDatum(stats.entries);
	value[i++] = Float8GetDatum(stats.load_factor);
	value[i++] = Int32GetDatum(stats.global_depth);
	value[i++] = Int32GetDatum(stats.min_depth);
	value[i++] = Int32GetDatum(stats.max_depth);
	for (size_t k = 0; k < lengthof(counts); k++)
		value[i++] = Int64GetDatum(*counts[k]);
	Assert(i == STATS_COLUMNS);
	relation_close(index, AccessShareLock);

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  value, isnull)));
}

/*
 * pmhash.size(regclass) returns bigint
 *
 * Bytes that the index takes: its file and the stub in its main fork.  NULL
 * if the index has been dropped, or nothing is known of its file.
 */
Datum
pmhash_size(PG_FUNCTION_ARGS)
{
	Relation	index = open_index(PG_GETARG_OID(0));
	int64		bytes;
	bool		known;

	if (index == NULL)
		PG_RETURN_NULL();
	known = pmhash_file_size(index, &bytes);
	bytes += (int64) RelationGetNumberOfBlocks(index) * BLCKSZ;
	relation_close(index, AccessShareLock);
	if (!known)
		PG_RETURN_NULL();
	PG_RETURN_INT64(bytes);
}

/* Add the bytes of the file of an index, if it is ours.  False: they are not known. */
static bool
add_file_bytes(Oid relid, int64 *sum)
{
	Relation	index = try_relation_open(relid, AccessShareLock);
	int64		bytes = 0;
	bool		known = true;

	if (index == NULL)
		return true;
	if (pmhash_is_index(index) && !RELATION_IS_OTHER_TEMP(index))
		known = pmhash_file_size(index, &bytes);
	relation_close(index, AccessShareLock);
	*sum += bytes;
	return known;
}

/*
 * pmhash.total_relation_size(regclass) returns bigint
 *
 * What pg_total_relation_size says, and the files of the relation's pmhash indexes,
 * or its own if it is one.  NULL if it has been dropped, or nothing is known of one of
 * these files.
 */
Datum
pmhash_total_relation_size(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	Relation	rel = try_relation_open(relid, AccessShareLock);
	int64		bytes;
	bool		known = true;
	ListCell   *lc;

	if (rel == NULL)
		PG_RETURN_NULL();
	bytes = DatumGetInt64(DirectFunctionCall1(pg_total_relation_size,
											  ObjectIdGetDatum(relid)));
	if (rel->rd_rel->relkind == RELKIND_INDEX)
		known = add_file_bytes(relid, &bytes);
	else
	{
		foreach(lc, RelationGetIndexList(rel))
			known &= add_file_bytes(lfirst_oid(lc), &bytes);
	}
	relation_close(rel, AccessShareLock);
	if (!known)
		PG_RETURN_NULL();
	PG_RETURN_INT64(bytes);
}

/*
 * Reading index files into memory, as a whole: by a worker when the server starts,
 * and by pmhash.prewarm.
 *
 * Sessions have the kernel read a page at a time (engine/map.c), so an index that fits
 * into memory would be slow to come there.  What is built later is in memory already.
 */

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

	Assert(fd >= 0);
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
		(void) pmhash_pool_write_back_or_ask(0, warm_file, NULL);
	elog(DEBUG1, "pmhash: read %d files into memory, " INT64_FORMAT " bytes; left %d that are too large",
		 files_read, bytes_read, files_left);
}

/*
 * pmhash.prewarm(regclass) returns bigint
 *
 * Read the file of an index, so that its pages are in the page cache, which the
 * mappings of all sessions share.  Returns the bytes that were read; NULL if the index
 * has been dropped.  ERROR if the file cannot be used.
 */
Datum
pmhash_prewarm(PG_FUNCTION_ARGS)
{
	Relation	index = open_index(PG_GETARG_OID(0));
	PmhashFile *file;
	int64		bytes = -1;
	int			fd;

	if (index == NULL)
		PG_RETURN_NULL();
	/* as pg_prewarm wants it */
	if (pg_class_aclcheck(index->rd_index->indrelid, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_INDEX, RelationGetRelationName(index));
	file = pmhash_file_open(index, NULL);
	fd = OpenTransientFile(file->path, O_RDONLY | PG_BINARY);
	if (fd >= 0)
		bytes = read_file(fd);
	if (bytes < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\" of index \"%s\": %m",
						pmhash_shown_path(file->path),
						RelationGetRelationName(index))));
	CloseTransientFile(fd);
	relation_close(index, AccessShareLock);
	PG_RETURN_INT64(bytes);
}
