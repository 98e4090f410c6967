/*-------------------------------------------------------------------------
 *
 * file_error.c
 *	  Messages about index files: what failed, the file, what to do about it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/open/open.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/requests.h"

/* What the engine's results mean; a wait that was given up raises what has come. */
static const struct
{
	int			sqlstate;
	PmhashReason reason;		/* that the file is not to be used, at opening it */
	bool		rebuild;		/* helps */
	const char *hint;			/* else */
}			meanings[] = {
	[PMH_ERR_NO_FILE] = {ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, PMHASH_REASON_MISSING, true},
	[PMH_ERR_IO] = {ERRCODE_IO_ERROR, PMHASH_REASON_UNREADABLE},
	[PMH_ERR_NO_SPACE] = {ERRCODE_DISK_FULL, .hint = "Free space on the file system of the pmhash directory."},
	[PMH_ERR_NO_MEMORY] = {ERRCODE_OUT_OF_MEMORY, .hint = "Memory is short, or the system limits the mappings of a process (vm.max_map_count): a transaction needs one for each pmhash index that it uses."},
	[PMH_ERR_FORMAT] = {ERRCODE_INDEX_CORRUPTED, PMHASH_REASON_DAMAGED, true},
	[PMH_ERR_VERSION] = {ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, PMHASH_REASON_VERSION, true},
	[PMH_ERR_CORRUPT] = {ERRCODE_INDEX_CORRUPTED, PMHASH_REASON_DAMAGED, true},
	[PMH_ERR_TOO_LARGE] = {ERRCODE_PROGRAM_LIMIT_EXCEEDED},
	[PMH_ERR_LOST] = {ERRCODE_IO_ERROR, PMHASH_REASON_UNREADABLE, true},
	[PMH_ERR_OUTDATED] = {ERRCODE_IO_ERROR, PMHASH_REASON_OUTDATED},
	[PMH_ERR_NO_DESCRIPTOR] = {ERRCODE_INSUFFICIENT_RESOURCES},
	[PMH_CANCELLED] = {ERRCODE_QUERY_CANCELED}
};

StaticAssertDecl(lengthof(meanings) == PMH_CANCELLED + 1, "the last result of the engine");

/*
 * What an error of the engine at opening a file says about the file.  Want of
 * descriptors, of memory or of mappings says nothing.
 */
PmhashReason
pmhash_reason_of(const PmhError *error)
{
	if (error->code == PMH_ERR_IO &&
		(error->sys_errno == EINTR || error->sys_errno == EAGAIN))
		return PMHASH_REASON_NONE;
	return meanings[error->code].reason;
}

/* Is there no place for a new file, as what was the pool is not there now? */
static bool
has_lost_pool(void)
{
	return pmhash_shared->usable && !pmhash_pool_is_present();
}

/*
 * Is an invalid index to be rebuilt in the background?  Not one that is not ready for
 * inserts, which CREATE INDEX CONCURRENTLY has left (rebuild.c, refill.c), nor before the
 * pool is back.
 */
static bool
is_to_rebuild_itself(Relation index)
{
	return pmhash_rebuild && pmhash_shared->usable && !has_lost_pool() &&
		index->rd_rel->relpersistence != RELPERSISTENCE_TEMP &&
		index->rd_index->indisready;
}

/* Is it, and can it be? */
bool
pmhash_rebuilds_itself(Relation index)
{
	return is_to_rebuild_itself(index) && pmhash_workers_can_be_had();
}

/* What to do about an index that a standby has no file of: there is no REINDEX there. */
static const char *
standby_hint(void)
{
	if (!pmhash_rebuild)
		return "Turn pmhash.rebuild on: this standby builds its files in the background.";
	return pmhash_workers_can_be_had() ?
		"Try again when this standby has built its file in the background." :
		"No background worker of pmhash can run to build it (see max_worker_processes).";
}

/* What to do about an invalid index. */
const char *
pmhash_rebuild_hint(Relation index)
{
	if (has_lost_pool())
		return "Put the directory of pmhash back, or restart the server: it has been unmounted, removed or replaced.";
	if (RecoveryInProgress())
		return standby_hint();
	if (!is_to_rebuild_itself(index))
		return "REINDEX INDEX makes a new file.";
	return pmhash_workers_can_be_had() ?
		"Try again when the index has been rebuilt in the background; REINDEX INDEX does so now." :
		"No background worker of pmhash can run to rebuild it (see max_worker_processes); REINDEX INDEX makes a new file.";
}

/*
 * The engine has given a wait up because a cancel or a termination has come
 * (engine_hooks.c), which CHECK_FOR_INTERRUPTS raises.
 */
pg_noreturn static void
raise_cancelled(Relation index)
{
	CHECK_FOR_INTERRUPTS();
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("canceling statement while waiting for a lock in the file of index \"%s\"",
					RelationGetRelationName(index))));
}

/*
 * DETAIL of an error about a file, "" for none; if the path that the error names is
 * not the whole one, the server's log has that in addition.  Returns 0, for ereport.
 */
int
pmhash_detail_of_file(const char *detail, const char *path, const char *shown)
{
	if (detail[0] != '\0')
		errdetail("%s", detail);
	if (shown != path)
		errdetail_log("%s%sThe path is \"%s\".", detail,
					  detail[0] != '\0' ? "\n" : "", path);
	return 0;
}

pg_noreturn void
pmhash_file_error(Relation index, const char *path, const char *what,
				  const PmhError *error)
{
	const char *hint = meanings[error->code].rebuild ? pmhash_rebuild_hint(index) :
		meanings[error->code].hint;
	int			sqlstate = meanings[error->code].sqlstate;
	const char *shown;
	const char *detail = error->detail;

	if (error->code == PMH_CANCELLED)
		raise_cancelled(index);
	shown = pmhash_shown_path(index, path);
	if (detail[0] != '\0' && error->offset != 0)
		detail = psprintf("%s (offset %llu)", detail,
						  (unsigned long long) error->offset);
	ereport(ERROR,
			(errcode(sqlstate != 0 ? sqlstate : ERRCODE_IO_ERROR),
			 errmsg("could not %s file \"%s\" of index \"%s\"%s%s",
					what, shown, RelationGetRelationName(index),
					error->sys_errno != 0 ? ": " : "",
					error->sys_errno != 0 ? strerror(error->sys_errno) : ""),
			 pmhash_detail_of_file(detail, path, shown),
			 hint ? errhint("%s", hint) : 0));
}
