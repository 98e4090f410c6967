/*-------------------------------------------------------------------------
 *
 * mappings.h
 *	  Mapped files of a process in the order of their use; see mappings.c.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_MAPPINGS_H
#define PMHASH_MAPPINGS_H

#include "lib/ilist.h"

#include "engine/table.h"

/* A mapped file; part of what its user has of it. */
typedef struct PmhashMapping
{
	PmhTable   *table;
	bool		resting;		/* mapped, but without pages */
	dlist_node	order;			/* in 'awake' or in 'resting' */
} PmhashMapping;

/* Those of one user.  May this one be unmapped, or have no pages?  Unmap it. */
typedef struct PmhashMappings
{
	dlist_head	awake;			/* last used first, ... */
	dlist_head	resting;		/* ... and then these */
	int			n_awake;
	int			n_resting;
	bool		(*is_idle) (const PmhashMapping *mapping);
	void		(*unmap) (PmhashMapping *mapping);
} PmhashMappings;

/* The initialiser of one that is a static variable. */
#define PMHASH_MAPPINGS_INIT(all, may_be_idle, unmap_one) { \
	.awake = DLIST_STATIC_INIT((all).awake), \
	.resting = DLIST_STATIC_INIT((all).resting), \
	.is_idle = (may_be_idle), \
	.unmap = (unmap_one) \
}

extern void pmhash_mapping_add(PmhashMappings *all, PmhashMapping *mapping,
							   PmhTable *table);
extern void pmhash_mapping_use(PmhashMappings *all, PmhashMapping *mapping);
extern void pmhash_mapping_used_up(PmhashMappings *all, PmhashMapping *mapping);
extern void pmhash_mapping_remove(PmhashMappings *all, PmhashMapping *mapping);
extern void pmhash_mappings_trim(PmhashMappings *all);
extern bool pmhash_mappings_make_room(PmhashMappings *all);

#endif							/* PMHASH_MAPPINGS_H */
