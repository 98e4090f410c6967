/*-------------------------------------------------------------------------
 *
 * engine_hooks.h
 *	  How the engine waits, and is interrupted, in a server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_ENGINE_HOOKS_H
#define PMHASH_ENGINE_HOOKS_H

extern void pmhash_engine_hooks_init(void);
extern bool pmhash_is_interrupted(void);

#endif							/* PMHASH_ENGINE_HOOKS_H */
