/*-------------------------------------------------------------------------
 *
 * lookup.h
 *	  Read one key (lookup.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_LOOKUP_H
#define PMH_LOOKUP_H

#include "error.h"
#include "layout.h"
#include "table.h"

#define PMH_PROBE_MAX	(4 * PMH_SLOTS)

/* Everything the buckets of a segment know of a key, all of one state. */
typedef struct PmhProbe
{
	uint32_t	n;				/* plain entries */
	uint64_t	list;			/* pointer payload of its list, or 0 */
	uint64_t	list_version;	/* of the list's first buffer: from before list
								 * was last seen to be current */
	uint64_t	value[PMH_PROBE_MAX];	/* as found: unsorted, maybe twice */
} PmhProbe;

/* PMH_OK or a real error; the list's first buffer is within the bound. */
extern PmhResult pmh_probe(PmhTable *t, uint64_t hash, PmhProbe *probe);

#endif							/* PMH_LOOKUP_H */
