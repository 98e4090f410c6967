/*
 * fast_clock.c: preloaded into a server, the monotonic clock goes a thousand times as
 * fast, in all processes alike.  What sleeps does so as long as ever, but thinks that it
 * was longer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

#define FACTOR	1000
#define SECOND	1000000000LL

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	static int	(*real_clock_gettime) (clockid_t clock, struct timespec *now);
	int			result;
	long long	fraction;

	if (real_clock_gettime == NULL)
		*(void **) &real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
	result = real_clock_gettime(clock, now);
	if (result == 0 && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE))
	{
		fraction = now->tv_nsec * (long long) FACTOR;
		now->tv_sec = now->tv_sec * FACTOR + fraction / SECOND;
		now->tv_nsec = fraction % SECOND;
	}
	return result;
}
