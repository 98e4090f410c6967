/*-------------------------------------------------------------------------
 *
 * sweeps.h
 *	  Complete sweeps, for engine tests: pair by pair, or of which only the end
 *	  matters.
 *
 *		Sweeper		s;
 *		const PmhEntry *pair;
 *
 *		sweeper_begin(&s, t);
 *		while ((pair = sweeper_next(&s)) != NULL)
 *		{
 *			if (pair->value % 2 == 0)
 *				sweeper_take_out(&s);
 *		}
 *		REQUIRE(sweeper_end(&s) == PMH_OK);
 *
 * A test that looks at the steps of a sweep writes the loop itself.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_SWEEPS_H
#define PMH_SWEEPS_H

#include <stdlib.h>

#include "error.h"
#include "table.h"

/* Take those entries of a step out for which dead[] is set, as VACUUM does. */
static inline PmhResult
sweep_remove(PmhTable *t, const PmhSweep *sweep, const uint8_t *dead, size_t *removed)
{
	PmhEntry   *entries = malloc((sweep->n + 1) * sizeof(PmhEntry));
	size_t		n = 0;
	PmhResult	result;

	if (entries == NULL)
		abort();
	for (size_t i = 0; i < sweep->n; i++)
	{
		if (dead[i])
			entries[n++] = sweep->entries[i];
	}
	result = pmh_delete_group(t, entries, n, removed);
	free(entries);
	return result;
}

typedef struct Sweeper
{
	PmhTable   *table;
	PmhSweep	sweep;
	PmhResult	result;			/* of the last call */
	bool		reading;		/* it takes nothing out */
	uint8_t    *dead;			/* of the pairs of this step: to be taken out */
	size_t		next;			/* of the pairs of this step */
	uint64_t	removed;		/* have been taken out */
} Sweeper;

/* Begin as VACUUM does; an error is told at the end. */
static inline void
sweeper_begin(Sweeper *s, PmhTable *t)
{
	*s = (Sweeper) {.table = t};
	s->result = pmh_sweep_begin(t, &s->sweep);
}

/* The same, but it only reads. */
static inline void
sweeper_begin_reading(Sweeper *s, PmhTable *t)
{
	*s = (Sweeper) {.table = t, .reading = true};
	s->result = pmh_sweep_begin_reading(t, &s->sweep);
}

/* The next step, after what is to go of this one has been taken out. */
static inline void
sweeper_step(Sweeper *s)
{
	size_t		removed = 0;

	if (s->dead != NULL)
		s->result = sweep_remove(s->table, &s->sweep, s->dead, &removed);
	s->removed += removed;
	if (s->result == PMH_OK)
		s->result = pmh_sweep_next(s->table, &s->sweep);
	s->next = 0;
	free(s->dead);
	s->dead = s->reading ? NULL : calloc(s->sweep.n + 1, 1);
	if (s->dead == NULL && !s->reading)
		abort();
}

/* The next pair; NULL: there is none, or an error. */
static inline const PmhEntry *
sweeper_next(Sweeper *s)
{
	while (s->result == PMH_OK && s->next == s->sweep.n)
		sweeper_step(s);
	return s->result == PMH_OK ? &s->sweep.entries[s->next++] : NULL;
}

/* The pair that was given last is to go. */
static inline void
sweeper_take_out(Sweeper *s)
{
	s->dead[s->next - 1] = 1;
}

/* After the last pair; PMH_OK: the sweep was complete. */
static inline PmhResult
sweeper_end(Sweeper *s)
{
	pmh_sweep_end(&s->sweep);
	free(s->dead);
	return s->result == PMH_DONE ? PMH_OK : s->result;
}

/* The rest of a sweep, whose last step, or beginning, has given 'result'. */
static inline PmhResult
sweep_to_end(PmhTable *t, PmhSweep *sweep, PmhResult result)
{
	while (result == PMH_OK)
		result = pmh_sweep_next(t, sweep);
	pmh_sweep_end(sweep);
	return result == PMH_DONE ? PMH_OK : result;
}

/* A sweep that takes nothing out; after a crash it finds out what is free. */
static inline PmhResult
sweep_through(PmhTable *t)
{
	PmhSweep	sweep;

	return sweep_to_end(t, &sweep, pmh_sweep_begin(t, &sweep));
}

static inline PmhResult
sweep_through_reading(PmhTable *t)
{
	PmhSweep	sweep;

	return sweep_to_end(t, &sweep, pmh_sweep_begin_reading(t, &sweep));
}

#endif							/* PMH_SWEEPS_H */
