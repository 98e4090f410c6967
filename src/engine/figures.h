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
#include "table.h"

/* How full the table is, by a sample of segments. */
typedef struct PmhFill
{
	double		segments;
	double		slots;
	double		used_slots;
	double		entries;		/* in slots and lists */
	double		lists;
	double		list_entries;
	double		list_bytes;
} PmhFill;

/* Estimate it.  PMH_OK or a real error. */
extern PmhResult pmh_estimate_fill(PmhTable *t, PmhFill *fill);

#endif							/* PMH_FIGURES_H */
