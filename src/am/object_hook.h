/*-------------------------------------------------------------------------
 *
 * object_hook.h
 *	  What pmhash takes note of when objects are made, altered and dropped.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_OBJECT_HOOK_H
#define PMHASH_OBJECT_HOOK_H

extern void pmhash_object_hook_init(void);

#endif							/* PMHASH_OBJECT_HOOK_H */
