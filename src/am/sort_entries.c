/*-------------------------------------------------------------------------
 *
 * sort_entries.c
 *	  Sorting entries, or hashes, of which there may be as many as
 *	  maintenance_work_mem holds: a cancel does not wait until they are sorted.
 *
 * Which qsort does not see to; sort_template.h does (ST_CHECK_FOR_INTERRUPTS), as
 * PostgreSQL has it for tuplesort.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "cluster/engine_hooks.h"
#include "engine/sort.h"
#include "sort_entries.h"

/* For qsort and bsearch: entries by hash, then by value. */
int
pmhash_compare_entries(const void *a, const void *b)
{
	const PmhEntry *x = a;
	const PmhEntry *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return (x->value > y->value) - (x->value < y->value);
}

#define ST_SORT sort_entries
#define ST_ELEMENT_TYPE PmhEntry
#define ST_COMPARE(a, b) pmhash_compare_entries(a, b)
#define ST_SCOPE static
#define ST_CHECK_FOR_INTERRUPTS
#define ST_DEFINE
#include "lib/sort_template.h"

/* Sort entries by hash, then by value.  ERROR if there is an interrupt. */
void
pmhash_sort_entries(PmhEntry *entry, size_t n)
{
	sort_entries(entry, n);
}

/* Sort numbers.  ERROR if there is an interrupt. */
void
pmhash_sort_numbers(uint64 *number, size_t n)
{
	while (!pmh_sort_numbers_until(number, n, pmhash_is_interrupted))
		CHECK_FOR_INTERRUPTS();
}
