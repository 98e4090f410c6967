/*-------------------------------------------------------------------------
 *
 * standby_build.c
 *	  Building the files of logged indexes on a standby.
 *
 * Each file is built from this server's own copy of the table, while replay goes on
 * and no process waits.  The steps, each of which may find that the build is over, as
 * the index was dropped, the file replaced, or the server promoted:
 *
 *	begin	The state of the file becomes DELTA: what is replayed from here on is put
 *			into the delta.  Then N0 is read, the next transaction id.
 *	wait	until all transactions before N0 are over: a fresh snapshot's xmin is not
 *			before N0.  What the others have inserted was replayed before the
 *			delta began, or is in it.  No snapshot and no lock is held meanwhile.
 *	scan	the table, page by page (am/standby_fill.c).  The locks are released every
 *			fifth of a second, for replay of DDL, and what they protect is looked at
 *			again when they are back: the index may have another file by then.
 *	load	what was found, with what is in the delta (am/standby_fill.c), into a
 *			file that no other process knows.  From here on no relation is locked.
 *	catch up	with what has come into the delta since, until little is left,
 *	publish	with the rest: replay waits for that.
 *
 * A failure is noted for pmhash.indexes and the next try (pmhash_standby_give_up).
 * A conflict with replay is none, and the build is tried again soon.  An index that can't
 * even be looked at is left out, until the next visit: the others are built all the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "cluster/base/control_file.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/queue/queue.h"
#include "cluster/replay/standby_build.h"
#include "cluster/replay/standby_delta.h"
#include "cluster/standby/standby_state.h"
#include "cluster/wal/stub.h"

#define LONGEST_LOOK	100		/* ms, between looks for transactions before N0 */
#define BATCH			4096	/* operations of a delta that are applied at a time */
#define LITTLE			(PMHASH_PUBLISH_MAX / 4)	/* operations to publish with */

static const PmhashFiller *filler = NULL;

/* What this worker is at. */
typedef struct Builder
{
	bool		begun;
	PmhashStandbyBuild build;
	char		name[NAMEDATALEN];	/* of the index */
	PmhashStandbyFill *fill;	/* NULL: none */
	PmhashIdentity identity;	/* of the new file */
	PmhTable   *table;			/* NULL: not open */
} Builder;

static Builder builder;

/* Are some indexes to be looked at again soon: they were locked, or it could not begin? */
static bool some_left = false;
static bool found_none = false; /* of ours, in this database */

/* The indexes that this worker builds; others are for a worker of the other kind. */
static PmhashBuildKind own_kind;

void
pmhash_set_filler(const PmhashFiller *wanted)
{
	filler = wanted;
}

/* ---- looking at an index ---- */

/*
 * Is this an index that is to have a file here?  Then *of is what for.  Not before
 * it is complete on the primary, but it is looked at again then.  CREATE INDEX
 * CONCURRENTLY logs entries of rows that are older than it at the end (index.c,
 * validate_index): a file that is LIVE by then has them from the table already, and
 * would get them twice.
 */
static bool
is_wanted(Relation index, Oid heap, PmhashStandbyIndex *of)
{
	PmhashStub	stub;

	if (!pmhash_is_index(index) || index->rd_index->indrelid != heap ||
		!index->rd_index->indislive ||
		index->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT ||
		!pmhash_stub_read(index, true, &stub) || !pmhash_stub_is_followed(&stub))
		return false;
	of->file_id = stub.file_id;
	of->seed = stub.seed;
	of->database = MyDatabaseId;
	of->heap = heap;
	of->index = RelationGetRelid(index);
	if (index->rd_index->indisvalid && pmhash_stub_for_standby(&stub))
		return true;
	pmhash_standby_wanted_later(of);
	return false;
}

/* Lock a relation, if that is free.  If it is not, the database is looked at again. */
static bool
lock_if_free(Oid relid)
{
	if (ConditionalLockRelationOid(relid, AccessShareLock))
		return true;
	some_left = true;
	return false;
}

/*
 * Lock and open an index and its table.  False, and nothing is open, if one of them
 * has gone; or is locked, and the caller does not wait.  The locks go with the
 * transaction.
 */
static bool
open_both(Oid relid, bool wait, Relation *heap, Relation *index)
{
	Oid			heap_oid = IndexGetRelation(relid, true);

	*heap = *index = NULL;
	if (!OidIsValid(heap_oid))
		return false;
	if (!wait && (!lock_if_free(heap_oid) || !lock_if_free(relid)))
		return false;
	*heap = try_relation_open(heap_oid, AccessShareLock);
	if (*heap == NULL)
		return false;
	*index = try_relation_open(relid, AccessShareLock);
	if (*index != NULL && (*index)->rd_index != NULL)
		return true;
	if (*index != NULL)
		relation_close(*index, NoLock);
	relation_close(*heap, NoLock);
	return false;
}

static void
close_both(Relation heap, Relation index)
{
	relation_close(index, NoLock);
	relation_close(heap, NoLock);
}

/*
 * Lock and open an index that should have a build now, with its table: false, and nothing
 * is open, if it should not.  Locked ones are not waited for: replay holds the locks of a
 * transaction on the primary for as long as that likes, and there are others.  ERROR if
 * its stub can't be read, or the catalogs don't hold together.
 */
static bool
open_wanted(Oid relid, PmhashStandbyIndex *of, Relation *heap, Relation *index)
{
	if (!open_both(relid, false, heap, index))
		return false;
	strlcpy(builder.name, RelationGetRelationName(*index), NAMEDATALEN);
	if (is_wanted(*index, RelationGetRelid(*heap), of) && pmhash_standby_wants(of))
		return true;
	close_both(*heap, *index);
	return false;
}

/* Should this index have a build now?  *kind: by a worker of which kind. */
static bool
wants_build(Oid relid, PmhashBuildKind *kind)
{
	PmhashStandbyIndex of;
	Relation	heap;
	Relation	index;
	bool		wanted;

	StartTransactionCommand();
	wanted = open_wanted(relid, &of, &heap, &index);
	if (wanted)
	{
		*kind = pmhash_build_kind(index->rd_indextuple);
		close_both(heap, index);
	}
	CommitTransactionCommand();
	return wanted;
}

/* ---- the steps ---- */

/* The build is over, though nothing has failed here. */
pg_noreturn static void
is_over(const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the build is over: %s", reason)));
}

static void
require_building(void)
{
	CHECK_FOR_INTERRUPTS();
	if (!RecoveryInProgress())
		is_over("the server has been promoted");
	if (!pmhash_standby_building(&builder.build))
		is_over("the file is not wanted any more");
}

/* False if there is nothing to build after all. */
static bool
begin(Oid relid)
{
	PmhashStandbyIndex of;
	Relation	heap;
	Relation	index;
	char		reason[PMHASH_REASON_SIZE];

	StartTransactionCommand();
	if (open_wanted(relid, &of, &heap, &index))
	{
		PMH_STOP_POINT("standby_begins");
		pmhash_identity_make(index, of.file_id, of.seed, false, &builder.identity);
		builder.begun = pmhash_standby_begin(&of, &builder.build, reason);
		if (builder.begun)
			pmhash_report_index("building the file of", index);
		else
			ereport(DEBUG1,
					(errmsg_internal("no build of index \"%s\": %s", builder.name, reason)));
		close_both(heap, index);
	}
	CommitTransactionCommand();
	return builder.begun;
}

/* The oldest transaction that a snapshot of now takes for running. */
static TransactionId
oldest_running(void)
{
	TransactionId xmin;

	StartTransactionCommand();
	xmin = GetLatestSnapshot()->xmin;
	CommitTransactionCommand();
	return xmin;
}

static void
wait_for_transactions(void)
{
	TransactionId n0 = XidFromFullTransactionId(builder.build.n0);
	TransactionId xmin;
	long		pause = 1;

	while (TransactionIdPrecedes(xmin = oldest_running(), n0))
	{
		pmhash_standby_progress(&builder.build, PMHASH_PHASE_WAITING, 0, 0, xmin);
		pmhash_sleep(pause, pmhash_wait_event(PMHASH_WAIT_BUILD));
		require_building();
		pause = Min(2 * pause, LONGEST_LOOK);
	}
	PMH_STOP_POINT("standby_waited");
}

/* Scan for as long as locks may be held.  True when the table has been scanned. */
static bool
scan_slice(void)
{
	PmhashStandbyIndex of;
	Relation	heap;
	Relation	index;
	bool		done;

	StartTransactionCommand();
	if (!open_both(builder.build.of.index, true, &heap, &index))
		is_over("the index has been dropped");
	if (!is_wanted(index, RelationGetRelid(heap), &of) ||
		of.file_id != builder.build.of.file_id)
		is_over("the index has another file");
	done = filler->scan(builder.fill, heap, index);
	close_both(heap, index);
	CommitTransactionCommand();
	return done;
}

static void
scan(void)
{
	builder.fill = filler->begin(&builder.build);
	while (!scan_slice())
	{
		PMH_STOP_POINT("standby_scanning");
		require_building();
	}
	PMH_STOP_POINT("standby_scanned");
}

/* Something failed in the engine while the new file was written. */
void
pmhash_standby_engine_error(const PmhashFile *file, PmhResult result)
{
	PmhError	error = *pmh_error(file->table);

	if (error.code != result)
	{
		memset(&error, 0, sizeof(error));
		error.code = result;
	}
	CHECK_FOR_INTERRUPTS();
	ereport(ERROR,
			(errcode(result == PMH_ERR_NO_SPACE ? ERRCODE_DISK_FULL :
					 result == PMH_ERR_NO_MEMORY ? ERRCODE_OUT_OF_MEMORY
					 : ERRCODE_IO_ERROR),
			 errmsg("could not write file \"%s\"%s%s", file->path,
					error.sys_errno != 0 ? ": " : "",
					error.sys_errno != 0 ? strerror(error.sys_errno) : ""),
			 error.detail[0] != '\0' ? errdetail("%s", error.detail) : 0));
}

/* In a transaction that has no locks and no snapshot, for temporary files. */
static uint64
load(PmhashFile *file)
{
	PmhEnv		env = pmhash_engine_env();
	PmhError	error;
	PmhResult	result;
	uint64		folded;

	StartTransactionCommand();
	result = pmh_create(builder.build.new_path, &builder.identity, &env,
						&builder.table, &error);
	if (result != PMH_OK)
		ereport(ERROR,
				(errcode(result == PMH_ERR_NO_SPACE ? ERRCODE_DISK_FULL
						 : ERRCODE_IO_ERROR),
				 errmsg("could not create file \"%s\": %s", builder.build.new_path,
						error.sys_errno != 0 ? strerror(error.sys_errno)
						: error.detail)));
	memset(file, 0, sizeof(*file));
	file->table = builder.table;
	file->file_id = builder.build.of.file_id;
	file->seed = builder.build.of.seed;
	file->path = builder.build.new_path;
	folded = filler->load(builder.fill, file);
	CommitTransactionCommand();
	PMH_STOP_POINT("standby_loaded");
	return folded;
}

/* Apply operations from number 'from' on until little is left; where that begins. */
static uint64
catch_up(PmhashFile *file, uint64 from)
{
	static PmhashDeltaOp ops[BATCH];
	char		reason[PMHASH_REASON_SIZE];
	uint64		length;

	while (from + LITTLE < (length = pmhash_standby_delta_length(&builder.build)))
	{
		PmhResult	result;
		size_t		n;

		CHECK_FOR_INTERRUPTS();
		pmhash_standby_progress(&builder.build, PMHASH_PHASE_CATCHING_UP, from, length,
								InvalidTransactionId);
		if (!pmhash_standby_read_delta(&builder.build, from, ops, BATCH, &n, reason))
			is_over(reason);
		result = pmhash_standby_apply_ops(file->table, ops, n);
		if (result != PMH_OK)
			pmhash_standby_engine_error(file, result);
		from += n;
	}
	return from;
}

static void
publish(PmhashFile *file, uint64 from)
{
	PmhashPublishResult result = PMHASH_PUBLISH_BEHIND;
	TransactionId usable_xmin = filler->usable_xmin(builder.fill);
	char		reason[PMHASH_REASON_SIZE];

	while (result == PMHASH_PUBLISH_BEHIND)
	{
		from = catch_up(file, from);
		PMH_STOP_POINT("standby_caught_up");
		result = pmhash_standby_publish(&builder.build, from, file->table, usable_xmin,
										reason);
	}
	if (result == PMHASH_PUBLISH_OVER)
		is_over(reason);
	builder.begun = false;
	PMH_STOP_POINT("standby_published");
}

/* ---- in one piece ---- */

/* Give back what the build has. */
static void
clear_builder(void)
{
	if (builder.table != NULL)
		pmh_close(builder.table);
	builder.table = NULL;
	if (builder.fill != NULL)
		filler->end(builder.fill);
	builder.fill = NULL;
	builder.begun = false;
}

static void
build_index(Oid relid)
{
	PmhashFile	file;
	uint64		folded;

	if (!begin(relid))
		return;
	PMH_STOP_POINT("standby_begun");
	wait_for_transactions();
	scan();
	folded = load(&file);
	publish(&file, folded);
	ereport(LOG,
			(errmsg("pmhash: index \"%s\" has been built on this standby", builder.name)));
	clear_builder();
}

/*
 * What is no fault: replay needed our lock or snapshot, or has held a lock that we
 * need for longer than others are to wait; or the build is not wanted any more.
 */
static bool
is_fault(int sqlstate)
{
	return sqlstate != ERRCODE_T_R_SERIALIZATION_FAILURE &&
		sqlstate != ERRCODE_T_R_DEADLOCK_DETECTED &&
		sqlstate != ERRCODE_LOCK_NOT_AVAILABLE &&
		sqlstate != ERRCODE_QUERY_CANCELED &&
		sqlstate != ERRCODE_ADMIN_SHUTDOWN;
}

/*
 * A publication holds the lock that replay needs outside of transactions, whose abort
 * would release it.  Nothing raises an ERROR there; if something did, give_up would wait
 * for this process, and replay for ever.
 */
static void
release_lock_of_publication(void)
{
	if (!LWLockHeldByMe(pmhash_standby_lock))
		return;
	HOLD_INTERRUPTS();			/* errfinish has taken back what the lock holds */
	LWLockRelease(pmhash_standby_lock);
}

/* A build is over before its end. */
static void
give_up(const ErrorData *error)
{
	bool		failed = builder.begun && is_fault(error->sqlerrcode) &&
		pmhash_standby_building(&builder.build);

	if (builder.begun)
		pmhash_standby_give_up(&builder.build, failed ? error->sqlerrcode : 0,
							   error->message);
	/* Before what may fail again: temporary files of a full disk are flushed. */
	ereport(failed ? LOG : DEBUG1,
			(errmsg("pmhash: could not build index \"%s\" on this standby: %s",
					builder.name, error->message)));
	clear_builder();
}

/* Before a build has begun: say so, once.  No row tells of it. */
static void
leave_out(Oid relid, const ErrorData *error)
{
	if (!is_fault(error->sqlerrcode))
		some_left = true;
	else if (pmhash_first_complaint(relid))
		ereport(LOG,
				(errmsg("pmhash: could not look at %s on this standby: %s",
						pmhash_index_label(relid, builder.name), error->message),
				 errdetail("Its file is not built as long as that is so.")));
}

/* At exit in the middle of a build. */
static void
builder_exit(int code, Datum arg)
{
	if (builder.begun)
		pmhash_standby_give_up(&builder.build, 0, "the worker was terminated");
	builder.begun = false;
}

typedef enum Outcome
{
	NOT_WANTED,					/* or it can't be looked at */
	WANTED,						/* or built */
	FAILED						/* a build that had begun */
} Outcome;

/* An index is looked at (kind: see wants_build), or built (kind NULL). */
static Outcome
try_index(Oid relid, PmhashBuildKind *kind)
{
	MemoryContext context = CurrentMemoryContext;
	volatile Outcome outcome = WANTED;

	builder.name[0] = '\0';
	PG_TRY();
	{
		if (kind == NULL)
			build_index(relid);
		else if (!wants_build(relid, kind))
			outcome = NOT_WANTED;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		AbortOutOfAnyTransaction();
		FlushErrorState();
		release_lock_of_publication();
		outcome = builder.begun || builder.fill != NULL ? FAILED : NOT_WANTED;
		if (outcome == FAILED)
			give_up(error);
		else
			leave_out(relid, error);
		some_left |= kind == NULL && outcome == NOT_WANTED;
		FreeErrorData(error);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return outcome;
}

/*
 * The pmhash indexes of this database, of our kind, that should have a build, listed in
 * 'context'.  *others: there are some of the other kind.
 */
static List *
list_wanted(MemoryContext context, bool *others)
{
	List	   *wanted = NIL;
	PmhashBuildKind kind;
	MemoryContext old;
	List	   *indexes;
	ListCell   *lc;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	old = MemoryContextSwitchTo(context);
	indexes = pmhash_list_indexes(false);
	MemoryContextSwitchTo(old);
	CommitTransactionCommand();
	found_none = indexes == NIL;
	*others = false;
	foreach(lc, indexes)
	{
		CHECK_FOR_INTERRUPTS();
		if (try_index(lfirst_oid(lc), &kind) != WANTED)
			continue;
		*others |= kind != own_kind;
		if (kind != own_kind)
			continue;
		old = MemoryContextSwitchTo(context);
		wanted = lappend_oid(wanted, lfirst_oid(lc));
		MemoryContextSwitchTo(old);
	}
	return wanted;
}

/* Have another worker come for the rest of this database, of our kind or the other. */
static void
ask_for_help(int of_our_kind, bool others)
{
	if (own_kind == PMHASH_BUILD_PLAIN && others)
		pmhash_request(MyDatabaseId, PMHASH_JOB_EXPRESSIONS);
	if (own_kind == PMHASH_BUILD_PLAIN && of_our_kind > 1)
		pmhash_request(MyDatabaseId, PMHASH_JOB_PLAIN);
}

/*
 * Build the files that are missing in the database which this worker is connected
 * to, of indexes of this kind.  Not in a transaction.  If there are several plain ones,
 * another worker may help: each takes those that no other one is at.  After a failed
 * build another worker goes on: temporary files that outlive transactions may be left,
 * and go with this one.
 */
PmhashWorkerResult
pmhash_standby_build_database(PmhashBuildKind kind)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "pmhash builder",
												  ALLOCSET_DEFAULT_SIZES);
	List	   *wanted;
	bool		others;
	ListCell   *lc;

	own_kind = kind;
	before_shmem_exit(builder_exit, (Datum) 0);
	pgstat_report_activity(STATE_RUNNING, "looking for pmhash index files that this standby lacks");
	MemoryContextSwitchTo(context);
	wanted = list_wanted(context, &others);
	ask_for_help(list_length(wanted), others);
	foreach(lc, wanted)
	{
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (!pmhash_rebuild || !RecoveryInProgress())
			break;
		MemoryContextSwitchTo(context);
		if (try_index(lfirst_oid(lc), NULL) == FAILED)
		{
			pmhash_request(MyDatabaseId, (PmhashJob) kind);
			break;
		}
	}
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(context);
	return some_left ? PMHASH_WORKER_LEFT_SOME :
		found_none ? PMHASH_WORKER_FOUND_NOTHING : PMHASH_WORKER_DONE;
}
