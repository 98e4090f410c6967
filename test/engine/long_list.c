/*-------------------------------------------------------------------------
 *
 * long_list.c
 *	  A key with ten million values: no step of a removal works for longer than a
 *	  millisecond, wherever in the list the values are, and whether they are still
 *	  there; and deleting half of them takes a time in proportion to the list's
 *	  length, not to its square.
 *
 * Time is that of the processor, so that other processes do not count.  A step that
 * is interrupted by the kernel for long may be charged for that all the same: so the
 * bound has to hold for all steps of one of TRIES rounds.
 *
 *-------------------------------------------------------------------------
 */
#include <time.h>
#include <unistd.h>

#include "fixture.h"
#include "segment.h"
#include "table.h"
#include "unit.h"

#define VALUES		FIXTURE_SCALE(UINT64_C(10000000))
#define SHORTER		(VALUES / 4)
#define HANDED_IN	4096		/* as a scan does: PMHASH_DEAD_MAX */
#define EFFORT		8			/* as dead_entries.c: STEP_EFFORT */
#if FIXTURE_SCALE(10) == 10
#define MOST_US		1000.0
#else
#define MOST_US		10000.0		/* sanitizers are slow */
#endif
#define TRIES		10

/* Four times the list may take so many times as long; sixteen would be the square. */
#define MOST_TIMES	8.0

static const char *path;
static const uint64_t hash = UINT64_C(0x123456789abcdef1);

static double
processor_us(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double) now.tv_sec * 1e6 + (double) now.tv_nsec / 1e3;
}

static PmhTable *
make_list(uint64_t n)
{
	PmhEntry   *entry = malloc(n * sizeof(PmhEntry));
	PmhTable   *t;
	size_t		done;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < n; i++)
		entry[i] = (PmhEntry) {hash, i};
	t = fixture_create(path);
	REQUIRE(pmh_insert_group(t, entry, n, false, &done) == PMH_OK && done == n);
	free(entry);
	return t;
}

static void
end(PmhTable *t)
{
	pmh_close(t);
	(void) unlink(path);
}

/* Remove these values in steps; the longest, in microseconds. */
static double
longest_step(PmhTable *t, const PmhEntry *entry, size_t present)
{
	PmhRemoval	removal;
	PmhResult	result;
	double		longest = 0;

	REQUIRE(pmh_removal_begin(t, entry, HANDED_IN, false, &removal) == PMH_OK);
	do
	{
		double		begun = processor_us();
		double		took;

		result = pmh_removal_step(t, &removal, EFFORT);
		took = processor_us() - begun;
		if (took > longest)
			longest = took;
	} while (result == PMH_OK);
	CHECK(result == PMH_DONE && removal.removed == present);
	pmh_removal_end(&removal);
	return longest;
}

/*
 * Hand in values from 'first' on, 'apart' from each other.  They are put back for the
 * next try, at the head of the list then.
 */
static void
test_steps(PmhTable *t, const char *what, uint64_t first, uint64_t apart, bool there)
{
	PmhEntry	entry[HANDED_IN];
	double		best = 1e9;
	size_t		done;

	for (unsigned try = 0; try < TRIES && best > MOST_US; try++)
	{
		double		longest;

		for (uint64_t i = 0; i < HANDED_IN; i++)
			entry[i] = (PmhEntry) {hash, first + i * apart};
		longest = longest_step(t, entry, there ? HANDED_IN : 0);
		if (longest < best)
			best = longest;
		if (there)
			REQUIRE(pmh_insert_group(t, entry, HANDED_IN, false, &done) == PMH_OK);
	}
	printf("longest step, %s: %.0f us\n", what, best);
	CHECK(best < MOST_US);
}

/* How long it takes to delete every other value, as VACUUM does, per value. */
static double
delete_half(uint64_t n)
{
	PmhTable   *t = make_list(n);
	PmhEntry   *entry = malloc(n / 2 * sizeof(PmhEntry));
	size_t		removed;
	double		begun;
	double		took;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < n / 2; i++)
		entry[i] = (PmhEntry) {hash, 2 * i};
	begun = processor_us();
	CHECK(pmh_delete_group(t, entry, n / 2, &removed) == PMH_OK && removed == n / 2);
	took = processor_us() - begun;
	free(entry);
	end(t);
	return took;
}

static void
test_length(void)
{
	double		times = 1e9;

	for (unsigned try = 0; try < TRIES && times > MOST_TIMES; try++)
	{
		double		shorter = delete_half(SHORTER);
		double		longer = delete_half(4 * SHORTER);

		printf("deleting half of %.1f million: %.0f ms, of %.1f million: %.0f ms\n",
			   (double) SHORTER / 1e6, shorter / 1e3, (double) SHORTER * 4 / 1e6,
			   longer / 1e3);
		if (longer / shorter < times)
			times = longer / shorter;
	}
	CHECK(times < MOST_TIMES);
}

int
main(void)
{
	PmhTable   *t;

	path = fixture_path("long_list");
	t = make_list(VALUES);
	TEST(test_steps(t, "oldest values", 0, 1, true));
	TEST(test_steps(t, "newest values", VALUES - HANDED_IN, 1, true));
	TEST(test_steps(t, "values all over the list", 100000, VALUES / HANDED_IN - 100, true));
	TEST(test_steps(t, "values that are not there", VALUES + 1, 1, false));
	end(t);
	TEST(test_length());
	return unit_done("long_list");
}
