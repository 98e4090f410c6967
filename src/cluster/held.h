/*-------------------------------------------------------------------------
 *
 * held.h
 *	  Index files of tables that an abort gives their old files back.
 *
 * pmhash_table_moved, for src/am, is in cluster.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_HELD_H
#define PMHASH_HELD_H

#include "cluster/cluster.h"

extern void pmhash_held_init(void);
extern bool pmhash_table_comes_back(Relation index);
extern void pmhash_held_from_birth(Relation index, uint64 file_id);

#endif							/* PMHASH_HELD_H */
