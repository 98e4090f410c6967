/*-------------------------------------------------------------------------
 *
 * startup.h
 *	  Shared memory, and the pool taken into use.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STARTUP_H
#define PMHASH_STARTUP_H

extern void pmhash_startup_init(void);

#endif							/* PMHASH_STARTUP_H */
