/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *	  Bulk delete and vacuum cleanup.
 *
 * Bulk delete sweeps the file a segment at a time.  Each step is copied out by the engine
 * and looked at here with no lock held; then its dead entries are taken out, or those of many
 * steps together.  What VACUUM has found dead, which its callback searches, we read and have in
 * a better form (dead_tids.c); where there is no memory for that, and for other callers, the
 * callback is asked.  Every entry that was there when the sweep began is judged (CREATE INDEX
 * CONCURRENTLY relies on it), whatever inserts and splits go on.  When all is done, the removal
 * epoch advances: from then on VACUUM may give the TIDs to other rows.
 *
 * A VACUUM without a bulk delete sweeps once after a restart, to find what is free.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/index.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#if PG_VERSION_NUM >= 170000
#include "access/tidstore.h"
#endif

#include "am/am.h"
#include "am/keys.h"
#include "cluster/base/relations.h"
#include "cluster/wal/dead_tids.h"
#include "cluster/wal/logged.h"
#include "cluster/wal/wal_record.h"

/* Rest, as cost-based delay wants it, and look at interrupts. */
static void
delay_point(void)
{
#if PG_VERSION_NUM >= 180000
	vacuum_delay_point(false);
#else
	vacuum_delay_point();
#endif
}

/* TIDs taken over between two looks at vacuum_cost_delay and interrupts */
#define TAKEN_AT_ONCE	8192

/*
 * The dead TIDs, none, of a call of bulk delete that we have made only to see
 * which callback comes with it: the probe.  It is known by their address.
 *
 * VACUUM's callback has no name outside of vacuum.c; but vac_bulkdel_one_index, by which
 * VACUUM calls bulk delete, is exported, and calls us back with it.  Besides that it only
 * makes a message of the number of dead TIDs (vacuum.c).
 */
#if PG_VERSION_NUM >= 170000
static VacDeadItemsInfo nothing_dead;

#define bulkdel_of_vacuum(info) \
	vac_bulkdel_one_index(info, NULL, (TidStore *) &nothing_dead, &nothing_dead)
#else
static VacDeadItems nothing_dead;

#define bulkdel_of_vacuum(info) \
	vac_bulkdel_one_index(info, NULL, &nothing_dead)
#endif

static IndexBulkDeleteCallback vacuum_callback = NULL;	/* vac_tid_reaped */

/* A set may have this part of maintenance_work_mem. */
#ifdef PMH_STOP_POINTS
#define PART_FOR_SET	32
#else
#define PART_FOR_SET	2
#endif

/* Has it more than that, or more than a StringInfo can have? */
static inline bool
is_too_large(const PmhashDeadTids *set)
{
	return (Size) set->made.len > MaxAllocSize / 2 ||
		set->nblocks * sizeof(*set->at) + set->made.maxlen >
		(Size) maintenance_work_mem * 1024 / PART_FOR_SET;
}

#if PG_VERSION_NUM >= 170000

/*
 * Take over the dead TIDs of VACUUM, unless they are too many.  The TidStore is not locked,
 * here as in lazy_vacuum_heap_rel and vac_tid_reaped (vacuumlazy.c, vacuum.c): while indexes
 * are vacuumed, by however many processes, nothing is added to it.
 */
static void
add_dead_of_vacuum(PmhashDeadTids *set, void *callback_state)
{
#if PG_VERSION_NUM >= 180000
	OffsetNumber buffer[MaxOffsetNumber];
#endif
	TidStoreIter *iter = TidStoreBeginIterate(callback_state);
	TidStoreIterResult *found;
	uint64		next_pause = 0;

	while (!is_too_large(set) && (found = TidStoreIterateNext(iter)) != NULL)
	{
#if PG_VERSION_NUM >= 180000
		OffsetNumber *offsets = buffer;
		int			n = TidStoreGetBlockOffsets(found, offsets, MaxOffsetNumber);
#else
		OffsetNumber *offsets = found->offsets;
		int			n = found->num_offsets;
#endif

		if (set->ndead >= next_pause)
		{
			delay_point();
			next_pause = set->ndead + TAKEN_AT_ONCE;
		}
		for (int i = 0; i < n; i++)
			pmhash_dead_tids_add(set, found->blkno, offsets[i]);
	}
	TidStoreEndIterate(iter);
}

#else							/* its dead TIDs are in an array */

static void
add_dead_of_vacuum(PmhashDeadTids *set, void *callback_state)
{
	const VacDeadItems *dead = callback_state;

	for (int i = 0; i < dead->num_items && !is_too_large(set); i++)
	{
		if (i % TAKEN_AT_ONCE == 0)
			delay_point();
		pmhash_dead_tids_add(set, ItemPointerGetBlockNumber(&dead->items[i]),
							 ItemPointerGetOffsetNumber(&dead->items[i]));
	}
}

#endif

/*
 * If it is VACUUM that wants entries deleted: its dead TIDs.
 *
 * False if it is another caller (validate_index), or if there can't be a set: the table is
 * not a heap, or the set would take more than half of maintenance_work_mem.
 */
static bool
dead_tids_of_vacuum(const IndexVacuumInfo *info, IndexBulkDeleteCallback callback,
					void *callback_state, PmhashDeadTids *set)
{
	Relation	heap;
	bool		is_heap;

	if (vacuum_callback == NULL)
	{
		IndexVacuumInfo probe = *info;

		probe.message_level = DEBUG5;
		(void) bulkdel_of_vacuum(&probe);
		Assert(vacuum_callback != NULL);
	}
	if (callback != vacuum_callback)
		return false;
	heap = relation_open(IndexGetRelation(RelationGetRelid(info->index), false), NoLock);
	Assert(CheckRelationLockedByMe(heap, AccessShareLock, true));
	is_heap = pmhash_is_heap_table(heap);
	if (is_heap)
		set->nblocks = RelationGetNumberOfBlocks(heap);
	relation_close(heap, NoLock);
	if (!is_heap || is_too_large(set))
		return false;
	set->at = MemoryContextAllocExtended(CurrentMemoryContext,
										 Max(set->nblocks, 1) * sizeof(*set->at),
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	initStringInfo(&set->made);
	add_dead_of_vacuum(set, callback_state);
	if (is_too_large(set))
		return false;
	elog(DEBUG1, "index \"%s\": took over " UINT64_FORMAT " dead TIDs from VACUUM",
		 RelationGetRelationName(info->index), set->ndead);
	return true;
}

/*
 * Removal of what is dead.
 *
 * All WAL that made the rows dead is on disk before the first entry goes, or a crash
 * would revive rows that have lost their entries; of an index whose entries are logged,
 * the record of the removal as well (rule P3 of src/README).
 *
 * If many entries are dead, their TIDs are logged, all at once, before the first ones go, and
 * each step of the sweep removes what it has found.  Else the entries are: those of many
 * steps are collected, logged, flushed and then removed together, as a flush for each step
 * would be thousands.  The first ones that are collected tell, a sample of the table: they
 * come in the order of hashes.
 *
 * An entry that waits here stays what it is: its row is dead, VACUUM does not give
 * its TID away before bulk delete has returned, and that another process may remove
 * it meanwhile does not matter.
 */

/* Entries collected: one flush, 1 MiB of memory here, 0.9 MiB of WAL. */
#define BATCH_ENTRIES	65536

/*
 * A standby sweeps its whole file for a record of TIDs.  That takes it as long as a record of
 * entries that has one of so many: 35 ns an entry swept, 300 ns one removed.
 */
#define SWEPT_FOR_ONE	8

/* Pieces of pmh_removal_step, some 10 us each, between two looks at interrupts. */
#define STEP_EFFORT		64

typedef struct VacuumState
{
	Relation	index;
	PmhashFile *file;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	bool		has_set;		/* else the callback is asked */
	PmhashDeadTids set;
	PmhSweep	sweep;
	PmhEntry   *batch;			/* dead entries that wait, or NULL */
	int			nbatch;
	bool		begun;			/* something has been removed ... */
	bool		entries_logged; /* ... and each batch has to be logged */
	double		seen;
	double		removed;
} VacuumState;

/*
 * Before the first removal, of a logged index: are the dead TIDs to be logged?  Not if that
 * takes a standby longer than entries, or more WAL: of an index that has entries of few rows.
 */
static bool
many_are_dead(const VacuumState *state)
{
	/* how much of the table has been seen: all, if the sweep is over */
	double		done = state->sweep.segments_total == 0 ? 1 :
		(double) state->sweep.segments_done / state->sweep.segments_total;

	return state->has_set &&
		state->seen * list_length(state->set.records) <= state->nbatch * (double) SWEPT_FOR_ONE &&
		state->set.made.len * done <= state->nbatch * (double) PMHASH_WAL_ENTRY_SIZE;
}

/*
 * Remove the entries that wait.  ERROR if that fails, or is cancelled: what has not been
 * removed then is left to the next bulk delete, which logs it once more.
 */
static void
remove_batch(VacuumState *state)
{
	XLogRecPtr	logged = InvalidXLogRecPtr;
	PmhRemoval	removal;
	PmhResult	result;

	Assert(state->nbatch > 0 && state->nbatch <= BATCH_ENTRIES);
	Assert(!RecoveryInProgress());
	if (!state->begun && state->file->logged)
		state->entries_logged = !many_are_dead(state);
	if (state->entries_logged)
		logged = pmhash_log_deletes(state->file, InvalidTransactionId, state->batch,
									state->nbatch);
	else if (!state->begun && state->file->logged)
		logged = pmhash_log_dead_tids(state->file, &state->set);
	if (state->file->journaled && (state->entries_logged || !state->begun))
		pmhash_removal_barrier(logged);
	state->begun = true;

	PMH_STOP_POINT("vacuum_before_removal");
	pmhash_check_result(state->index, state->file,
						pmh_removal_begin(state->file->table, state->batch, state->nbatch, true,
										  &removal));
	PG_TRY();
	{
		do
		{
			delay_point();
			result = pmh_removal_step(state->file->table, &removal, STEP_EFFORT);
		} while (result == PMH_OK);
		if (result != PMH_DONE)
			pmhash_engine_error(state->index, state->file, result);
	}
	PG_FINALLY();
	{
		state->removed += removal.removed;
		pmhash_count(PMHASH_VACUUM_REMOVED, removal.removed);
		pmh_removal_end(&removal);
	}
	PG_END_TRY();
	state->nbatch = 0;
}

/* Is the row of an entry dead, by the set, if there is one, else by the callback? */
static inline bool
is_dead(const VacuumState *state, uint64 value)
{
	ItemPointerData tid;

	if (state->has_set)
		return pmhash_is_dead(&state->set, value);
	pmhash_value_to_tid(value, &tid);
	return state->callback(&tid, state->callback_state);
}

/*
 * Sweep the whole table, for bulk delete, or only to find out what is free, if that is to
 * be found out.  No engine lock is held whenever we come back here.
 *
 * vacuum_cost_delay counts each step.  Our pages do not come through shared
 * buffers, so we do the arithmetic of bufmgr.c ourselves: a step costs the
 * pages that its entries fill.
 */
static void
sweep_table(VacuumState *state, bool removes)
{
	PmhSweep   *sweep = &state->sweep;
	PmhResult	result;

	pmhash_check_result(state->index, state->file, pmh_sweep_begin(state->file->table, sweep));
	if (!removes && !sweep->reclaims)
	{
		pmh_sweep_end(sweep);
		return;
	}

	PG_TRY();
	{
		for (;;)
		{
			size_t		dead = 0;
			int			pages;

			delay_point();
			result = pmh_sweep_next(state->file->table, sweep);
			if (result == PMH_DONE)
				break;
			pmhash_check_result(state->index, state->file, result);
			state->seen += sweep->n;
			for (size_t i = 0; removes && i < sweep->n; i++)
			{
				if (!is_dead(state, sweep->entries[i].value))
					continue;
				dead++;
				if (state->batch == NULL)
					state->batch = palloc(BATCH_ENTRIES * sizeof(PmhEntry));
				state->batch[state->nbatch++] = sweep->entries[i];
				if (state->nbatch == BATCH_ENTRIES)
					remove_batch(state);
			}

			/* Not each buffer of a list at once: it is walked through for that. */
			if (state->nbatch > 0 && (state->begun || !state->file->logged) &&
				!state->entries_logged &&
				state->batch[0].hash != state->batch[state->nbatch - 1].hash)
				remove_batch(state);
			pages = 1 + sweep->n * sizeof(PmhEntry) / BLCKSZ;
			if (VacuumCostActive)
				VacuumCostBalance += pages * (dead > 0 ? VacuumCostPageDirty :
											  VacuumCostPageHit);
		}
	}
	PG_FINALLY();
	{
		pmh_sweep_end(sweep);
	}
	PG_END_TRY();
}

/*
 * Give space back, if much was deleted since the index was made or last shrunk.
 * No engine lock is held between the steps, so that vacuum_cost_delay and
 * cancels work as in sweeps.  What the steps look at costs as pages that are written.
 */
static void
shrink_file(Relation index, PmhashFile *file)
{
	PmhShrink	shrink;
	PmhResult	result = pmh_shrink_begin(file->table, pmhash_fillfactor(index), &shrink);
	uint64		pages = 0;			/* that have been charged */

	if (result == PMH_DONE)
		return;
	if (result != PMH_OK)
		pmhash_engine_error(index, file, result);
	elog(DEBUG1, "shrinking index \"%s\" from " UINT64_FORMAT " bytes",
		 RelationGetRelationName(index), shrink.bytes_before);

	while (result == PMH_OK)
	{
		delay_point();
		result = pmh_shrink_step(file->table, &shrink);
		if (VacuumCostActive)
			VacuumCostBalance += (int) (shrink.bytes_seen / BLCKSZ - pages) * VacuumCostPageDirty;
		pages = shrink.bytes_seen / BLCKSZ;
	}
	if (result != PMH_DONE)
		pmhash_engine_error(index, file, result);
	elog(DEBUG1, "index \"%s\" has been shrunk from " UINT64_FORMAT " to " UINT64_FORMAT " bytes",
		 RelationGetRelationName(index), shrink.bytes_before, shrink.bytes_after);
}

/* The index's size in pages of PostgreSQL's, for VACUUM VERBOSE and pg_class */
static BlockNumber
size_in_pages(Relation index)
{
	int64		bytes;

	(void) pmhash_file_size(index, &bytes);
	Assert(bytes >= 0);
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
	MemoryContext before;

	Assert(CheckRelationLockedByMe(info->index, AccessShareLock, true));
	if (callback_state == &nothing_dead)
	{
		vacuum_callback = callback; /* it is our own probe */
		return stats;
	}
	state.index = info->index;
	state.file = pmhash_file_open_or_skip(info->index, false);
	if (state.file == NULL)
	{
		pmhash_removal_finished(0);
		return stats ? stats : palloc0(sizeof(IndexBulkDeleteResult));
	}
	state.callback = callback;
	state.callback_state = callback_state;
	before = MemoryContextSwitchTo(AllocSetContextCreate(CurrentMemoryContext, "pmhash bulk delete",
														 ALLOCSET_DEFAULT_SIZES));
	state.has_set = dead_tids_of_vacuum(info, callback, callback_state, &state.set);
	sweep_table(&state, true);
	if (state.nbatch > 0)
		remove_batch(&state);
	MemoryContextDelete(MemoryContextSwitchTo(before));
	PMH_STOP_POINT("vacuum_before_epoch");
	if (state.file->logged)
		(void) pmhash_log_event(PMHASH_WAL_SWEPT, state.file->file_id);
	pmhash_removal_finished(state.file->file_id);

	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	stats->num_pages = size_in_pages(info->index);
	stats->estimated_count = false;
	Assert(state.nbatch == 0);
	stats->num_index_tuples = state.seen - state.removed;
	stats->tuples_removed += state.removed;
	return stats;
}

/*
 * amvacuumcleanup: shrink the file if that is wanted and pays, and know what is free in it: a
 * restart has it forgotten (src/README, "Space"), and a table whose rows are never updated or
 * deleted has no bulk delete, whose sweep finds it.  If there was no bulk delete, return the
 * number of entries as the engine estimates it; NULL for an invalid index.  Nothing is done
 * for ANALYZE.
 */
IndexBulkDeleteResult *
pmhash_vacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	PmhashFile *file;
	uint64_t	entries;

	if (info->analyze_only)
		return stats;
	file = pmhash_file_open_or_skip(info->index, false);
	if (file == NULL)
		return stats;
	if (pmhash_vacuum_shrink)
		shrink_file(info->index, file);
	if (!pmh_value_space_is_known(file->table))
	{
		VacuumState state = {.index = info->index, .file = file};

		elog(DEBUG1, "looking for free space in index \"%s\"",
			 RelationGetRelationName(info->index));
		sweep_table(&state, false);
	}
	if (stats == NULL)
	{
		pmhash_check_result(info->index, file, pmh_estimate(file->table, &entries));
		stats = palloc0(sizeof(IndexBulkDeleteResult));
		stats->estimated_count = true;
		stats->num_index_tuples = entries;
	}
	stats->num_pages = size_in_pages(info->index);
	return stats;
}
