/*-------------------------------------------------------------------------
 *
 * am_callbacks.h
 *	  What this layer knows of the access method on top of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_AM_CALLBACKS_H
#define PMHASH_AM_CALLBACKS_H

#include "cluster/cluster.h"

/* what distinguishes our indexes from others; set by pmhash_cluster_init */
extern ambuild_function pmhash_am_build;
extern PmhashFillFunction pmhash_am_fill;

extern bool pmhash_is_index(Relation rel);
extern Relation pmhash_open_named(Oid relid);
extern void pmhash_require_ours(Relation rel);
extern void pmhash_forget_plans(Oid database, Oid table, bool everywhere);

#endif							/* PMHASH_AM_CALLBACKS_H */
