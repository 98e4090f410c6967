/*-------------------------------------------------------------------------
 *
 * first_use.h
 *	  What the first process does that uses pmhash in a server life.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FIRST_USE_H
#define PMHASH_FIRST_USE_H

extern void pmhash_pool_ready(void);

#endif							/* PMHASH_FIRST_USE_H */
