/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *	  Bulk delete and vacuum cleanup.
 *
 * Bulk delete sweeps the table a segment at a time.  Each step is copied out
 * by the engine, judged here with no lock held, and its dead entries are
 * taken out together.  Every entry that was there when the sweep began is
 * judged exactly once (CREATE INDEX CONCURRENTLY relies on it), whatever
 * inserts and splits go on.  When all are, the removal epoch advances: from
 * then on VACUUM may give the TIDs to other rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/vacuum.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "am.h"

typedef struct VacuumState
{
	Relation	index;
	PmhashFile *file;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	bool		barrier_passed;	/* removal may begin: WAL is on disk */
	uint8	   *dead;			/* verdicts on the entries of a step */
	size_t		dead_capacity;
	double		seen;
	double		removed;
} VacuumState;

/* Make dead[] large enough for the step at hand; contents are lost. */
static void
reserve_verdicts(VacuumState *state, size_t n)
{
	if (n <= state->dead_capacity)
		return;
	if (state->dead != NULL)
		pfree(state->dead);
	state->dead = MemoryContextAllocHuge(CurrentMemoryContext, n);
	state->dead_capacity = n;
}

/* Ask the callback about each entry of a step; returns how many are dead. */
static size_t
judge_step(VacuumState *state, const PmhSweep *sweep)
{
	size_t		dead = 0;

	reserve_verdicts(state, sweep->n);
	for (size_t i = 0; i < sweep->n; i++)
	{
		ItemPointerData tid;

		pmhash_value_to_tid(sweep->entries[i].value, &tid);
		state->dead[i] = state->callback(&tid, state->callback_state);
		dead += state->dead[i];
	}
	return dead;
}

/*
 * Take the dead entries of a step out.  Before the first of them all WAL that
 * made tuples dead must be on disk, or a crash would revive rows that have
 * lost their entries (design rule: removal waits for WAL).  Rows of unlogged
 * and temporary tables cannot be revived.
 */
static void
remove_dead(VacuumState *state, PmhSweep *sweep)
{
	size_t		removed;
	PmhResult	result;

	if (!state->barrier_passed && state->file->journaled)
		pmhash_removal_barrier(state->index);
	state->barrier_passed = true;

	result = pmh_sweep_remove(state->file->table, sweep, state->dead, &removed);
	if (result != PMH_OK)
		pmhash_engine_error(state->index, state->file, result);
	state->removed += removed;
}

/*
 * Let vacuum_cost_delay count a step.  Our pages do not come through shared
 * buffers, so we do the arithmetic of bufmgr.c ourselves: a step costs the
 * pages that its entries fill.
 */
static void
charge_step(const PmhSweep *sweep, bool changed)
{
	int			pages = 1 + sweep->n * sizeof(PmhEntry) / BLCKSZ;

	if (VacuumCostActive)
		VacuumCostBalance += pages * (changed ? VacuumCostPageDirty :
									  VacuumCostPageHit);
}

static void
delay_point(void)
{
#if PG_VERSION_NUM >= 180000
	vacuum_delay_point(false);
#else
	vacuum_delay_point();
#endif
}

/* Sweep the whole table.  No engine lock is held whenever we come back here. */
static void
sweep_steps(VacuumState *state, PmhSweep *sweep)
{
	PmhResult	result;

	for (;;)
	{
		size_t		dead;

		delay_point();
		result = pmh_sweep_next(state->file->table, sweep);
		if (result == PMH_DONE)
			break;
		if (result != PMH_OK)
			pmhash_engine_error(state->index, state->file, result);

		dead = judge_step(state, sweep);
		if (dead > 0)
			remove_dead(state, sweep);
		state->seen += sweep->n;
		charge_step(sweep, dead > 0);
	}
}

static void
sweep_table(VacuumState *state)
{
	PmhSweep	sweep;
	PmhResult	result;

	result = pmh_sweep_begin(state->file->table, &sweep);
	if (result != PMH_OK)
		pmhash_engine_error(state->index, state->file, result);

	PG_TRY();
	{
		sweep_steps(state, &sweep);
	}
	PG_FINALLY();
	{
		pmh_sweep_end(state->file->table, &sweep);
	}
	PG_END_TRY();
}

/* The index's size in pages of PostgreSQL's, for VACUUM VERBOSE and pg_class */
static BlockNumber
size_in_pages(Relation index)
{
	int64		pages = (pmhash_file_size(index) + BLCKSZ - 1) / BLCKSZ;

	return (BlockNumber) Min(pages, MaxBlockNumber);
}

/*
 * ambulkdelete: remove the entries whose TIDs the callback says are dead.
 *
 * Also called to list all TIDs, with a callback that never says so, by
 * validate_index.  May run in a parallel vacuum worker.  ERROR if the file
 * cannot be used.
 */
IndexBulkDeleteResult *
pmhash_bulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
				  IndexBulkDeleteCallback callback, void *callback_state)
{
	VacuumState state = {0};

	state.index = info->index;
	state.file = pmhash_file_open(info->index);
	state.callback = callback;
	state.callback_state = callback_state;
	sweep_table(&state);
	pmhash_removal_finished(state.file);
	if (state.dead != NULL)
		pfree(state.dead);

	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	stats->num_pages = size_in_pages(info->index);
	stats->estimated_count = false;
	stats->num_index_tuples = state.seen - state.removed;
	stats->tuples_removed += state.removed;
	return stats;
}

/*
 * amvacuumcleanup: nothing to clean up.  If there was no bulk delete, tell
 * the number of entries as the engine estimates it.
 */
IndexBulkDeleteResult *
pmhash_vacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	PmhashFile *file;
	PmhResult	result;
	uint64_t	entries;
	uint64_t	bytes;

	if (info->analyze_only || stats != NULL)
		return stats;

	file = pmhash_file_open(info->index);
	result = pmh_estimate(file->table, &entries, &bytes);
	if (result != PMH_OK)
		pmhash_engine_error(info->index, file, result);

	stats = palloc0(sizeof(IndexBulkDeleteResult));
	stats->num_pages = size_in_pages(info->index);
	stats->estimated_count = true;
	stats->num_index_tuples = entries;
	return stats;
}
