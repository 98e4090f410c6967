/*-------------------------------------------------------------------------
 *
 * invalid.c
 *	  Invalid indexes: reasons, and making it known to all processes; messages about index
 *	  files: what failed, the file, what to do about it.
 *
 * src/README, "Invalid indexes", says what follows from an index being invalid, and why its
 * stub is marked before any process leaves it alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lmgr.h"

#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/open/open.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/undo_journal.h"

#define MANY_FAILURES	3		/* of a rebuild: after these a person has to see to it */

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
	Assert(error->code < lengthof(meanings));
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
 * inserts, which CREATE INDEX CONCURRENTLY has left (rebuild.c), nor before the
 * pool is back.
 */
static bool
is_to_rebuild_itself(Relation index)
{
	return pmhash_rebuild && pmhash_shared->usable && !has_lost_pool() &&
		index->rd_rel->relpersistence != RELPERSISTENCE_TEMP &&
		index->rd_index->indisready;
}

/* What to do about an invalid index, or one that a standby has no file of. */
const char *
pmhash_rebuild_hint(Relation index)
{
	bool		workers = pmhash_workers_can_be_had();

	if (has_lost_pool())
		return "Put the directory of pmhash back, or restart the server: it has been unmounted, removed or replaced.";
	if (RecoveryInProgress())	/* there is no REINDEX */
		return !pmhash_rebuild ?
			"Turn pmhash.rebuild on: this standby builds its files in the background." :
			workers ? "Try again when this standby has built its file in the background." :
			"No background worker of pmhash can run to build it (see max_worker_processes).";
	if (!is_to_rebuild_itself(index))
		return "REINDEX INDEX makes a new file.";
	return workers ?
		"Try again when the index has been rebuilt in the background; REINDEX INDEX does so now." :
		"No background worker of pmhash can run to rebuild it (see max_worker_processes); REINDEX INDEX makes a new file.";
}

pg_noreturn void
pmhash_file_error(Relation index, const char *path, const char *what,
				  const PmhError *error)
{
	const char *hint = meanings[error->code].rebuild ? pmhash_rebuild_hint(index) :
		meanings[error->code].hint;
	int			sqlstate = meanings[error->code].sqlstate;
	const char *detail = error->detail;

	Assert(error->code != PMH_OK && error->code < lengthof(meanings));
	if (error->code == PMH_CANCELLED)
	{
		/* A cancel or a termination has come (init.c), which this raises. */
		CHECK_FOR_INTERRUPTS();
		ereport(ERROR,
				(errcode(sqlstate),
				 errmsg("canceling statement while waiting for a lock in the file of index \"%s\"",
						RelationGetRelationName(index))));
	}
	if (detail[0] != '\0' && error->offset != 0)
		detail = psprintf("%s (offset %llu)", detail,
						  (unsigned long long) error->offset);
	ereport(ERROR,
			(errcode(sqlstate != 0 ? sqlstate : ERRCODE_IO_ERROR),
			 errmsg("could not %s file \"%s\" of index \"%s\"%s%s",
					what, pmhash_shown_path(path), RelationGetRelationName(index),
					error->sys_errno != 0 ? ": " : "",
					error->sys_errno != 0 ? strerror(error->sys_errno) : ""),
			 detail[0] != '\0' ? errdetail("%s", detail) : 0,
			 hint ? errhint("%s", hint) : 0));
}

/* ==== invalid indexes ==== */

/* Why the index is invalid, for a message or a view: part of a sentence. */
static const char *const reason_texts[] = {
	[PMHASH_REASON_NONE] = "it is not to be used",	/* nor one that we do not know, of a stub */
	[PMHASH_REASON_NO_STUB] = "it has no stub page",
	[PMHASH_REASON_MISSING] = "it does not exist",
	[PMHASH_REASON_DAMAGED] = "it is damaged",
	[PMHASH_REASON_UNREADABLE] = "it cannot be read",
	[PMHASH_REASON_VERSION] = "it was made by another version of pmhash",
	[PMHASH_REASON_OTHER_CLUSTER] = "it belongs to another cluster",
	[PMHASH_REASON_OTHER_DATABASE] = "it belongs to another database",
	[PMHASH_REASON_OTHER_INDEX] = "it belongs to another index",
	[PMHASH_REASON_APART] = "server and pool directory have not been together all the time since it was made",
	[PMHASH_REASON_POWER] = "it was not written back, and what was in the page cache may be lost",
	[PMHASH_REASON_DISABLED] = "rows were written while pmhash was disabled",
	[PMHASH_REASON_OUTDATED] = "it is an older copy",
	[PMHASH_REASON_FILLING] = "it has not been filled completely",
	[PMHASH_REASON_EMPTIED] = "a crash or a promotion has emptied its unlogged table",
	[PMHASH_REASON_MOVED] = "its table was given another tablespace and new rows in one transaction",
	[PMHASH_REASON_NOT_LOGGED] = "the index is not logged",
	[PMHASH_REASON_NOT_BUILT] = "this standby has not built it",
	[PMHASH_REASON_WRITE_FAILED] = "the kernel has failed to write something back, or may have",
	[PMHASH_REASON_START_DIED] = "a start of the server went down before it used the pool"
};

StaticAssertDecl(lengthof(reason_texts) == PMHASH_REASON_NOT_BUILT + 1, "the last reason");

const char *
pmhash_reason_text(PmhashReason reason)
{
	return reason < lengthof(reason_texts) && reason_texts[reason] != NULL ?
		reason_texts[reason] : reason_texts[PMHASH_REASON_NONE];
}

/* ---- errors ---- */

/* Is a constraint to be checked with this index, so that no row may miss? */
bool
pmhash_enforces_constraint(Relation index)
{
	return index->rd_index->indisexclusion || index->rd_index->indisunique;
}

/* What is wrong with the file. */
static char *
why_not_usable(const PmhashTrouble *trouble)
{
	const char *reason = pmhash_reason_text(trouble->reason);
	const char *shown = pmhash_shown_path(trouble->path);

	if (shown[0] == '\0')
		return psprintf("The index cannot be used: %s.", reason);
	if (trouble->error.detail[0] == '\0')
		return psprintf("File \"%s\" cannot be used: %s.", shown, reason);
	return psprintf("File \"%s\" cannot be used: %s (%s).", shown, reason,
					trouble->error.detail);
}

/* Has this transaction given the index's table other files? */
bool
pmhash_table_is_moved(Relation index)
{
	Relation	heap = relation_open(index->rd_index->indrelid, NoLock);
	bool		moved = pmhash_node_subid(heap) != InvalidSubTransactionId;

	relation_close(heap, NoLock);
	return moved;
}

/* ERROR if it has: to try it again is of no use. */
void
pmhash_require_not_moved(Relation index)
{
	if (pmhash_table_is_moved(index))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot use pmhash index \"%s\" because its table was moved in the same transaction",
						RelationGetRelationName(index)),
				 errdetail("If that is rolled back, the files that the table had before do not know the new rows."),
				 errhint("Insert the rows in another transaction, or use REINDEX INDEX after the table has been moved.")));
}

/*
 * ERROR for an invalid index.  Its SQLSTATE says to try again if that will help: a
 * constraint can be checked when the index has been rebuilt, and a plan that is older than
 * the index's invalidity is made anew.  It does not if the rebuild fails again and again.
 * Why that fails may reveal rows, which this user may have no right to see: the SQLSTATE has to do.
 */
pg_noreturn static void
raise_invalid(Relation index, const PmhashTrouble *trouble)
{
	int			sqlstate = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	PmhashRebuild rebuild;
	bool		failing = !RecoveryInProgress() &&
		pmhash_rebuild_state(RelationGetRelid(index), &rebuild) &&
		rebuild.failures >= MANY_FAILURES;

	Assert(trouble->reason != PMHASH_REASON_NONE);
	if (trouble->reason == PMHASH_REASON_MOVED)
		pmhash_require_not_moved(index);
	if (trouble->reason == PMHASH_REASON_MISSING && trouble->file_id == 0)
		pmhash_require_pool_present();	/* pmhash_service_doubt */
	if (trouble->reason == PMHASH_REASON_NOT_LOGGED)
		ereport(ERROR,
				(errcode(sqlstate),
				 errmsg("pmhash index \"%s\" cannot be used during recovery",
						RelationGetRelationName(index)),
				 errdetail("The index is not logged, so standbys have no file of it."),
				 errhint("Set its storage parameter \"wal\" on the primary server, and use REINDEX there.")));
	if (!failing && is_to_rebuild_itself(index) && pmhash_workers_can_be_had())
		sqlstate = ERRCODE_T_R_SERIALIZATION_FAILURE;
	else if (trouble->reason == PMHASH_REASON_DAMAGED && !failing)
		sqlstate = ERRCODE_INDEX_CORRUPTED;
	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("pmhash index \"%s\" has no usable file",
					RelationGetRelationName(index)),
			 errdetail("%s", why_not_usable(trouble)),
			 failing ?
			 errhint("Its rebuild has failed %d times (SQLSTATE %s; the server log and, for the owner, pmhash.indexes say why). When the cause is removed, REINDEX INDEX makes a new file.",
					 rebuild.failures, unpack_sql_state(rebuild.sqlstate)) :
			 errhint("%s", pmhash_rebuild_hint(index))));
}

pg_noreturn void
pmhash_raise_trouble(Relation index, const PmhashTrouble *trouble)
{
	if (trouble->reason == PMHASH_REASON_NONE)
		pmhash_file_error(index, trouble->path, "open", &trouble->error);
	raise_invalid(index, trouble);
}

/*
 * pmhash_raise_younger
 *		ERROR for a file that does not serve the statement's snapshot, or did not just now,
 *		when it was being rebuilt.  The plan is made anew at the next try, as above, which may
 *		have that snapshot as well.
 */
pg_noreturn void
pmhash_raise_younger(Relation index)
{
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	pmhash_forget_plans(MyDatabaseId, index->rd_index->indrelid);
	pmhash_require_pool_present();	/* else we have no more of the file than is mapped */
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("pmhash index \"%s\" is younger than the snapshot",
					RelationGetRelationName(index)),
			 errdetail("It may lack rows that the snapshot sees, or has just been rebuilt, and the statement has been planned with it."),
			 errhint("Try again: the statement is planned anew.")));
}

/* ---- marking ---- */

/*
 * Mark the stub, make all backends notice, have the index rebuilt.
 *
 * 'standby_life': of the file that this is said of, if it was looked at or mapped on a
 * standby.  That may have lost it and built another one since, under the same id, and
 * have been promoted with that one: which is left alone.  0: it is marked in any case,
 * as one has to that leaves rows out from now on.
 */
void
pmhash_mark_invalid(Relation index, uint64 file_id, uint64 standby_life,
					PmhashReason reason)
{
	Assert(reason != PMHASH_REASON_NONE);
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	if (RecoveryInProgress())
	{
		/* A standby's stub is the primary's; the file is our own. */
		if (standby_life != 0)
			pmhash_standby_lost(file_id, standby_life, ERRCODE_INDEX_CORRUPTED,
								pmhash_reason_text(reason));
		return;
	}
	if (standby_life != 0 && standby_life != pmhash_standby_life(file_id))
		return;
	if (pmhash_stub_invalidate(index, file_id, reason))
	{
		/*
		 * A main fork that is new in this transaction goes with an abort, and the
		 * mark with it.  The file that the fork of before names must not be trusted
		 * then, so it goes now.  (What has it mapped looks for it, entry_by_stub.)
		 */
		if (pmhash_node_subid(index) != InvalidSubTransactionId && file_id != 0)
			pmhash_remove_file(MyDatabaseId, file_id, false);

		/*
		 * The reason may be gone after a crash (a bad page of the page cache
		 * is read from disk again, as it once was), so the mark has to stay
		 * even if this transaction does not.
		 */
		XLogFlush(pmhash_insert_end());
		pmhash_forget_plans(MyDatabaseId, index->rd_index->indrelid);
		pmhash_count(PMHASH_INVALIDATIONS, 1);
	}
	pmhash_rebuild_wanted(RelationGetRelid(index));
}

/*
 * pmhash_may_insert
 *
 * SET TABLESPACE copies a table block by block: TIDs stay, and so do the indexes.  (All
 * else that gives a table new files builds its indexes anew.)  If it is rolled back, the
 * old files know nothing of rows that were inserted meanwhile, not even as dead ones:
 * VACUUM never meets their TIDs, and other rows get them.  An entry that was made for
 * them would lead there for ever.  (A btree keeps it, and answers wrongly.)
 *
 * So none is made: the rows are left out, unless the same abort takes the file away.  If
 * an abort takes the mark away, the main fork is new, and was made at this level or
 * further out: then it takes the rows away, too.
 */
bool
pmhash_may_insert(Relation heap, Relation index, const PmhashFile *file)
{
	Assert(RelationGetRelid(heap) == index->rd_index->indrelid);
	if (pmhash_node_subid(heap) == InvalidSubTransactionId ||
		pmhash_goes_with_table(file->file_id, heap))
		return true;
	if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		pmhash_enforces_constraint(index))
		pmhash_require_not_moved(index);
	pmhash_mark_invalid(index, file->file_id, 0, PMHASH_REASON_MOVED);
	return false;
}

/*
 * A transaction that leaves no row out has found an index to be invalid.  Mark
 * it, so that all backends learn of it, unless the reason may go away again:
 * then the file is still good.
 */
void
pmhash_notice_invalid(Relation index, const PmhashTrouble *trouble)
{
	Assert(trouble->reason != PMHASH_REASON_NONE);
	if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		trouble->reason == PMHASH_REASON_DISABLED ||
		trouble->reason == PMHASH_REASON_NOT_LOGGED ||
		trouble->reason == PMHASH_REASON_NOT_BUILT ||
		(trouble->marked && RecoveryInProgress()))
		return;
	if (trouble->reason != PMHASH_REASON_FILLING && !trouble->marked &&
		trouble->file_id != 0 && pmhash_pool_is_present())
		pmhash_mark_invalid(index, trouble->file_id, trouble->standby_life,
							trouble->reason);
	else
		pmhash_rebuild_wanted(RelationGetRelid(index));
}

void
pmhash_index_invalidate(Relation index, const PmhashFile *file,
						PmhashReason reason)
{
	if (index->rd_rel->relpersistence != RELPERSISTENCE_TEMP)
		pmhash_mark_invalid(index, file->file_id, file->standby_life, reason);
}

void
pmhash_index_lost_file(Relation index, const PmhashFile *file)
{
	if (pmhash_pool_is_present())
		pmhash_index_invalidate(index, file, PMHASH_REASON_MISSING);
}

void
pmhash_engine_error(Relation index, PmhashFile *file, PmhResult result)
{
	PmhError	error = *pmh_error(file->table);

	Assert(result != PMH_OK);
	if (error.code != result)
	{
		memset(&error, 0, sizeof(error));
		error.code = result;
	}
	if (result == PMH_ERR_NO_FILE)
	{
		/* It has been removed, and this session needs more of it than it has mapped. */
		PmhashTrouble trouble = {
			.reason = PMHASH_REASON_MISSING, .error = error, .file_id = file->file_id,
			.marked = true
		};

		pmhash_require_pool_present();
		pmhash_index_lost_file(index, file);
		strlcpy(trouble.path, file->path, sizeof(trouble.path));
		raise_invalid(index, &trouble);
	}
	if (meanings[result].rebuild)
		pmhash_index_invalidate(index, file, meanings[result].reason);
	pmhash_file_error(index, file->path, "use", &error);
}

void
pmhash_insert_failed(Relation index, PmhashFile *file, PmhResult result)
{
	bool		passes = result == PMH_CANCELLED ||
		(result != PMH_ERR_NO_FILE && !file->filling);

	Assert(result != PMH_OK && !RecoveryInProgress());
	if (passes || pmhash_enforces_constraint(index) ||
		index->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		pmhash_engine_error(index, file, result);
	/* Rows are left out now: whichever file it is, the stub has to say so. */
	pmhash_mark_invalid(index, file->file_id, 0,
						file->filling ? PMHASH_REASON_FILLING : PMHASH_REASON_MISSING);
}
