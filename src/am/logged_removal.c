/*-------------------------------------------------------------------------
 *
 * logged_removal.c
 *	  Bulk delete of an index whose entries are logged.
 *
 * The record of a removal is on disk before the entry goes (rule P3 of
 * src/README).  A flush for each step of a sweep would be thousands, so the dead
 * entries of many steps are collected, logged, flushed and then removed together.
 * They come in the order of the sweep, which is that of hashes, so neighbours are
 * removed together, too.
 *
 * An entry that waits here stays what it is: its row is dead, VACUUM does not give
 * its TID away before bulk delete has returned, and that another process may remove
 * it meanwhile does not matter.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster/logged.h"

#include "am.h"
#include "logged_removal.h"

/* Entries logged together: one flush, 1 MiB of memory here, 0.9 MiB of WAL. */
#define BATCH_ENTRIES	65536

/* Pieces of pmh_removal_step, some 10 us each, between two looks at interrupts. */
#define STEP_EFFORT		64

struct PmhashLoggedRemoval
{
	Relation	index;
	PmhashFile *file;
	int			n;				/* entries that wait */
	double		removed;
	PmhEntry	entry[BATCH_ENTRIES];
};

/*
 * Nothing is collected yet.  In the current memory context.  ERROR if there is no
 * memory.
 */
PmhashLoggedRemoval *
pmhash_logged_removal_make(Relation index, PmhashFile *file)
{
	PmhashLoggedRemoval *removal = palloc(sizeof(PmhashLoggedRemoval));

	removal->index = index;
	removal->file = file;
	removal->n = 0;
	removal->removed = 0;
	return removal;
}

static void
remove_steps(PmhashLoggedRemoval *batch, PmhRemoval *removal)
{
	PmhResult	result;

	do
	{
		pmhash_vacuum_delay_point();
		result = pmh_removal_step(batch->file->table, removal, STEP_EFFORT);
	} while (result == PMH_OK);
	if (result != PMH_DONE)
		pmhash_engine_error(batch->index, batch->file, result);
}

/* Take out what has been logged. */
static void
remove_logged(PmhashLoggedRemoval *batch)
{
	PmhRemoval	removal;
	PmhResult	result;

	result = pmh_removal_begin(batch->file->table, batch->entry, batch->n, true,
							   &removal);
	if (result != PMH_OK)
		pmhash_engine_error(batch->index, batch->file, result);
	PG_TRY();
	{
		remove_steps(batch, &removal);
	}
	PG_FINALLY();
	{
		batch->removed += removal.removed;
		pmhash_count(batch->file, PMHASH_VACUUM_REMOVED, removal.removed);
		pmh_removal_end(&removal);
	}
	PG_END_TRY();
}

static void
log_and_remove(PmhashLoggedRemoval *batch)
{
	if (batch->n == 0)
		return;
	pmhash_log_dead(batch->file, batch->entry, batch->n);
	remove_logged(batch);
	batch->n = 0;
}

/*
 * Have those of entries[0 .. n) removed for which dead[] is set.  ERROR if that
 * fails, or is cancelled: what has not been removed then is left to the next bulk
 * delete, which logs it once more.
 */
void
pmhash_logged_removal_add(PmhashLoggedRemoval *batch, const PmhEntry *entries,
						  const uint8 *dead, size_t n)
{
	for (size_t i = 0; i < n; i++)
	{
		if (!dead[i])
			continue;
		batch->entry[batch->n++] = entries[i];
		if (batch->n == BATCH_ENTRIES)
			log_and_remove(batch);
	}
}

/* Remove what waits; returns how many entries have been removed in all. */
double
pmhash_logged_removal_finish(PmhashLoggedRemoval *batch)
{
	double		removed;

	log_and_remove(batch);
	removed = batch->removed;
	pfree(batch);
	return removed;
}
