/*-------------------------------------------------------------------------
 *
 * standby_view.c
 *	  What a server in recovery shows of its pmhash indexes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlogrecovery.h"
#include "fmgr.h"
#include "funcapi.h"
#include "replication/walreceiver.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/timestamp.h"

#include "cluster/base/clock.h"
#include "cluster/queue/requests.h"
#include "cluster/standby/standby_state.h"
#include "cluster/views/views.h"

#define STANDBY_COLUMNS 8

PG_FUNCTION_INFO_V1(pmhash_standby);

/* What a phase of a build begins and ends with, in percent of all of it. */
static const struct
{
	int			from;
	int			to;
}			shares[] = {
	[PMHASH_PHASE_WAITING] = {0, 0},
	[PMHASH_PHASE_SCANNING] = {0, 70},
	[PMHASH_PHASE_LOADING] = {70, 95},
	[PMHASH_PHASE_CATCHING_UP] = {95, 99}
};

static const char *
building(const PmhashStandbyRow *state)
{
	double		part = state->total == 0 ? 0 :
		Min(1.0, (double) state->done / (double) state->total);
	int			percent = shares[state->phase].from +
		(int) (part * (shares[state->phase].to - shares[state->phase].from));

	if (state->phase == PMHASH_PHASE_WAITING && TransactionIdIsValid(state->xid))
		return psprintf("building (0 %%), waiting for transaction %u", state->xid);
	return psprintf("building (%d %%)", percent);
}

/* Which worker there is not, so that nothing can be built; or nothing to say. */
static const char *
what_builds_lack(void)
{
	if (!pmhash_has_launcher)
		return "; no pmhash launcher is running (see max_worker_processes)";
	if (pg_atomic_read_u64(&pmhash_shared->no_worker) != 0)
		return "; no slot is free for a worker to build it (see max_worker_processes)";
	return "";
}

/*
 * The state of an index whose stub is this one (NULL: none, as of unlogged ones), if
 * its file can't be used here; details: may the user see why a build has failed?
 * NULL: it can.
 */
const char *
pmhash_standby_index_state(const PmhashStub *stub, bool details)
{
	PmhashStandbyRow state;
	bool		has_place;
	TimestampTz next;
	int64		wait;

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
	if (state.failures == 0 || state.sqlstate == 0)
		return psprintf("to be built%s", what_builds_lack());
	wait = state.next_try - pmhash_clock_ms();
	next = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), Max(wait, 0));
	return psprintf("build failed: %s; next try at %s",
					details ? state.message :
					psprintf("SQLSTATE %s", unpack_sql_state(state.sqlstate)),
					timestamptz_to_str(next));
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
	XLogRecPtr	replayed;
	XLogRecPtr	received;
	int			n[PMHASH_STANDBY_LIVE + 1] = {0};

	if (!pmhash_standby_is_active() || !RecoveryInProgress())
		PG_RETURN_NULL();
	standby = pmhash_shared->standby;
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != STANDBY_COLUMNS)
		elog(ERROR, "unexpected result type of pmhash_standby");
	replayed = GetXLogReplayRecPtr(NULL);
	received = GetWalRcvFlushRecPtr(NULL, NULL);
	received = Max(received, replayed);
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		if (standby->id[i] != 0)
			n[standby->row[i].status]++;
	}
	LWLockRelease(pmhash_standby_lock);
	value[0] = LSNGetDatum(pg_atomic_read_u64(&standby->applied));
	value[1] = Int32GetDatum((int32) standby->applied_timeline);
	value[2] = LSNGetDatum(replayed);
	value[3] = LSNGetDatum(received);
	value[4] = Int64GetDatum((int64) (received - replayed));
	value[5] = Int32GetDatum(n[PMHASH_STANDBY_LIVE]);
	value[6] = Int32GetDatum(n[PMHASH_STANDBY_DELTA]);
	value[7] = Int32GetDatum(n[PMHASH_STANDBY_NONE]);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  value, isnull)));
}
