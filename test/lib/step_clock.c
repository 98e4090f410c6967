/*
 * step_clock.c: preloaded into a server, the time of day goes back by an hour as
 * soon as the file that STEP_CLOCK names is there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

int
gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	static int	(*real_gettimeofday) (struct timeval *, void *);
	int			result;

	if (real_gettimeofday == NULL)
		*(void **) &real_gettimeofday = dlsym(RTLD_NEXT, "gettimeofday");
	result = real_gettimeofday(tv, zone);
	if (access(getenv("STEP_CLOCK"), F_OK) == 0)
		tv->tv_sec -= 3600;
	return result;
}
