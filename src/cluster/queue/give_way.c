/*-------------------------------------------------------------------------
 *
 * give_way.c
 *	  Builds in the background leave the processors to others.
 *
 * A build computes for seconds or minutes.  Where all processors are busy, the
 * kernel lets it run for a slice of some milliseconds before any other process has its
 * turn there, and a transaction that takes half of one is ten times as long.  So a
 * process that rebuilds an index, or builds that of a standby, rests for a moment
 * after each quarter of a millisecond, for a second after the kernel has taken its processor
 * away twice (involuntary context switches of getrusage), as another process wants it.
 * While none does, nothing is given away.
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

#define WORK			250		/* us between two looks */
#define REST			100		/* us */
#define SOON			50000	/* us between two losses of the processor: no kernel thread's */
#define OTHERS_STAY		1000000 /* us that another process is taken to want it after these */

/* This process builds in the background, and is to rest. */
bool		pmhash_gives_way = false;

static int64 work_began;		/* clock, microseconds */
static int64 others_until;		/* the same */
static long taken_away;			/* how often, when we looked last */
static int64 last_taken;		/* when */

static int64
clock_us(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/*
 * How many parallel workers a build gets that the server would grant so many: in the
 * background no more than that it has half of the processors in all.
 */
int
pmhash_give_way_workers(int wanted)
{
	long		processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (!pmhash_gives_way)
		return wanted;
	return Min(wanted, Max((int) Min(processors, INT_MAX) / 2 - 1, 0));
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
	struct rusage usage;

	Assert(CritSectionCount == 0);
	CHECK_FOR_INTERRUPTS();
	if (!pmhash_gives_way)
		return;
	now = clock_us();
	if (now - work_began < WORK)
		return;
	if (getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_nivcsw != taken_away)
	{
		if (now - last_taken < SOON)
			others_until = now + OTHERS_STAY;
		taken_away = usage.ru_nivcsw;
		last_taken = now;
	}
	if (now < others_until)
	{
		pgstat_report_wait_start(pmhash_wait_event(PMHASH_WAIT_GIVE_WAY));
		pg_usleep(REST);
		pgstat_report_wait_end();
	}
	work_began = clock_us();
}
