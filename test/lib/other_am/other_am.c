/*-------------------------------------------------------------------------
 *
 * other_am.c
 *	  A table access method that is not heap, for tests.
 *
 * It keeps rows as heap does, and has other TIDs: the variable other_am.shift is what
 * the offsets in indexes are greater by than those in the table.  So what reads its
 * pages by the TIDs of an index finds nothing, or something else.  Made for INSERT,
 * CREATE INDEX and index scans, no more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

static int	shift = 0;
static TableAmRoutine other;

PGDLLEXPORT void _PG_init(void);
PG_FUNCTION_INFO_V1(other_am_handler);

static void
move_tid(ItemPointer tid, int by)
{
	ItemPointerSetOffsetNumber(tid, ItemPointerGetOffsetNumber(tid) + by);
}

static void
insert(Relation table, TupleTableSlot *slot, CommandId cid, int options,
	   struct BulkInsertStateData *bistate)
{
	GetHeapamTableAmRoutine()->tuple_insert(table, slot, cid, options, bistate);
	move_tid(&slot->tts_tid, shift);
}

static bool
fetch(struct IndexFetchTableData *scan, ItemPointer tid, Snapshot snapshot,
	  TupleTableSlot *slot, bool *call_again, bool *all_dead)
{
	bool		found;

	move_tid(tid, -shift);
	found = GetHeapamTableAmRoutine()->index_fetch_tuple(scan, tid, snapshot, slot,
														 call_again, all_dead);
	move_tid(tid, shift);
	return found;
}

/* Rows that are committed; enough for CREATE INDEX without others beside it. */
static double
build(Relation table, Relation index, struct IndexInfo *info, bool allow_sync,
	  bool anyvisible, bool progress, BlockNumber start, BlockNumber n,
	  IndexBuildCallback callback, void *state, TableScanDesc scan)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(table, NULL);
	EState	   *estate = CreateExecutorState();
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	double		rows = 0;

	if (scan == NULL)
		scan = table_beginscan_strat(table, snapshot, 0, NULL, true, true);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		ItemPointerData tid = slot->tts_tid;

		FormIndexDatum(info, slot, estate, values, isnull);
		move_tid(&tid, shift);
		callback(index, &tid, values, isnull, true, state);
		rows++;
	}
	table_endscan(scan);
	FreeExecutorState(estate);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return rows;
}

Datum
other_am_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&other);
}

void
_PG_init(void)
{
	DefineCustomIntVariable("other_am.shift", "Offsets in indexes are greater by this.",
							NULL, &shift, 0, 0, 65000, PGC_USERSET, 0, NULL, NULL, NULL);
	other = *GetHeapamTableAmRoutine();
	other.tuple_insert = (void *) insert;	/* options are int until 18, then uint32 */
	other.index_fetch_tuple = fetch;
	other.index_build_range_scan = build;
}
