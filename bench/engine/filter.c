/*-------------------------------------------------------------------------
 *
 * filter.c
 *	  An experiment: a filter in DRAM in front of look-ups, as SmartHT has one,
 *	  against the fingerprints of the buckets alone.
 *
 * A blocked Bloom filter (F. Putze, P. Sanders, J. Singler: Cache-, Hash- and
 * Space-Efficient Bloom Filters, WEA 2007): a key's bits all lie in one cache
 * line.  It knows every key, so that a miss which it answers touches no line
 * of the table.  What it costs hits and inserts is measured as well.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench.h"
#include "error.h"
#include "layout.h"
#include "table.h"

#define FILTER_BITS		10		/* per key of the fullest table */
#define FILTER_PROBES	6
#define BLOCK_WORDS		8		/* a cache line */
#define STEPS			16		/* sizes at which it is looked at */
#define REPEATS			3
#define MAX_LOOKUPS		UINT64_C(1000000)

typedef struct Filter
{
	uint64_t	blocks;
	uint64_t   *word;
} Filter;

/* The block of a hash: by its upper half, the bits in it by its lower one. */
static inline uint64_t *
block_of(const Filter *f, uint64_t hash)
{
	return f->word + (((hash >> 32) * f->blocks) >> 32) * BLOCK_WORDS;
}

/* Six 9-bit numbers: four words of them would need 54 bits, so mix once more. */
static inline uint64_t
bits_of(uint64_t hash)
{
	return hash * UINT64_C(0x9e3779b97f4a7c15) >> 10;
}

static void
filter_init(Filter *f, uint64_t keys)
{
	size_t		bytes;

	f->blocks = keys * FILTER_BITS / (BLOCK_WORDS * 64) + 1;
	bytes = f->blocks * BLOCK_WORDS * sizeof(uint64_t);
	f->word = aligned_alloc(PMH_LINE, bytes);
	if (f->word == NULL)
	{
		fprintf(stderr, "pmh_bench: out of memory\n");
		exit(1);
	}
	memset(f->word, 0, bytes);
}

static inline void
filter_add(Filter *f, uint64_t hash)
{
	uint64_t   *block = block_of(f, hash);
	uint64_t	bits = bits_of(hash);

	for (int i = 0; i < FILTER_PROBES; i++, bits >>= 9)
		block[bits >> 6 & 7] |= UINT64_C(1) << (bits & 63);
}

static inline bool
filter_has(const Filter *f, uint64_t hash)
{
	const uint64_t *block = block_of(f, hash);
	uint64_t	bits = bits_of(hash);
	uint64_t	all = 1;

	for (int i = 0; i < FILTER_PROBES; i++, bits >>= 9)
		all &= block[bits >> 6 & 7] >> (bits & 63);
	return all != 0;
}

/* What comes after does not begin before everything in front is done. */
static inline void
wait_for_loads(void)
{
#if defined(__x86_64__)
	_mm_lfence();
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/*
 * Mops/s of n look-ups of keys base + random number below 'range', each of
 * which has 'expected' values; with a filter, or without (NULL).  If 'alone',
 * the processor may not begin one before the last is done, as it cannot where
 * an executor has a thousand instructions between them.  *passed counts those
 * that the filter lets through.
 */
static double
lookups(PmhTable *t, const Filter *f, uint64_t base, uint64_t range, uint64_t n,
		uint64_t expected, bool alone, uint64_t *passed)
{
	PmhValues	values = {0};
	uint64_t	seed = base + n;
	uint64_t	wrong = 0;
	uint64_t	begin = clock_ns();
	double		mops;

	*passed = 0;
	for (uint64_t i = 0; i < n; i++)
	{
		uint64_t	hash = key_hash(base + next_random(&seed) % range);

		if (alone)
			wait_for_loads();
		if (f != NULL && !filter_has(f, hash))
		{
			wrong += expected != 0;
			continue;
		}
		(*passed)++;
		must(t, pmh_lookup(t, hash, &values), "look-up");
		wrong += values.n != expected;
	}
	mops = (double) n * 1e3 / (double) (clock_ns() - begin);
	pmh_values_free(&values);
	if (wrong > 0)
	{
		fprintf(stderr, "pmh_bench: filter: %llu answers were wrong\n",
				(unsigned long long) wrong);
		exit(1);
	}
	return mops;
}

static int
compare(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

static double
middle(double *value)
{
	qsort(value, REPEATS, sizeof(*value), compare);
	return value[REPEATS / 2];
}

/* Kinds of look-ups that are measured. */
enum
{
	MISS, MISS_ALONE, HIT, HIT_ALONE, NLOOKUPS
};

/* What is measured at one size: Mops/s without the filter and with it. */
typedef struct Step
{
	double		lookup[NLOOKUPS][2];
	double		insert[2];
	double		false_positive;
} Step;

static void
measure_lookups(PmhTable *t, const Filter *f, uint64_t keys, Step *step)
{
	uint64_t	n = keys < MAX_LOOKUPS ? keys : MAX_LOOKUPS;
	double		mops[NLOOKUPS][2][REPEATS];

	for (int i = 0; i < REPEATS; i++)
	{
		for (int kind = 0; kind < NLOOKUPS; kind++)
		{
			bool		hit = kind >= HIT;
			uint64_t	base = hit ? 0 : opt.keys;

			for (int with = 0; with < 2; with++)
			{
				uint64_t	passed;

				mops[kind][with][i] = lookups(t, with ? f : NULL, base, keys, n, hit,
											  kind == MISS_ALONE || kind == HIT_ALONE,
											  &passed);
				if (with && !hit)
					step->false_positive = (double) passed / (double) n;
			}
		}
	}
	for (int kind = 0; kind < NLOOKUPS; kind++)
		for (int with = 0; with < 2; with++)
			step->lookup[kind][with] = middle(mops[kind][with]);
}

/* Mops/s of inserting a range of keys, into the filter too or afterwards. */
static double
insert_keys(PmhTable *t, Filter *f, uint64_t from, uint64_t to, bool with)
{
	uint64_t	begin = clock_ns();
	uint64_t	end;

	for (uint64_t key = from; key < to; key++)
	{
		uint64_t	hash = key_hash(key);

		must(t, pmh_insert(t, hash, key, false), "insert");
		if (with)
			filter_add(f, hash);
	}
	end = clock_ns();
	if (!with)
		for (uint64_t key = from; key < to; key++)
			filter_add(f, key_hash(key));
	return (double) (to - from) * 1e3 / (double) (end - begin);
}

/* How long it takes to make the filter of a table as it stands. */
static double
rebuild_ns(PmhTable *t, uint64_t keys)
{
	Filter		f;
	PmhSweep	sweep;
	PmhResult	result;
	uint64_t	begin = clock_ns();
	uint64_t	end;

	filter_init(&f, keys);
	must(t, pmh_sweep_begin_reading(t, &sweep), "sweep");
	while ((result = pmh_sweep_next(t, &sweep)) == PMH_OK)
		for (size_t i = 0; i < sweep.n; i++)
			filter_add(&f, sweep.entries[i].hash);
	if (result != PMH_DONE)
		must(t, result, "sweep");
	pmh_sweep_end(&sweep);
	end = clock_ns();
	free(f.word);
	return (double) (end - begin) / (double) keys;
}

static void
print_step(const Step *s, PmhTable *t, uint64_t keys, FILE *csv)
{
	static const char *const name[NLOOKUPS] = {"miss", "miss alone", "hit", "hit alone"};
	uint64_t	segments[BENCH_STRATEGIES];
	double		load = (double) keys / (double) segments_by_strategy(t, segments);
	double		all = (double) (segments[0] + segments[1] + segments[2]);

	printf("    %9llu keys, load %.3f, single %3.0f %%, two choice %3.0f %%, stash %3.0f %%:",
		   (unsigned long long) keys, load, 100 * (double) segments[PMH_SINGLE] / all,
		   100 * (double) segments[PMH_TWO_CHOICE] / all, 100 * (double) segments[PMH_STASH] / all);
	for (int kind = 0; kind < NLOOKUPS; kind++)
		printf(" %s %.2f -> %.2f,", name[kind], s->lookup[kind][0], s->lookup[kind][1]);
	printf(" insert %.2f -> %.2f Mops/s\n", s->insert[0], s->insert[1]);
	if (csv == NULL)
		return;
	fprintf(csv, "%llu,%.4f,%.4f,%.4f,%.4f", (unsigned long long) keys, load,
			(double) segments[PMH_SINGLE] / all, (double) segments[PMH_TWO_CHOICE] / all,
			(double) segments[PMH_STASH] / all);
	for (int kind = 0; kind < NLOOKUPS; kind++)
		fprintf(csv, ",%.4f,%.4f", s->lookup[kind][0], s->lookup[kind][1]);
	fprintf(csv, ",%.4f,%.4f,%.6f\n", s->insert[0], s->insert[1], s->false_positive);
}

/*
 * A table grows from half of N keys to N in steps; at each: misses and hits
 * with the filter and without.  Of each step's inserts one half keep the
 * filter up and the other do not.
 */
void
op_filter(void)
{
	FILE	   *csv = opt.csv != NULL ? fopen(opt.csv, "w") : NULL;
	uint64_t	from = opt.keys / 2;
	Filter		f;
	PmhTable   *t;

	if (opt.csv != NULL && csv == NULL)
	{
		perror(opt.csv);
		exit(1);
	}
	if (csv != NULL)
		fprintf(csv, "keys,load_factor,single,two_choice,stash,miss,miss_filter,"
				"miss_alone,miss_alone_filter,hit,hit_filter,hit_alone,hit_alone_filter,"
				"insert,insert_filter,false_positive\n");
	renew_table();
	t = open_table();
	filter_init(&f, opt.keys);
	printf("filter         %.1f MB for %llu keys, without -> with the filter:\n",
		   (double) f.blocks * BLOCK_WORDS * 8 / 1e6, (unsigned long long) opt.keys);
	(void) insert_keys(t, &f, 0, from, true);
	for (uint64_t i = 1; i <= STEPS; i++)
	{
		uint64_t	to = opt.keys / 2 + (opt.keys - opt.keys / 2) * i / STEPS;
		uint64_t	between = from + (to - from) / 2;
		Step		step = {0};

		step.insert[i & 1] = insert_keys(t, &f, from, between, (i & 1) != 0);
		step.insert[!(i & 1)] = insert_keys(t, &f, between, to, (i & 1) == 0);
		measure_lookups(t, &f, to, &step);
		print_step(&step, t, to, csv);
		from = to;
	}
	printf("    made of a table as it stands in %.1f ns a key\n", rebuild_ns(t, opt.keys));
	figure("filter", "rebuild_ns", rebuild_ns(t, opt.keys));
	figure("filter", "bytes_per_key", (double) f.blocks * BLOCK_WORDS * 8 / (double) opt.keys);
	free(f.word);
	check_table(t);
	pmh_close(t);
	if (csv != NULL)
		fclose(csv);
}
