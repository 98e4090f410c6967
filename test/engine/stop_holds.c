/*-------------------------------------------------------------------------
 *
 * stop_holds.c
 *	  How long is the segment of a key with a very long list held locked?  And what is in
 *	  use of a file that grows between the loads of its length and of what is free?
 *
 * The engine is compiled with PMH_STOP_LOADS here: its loads from the file are
 * counted while the lock of the segment is held.  That is independent of how busy
 * the machine is: a load that the processor has seen coming takes a nanosecond
 * or two, one that it has not a tenth of a microsecond.  Whatever is taken out
 * of a list must not hold the segment for longer because the list is longer; and all
 * holds together grow with the list, not with its square.
 *
 *-------------------------------------------------------------------------
 */
#include "content.h"
#include "sweeps.h"

#define SHORT_LIST		UINT64_C(60000)
#define LONG_LIST		UINT64_C(300000)
#define GROUP			128
#define GROWTH			1000	/* blocks */

/* Loads under one hold, at the most: the first 1,024 lines of a list, twice. */
#define MOST_LOADS		UINT64_C(25000)
#define MOST_SHRINK_LOADS	UINT64_C(250000)

static const uint64_t *watched; /* the lock of the segment */
static uint64_t held;			/* loads since it was taken */
static uint64_t longest;
static uint64_t all;			/* loads while it was held */

void
pmh_stop_point(const char *name)
{
}

static PmhTable *growing;		/* its file grows when this is next loaded: */
static const uint64_t *grows_at;

void
pmh_stop_load(const char *function, const void *addr)
{
	PmhTable   *t = growing;

	if (t != NULL && addr == grows_at && strcmp(function, "pmh_space_figures") == 0)
	{
		growing = NULL;
		t->need.blocks = GROWTH;
		t->need.seen = pmh_blocks(t);
		REQUIRE(pmh_provide(t) == PMH_OK);
	}
	if (watched == NULL)
		return;
	if (__atomic_load_n(watched, __ATOMIC_RELAXED) == 0)
		held = 0;
	else
	{
		all++;
		if (++held > longest)
			longest = held;
	}
}

static void
watch(PmhTable *t, uint64_t hash)
{
	PmhPlace	place;

	REQUIRE(pmh_locate(t, hash, &place) == PMH_OK);
	held = longest = all = 0;
	watched = &place.stripe->lock;
}

static uint64_t
stop_watching(void)
{
	watched = NULL;
	return longest;
}

static void
bounded(const char *what, uint64_t most)
{
	uint64_t	loads = stop_watching();

	if (!CHECK(loads <= most))
		fprintf(stderr, "  %s: %llu loads under one lock\n", what, (unsigned long long) loads);
	else
		CHECK(loads > 0);
}

/* One key with the values 0 .. n - 1, the oldest last in its list. */
static PmhTable *
make_table(const char *path, uint64_t hash, uint64_t n)
{
	PmhTable   *t = fixture_create(path);

	fixture_load_list(t, hash, n);
	return t;
}

static void
delete_keys(PmhTable *t, uint64_t hash, uint64_t first, uint64_t step, bool wait,
			size_t expected)
{
	PmhEntry	entry[GROUP];
	size_t		removed;

	for (uint64_t i = 0; i < GROUP; i++)
		entry[i] = (PmhEntry) {hash, first + i * step};
	REQUIRE((wait ? pmh_delete_group : fixture_delete_nowait) (t, entry, GROUP, &removed) == PMH_OK);
	CHECK(removed == expected);
}

/* A sweep that takes a value out of each buffer; the longest hold. */
static uint64_t
sweep_some_out(PmhTable *t, uint64_t hash)
{
	PmhSweep	sweep;
	PmhResult	result;

	watch(t, hash);
	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	while ((result = pmh_sweep_next(t, &sweep)) == PMH_OK)
	{
		uint8_t    *dead = calloc(sweep.n + 1, 1);
		size_t		removed;

		REQUIRE(dead != NULL);
		dead[sweep.n / 2] = 1;
		REQUIRE(sweep_remove(t, &sweep, dead, &removed) == PMH_OK &&
				removed == (sweep.n > 0));
		free(dead);
	}
	REQUIRE(result == PMH_DONE);
	pmh_sweep_end(&sweep);
	return stop_watching();
}

static void
take_out(PmhTable *t, uint64_t hash, uint64_t n)
{
	watch(t, hash);
	CHECK(pmh_delete(t, hash, 1) == PMH_OK);
	CHECK(pmh_delete(t, hash, n) == PMH_NOT_FOUND);
	bounded("delete", MOST_LOADS);
	watch(t, hash);
	delete_keys(t, hash, 1000, 1, false, GROUP);
	bounded("removal by a reader", MOST_LOADS);
	watch(t, hash);
	delete_keys(t, hash, n, 1, false, 0);
	bounded("removal of what is not there", MOST_LOADS);
	watch(t, hash);
	delete_keys(t, hash, 5000, n / GROUP - 100, true, GROUP);
	bounded("removal all over the list", MOST_LOADS);
}

/* Most of the list goes in groups; gives the loads of all holds. */
static uint64_t
remove_most(PmhTable *t, uint64_t hash, uint64_t n)
{
	PmhEntry   *entry = malloc(n * sizeof(*entry));
	size_t		k = 0;
	size_t		removed;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < n; i++)
	{
		if (i % 8 != 0)
			entry[k++] = (PmhEntry) {hash, i};
	}
	watch(t, hash);
	REQUIRE(pmh_delete_group(t, entry, k, &removed) == PMH_OK && removed > k - 1000);
	bounded("removal of most values", MOST_LOADS);
	free(entry);
	return all;
}

/* What is left of a list is rewritten. */
static void
shrink(PmhTable *t, uint64_t hash)
{
	uint64_t	most = 0;
	uint64_t	steps = 0;
	PmhShrink	shrink;
	PmhResult	result;

	REQUIRE(pmh_shrink_begin(t, PMH_DEFAULT_FILL, &shrink) == PMH_OK);
	do
	{
		watch(t, hash);
		result = pmh_shrink_step(t, &shrink);
		if (stop_watching() > most)
			most = longest;
		/* What it has come to changes: it has to look for it. */
		(void) pmh_delete(t, hash, 8 * ++steps);
	} while (result == PMH_OK);
	REQUIRE(result == PMH_DONE);
	longest = most;
	bounded("shrink", MOST_SHRINK_LOADS);
}

/* What is in use is never more than all. */
static void
figures(PmhTable *t, PmhTable *other)
{
	PmhStats	stats;

	grows_at = &pmh_run(t)->free_units;
	growing = other;
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(growing == NULL && stats.used_bytes > 0 && stats.used_bytes <= stats.file_bytes);
}

static void
file_grows_beside_figures(const char *path)
{
	PmhTable   *t = fixture_create(path);
	PmhTable   *other = fixture_open(path, 1);

	figures(t, other);
	put_keys(t, 0, SHORT_LIST);
	figures(t, other);
	pmh_close(other);
	CLOSE_SOUND(t);
}

int
main(void)
{
	const char *path = fixture_path("stop_holds");
	uint64_t	hash = fixture_hash(1);
	uint64_t	few;
	uint64_t	many;
	uint64_t	short_loads;
	uint64_t	long_loads;
	PmhTable   *t = make_table(path, hash, SHORT_LIST);

	few = sweep_some_out(t, hash);
	short_loads = remove_most(t, hash, SHORT_LIST);
	CLOSE_SOUND(t);
	t = make_table(path, hash, LONG_LIST);
	many = sweep_some_out(t, hash);
	if (!CHECK(few > 0 && many * 4 <= few * 5))
		fprintf(stderr, "  sweep: %llu and %llu loads under one lock\n",
				(unsigned long long) few, (unsigned long long) many);
	take_out(t, hash, LONG_LIST);
	CHECK_SOUND(t);
	long_loads = remove_most(t, hash, LONG_LIST);
	if (!CHECK(long_loads * 4 <= short_loads * (LONG_LIST / SHORT_LIST) * 5))
		fprintf(stderr, "  removal of most values: %llu and %llu loads in all\n",
				(unsigned long long) short_loads, (unsigned long long) long_loads);
	shrink(t, hash);
	CLOSE_SOUND(t);
	file_grows_beside_figures(path);
	unlink(path);
	return unit_done("stop_holds");
}
