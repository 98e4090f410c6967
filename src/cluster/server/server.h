/*-------------------------------------------------------------------------
 *
 * server.h
 *	  Set-up: shared memory, the pool, how the engine waits and is interrupted.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_SERVER_H
#define PMHASH_SERVER_H

/* ---- init.c ---- */

extern bool pmhash_is_interrupted(void);

/* ---- startup.c ---- */

extern void pmhash_startup_init(void);

#endif							/* PMHASH_SERVER_H */
