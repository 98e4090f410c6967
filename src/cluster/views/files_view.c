/*-------------------------------------------------------------------------
 *
 * files_view.c
 *	  pmhash.files(): which file each pmhash index has, and in what state; pmhash.standby():
 *	  what a server in recovery shows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/open/open.h"
#include "cluster/queue/queue.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/stub.h"

/* ==== standbys ==== */

#define STANDBY_COLUMNS 4

PG_FUNCTION_INFO_V1(pmhash_standby);

/* A build, and how much of the table it has scanned; to load and catch up is the last percent. */
static const char *
building(const PmhashStandbyRow *state)
{
	if (TransactionIdIsValid(state->xid))
		return psprintf("building (0 %%), waiting for transaction %u", state->xid);
	return psprintf("building (%d %%)", (int) (99.0 * Min(state->done, state->total) / Max(state->total, 1)));
}

/* A build or rebuild that has failed, and when it is tried again by the wall clock. */
static const char *
failed_state(bool rebuild, const PmhashRebuild *last, bool details)
{
	int64		wait = last->next_try - pmhash_clock_ms();
	TimestampTz next = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), Max(wait, 0));
	const char *message = details ? last->failure :
		psprintf("SQLSTATE %s", unpack_sql_state(last->sqlstate));

	return psprintf(rebuild ? "rebuild failed: %s; next try at %s" :
					"build failed: %s; next try at %s", message, timestamptz_to_str(next));
}

/* Which worker there is not, so that nothing can be built or rebuilt; or nothing to say. */
static const char *
what_is_lacking(bool rebuild)
{
	if (!pmhash_launcher_is_there())
		return rebuild ? "; no pmhash launcher is running to rebuild it (see max_worker_processes)" :
			"; no pmhash launcher is running to build it (see max_worker_processes)";
	if (pg_atomic_read_u64(&pmhash_shared->no_worker) != 0)
		return rebuild ? "; no slot is free for a worker to rebuild it (see max_worker_processes)" :
			"; no slot is free for a worker to build it (see max_worker_processes)";
	return "";
}

/*
 * The state of an index whose stub is this one (NULL: none, as of unlogged ones), if
 * its file can't be used here; details: may the user see why a build has failed?
 * NULL: it can.
 */
static const char *
standby_index_state(Oid index, const PmhashStub *stub, bool details)
{
	PmhashStandbyRow state;
	PmhashRebuild last;
	bool		has_place;

	if (stub != NULL && (stub->flags & PMHASH_STUB_INVALID) != 0)
		return psprintf("absent: invalid on the primary: %s", pmhash_reason_text(stub->reason));
	if (stub == NULL || (stub->flags & PMHASH_STUB_LOGGED) == 0)
		return "absent: the index is not logged (storage parameter wal)";
	has_place = pmhash_standby_look(stub->file_id, &state);
	switch (state.status)
	{
		case PMHASH_STANDBY_DELTA:
			return building(&state);
		case PMHASH_STANDBY_LIVE:
			return !state.restored || pmhash_standby_reached() ? NULL : "waiting for replay";
		case PMHASH_STANDBY_NONE:
			break;
	}
	if (!has_place)
		return psprintf("no place: this standby has files of %d logged indexes, as many as it can have",
						PMHASH_STANDBY_FILES);
	if (!pmhash_rebuild_state(index, &last) || last.sqlstate == 0)
		return psprintf("to be built%s", what_is_lacking(false));
	return failed_state(false, &last, details);
}

/*
 * pmhash.standby(): how far this server is with the records of logged indexes.  No
 * row unless it is a standby that keeps files.
 */
Datum
pmhash_standby(PG_FUNCTION_ARGS)
{
	PmhashStandby *standby;
	TupleDesc	tupdesc;
	Datum		value[STANDBY_COLUMNS];
	bool		isnull[STANDBY_COLUMNS] = {false};
	int			n[PMHASH_STANDBY_LIVE + 1] = {0};

	if (!pmhash_standby_is_active() || !RecoveryInProgress())
		PG_RETURN_NULL();
	standby = pmhash_shared->standby;
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != STANDBY_COLUMNS)
		elog(ERROR, "unexpected result type of pmhash_standby");
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		if (standby->id[i] != 0)
			n[standby->row[i].status]++;
	}
	LWLockRelease(pmhash_standby_lock);
	value[0] = LSNGetDatum(pg_atomic_read_u64(&standby->applied));
	value[1] = Int32GetDatum(n[PMHASH_STANDBY_LIVE]);
	value[2] = Int32GetDatum(n[PMHASH_STANDBY_DELTA]);
	value[3] = Int32GetDatum(n[PMHASH_STANDBY_NONE]);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  value, isnull)));
}

/* ==== files ==== */

#define FILES_COLUMNS	5

PG_FUNCTION_INFO_V1(pmhash_files);

/*
 * "valid", or what is wrong with an index and what is done about it.  stub: NULL if
 * it has none.  pmem: as of pmhash_index_doubt.
 */
static const char *
index_state(Relation index, const PmhashStub *stub, bool details, bool *pmem)
{
	PmhashReason reason = pmhash_index_doubt(index, pmem);
	PmhashRebuild rebuild;
	const char *state = NULL;

	if (RecoveryInProgress())
		state = standby_index_state(RelationGetRelid(index), stub, details);
	if (state != NULL)
		return state;

	if (reason == PMHASH_REASON_NONE)
		return "valid";
	if (!pmhash_rebuild_state(RelationGetRelid(index), &rebuild) ||
		(!rebuild.running && rebuild.sqlstate == 0))
	{
		/* A standby builds a file as soon as a query has missed it. */
		bool		rebuilt = pmhash_rebuild && !RecoveryInProgress() &&
			index->rd_rel->relpersistence != RELPERSISTENCE_TEMP;

		return psprintf("invalid: %s%s", pmhash_reason_text(reason),
						rebuilt ? what_is_lacking(true) : "");
	}
	if (rebuild.running)
		return "rebuilding";
	return failed_state(true, &rebuild, details);
}

/*
 * "disabled", and why, for those that may know: it can name paths.  The reason is
 * the one that errors give (pool_life.c).
 */
static const char *
disabled_state(bool details)
{
	if (pmhash_shared == NULL)
		return "disabled: pmhash is not preloaded";
	/* what ends that, as the hints of errors say (pmhash_require_service) */
	return !details ? "disabled" :
		psprintf("disabled: %s%s", pmhash_shared->reason,
				 "; when that is repaired the server has to be restarted");
}

/*
 * Fill in the columns between the first and the state for an index we have locked; the state.
 * Its stub is read once, for the path and for what a standby says.
 */
static const char *
describe(Relation index, Datum *values, bool *nulls)
{
	char		path[MAXPGPATH];
	PmhashStub	stub;
	PmhashLook	look;
	PmhInode	inode;
	const char *state;
	bool		details = pmhash_may_see_details(RelationGetRelid(index));
	bool		named;
	bool		there;
	bool		pmem = false;

	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	if (!pmhash_service_available())
		return disabled_state(details);
	look = pmhash_stub_look(index, &stub);
	if (look == PMHASH_LOOK_UNREADABLE && errno != 0 && errno != ENOENT)
		return "unreadable";	/* no fork, and a damaged page, are no stub */
	named = look == PMHASH_LOOK_STUB && stub.file_id != 0;
	if (named)
		pmhash_file_path(path, MyDatabaseId, stub.file_id);
	there = named && pmh_look(path, &inode);
	state = index_state(index, look == PMHASH_LOOK_STUB ? &stub : NULL, details, &pmem);
	if (named && details)
	{
		values[1] = CStringGetTextDatum(path);
		nulls[1] = false;
	}
	if (there)
	{
		values[3] = Int64GetDatum(pmhash_inode_bytes(&inode));
		nulls[3] = false;
	}
	if (strcmp(state, "valid") == 0)
	{
		values[2] = CStringGetTextDatum(pmem ? "dax" : "cache");
		nulls[2] = false;
	}
	return state;
}

/*
 * One row; why: nothing can be done with indexes, or NULL.  False if the index has gone
 * meanwhile, or its catalog rows are damaged: pmhash.indexes, a join of catalogs, would not
 * show it.
 */
static bool
file_row(Oid relid, const char *why, Datum *values, bool *nulls)
{
	const char *state;
	Relation	index;

	memset(nulls, true, FILES_COLUMNS);
	values[0] = ObjectIdGetDatum(relid);
	if (why != NULL)
		state = pmhash_may_see_details(relid) ? psprintf("disabled: %s", why) : "disabled";
	else if (!ConditionalLockRelationOid(relid, AccessShareLock))
		state = "locked";		/* a monitoring query must not wait for a REINDEX */
	else
	{
		index = SearchSysCacheExists1(INDEXRELID, ObjectIdGetDatum(relid)) ?
			try_relation_open(relid, NoLock) : NULL;	/* the server can't open it without */
		if (index == NULL)
		{
			UnlockRelationOid(relid, AccessShareLock);
			return false;
		}
		state = RELATION_IS_OTHER_TEMP(index) ? "temporary" : describe(index, values, nulls);

		/*
		 * The server itself does without an index until what makes it is complete, however
		 * good its file is.  What is ready for inserts gets another file, if it has lost its
		 * own, but on a standby none is built before.
		 */
		if (!index->rd_index->indisvalid && !RELATION_IS_OTHER_TEMP(index) &&
			(strcmp(state, "valid") == 0 || !index->rd_index->indisready || RecoveryInProgress()))
			state = "not valid: its CREATE INDEX or REINDEX has not been completed";
		relation_close(index, AccessShareLock);
	}
	values[4] = CStringGetTextDatum(state);
	nulls[0] = nulls[4] = false;
	return true;
}

static void
make_pool_ready(void *arg)
{
	pmhash_pool_ready();
}

static bool
is_not_cancelled(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) != ERRCODE_OPERATOR_INTERVENTION;
}

/*
 * Why nothing can be done with indexes though pmhash is not disabled: what its first use
 * in this server life fails for, such as want of space for the undo journal, and will be
 * tried again by each that comes.  NULL if it does not fail.  Not an error of the view:
 * that is a state to be shown, and the DBA looks here for the reason.
 */
static const char *
why_not_ready(void)
{
	ErrorData  *error;

	if (!pmhash_service_available())
		return NULL;
	error = pmhash_try(make_pool_ready, NULL, is_not_cancelled);
	if (error != NULL)
		return error->message;
	pmhash_notice_for_launcher();
	return NULL;
}

/*
 * pmhash_shown_state
 *		The state of an index as pmhash.files shows it; NULL if it has been dropped.
 */
char *
pmhash_shown_state(Oid relid)
{
	Datum		values[FILES_COLUMNS];
	bool		nulls[FILES_COLUMNS];

	return file_row(relid, why_not_ready(), values, nulls) ?
		TextDatumGetCString(values[4]) : NULL;
}

/*
 * pmhash.files(out index regclass, out file text, out durability text, out
 * bytes bigint, out state text): the pmhash indexes of this database.  state
 * is "valid", or why queries do without the index.  file is for the index's owner and
 * pg_monitor, and of the error of a failed rebuild others see the SQLSTATE.
 */
Datum
pmhash_files(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const char *why;
	ListCell   *lc;

	pmhash_materialized(fcinfo);
	why = why_not_ready();
	foreach(lc, pmhash_list_indexes(true))
	{
		Datum		values[FILES_COLUMNS];
		bool		nulls[FILES_COLUMNS];

		CHECK_FOR_INTERRUPTS();
		if (file_row(lfirst_oid(lc), why, values, nulls))
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
