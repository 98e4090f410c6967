/*-------------------------------------------------------------------------
 *
 * value_array.c
 *	  Arrays of values, as look-ups hand them out.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "handle.h"
#include "list.h"
#include "sort.h"
#include "table.h"

/* Moves that sorting a few values by insertion may take; and two a value. */
#define LEAST_MOVES		1024

PmhResult
pmh_values_reserve(PmhTable *t, PmhValues *values, size_t n)
{
	size_t		wanted = values->n + n;
	size_t		capacity = values->capacity ? values->capacity : 64;
	uint64_t   *value;

	PMH_ASSERT(values->n <= values->capacity);
	if (wanted <= values->capacity)
		return PMH_OK;
	while (capacity < wanted)
		capacity *= 2;
	value = realloc(values->value, capacity * sizeof(uint64_t));
	if (value == NULL)
		return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
						"There is no memory for %zu values of one key.", wanted);
	values->value = value;
	values->capacity = capacity;
	return PMH_OK;
}

void
pmh_values_free(PmhValues *values)
{
	free(values->value);
	memset(values, 0, sizeof(*values));
}

void
pmh_values_finish(PmhValues *values)
{
	uint64_t   *value = values->value;
	size_t		last = 0;

	if (values->n < 2)
		return;
	/*
	 * Values of a key mostly come in ascending order but for a few, since they
	 * were put into its list one after the other; of several buffers the newest is the
	 * first.
	 */
	if (!pmh_sort_backward_pieces(value, values->n) &&
		!pmh_sort_by_insertion(value, values->n, LEAST_MOVES + 2 * values->n))
		(void) pmh_sort_numbers(value, values->n, NULL);
	for (size_t i = 1; i < values->n; i++)
	{
		last += value[i] != value[last];
		value[last] = value[i];
	}
	values->n = last + 1;
}
