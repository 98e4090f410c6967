/*-------------------------------------------------------------------------
 *
 * planner_hook.h
 *	  Plans leave invalid indexes alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_PLANNER_HOOK_H
#define PMHASH_PLANNER_HOOK_H

extern void pmhash_planner_hook_init(void);
extern void pmhash_forget_plans_for_now(void);

#endif							/* PMHASH_PLANNER_HOOK_H */
