/*-------------------------------------------------------------------------
 *
 * stop_histories.c
 *	  race_histories_threads with processes that now and then let others go
 *	  first at the engine's stop points, that is in the middle of what they do.
 *
 *-------------------------------------------------------------------------
 */
#define PROGRAM "stop_histories"
#define main race_histories_main
#include "race_histories_threads.c"
#include "stop_point.h"
#undef main

/*
 * The point between two halves of a value line is come by seven times as often as all
 * others together.  With as many pauses as they have there the test would do little but
 * wait, on a busy machine for many minutes.
 */
#define SELDOM			"value_between_halves"
#define SELDOM_SHARE	16

void
pmh_stop_point(const char *name)
{
	static uint64_t seed;
	uint64_t	r = fixture_random(&seed);

	if (r >> 48 >= UINT64_C(0x10000) / SELDOM_SHARE && strcmp(name, SELDOM) == 0)
		return;
	if (r % 32 == 0)
		sched_yield();
	else if (r % 1024 == 1)
		usleep((useconds_t) (r >> 32) % 1000);
}

int
main(int argc, char **argv)
{
	return race_histories_main(argc, argv);
}
