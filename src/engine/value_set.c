/*-------------------------------------------------------------------------
 *
 * value_set.c
 *	  Sets of values of one key, of a bounded size.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "fail.h"
#include "sort.h"
#include "table.h"
#include "value_set.h"

#define MIN_CAPACITY	64
#define SPARSE			16		/* fewer than one entry in so many was used */

/* Groups among which the middle one is looked for. */
#define SAMPLE			256

size_t
pmh_set_most(size_t bytes)
{
	size_t		most = MIN_CAPACITY;

	while (most <= bytes / PMH_GROUP_SIZE / 2)
		most *= 2;
	return most;
}

/*
 * How many entries a set should have before a group is added: half of them stay free,
 * a quarter if there are to be no more.
 */
static size_t
wanted_capacity(const PmhValueSet *set, size_t most)
{
	if (set->capacity == 0)
		return MIN_CAPACITY;
	if (set->n * 2 < set->capacity)
		return set->capacity;
	if (set->capacity <= most / 4)
		return set->capacity * 4;
	return set->capacity < most ? most : set->capacity;
}

static PmhResult
grow(PmhTable *t, PmhValueSet *set, size_t capacity)
{
	PmhValueSet larger = {NULL, set->n, capacity};

	larger.word = calloc(capacity, PMH_GROUP_SIZE);
	if (larger.word == NULL)
		return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
						"There is no memory to remember the values of one key in %zu "
						"groups.",
						set->n);
	for (size_t i = 0; i < 2 * set->capacity; i += 2)
	{
		if (set->word[i] != 0)
			memcpy(pmh_set_entry(&larger, set->word[i] - 1), &set->word[i],
				   PMH_GROUP_SIZE);
	}
	free(set->word);
	*set = larger;
	return PMH_OK;
}

PmhResult
pmh_set_provide(PmhTable *t, PmhValueSet *set, size_t most, uint64_t value,
				uint64_t **entry)
{
	size_t		capacity = wanted_capacity(set, most);
	uint64_t	group = pmh_group_of(value);

	*entry = NULL;
	if (capacity > set->capacity)
	{
		PmhResult	result = grow(t, set, capacity);

		/* A set that is full will do, for those that may meet one. */
		if (result == PMH_ERR_NO_MEMORY && set->capacity > 0 && most != SIZE_MAX)
			most = set->capacity;
		else if (result != PMH_OK)
			return result;
	}
	*entry = pmh_set_entry(set, group);
	if ((*entry)[0] == group + 1)
		return PMH_OK;
	if (set->n >= set->capacity / 4 * 3)
	{
		*entry = NULL;
		return PMH_OK;
	}
	(*entry)[0] = group + 1;
	set->n++;
	return PMH_OK;
}

uint64_t
pmh_set_middle(const PmhValueSet *set)
{
	uint64_t	number[SAMPLE];
	size_t		n = 0;

	/* Where a group stands says nothing of its number. */
	for (size_t i = 0; n < SAMPLE && i < set->capacity; i++)
	{
		if (set->word[2 * i] != 0)
			number[n++] = set->word[2 * i] - 1;
	}
	pmh_sort_numbers(number, n);
	return number[n / 2];
}

/* An entry is at its home, or all from there to it are taken. */
size_t
pmh_set_cut(PmhValueSet *set, uint64_t group)
{
	size_t		mask = set->capacity - 1;
	size_t		begin = 0;
	size_t		values = 0;

	/*
	 * Begin past a free entry, and take each group out to put it in again: it gets an
	 * entry that is free by then, no later one than it had.
	 */
	while (set->word[2 * begin] != 0)
		begin++;
	for (size_t k = 1; k < set->capacity; k++)
	{
		uint64_t   *entry = &set->word[2 * ((begin + k) & mask)];
		uint64_t	taken[2] = {entry[0], entry[1]};

		if (taken[0] == 0)
			continue;
		memset(entry, 0, PMH_GROUP_SIZE);
		if (taken[0] <= group)
		{
			values += (size_t) __builtin_popcountll(taken[1]);
			set->n--;
		}
		else
			memcpy(pmh_set_entry(set, taken[0] - 1), taken, PMH_GROUP_SIZE);
	}
	return values;
}

void
pmh_set_empty(PmhValueSet *set)
{
	if (set->n == 0)
		return;
	if (set->capacity > MIN_CAPACITY && set->n * SPARSE < set->capacity)
	{
		pmh_set_free(set);
		return;
	}
	memset(set->word, 0, set->capacity * PMH_GROUP_SIZE);
	set->n = 0;
}

void
pmh_set_free(PmhValueSet *set)
{
	free(set->word);
	memset(set, 0, sizeof(*set));
}
