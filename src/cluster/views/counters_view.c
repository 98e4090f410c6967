/*-------------------------------------------------------------------------
 *
 * counters_view.c
 *	  SQL functions about counters: the views' and those that reset them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/statvfs.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "cluster/base/counters.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/queue/queue.h"

PG_FUNCTION_INFO_V1(pmhash_stat_index_counters);
PG_FUNCTION_INFO_V1(pmhash_stat_server);
PG_FUNCTION_INFO_V1(pmhash_stat_reset);
PG_FUNCTION_INFO_V1(pmhash_stat_reset_shared);

#define INDEX_COLUMNS	(1 + PMHASH_INDEX_COUNTERS + 1)
#define SERVER_COLUMNS	(6 + PMHASH_INDEX_COUNTERS + 4 + 1)

/* What is too large for SQL's bigint is shown as its greatest value. */
static Datum
counter_datum(uint64 n)
{
	return Int64GetDatum((int64) Min(n, (uint64) PG_INT64_MAX));
}

/* The counters, in columns from value[at] on; returns the next column. */
static int
fill_in_counts(const PmhashCounts *counts, Datum *value, int at)
{
	for (int i = 0; i < PMHASH_INDEX_COUNTERS; i++)
		value[at++] = counter_datum(counts->n[i]);
	return at;
}

/*
 * pmhash.stat_index_counters(out index oid, counters, out stats_reset): the indexes of
 * this database that have been counted.
 */
Datum
pmhash_stat_index_counters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	PmhashCountersRow *rows;
	int			n;

	pmhash_materialized(fcinfo);
	rows = pmhash_counters_rows(MyDatabaseId, &n);
	for (int i = 0; i < n; i++)
	{
		Datum		value[INDEX_COLUMNS];
		bool		isnull[INDEX_COLUMNS] = {false};
		int			at;

		value[0] = ObjectIdGetDatum(rows[i].index);
		at = fill_in_counts(&rows[i].counts, value, 1);
		value[at++] = TimestampTzGetDatum(rows[i].since);
		Assert(at == INDEX_COLUMNS);
		tuplestore_putvalues(result->setResult, result->setDesc, value, isnull);
	}
	return (Datum) 0;
}

/* What pmhash is doing in this server, in a few words without paths. */
static const char *
server_state(void)
{
	if (pmhash_shared == NULL)
		return "not preloaded";
	if (!pmhash_service_available())
		return "disabled";
	if (RecoveryInProgress())
		return "standby";
	return "in use";
}

/*
 * The columns that say where index files are and how much room there is, for those
 * that may know where the server's directories are.
 */
static void
describe_pool(Datum *value, bool *isnull)
{
	const char *path = pmhash_pool_path();
	struct statvfs fs;

	isnull[0] = isnull[1] = isnull[2] = true;
	if (!pmhash_may_see_details(NULL))
		return;
	value[0] = CStringGetTextDatum(path);
	isnull[0] = false;
	if (!pmhash_service_available())
	{
		value[2] = CStringGetTextDatum(pmhash_shared->reason);
		isnull[2] = false;
	}
	if (statvfs(path, &fs) != 0)
		return;
	value[1] = counter_datum((uint64) fs.f_bavail * fs.f_frsize);
	isnull[1] = false;
}

/*
 * pmhash.stat_server(): one row about this server; see the view pmhash.stat.
 */
Datum
pmhash_stat_server(PG_FUNCTION_ARGS)
{
	Datum		value[SERVER_COLUMNS];
	bool		isnull[SERVER_COLUMNS] = {false};
	PmhashCountersRow server;
	int64		rows;
	TupleDesc	tupdesc;
	int			at = 6;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != SERVER_COLUMNS)
		elog(ERROR, "unexpected result type of pmhash.stat_server");
	memset(isnull, true, sizeof(isnull));
	value[0] = CStringGetTextDatum(server_state());
	isnull[0] = false;
	if (pmhash_shared != NULL)
	{
		memset(isnull, false, sizeof(isnull));
		describe_pool(&value[1], &isnull[1]);
		value[4] = BoolGetDatum(pmhash_launcher_is_there());
		value[5] = Int64GetDatum((int64) pmhash_journal_size * 1024);
		rows = pmhash_counters_server(&server);
		at = fill_in_counts(&server.counts, value, at);
		value[at++] = counter_datum(server.counts.n[PMHASH_LOCK_WAITS]);
		value[at++] = Int64GetDatum(rows);
		value[at++] = Int64GetDatum(pmhash_tracked_indexes);
		value[at++] = counter_datum(server.counts.n[PMHASH_NOT_TRACKED]);
		value[at++] = TimestampTzGetDatum(server.since);
		Assert(at == SERVER_COLUMNS);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  value, isnull)));
}

/*
 * pmhash.stat_reset(index regclass): set the counters of an index of this database to
 * zero, or with NULL those of all.  Which roles may is a matter of GRANT, as for
 * pg_stat_reset.
 */
Datum
pmhash_stat_reset(PG_FUNCTION_ARGS)
{
	Relation	index;

	if (PG_ARGISNULL(0))
	{
		pmhash_counters_reset(MyDatabaseId, InvalidOid);
		PG_RETURN_VOID();
	}
	index = pmhash_open_named(PG_GETARG_OID(0));
	pmhash_require_ours(index);
	pmhash_counters_reset(MyDatabaseId, RelationGetRelid(index));
	relation_close(index, AccessShareLock);
	PG_RETURN_VOID();
}

/* pmhash.stat_reset_shared(): set the sums of the server to zero. */
Datum
pmhash_stat_reset_shared(PG_FUNCTION_ARGS)
{
	pmhash_counters_reset(InvalidOid, InvalidOid);
	PG_RETURN_VOID();
}
