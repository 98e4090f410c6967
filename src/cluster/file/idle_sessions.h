/*-------------------------------------------------------------------------
 *
 * idle_sessions.h
 *	  Idle sessions let go of files that have been removed; see idle_sessions.c.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_IDLE_SESSIONS_H
#define PMHASH_IDLE_SESSIONS_H

extern Size pmhash_idle_sessions_size(void);
extern void pmhash_idle_sessions_init(void);
extern uint64 pmhash_look_round(void);
extern void pmhash_looked_in_round(uint64 round, bool mapped);
extern void pmhash_wake_idle_sessions(void);

#endif							/* PMHASH_IDLE_SESSIONS_H */
