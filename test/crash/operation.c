/*-------------------------------------------------------------------------
 *
 * operation.c
 *	  Operations on the table under test: what they change is in flight in the
 *	  model until they return, and is there for good then.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/sweeps.h"
#include "crash.h"
#include "error.h"
#include "layout.h"
#include "segment.h"
#include "table.h"

#define LOCK_STRIPES	64

/* ---- begin and end ---- */

void
arm(bool on)
{
	crash.armed = on;
	crash.rest_tested = false;
	recorder_armed = on;
}

static void
begin(const char *what, uint64_t focus)
{
	crash.focus = focus;
	crash.figures->operations++;
	snprintf(crash.operation, sizeof(crash.operation), "%s %llu (seed %llu) of %016llx",
			 what, (unsigned long long) crash.figures->operations,
			 (unsigned long long) crash.seed, (unsigned long long) focus);
}

/* The operation, or a step of it, has returned: all that was done so far must be durable. */
static void
end(void)
{
	const Recorder *r = &recorders[0];

	crash.rest_tested = false;
	if (memory_hole_used(0))
		crash_failure("%s: something is stored to a block without space", crash.operation);
	if (!crash.armed)
		return;
	for (size_t i = 0; i < r->npending; i++)
	{
		const Line *line = r->pending[i];
		unsigned	id = line->n > 0 ? line->store[line->n - 1].site : line->copy_site;

		if (line->lasting > 0 || line->copied != 0)
			crash_missing("%s: has returned before the store at %s:%d is durable",
						  crash.operation, site_base_name(site_of(id)), site_of(id)->line);
	}
	enumerate(0, NULL);
}

static void
must_be(PmhResult result, PmhResult wanted, const char *what)
{
	if (result == wanted)
		return;
	fprintf(stderr, "%s: %s: %s returned %d: %s\n", crash.workload, crash.operation, what,
			(int) result, crash.table != NULL ? pmh_error(crash.table)->detail : "");
	exit(1);
}

/* ---- life of the table ---- */

void
op_create(void)
{
	PmhEnv		env = {.locks = crash.locks[0], .instance = ++crash.instance, .force_pmem = true};
	PmhError	error;

	begin("create", crash_random());
	crash.creating = true;
	must_be(pmh_create(TABLE_NAME, NULL, &env, &crash.table, &error), PMH_OK, "pmh_create");
	crash.creating = false;
	end();
}

static void
open_table(void)
{
	PmhEnv		env;
	PmhError	error;

	pmh_locks_init(crash.locks[0], LOCK_STRIPES);
	crash.instance++;
	env = crash_env(0);
	must_be(pmh_open(TABLE_NAME, &env, &crash.table, &error), PMH_OK, "pmh_open");
}

void
op_restart(void)
{
	pmh_close(crash.table);
	crash.table = NULL;
	begin("open", crash.focus);
	open_table();
	end();
}

/* Which of the entries in flight are there? */
static void
settle_model(void)
{
	PmhValues	values = {0};

	for (uint32_t i = crash.model.n; i-- > 0;)
	{
		const PmhEntry pair = crash.model.entry[i].pair;
		bool		there = false;

		if (!crash.model.entry[i].maybe)
			continue;
		must_be(pmh_lookup(crash.table, pair.hash, &values), PMH_OK, "pmh_lookup");
		for (size_t k = 0; k < values.n; k++)
			there |= values.value[k] == pair.value;
		if (there)
			model_set_maybe(&crash.model, i, false);
		else
			model_remove(&crash.model, i);
	}
	crash.model.all_or_nothing = false;
	pmh_values_free(&values);
}

void
op_after_adoption(void)
{
	bool		armed = crash.armed;

	pmh_close(crash.table);
	crash.table = NULL;
	begin("open", crash.focus);
	crash.rest_tested = false;
	open_table();
	arm(false);
	settle_model();
	arm(armed);
	end();
}

/* ---- entries ---- */

/* Let an insert of a pair be in flight. */
static void
inserting(uint64_t hash, uint64_t value)
{
	model_set_maybe(&crash.model, model_add(&crash.model, hash, value), true);
}

static void
deleting(uint64_t hash, uint64_t value)
{
	uint32_t	i = model_find(&crash.model, hash, value);

	must_be(i == NO_ENTRY ? PMH_NOT_FOUND : PMH_OK, PMH_OK, "the model");
	model_set_maybe(&crash.model, i, true);
}

static void
inserted(uint64_t hash, uint64_t value)
{
	model_set_maybe(&crash.model, model_find(&crash.model, hash, value), false);
}

static void
deleted(uint64_t hash, uint64_t value)
{
	model_remove(&crash.model, model_find(&crash.model, hash, value));
}

void
op_insert(uint64_t hash, uint64_t value, bool fence_first)
{
	begin("insert", hash);
	inserting(hash, value);
	if (crash.before_insert != NULL)
		crash.before_insert(&(PmhEntry) {hash, value}, 1);
	must_be(pmh_insert(crash.table, hash, value, fence_first), PMH_OK, "pmh_insert");
	inserted(hash, value);
	end();
}

void
op_delete(uint64_t hash, uint64_t value)
{
	begin("delete", hash);
	deleting(hash, value);
	must_be(pmh_delete(crash.table, hash, value), PMH_OK, "pmh_delete");
	deleted(hash, value);
	end();
}

void
op_insert_group(const PmhEntry *entries, size_t n, bool fence_first)
{
	size_t		done;

	begin("group insert", entries[0].hash);
	for (size_t i = 0; i < n; i++)
		inserting(entries[i].hash, entries[i].value);
	if (crash.before_insert != NULL)
		crash.before_insert(entries, n);
	must_be(pmh_insert_group(crash.table, entries, n, fence_first, &done), PMH_OK,
			"pmh_insert_group");
	for (size_t i = 0; i < n; i++)
		inserted(entries[i].hash, entries[i].value);
	end();
}

void
op_delete_group(const PmhEntry *entries, size_t n)
{
	size_t		removed;

	begin("group delete", entries[0].hash);
	for (size_t i = 0; i < n; i++)
		deleting(entries[i].hash, entries[i].value);
	must_be(pmh_delete_group(crash.table, entries, n, &removed), PMH_OK, "pmh_delete_group");
	must_be(removed == n ? PMH_OK : PMH_NOT_FOUND, PMH_OK, "pmh_delete_group");
	for (size_t i = 0; i < n; i++)
		deleted(entries[i].hash, entries[i].value);
	end();
}

void
op_sweep(bool (*dead) (const PmhEntry *entry))
{
	static uint8_t *flags;
	static size_t room;
	PmhSweep	sweep;
	PmhResult	result;

	begin("sweep", crash.focus);
	must_be(pmh_sweep_begin(crash.table, &sweep), PMH_OK, "pmh_sweep_begin");
	while ((result = pmh_sweep_next(crash.table, &sweep)) == PMH_OK)
	{
		size_t		removed;

		if (dead == NULL)
			continue;
		if (sweep.n > room)
		{
			room = 2 * sweep.n;
			flags = realloc(flags, room);
		}
		for (size_t i = 0; i < sweep.n; i++)
		{
			flags[i] = dead(&sweep.entries[i]);
			if (!flags[i])
				continue;
			deleting(sweep.entries[i].hash, sweep.entries[i].value);
			crash.focus = sweep.entries[i].hash;
		}
		must_be(sweep_remove(crash.table, &sweep, flags, &removed), PMH_OK,
				"sweep_remove");
		for (size_t i = 0; i < sweep.n; i++)
		{
			if (flags[i])
				deleted(sweep.entries[i].hash, sweep.entries[i].value);
		}
		end();
	}
	must_be(result, PMH_DONE, "pmh_sweep_next");
	pmh_sweep_end(&sweep);
	end();
}

static int
compare_hashes(const void *a, const void *b)
{
	uint64_t	x = ((const PmhEntry *) a)->hash;
	uint64_t	y = ((const PmhEntry *) b)->hash;

	return (x > y) - (x < y);
}

bool
op_shrink(void)
{
	PmhShrink	shrink;
	PmhResult	result;
	bool		armed = crash.armed;

	begin("shrink", crash.focus);
	result = pmh_shrink_begin(crash.table, PMH_DEFAULT_FILL, &shrink);
	if (result == PMH_DONE)
	{
		end();
		return false;
	}
	while (result == PMH_OK)
	{
		arm(armed || shrink.at.through);	/* few images, when only space is given back */
		result = pmh_shrink_step(crash.table, &shrink);
		end();
	}
	must_be(result, PMH_DONE, "pmh_shrink_step");
	end();
	arm(armed);
	return true;
}

/* Bulk load into the empty table, in as many partitions as the engine says. */
void
op_bulk(PmhEntry *entries, size_t n, int fill)
{
	PmhBulk    *bulk;
	uint32_t	depth;
	size_t		from = 0;

	begin("bulk load", entries[0].hash);
	for (size_t i = 0; i < n; i++)
		inserting(entries[i].hash, entries[i].value);
	crash.model.all_or_nothing = true;
	must_be(pmh_bulk_begin(crash.table, n, fill, &depth, &bulk), PMH_OK, "pmh_bulk_begin");
	qsort(entries, n, sizeof(PmhEntry), compare_hashes);
	for (uint64_t p = 0; p < UINT64_C(1) << depth; p++)
	{
		size_t		to = from;

		while (to < n && pmh_hash_prefix(entries[to].hash, depth) == p)
			to++;
		must_be(pmh_bulk_partition(bulk, depth, entries + from, to - from), PMH_OK,
				"pmh_bulk_partition");
		from = to;
	}
	must_be(pmh_bulk_finish(bulk), PMH_OK, "pmh_bulk_finish");
	for (uint32_t i = 0; i < crash.model.n; i++)
		model_set_maybe(&crash.model, i, false);
	crash.model.all_or_nothing = false;
	end();
}
