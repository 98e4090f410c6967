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

	memset(memory, 0, pmh_locks_size(nstripes));
	locks->nstripes = nstripes;
	return locks;
}

static inline void
pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/*
 * The lock was not free.  Spin while its holder is likely to be running on
 * another processor; then sleep, longer each time, so that a holder that was
 * preempted gets ours.
 */
void
pmh_lock_wait(uint64_t *lock)
{
	struct timespec ts = {0, FIRST_SLEEP_NS};
	unsigned	spins = 0;

	for (;;)
	{
		uint64_t	free = 0;

		if (__atomic_load_n(lock, __ATOMIC_RELAXED) == 0 &&
			__atomic_compare_exchange_n(lock, &free, UINT64_C(1), false,
										__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return;
		if (spins++ < SPINS_BEFORE_SLEEP)
			pause_cpu();
		else
		{
			(void) nanosleep(&ts, NULL);
			if (ts.tv_nsec < LONGEST_SLEEP_NS)
				ts.tv_nsec *= 2;
		}
	}
}
