/*-------------------------------------------------------------------------
 *
 * probe.c
 *	  Looking up the keys of a join in groups.
 *
 * A group leads to at most PMHASH_JOIN_ROOM rows of the table, and none of its
 * keys has a long list: a key that would have it otherwise is the first of the
 * next group, or, if it was the first one already, a group by itself, which is
 * read by cursor.  So no call of the engine is long, and memory is bounded.
 *
 * What a scan does in front of each look-up (src/am/scan.c) is done here for each
 * group: what this transaction has queued is applied; serializable transactions
 * lock the pseudo-pages of the keys, and make sure that the index was valid after
 * that; the removal epoch is noted for index-only joins.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "am/scan.h"
#include "join/join.h"

/* Values read by a cursor at first: twice as many each time. */
#define FIRST_WANT		32

/* What the engine has malloc'd goes with our memory, also after an error. */
static void
free_cursor(void *arg)
{
	pmh_cursor_free(&((PmhashJoinState *) arg)->cursor);
}

/*
 * pmhash_join_open_index
 *		Get ready to look keys up.  Errors: as pmhash_fetch_open_file.
 */
void
pmhash_join_open_index(PmhashJoinState *js)
{
	MemoryContext old;

	js->file = pmhash_fetch_open_file(js->index, js->css.ss.ps.state->es_snapshot);
	old = MemoryContextSwitchTo(js->context);
	js->cleanup.func = free_cursor;
	js->cleanup.arg = js;
	MemoryContextRegisterResetCallback(js->context, &js->cleanup);
	js->value = palloc(PMHASH_JOIN_ROOM * sizeof(uint64));
	js->keys = pmhash_keys_make(js->index, js->file->seed);
	MemoryContextSwitchTo(old);
	if (js->keys->exact)
		js->condition = NULL;
}

/* The hashes of the rows from js->looked on, as many as make a group. */
static void
gather_hashes(PmhashJoinState *js)
{
	int			end = Min(js->nrows, js->looked + js->group_size);

	js->group = js->looked;
	js->nhashes = 0;
	for (int i = js->group; i < end; i++)
	{
		PmhashJoinRow *row = &js->row[i];

		row->matches = 0;
		if (row->is_null)
			continue;
		js->hash[js->nhashes] = row->hash;
		js->row_of[js->nhashes++] = i;
	}
	js->looked = end;
}

/* PmhFound for a group: note the value, unless the key is not for this group. */
static void
collect_value(void *arg, size_t key, uint64_t value)
{
	PmhashJoinState *js = arg;
	PmhashJoinRow *row;

	if ((int) key >= js->stopped)
		return;
	row = &js->row[js->row_of[key]];
	if (likely(value != PMH_VALUE_MANY && js->nvalues < PMHASH_JOIN_ROOM))
	{
		js->value[js->nvalues++] = value;
		row->matches++;
		return;
	}
	js->stopped = (int) key;
	js->nvalues -= row->matches;
	row->matches = 0;
}

/*
 * The group ends in front of a key that did not fit, or consists of it.  The next
 * one is not made larger than what has fitted.
 */
static void
cut_group(PmhashJoinState *js)
{
	js->looked = js->row_of[js->stopped];
	js->group_size = Max(js->stopped, 1);
	js->nhashes = js->stopped;
	if (js->looked > js->group)
		return;
	pmh_cursor_open(js->file->table, &js->cursor, js->hash[0]);
	js->cursor.memory = pmhash_cursor_memory();
	js->streaming = true;
	js->want_values = FIRST_WANT;
	js->looked++;
	js->nhashes = 1;
}

static void
set_pipe(PmhashJoinState *js, const uint64 *value, size_t n)
{
	pmhash_pipe_begin(&js->pipe, value, n, 0, PMHASH_FETCH_DISTANCE);
	/* Without values there may be no file yet: no row of the batch had a key. */
	js->any_known_dead = n > 0 && js->note_dead && pmhash_any_known_dead(js->file);
}

static void
count_probes(PmhashJoinState *js)
{
	js->nprobes += js->nhashes;
	pmhash_count(js->file, PMHASH_GROUP_LOOKUPS, 1);
	pmhash_count(js->file, PMHASH_GROUP_KEYS, js->nhashes);
	for (int i = 0; i < js->nhashes; i++)
		pgstat_count_index_scan(js->index);
}

/*
 * pmhash_join_look_up
 *		Look up the keys of the next rows of the batch, of which there is one at
 *		least: advances js->looked, fills in their matches, and js->pipe.
 */
void
pmhash_join_look_up(PmhashJoinState *js)
{
	PmhResult	result;

	CHECK_FOR_INTERRUPTS();
	gather_hashes(js);
	js->nvalues = 0;
	set_pipe(js, js->value, 0);
	if (js->nhashes == 0)
		return;
	pmhash_lock_keys(js->index, js->file, js->keys, js->hash, js->nhashes,
						 js->fetch.snapshot);
	js->epoch = pmhash_removal_epoch(js->file);
	js->stopped = js->nhashes;
	result = pmh_lookup_group_short(js->file->table, js->hash, js->nhashes,
									collect_value, js);
	if (result != PMH_OK)
		pmhash_engine_error(js->index, js->file, result);
	if (js->stopped < js->nhashes)
		cut_group(js);
	else
		js->group_size = Min(js->group_size * 2, PMHASH_JOIN_GROUP);
	set_pipe(js, js->value, js->nvalues);
	count_probes(js);
	PMH_STOP_POINT("join_before_rows");
}

/*
 * pmhash_join_next_values
 *		The next values of a key that is read by cursor, into js->pipe; there may
 *		be none in it.  False at the end.
 */
bool
pmhash_join_next_values(PmhashJoinState *js)
{
	PmhResult	result;

	CHECK_FOR_INTERRUPTS();
	js->epoch = pmhash_removal_epoch(js->file);
	result = pmh_cursor_next(js->file->table, &js->cursor, js->want_values);
	if (result != PMH_OK && result != PMH_DONE)
		pmhash_engine_error(js->index, js->file, result);
	pmhash_join_note_memory(js);
	if (result == PMH_DONE)
		return false;
	js->want_values = Min(js->want_values * 2, PMHASH_CURSOR_VALUES);
	set_pipe(js, js->cursor.batch.value, js->cursor.batch.n);
	js->left = js->cursor.batch.n;
	return true;
}
