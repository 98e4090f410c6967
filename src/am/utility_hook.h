/*-------------------------------------------------------------------------
 *
 * utility_hook.h
 *	  What pmhash does before and after utility statements.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_UTILITY_HOOK_H
#define PMHASH_UTILITY_HOOK_H

extern void pmhash_utility_hook_init(void);

#endif							/* PMHASH_UTILITY_HOOK_H */
