/*-------------------------------------------------------------------------
 *
 * value_array.h
 *	  Arrays of values (value_array.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_VALUE_ARRAY_H
#define PMH_VALUE_ARRAY_H

#include "error.h"
#include "table.h"

/* Room for n more; PMH_OK or PMH_ERR_NO_MEMORY (t->error set). */
extern PmhResult pmh_values_reserve(PmhTable *t, PmhValues *values, size_t n);

/* Sort ascending and drop repetitions. */
extern void pmh_values_finish(PmhValues *values);

#endif							/* PMH_VALUE_ARRAY_H */
