/*-------------------------------------------------------------------------
 *
 * tools.h
 *	  The monotonic clock; what may fail; waits.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_TOOLS_H
#define PMHASH_TOOLS_H

#include <time.h>

/* ---- the clock ---- */

/*
 * GetCurrentTimestamp() is the time of day.  Set back by an hour, it keeps from
 * happening for that hour whatever is done "so long after the last time"; set
 * forward, it has everything done at once.  So whatever is timed within a
 * server life is timed by this clock; the time of day is for people to read.
 * All processes of a boot see the same clock, so its readings may stand in
 * shared memory; they mean nothing in a file.
 */

/* Milliseconds since some moment before this boot's first process; never 0. */
static inline int64
pmhash_clock_ms(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
}

/* Have 'interval' ms gone by since the reading 'then'?  0: never read yet. */
static inline bool
pmhash_clock_past(int64 then, int64 interval)
{
	return then == 0 || pmhash_clock_ms() - then >= interval;
}

/*
 * Milliseconds to the next try of what has been tried so often in vain (1: for the first
 * time): a second, twice as long each time, and no more than 'most' seconds.
 */
static inline int64
pmhash_pause(int tries, int most)
{
	Assert(tries > 0 && most > 0);
	return Min(INT64CONST(1) << Min(tries - 1, 30), most) * 1000;
}

/* ---- what may fail ---- */

/* What is tried: does it, or raises an ERROR. */
typedef void (*PmhashTried) (void *arg);

/*
 * The transaction has begun to end: no subtransaction may be begun any more.  From the
 * callback before commit or PREPARE (xact.c calls AfterTriggerEndXact right after it) to
 * the one at the end.
 */
extern bool pmhash_transaction_is_ending;

extern ErrorData *pmhash_try(PmhashTried tried, void *arg,
							 bool (*at_fault) (int sqlstate));

/* ---- waits ---- */

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

#endif							/* PMHASH_TOOLS_H */
