/*-------------------------------------------------------------------------
 *
 * give_way.c
 *	  Builds in the background leave the processors to others.
 *
 * A build computes for seconds or minutes.  Where all processors are busy, the
 * kernel lets it run for a slice of some milliseconds before any other process has its
 * turn there, and a transaction that takes half of one is ten times as long.  So a
 * process that rebuilds an index, or builds that of a standby, rests for a moment
 * after each quarter of a millisecond, as long as another process wants its
 * processor: if it was not, the kernel would not have taken it away (involuntary
 * context switches of getrusage).  While none does, nothing is given away.
 *
 * Not vacuum_cost_delay, which holds up idle machines as well and counts pages read
 * and written, of which a build in memory has none.  Not a lower priority: a process
 * that holds an LWLock would not be let on with it, and with the scheduler's
 * autogroups the priority of a process does not count among sessions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "miscadmin.h"
#include "utils/wait_event.h"

#include "cluster/base/tools.h"
#include "cluster/queue/queue.h"

/* Microseconds. */
#define WORK			250		/* between two looks */
#define REST			100
#define SOON			50000	/* of work without a rest: others are still there */

/* Rests after the processor was taken away: at first, and if that happens again and
 * again.  Each end of them may cost others a slice, so the latter are a second. */
#define FEWEST_RESTS	16
#define MOST_RESTS		4096

static bool giving_way = false;
static int64 work_began;		/* clock, microseconds */
static int64 last_rest;
static long taken_away;			/* how often, when we looked last */
static int	rests;				/* granted at the last time */
static int	rests_left;

static int64
clock_us(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* How often the kernel has taken the processor away from this process. */
static long
times_taken_away(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage) != 0)
		return taken_away + 1;	/* cannot be known: rest */
	return usage.ru_nivcsw;
}

/*
 * This process builds in the background: pmhash_give_way() rests from now on, to
 * the end of the process.
 */
void
pmhash_give_way_from_now_on(void)
{
	giving_way = true;
	taken_away = times_taken_away();
	work_began = clock_us();
	last_rest = work_began - SOON;
}

/* Is this a process that builds in the background? */
bool
pmhash_gives_way(void)
{
	return giving_way;
}

/*
 * How many parallel workers a build gets that the server would grant so many: in the
 * background no more than that it has half of the processors in all.
 */
int
pmhash_give_way_workers(int wanted)
{
	long		processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (!giving_way)
		return wanted;
	return Min(wanted, Max((int) Min(processors, INT_MAX) / 2 - 1, 0));
}

/* The processor was taken away: another process wants it. */
static void
grant_rests(int64 now)
{
	if (now - last_rest < SOON)
		rests = Min(rests * 4, MOST_RESTS);
	else
		rests = FEWEST_RESTS;
	rests_left = rests;
}

static void
rest(void)
{
	rests_left--;
	pgstat_report_wait_start(pmhash_wait_event(PMHASH_WAIT_GIVE_WAY));
	pg_usleep(REST);
	pgstat_report_wait_end();
	last_rest = clock_us();
}

/*
 * pmhash_give_way
 *		For loops of builds, where they would look at interrupts (it does): rest if
 *		others want the processor.  To be called every few microseconds to
 *		milliseconds, with no LWLock and no engine lock held.  In a process that does
 *		not build in the background it is CHECK_FOR_INTERRUPTS().
 */
void
pmhash_give_way(void)
{
	int64		now;
	long		taken;

	Assert(CritSectionCount == 0);
	CHECK_FOR_INTERRUPTS();
	if (!giving_way)
		return;
	now = clock_us();
	if (now - work_began < WORK)
		return;
	taken = times_taken_away();
	if (taken != taken_away)
		grant_rests(now);
	taken_away = taken;
	if (rests_left > 0)
		rest();
	work_began = clock_us();
}
