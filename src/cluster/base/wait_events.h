/*-------------------------------------------------------------------------
 *
 * wait_events.h
 *	  What processes of pmhash wait for, as pg_stat_activity shows it; sleeping.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_WAIT_EVENTS_H
#define PMHASH_WAIT_EVENTS_H

typedef enum PmhashWait
{
	PMHASH_WAIT_FILE_LOCK,		/* any process: a lock of the engine, past a spin */
	PMHASH_WAIT_LAUNCHER,		/* the launcher: nothing to do */
	PMHASH_WAIT_POOL,			/* the launcher: until the pool can be used */
	PMHASH_WAIT_BUILD,			/* a standby's builder: for replay or transactions */
	PMHASH_WAIT_GIVE_WAY,		/* a build in the background: others want to run */
	PMHASH_NWAITS
} PmhashWait;

extern void pmhash_wait_events_name(void);
extern uint32 pmhash_wait_event(PmhashWait wait);
extern void pmhash_sleep(long timeout, uint32 event);

#endif							/* PMHASH_WAIT_EVENTS_H */
