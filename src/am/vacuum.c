/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *	  Bulk delete and vacuum cleanup.
 *
 * Bulk delete sweeps the table a segment at a time.  Each step is copied out
 * by the engine and looked at here with no lock held, and its dead entries are
 * taken out together.  What VACUUM has found dead is known beforehand (dead_tids.c);
 * where there is no memory for that, and for other callers, the callback is asked.
 * Every entry that was there when the sweep began is judged
 * (CREATE INDEX CONCURRENTLY relies on it), whatever inserts and splits go on.
 * When all is done, the removal epoch advances: from then on VACUUM may give the
 * TIDs to other rows.
 *
 * A VACUUM without a bulk delete sweeps once after a restart, to find what is free.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/vacuum.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "cluster/logged.h"

#include "am.h"
#include "dead_tids.h"
#include "keys.h"
#include "logged_removal.h"

typedef struct VacuumState
{
	Relation	index;
	PmhashFile *file;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	PmhashDeadTids *dead_tids;	/* NULL: the callback is asked */
	PmhashLoggedRemoval *logged;	/* what waits for its WAL, or NULL */
	bool		barrier_passed;	/* removal may begin: WAL is on disk */
	uint8	   *dead;			/* which entries of a step are */
	size_t		dead_capacity;
	double		seen;
	bool		repeated;		/* some of them perhaps twice */
	double		removed;
} VacuumState;

/* Make dead[] large enough for the step at hand; contents are lost. */
static void
reserve_dead(VacuumState *state, size_t n)
{
	if (n <= state->dead_capacity)
		return;
	if (state->dead != NULL)
		pfree(state->dead);
	state->dead = MemoryContextAllocHuge(CurrentMemoryContext, n);
	state->dead_capacity = n;
}

/* Is an entry dead?  By the set, if there is one, else by the callback. */
static inline bool
is_dead(const VacuumState *state, uint64 value)
{
	ItemPointerData tid;

	if (state->dead_tids != NULL)
		return pmhash_tid_is_dead(state->dead_tids, value);
	pmhash_value_to_tid(value, &tid);
	return state->callback(&tid, state->callback_state);
}

/* Note in dead[] which entries of a step are dead; returns how many. */
static size_t
judge_step(VacuumState *state, const PmhSweep *sweep)
{
	size_t		dead = 0;

	reserve_dead(state, sweep->n);
	for (size_t i = 0; i < sweep->n; i++)
	{
		state->dead[i] = is_dead(state, sweep->entries[i].value);
		dead += state->dead[i];
	}
	return dead;
}

/*
 * Take the dead entries of a step out.  Before the first of them all WAL that
 * made tuples dead must be on disk, or a crash would revive rows that have
 * lost their entries (design rule: removal waits for WAL).  Rows of unlogged
 * and temporary tables cannot be revived.  If the index is logged they only are
 * collected here.
 */
static void
remove_dead(VacuumState *state, PmhSweep *sweep)
{
	size_t		removed;
	PmhResult	result;

	if (state->file->logged)
	{
		if (state->logged == NULL)
			state->logged = pmhash_logged_removal_make(state->index, state->file);
		pmhash_logged_removal_add(state->logged, sweep->entries, state->dead,
								  sweep->n);
		return;
	}
	if (!state->barrier_passed && state->file->journaled)
		pmhash_removal_barrier(state->index);
	state->barrier_passed = true;

	PMH_STOP_POINT("vacuum_before_removal");
	result = pmh_sweep_remove(state->file->table, sweep, state->dead, &removed);
	if (result != PMH_OK)
		pmhash_engine_error(state->index, state->file, result);
	state->removed += removed;
	pmhash_count(state->file, PMHASH_VACUUM_REMOVED, removed);
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

/* Rest, as cost-based delay wants it, and look at interrupts. */
void
pmhash_vacuum_delay_point(void)
{
#if PG_VERSION_NUM >= 180000
	vacuum_delay_point(false);
#else
	vacuum_delay_point();
#endif
}

/* What to do with a step of a sweep. */
typedef void (*StepAction) (VacuumState *state, PmhSweep *sweep);

static void
remove_step(VacuumState *state, PmhSweep *sweep)
{
	size_t		dead = judge_step(state, sweep);

	state->seen += sweep->n;
	if (dead > 0)
		remove_dead(state, sweep);
	charge_step(sweep, dead > 0);
}

/* A step of a sweep that only finds out what is free. */
static void
pass_step(VacuumState *state, PmhSweep *sweep)
{
	charge_step(sweep, false);
}

/* Sweep the whole table.  No engine lock is held whenever we come back here. */
static void
sweep_steps(VacuumState *state, PmhSweep *sweep, StepAction action)
{
	PmhResult	result;

	for (;;)
	{
		pmhash_vacuum_delay_point();
		result = pmh_sweep_next(state->file->table, sweep);
		if (result == PMH_DONE)
			break;
		if (result != PMH_OK)
			pmhash_engine_error(state->index, state->file, result);
		action(state, sweep);
	}
}

static void
sweep_table(VacuumState *state, StepAction action)
{
	PmhSweep	sweep;
	PmhResult	result;

	result = pmh_sweep_begin(state->file->table, &sweep);
	if (result != PMH_OK)
		pmhash_engine_error(state->index, state->file, result);
	if (action == pass_step && !pmh_sweep_reclaims(&sweep))
	{
		pmh_sweep_end(state->file->table, &sweep);
		return;
	}

	/* What comes twice is judged twice; validate_index sorts, and passes over it. */
	sweep.repeats = true;

	PG_TRY();
	{
		sweep_steps(state, &sweep, action);
		state->repeated |= sweep.repeated;
	}
	PG_FINALLY();
	{
		pmh_sweep_end(state->file->table, &sweep);
	}
	PG_END_TRY();
}

/*
 * Give space back, if much was deleted since the index was made or last shrunk.
 * No engine lock is held between the steps, so that vacuum_cost_delay and
 * cancels work as in sweeps.  A step costs what reading and writing two
 * segments would.
 */
static void
shrink_steps(Relation index, PmhashFile *file, PmhShrink *shrink)
{
	PmhResult	result;

	for (;;)
	{
		pmhash_vacuum_delay_point();
		result = pmh_shrink_step(file->table, shrink);
		if (result == PMH_DONE)
			break;
		if (result != PMH_OK)
			pmhash_engine_error(index, file, result);
		if (VacuumCostActive)
			VacuumCostBalance += 4 * VacuumCostPageDirty;
	}
}

static void
shrink_file(Relation index, PmhashFile *file)
{
	PmhShrink	shrink;
	PmhResult	result;

	result = pmh_shrink_begin(file->table, pmhash_fillfactor(index), &shrink);
	if (result == PMH_DONE)
		return;
	if (result != PMH_OK)
		pmhash_engine_error(index, file, result);
	elog(DEBUG1, "shrinking index \"%s\" from " UINT64_FORMAT " bytes",
		 RelationGetRelationName(index), shrink.bytes_before);

	PG_TRY();
	{
		shrink_steps(index, file, &shrink);
	}
	PG_FINALLY();
	{
		pmh_shrink_end(file->table, &shrink);
	}
	PG_END_TRY();
	elog(DEBUG1, "index \"%s\" has been shrunk from " UINT64_FORMAT " to " UINT64_FORMAT " bytes",
		 RelationGetRelationName(index), shrink.bytes_before, shrink.bytes_after);
}

/*
 * Find out what is free among the value buffers, if that is not known: a restart has
 * it forgotten (src/README, "Space"), and a table whose rows are never updated or
 * deleted has no bulk delete, whose sweep finds it.
 */
static void
find_free_space(Relation index, PmhashFile *file)
{
	VacuumState state = {.index = index,.file = file};

	if (pmh_value_space_is_known(file->table))
		return;
	elog(DEBUG1, "looking for free space in index \"%s\"",
		 RelationGetRelationName(index));
	sweep_table(&state, pass_step);
}

/* The index's size in pages of PostgreSQL's, for VACUUM VERBOSE and pg_class */
static BlockNumber
size_in_pages(Relation index)
{
	int64		bytes;

	(void) pmhash_file_size(index, &bytes);
	return (BlockNumber) Min((bytes + BLCKSZ - 1) / BLCKSZ, MaxBlockNumber);
}

/*
 * ambulkdelete: remove the entries whose TIDs the callback says are dead.
 *
 * Also called to list all TIDs, with a callback that never says so, by
 * validate_index.  May run in a parallel vacuum worker.  On an invalid index
 * there is nothing to do; scans that have its file open still have to learn
 * that TIDs may be given away.
 */
IndexBulkDeleteResult *
pmhash_bulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
				  IndexBulkDeleteCallback callback, void *callback_state)
{
	VacuumState state = {0};

	if (pmhash_dead_tids_is_probe(callback, callback_state))
		return stats;
	state.index = info->index;
	state.file = pmhash_file_open_or_skip(info->index, false);
	if (state.file == NULL)
	{
		pmhash_removal_skipped();
		return stats ? stats : palloc0(sizeof(IndexBulkDeleteResult));
	}
	state.callback = callback;
	state.callback_state = callback_state;
	state.dead_tids = pmhash_dead_tids_of_vacuum(info, callback, callback_state);
	sweep_table(&state, remove_step);
	if (state.dead_tids != NULL)
		pmhash_dead_tids_free(state.dead_tids);
	if (state.logged != NULL)
		state.removed += pmhash_logged_removal_finish(state.logged);
	PMH_STOP_POINT("vacuum_before_epoch");
	if (state.file->logged)
		pmhash_log_bulk_delete(state.file);
	pmhash_removal_finished(state.file);
	if (state.dead != NULL)
		pfree(state.dead);

	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	stats->num_pages = size_in_pages(info->index);
	stats->estimated_count = state.repeated;
	stats->num_index_tuples = state.seen - state.removed;
	stats->tuples_removed += state.removed;
	return stats;
}

/*
 * amvacuumcleanup: shrink the file if that is wanted and pays, and know what is free
 * in it (a shrink finds that out as well).  If there was no bulk delete, return the
 * number of entries as the engine estimates it; NULL for an invalid index.  Nothing is
 * done for ANALYZE.
 */
IndexBulkDeleteResult *
pmhash_vacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	PmhashFile *file;
	PmhResult	result;
	uint64_t	entries;
	uint64_t	bytes;

	if (info->analyze_only)
		return stats;
	file = pmhash_file_open_or_skip(info->index, false);
	if (file == NULL)
		return stats;
	if (pmhash_vacuum_shrink)
		shrink_file(info->index, file);
	find_free_space(info->index, file);
	if (stats == NULL)
	{
		result = pmh_estimate(file->table, &entries, &bytes);
		if (result != PMH_OK)
			pmhash_engine_error(info->index, file, result);
		stats = palloc0(sizeof(IndexBulkDeleteResult));
		stats->estimated_count = true;
		stats->num_index_tuples = entries;
	}
	stats->num_pages = size_in_pages(info->index);
	return stats;
}
