/*-------------------------------------------------------------------------
 *
 * unit.h
 *	  The few lines every C test shares.  They print TAP.
 *
 *		TEST(test_create(path));	one test, "ok 1 - core_errors: test_create(path)"
 *		CHECK(condition);			counts; a failure is printed with its place
 *		REQUIRE(condition);			the same, for what makes it pointless to go on
 *		return unit_done("core_errors");	the rest of the checks, the plan, the sum
 *
 * Of failures the first are printed, so that one fault does not flood the log.
 * Threads may check too, and children; what a child finds is its exit status.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_UNIT_H
#define PMH_UNIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long unit_passed;
static unsigned long unit_failed;

/* TAP lines so far, what had been checked before the current test, and whose. */
static unsigned unit_tests;
static unsigned long unit_passed_before;
static unsigned long unit_failed_before;
static const char *unit_test;
static pid_t unit_process;		/* that speaks: its children do not */

static void __attribute__((constructor))
unit_start(void)
{
	unit_process = getpid();
}

#define CHECK(condition) \
	unit_check((condition) ? 1 : 0, #condition, __FILE__, __LINE__)

/* For what makes it pointless to go on. */
#define REQUIRE(condition) \
	do { \
		if (!CHECK(condition)) \
			exit(unit_done(__FILE__)); \
	} while (0)

#define TEST(call) \
	do { \
		unit_begin(#call); \
		call; \
		unit_end(__FILE__); \
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

/* A TAP line of what has been checked since the last one. */
static inline void
unit_line(const char *file, const char *test)
{
	const char *name = strrchr(file, '/') != NULL ? strrchr(file, '/') + 1 : file;
	unsigned long passed = unit_passed - unit_passed_before;
	unsigned long failed = unit_failed - unit_failed_before;

	printf("%s %u - %.*s: %s (%lu checks)\n", failed == 0 ? "ok" : "not ok", ++unit_tests,
		   (int) strcspn(name, "."), name, test, passed + failed);
	unit_passed_before = unit_passed;
	unit_failed_before = unit_failed;
}

static inline void
unit_begin(const char *test)
{
	unit_test = test;
	unit_passed_before = unit_passed;
	unit_failed_before = unit_failed;
}

static inline void
unit_end(const char *file)
{
	unit_line(file, unit_test);
	unit_test = NULL;
	fflush(stdout);				/* children must not print it again */
}

/*
 * The end, also in the middle of a test.  What was checked outside of tests is one
 * more.  A child of the test says nothing here.
 */
static inline int
unit_done(const char *name)
{
	if (unit_process == getpid())
	{
		if (unit_test != NULL || unit_passed + unit_failed >
			unit_passed_before + unit_failed_before || unit_tests == 0)
			unit_line(name, unit_test != NULL ? unit_test : "all else");
		printf("1..%u\n# %lu checks passed, %lu failed\n", unit_tests, unit_passed,
			   unit_failed);
	}
	return unit_failed == 0 && unit_passed > 0 ? 0 : 1;
}

#endif							/* PMH_UNIT_H */
