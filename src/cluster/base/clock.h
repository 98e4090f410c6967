/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The monotonic clock: for how long ago something was.
 *
 * GetCurrentTimestamp() is the time of day.  Set back by an hour, it keeps from
 * happening for that hour whatever is done "so long after the last time"; set
 * forward, it has everything done at once.  So whatever is timed within a
 * server life is timed by this clock; the time of day is for people to read.
 * All processes of a boot see the same clock, so its readings may stand in
 * shared memory; they mean nothing in a file.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_CLUSTER_CLOCK_H
#define PMHASH_CLUSTER_CLOCK_H

#include <time.h>

/* Milliseconds since some moment before this boot's first process; never 0. */
static inline int64
pmhash_clock_ms(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
}

/* The same clock, some milliseconds late, for a few nanoseconds. */
static inline int64
pmhash_clock_coarse(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
}

/* Have 'interval' ms gone by since the reading 'then'?  0: never read yet. */
static inline bool
pmhash_clock_past(int64 then, int64 interval)
{
	return then == 0 || pmhash_clock_ms() - then >= interval;
}

/*
 * Milliseconds from now to the reading 'then', for a latch: 1 at least, as less than 0
 * would be a wait without an end, and 'most' at most.
 */
static inline long
pmhash_clock_until(int64 then, long most)
{
	int64		left = then - pmhash_clock_ms();	/* read once */

	return left < 1 ? 1 : (long) Min(left, most);
}

/*
 * Milliseconds to the next try of what has been tried so often in vain (1: for the first
 * time): a second, twice as long each time, and no more than 'most' seconds.
 */
static inline int64
pmhash_pause(int tries, int most)
{
	return Min(INT64CONST(1) << Min(tries - 1, 30), most) * 1000;
}

#endif							/* PMHASH_CLUSTER_CLOCK_H */
