/*-------------------------------------------------------------------------
 *
 * unit.h
 *	  The few lines every engine unit test shares.
 *
 * CHECK(condition) counts; a failure is printed with its place, up to a few,
 * so that one fault does not flood the log; threads may do it too.  unit_done() prints the one-line
 * summary and gives the exit status.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_UNIT_H
#define PMH_UNIT_H

#include <stdio.h>
#include <stdlib.h>

static unsigned long unit_passed;
static unsigned long unit_failed;

#define CHECK(condition) \
	unit_check((condition) ? 1 : 0, #condition, __FILE__, __LINE__)

/* For what makes it pointless to go on. */
#define REQUIRE(condition) \
	do { \
		if (!CHECK(condition)) \
			exit(unit_done(__FILE__)); \
	} while (0)

static inline int
unit_check(int ok, const char *what, const char *file, int line)
{
	if (ok)
		__atomic_fetch_add(&unit_passed, 1, __ATOMIC_RELAXED);
	else if (__atomic_fetch_add(&unit_failed, 1, __ATOMIC_RELAXED) < 20)
		fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
	return ok;
}

static inline int
unit_done(const char *name)
{
	printf("%s: %lu passed, %lu failed\n", name, unit_passed, unit_failed);
	return unit_failed == 0 ? 0 : 1;
}

#endif							/* PMH_UNIT_H */
