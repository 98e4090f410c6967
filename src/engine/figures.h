/*-------------------------------------------------------------------------
 *
 * figures.h
 *	  Figures about a table (figures.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_FIGURES_H
#define PMH_FIGURES_H

#include "error.h"
#include "layout.h"

/* What a table has: counted, or by a sample of segments. */
typedef struct PmhFill
{
	double		segments;
	double		of_strategy[PMH_STASH + 1];
	double		slots;
	double		used_slots;
	double		plain;			/* entries in slots */
	double		elsewhere;		/* entries and pointers that are not in their home bucket */
	double		stash;			/* of these, in stash buckets */
	double		lists;
	double		list_entries;
	double		list_bytes;
	double		weight;			/* of the segment that is being counted */
	uint32_t	min_depth;
	uint32_t	max_depth;
} PmhFill;

/* Estimate it.  PMH_OK or a real error. */
extern PmhResult pmh_estimate_fill(PmhTable *t, PmhFill *fill);

#endif							/* PMH_FIGURES_H */
