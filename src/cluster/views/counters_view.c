/*-------------------------------------------------------------------------
 *
 * counters_view.c
 *	  pmhash.stat: what pmhash is doing in this server, and what has been counted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/statvfs.h>

#include "access/htup_details.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/queue/queue.h"

PG_FUNCTION_INFO_V1(pmhash_stat_server);

#define SERVER_COLUMNS	(6 + PMHASH_NCOUNTERS)

/* What is too large for SQL's bigint is shown as its greatest value. */
static Datum
counter_datum(uint64 n)
{
	return Int64GetDatum((int64) Min(n, (uint64) PG_INT64_MAX));
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
	if (!pmhash_may_see_details(InvalidOid))
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

/* pmhash.stat_server(): one row about this server; see the view pmhash.stat. */
Datum
pmhash_stat_server(PG_FUNCTION_ARGS)
{
	Datum		value[SERVER_COLUMNS];
	bool		isnull[SERVER_COLUMNS] = {false};
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != SERVER_COLUMNS)
		elog(ERROR, "unexpected result type of pmhash.stat_server");
	memset(isnull, true, sizeof(isnull));
	value[0] = CStringGetTextDatum(pmhash_shared == NULL ? "not preloaded" :
								   !pmhash_service_available() ? "disabled" :
								   RecoveryInProgress() ? "standby" : "in use");
	isnull[0] = false;
	if (pmhash_shared != NULL)
	{
		memset(isnull, false, sizeof(isnull));
		describe_pool(&value[1], &isnull[1]);
		value[4] = BoolGetDatum(pmhash_launcher_is_there());
		value[5] = Int64GetDatum((int64) pmhash_journal_size * 1024);
		for (int i = 0; i < PMHASH_NCOUNTERS; i++)
			value[6 + i] = counter_datum(pg_atomic_read_u64(&pmhash_shared->counted[i]));
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  value, isnull)));
}
