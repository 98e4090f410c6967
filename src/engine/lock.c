/*-------------------------------------------------------------------------
 *
 * lock.c
 *	  The lock table in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <string.h>
#include <time.h>

#include "lock.h"

#define SPINS_BEFORE_SLEEP	200
#define FIRST_SLEEP_NS		1000
#define LONGEST_SLEEP_NS	1000000

size_t
pmh_locks_size(uint32_t nstripes)
{
	return sizeof(PmhLocks) + (size_t) nstripes * (sizeof(PmhStripe) + sizeof(uint64_t));
}

PmhLocks *
pmh_locks_init(void *memory, uint32_t nstripes)
{
	PmhLocks   *locks = memory;

	PMH_ASSERT(nstripes > 0 && (nstripes & (nstripes - 1)) == 0);
	memset(memory, 0, pmh_locks_size(nstripes));
	locks->nstripes = nstripes;
	return locks;
}

/* What this process has set to be called in waits. */
static PmhWaitHooks hooks;

void
pmh_set_wait_hooks(const PmhWaitHooks *wanted)
{
	hooks = *wanted;
}

bool
pmh_wait_cancelled(void)
{
	return hooks.cancelled != NULL && hooks.cancelled();
}

/*
 * The lock was not free.  Spin while its holder is likely to be running on
 * another processor; then sleep, and say so: longer each time, so that a holder that was
 * preempted gets our processor.  A signal ends a sleep, so a cancel is seen at once.
 * False if the wait was given up.
 */
bool
pmh_lock_wait(uint64_t *lock, bool cancellable)
{
	struct timespec ts = {0, FIRST_SLEEP_NS};
	bool		done;

	for (unsigned spins = 0; spins < SPINS_BEFORE_SLEEP; spins++)
	{
		if (__atomic_load_n(lock, __ATOMIC_RELAXED) == 0 && pmh_trylock(lock))
			return true;
		pmh_pause();
	}
	if (hooks.begin != NULL)
		hooks.begin();
	for (;;)
	{
		done = __atomic_load_n(lock, __ATOMIC_RELAXED) == 0 && pmh_trylock(lock);
		if (done || (cancellable && pmh_wait_cancelled()))
			break;
		(void) nanosleep(&ts, NULL);
		if (ts.tv_nsec < LONGEST_SLEEP_NS)
			ts.tv_nsec *= 2;
	}
	if (hooks.end != NULL)
		hooks.end();
	PMH_ASSERT(done ? pmh_is_locked(lock) : cancellable);
	return done;
}
