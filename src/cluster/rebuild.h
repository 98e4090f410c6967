/*-------------------------------------------------------------------------
 *
 * rebuild.h
 *	  Rebuilding invalid indexes in the background.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_REBUILD_H
#define PMHASH_REBUILD_H

extern void pmhash_rebuild_database(void);

#endif							/* PMHASH_REBUILD_H */
