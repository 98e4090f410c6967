/*-------------------------------------------------------------------------
 *
 * growth.c
 *	  What happens while a table grows: space, latencies, look-ups meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "handle.h"
#include "layout.h"
#include "pm.h"
#include "table.h"

#define GROW_FROM		500000	/* averages of space begin here */
#define ENTRY_BYTES		16		/* of user data, as the papers count */
#define INTERVALS		1000	/* of a time line */
#define REST_SECONDS	1		/* how long look-ups are watched at rest */
#define PAUSE_WORK		250		/* additions to one word in memory */

static FILE *
open_csv(const char *head)
{
	FILE	   *csv = opt.csv != NULL ? fopen(opt.csv, "w") : NULL;

	if (opt.csv != NULL && csv == NULL)
	{
		perror(opt.csv);
		exit(1);
	}
	if (csv != NULL)
		fprintf(csv, "%s\n", head);
	return csv;
}

/* ---- space ---- */

_Static_assert(BENCH_STRATEGIES == 1 << PMH_ELEM_STRATEGY_BITS, "strategies");

uint64_t
segments_by_strategy(PmhTable *t, uint64_t segments[BENCH_STRATEGIES])
{
	uint64_t	dirword = pm_load_acquire(&pmh_live(t)->dirword);
	uint32_t	depth = pmh_dirword_depth(dirword);
	const uint64_t *dir = pmh_at(t, pmh_dirword_offset(dirword));
	uint64_t	slots = 0;

	memset(segments, 0, BENCH_STRATEGIES * sizeof(segments[0]));
	for (uint64_t i = 0; i < UINT64_C(1) << depth;)
	{
		uint64_t	elem = pm_load_acquire(&dir[i]);

		slots += pmh_elem_size(elem) * PMH_UNIT_BUCKETS * PMH_SLOTS;
		segments[pmh_elem_strategy(elem)]++;
		i += UINT64_C(1) << (depth - pmh_elem_depth(elem));
	}
	return slots;
}

static uint64_t
used_bytes(PmhTable *t)
{
	return (pmh_blocks(t) << PMH_BLOCK_SHIFT) -
		pm_load(&pmh_run(t)->free_units) * PMH_UNIT_SIZE;
}

/* Sums over the samples that are taken of a growing table. */
typedef struct Growth
{
	uint64_t	samples;
	double		entry_sum;		/* bytes of entries, by time */
	double		used_sum;		/* bytes in use, by time */
	double		load_sum;
	double		load_least;
	double		load_most;
	double		each_sum;		/* bytes per entry */
	double		each_most;
} Growth;

/* The table has n entries, 'step' more than at the last sample. */
static void
sample_growth(Growth *g, PmhTable *t, uint64_t n, uint64_t step, FILE *csv)
{
	uint64_t	segments[BENCH_STRATEGIES];
	uint64_t	slots = segments_by_strategy(t, segments);
	uint64_t	all = segments[PMH_SINGLE] + segments[PMH_TWO_CHOICE] + segments[PMH_STASH];
	double		used = (double) used_bytes(t);
	double		load = (double) n / (double) slots;
	double		each = used / (double) n;

	if (csv != NULL)
		fprintf(csv, "%llu,%.0f,%llu,%.3f,%.4f,%.4f,%.4f,%.4f\n", (unsigned long long) n, used,
				(unsigned long long) (pmh_blocks(t) << PMH_BLOCK_SHIFT),
				each, load, (double) segments[PMH_SINGLE] / (double) all,
				(double) segments[PMH_TWO_CHOICE] / (double) all,
				(double) segments[PMH_STASH] / (double) all);
	g->entry_sum += (double) step * (double) n * ENTRY_BYTES;
	g->used_sum += (double) step * used;
	if (n < GROW_FROM)
		return;
	g->samples++;
	g->load_sum += load;
	g->load_least = load < g->load_least ? load : g->load_least;
	g->load_most = load > g->load_most ? load : g->load_most;
	g->each_sum += each;
	g->each_most = each > g->each_most ? each : g->each_most;
}

/*
 * Insert one by one and look at space a hundred times a doubling: bytes per
 * entry, load factor, and average utility as in Pea Hash, section 2.2.2: the
 * sum over time of the bytes of entries over that of the bytes in use.
 *
 * zipf: NULL for keys 0 .. N - 1, or what to draw N values' keys from.  (Load
 * factors then say nothing: entries are in lists as well.)
 */
static void
grow(const char *name, const Zipf *zipf)
{
	FILE	   *csv = open_csv("entries,used_bytes,file_bytes,bytes_per_entry,load_factor,"
							   "single,two_choice,stash");
	Growth		g = {.load_least = 1};
	PmhTable   *t;
	uint64_t	seed = 1;
	uint64_t	next = 1000;

	renew_table();
	t = open_table();
	for (uint64_t n = 1, last = 0; n <= opt.keys; n++)
	{
		uint64_t	key = zipf != NULL ? zipf_next(zipf, &seed) : n - 1;

		must(t, pmh_insert(t, key_hash(key), n - 1, false), "insert");
		if (n < next && n < opt.keys)
			continue;
		sample_growth(&g, t, n, n - last, csv);
		last = n;
		next = n + n / 100;
	}
	printf("%-14s average utility %.3f (16-byte entries over bytes in use)\n", name,
		   g.entry_sum / g.used_sum);
	figure(name, "utility", g.entry_sum / g.used_sum);
	if (g.samples > 0)
	{
		printf("    from %d entries on: bytes per entry %.2f on average, %.2f at worst;"
			   " load factor %.3f on average, %.3f to %.3f\n",
			   GROW_FROM, g.each_sum / (double) g.samples, g.each_most,
			   g.load_sum / (double) g.samples, g.load_least, g.load_most);
		figure(name, "bytes_average", g.each_sum / (double) g.samples);
		figure(name, "bytes_most", g.each_most);
		figure(name, "load_average", g.load_sum / (double) g.samples);
		figure(name, "load_least", g.load_least);
		figure(name, "load_most", g.load_most);
	}
	print_space(t, name);
	check_table(t);
	pmh_close(t);
	if (csv != NULL)
		fclose(csv);
}

void
op_grow(void)
{
	grow("grow", NULL);
}

void
op_grow_zipf(void)
{
	for (int i = 0; i < NTHETAS; i++)
	{
		char		name[40];
		Zipf		zipf;

		zipf_init(&zipf, zipf_keys(), opt.theta[i]);
		snprintf(name, sizeof(name), "grow_zipf_%g", opt.theta[i]);
		grow(name, &zipf);
	}
}

/* ---- latencies ---- */

/* What an insert may set off, the most far-reaching first. */
enum
{
	DOUBLING, SPLIT, GROWING, STRATEGY, COMPACTION, NOTHING, NKINDS
};
static const char *const kind_name[NKINDS] = {
	"doubling", "split", "grow", "strategy", "compaction", "nothing"
};

typedef struct Counters
{
	uint64_t	n[NOTHING];
} Counters;

static Counters
read_counters(PmhTable *t)
{
	const PmhRun *run = pmh_run(t);

	return (Counters) {{
		[DOUBLING] = pm_load(&run->doublings),
		[SPLIT] = pm_load(&run->splits),
		[GROWING] = pm_load(&run->grows),
		[STRATEGY] = pm_load(&run->strategy_changes),
		[COMPACTION] = pm_load(&run->compactions)
	}};
}

static int
what_happened(const Counters *before, const Counters *after)
{
	int			kind = 0;

	while (kind < NOTHING && before->n[kind] == after->n[kind])
		kind++;
	return kind;
}

/* Latencies of one interval, and how often a segment has grown or been split. */
typedef struct Interval
{
	Histogram	histogram;
	uint64_t	sum;
	uint64_t	splits;
	uint64_t	grows;
	uint64_t	doublings;
} Interval;

static void
write_interval(FILE *csv, Interval *in, uint64_t entries, double load)
{
	if (csv != NULL && in->histogram.n > 0)
		fprintf(csv, "%llu,%.1f,%llu,%llu,%llu,%llu,%llu,%llu,%.4f\n",
				(unsigned long long) entries, (double) in->sum / (double) in->histogram.n,
				(unsigned long long) histogram_percentile(&in->histogram, 50),
				(unsigned long long) histogram_percentile(&in->histogram, 99),
				(unsigned long long) in->histogram.max, (unsigned long long) in->splits,
				(unsigned long long) in->grows, (unsigned long long) in->doublings, load);
	memset(in, 0, sizeof(*in));
}

static void
print_kind(const Histogram *h, uint64_t sum, uint64_t total, int kind)
{
	char		name[40];

	if (h->n == 0)
		return;
	printf("    %-10s %10llu inserts, %8.2f us on average, p50 %.2f, p99 %.2f, longest %.1f,"
		   " %.1f %% of the time\n", kind_name[kind], (unsigned long long) h->n,
		   (double) sum / (double) h->n / 1e3, (double) histogram_percentile(h, 50) / 1e3,
		   (double) histogram_percentile(h, 99) / 1e3, (double) h->max / 1e3,
		   100.0 * (double) sum / (double) total);
	snprintf(name, sizeof(name), "timeline_%s", kind_name[kind]);
	figure(name, "count", (double) h->n);
	figure(name, "mean", (double) sum / (double) h->n);
	figure(name, "p50", (double) histogram_percentile(h, 50));
	figure(name, "p99", (double) histogram_percentile(h, 99));
	figure(name, "max", (double) h->max);
	figure(name, "share", (double) sum / (double) total);
}

/*
 * Insert one by one and take the time of each: by what the insert set off (as
 * Pea Hash's table 3), and over time.
 */
void
op_timeline(void)
{
	static Histogram all;
	static Histogram by_kind[NKINDS];
	static Interval interval;
	uint64_t	sum[NKINDS] = {0};
	uint64_t	total = 0;
	uint64_t	each = opt.keys / INTERVALS > 0 ? opt.keys / INTERVALS : 1;
	uint64_t	started;
	FILE	   *csv = open_csv("entries,mean_ns,p50_ns,p99_ns,max_ns,splits,grows,doublings,load_factor");
	PmhTable   *t;
	Counters	before;

	memset(&all, 0, sizeof(all));
	memset(by_kind, 0, sizeof(by_kind));
	renew_table();
	t = open_table();
	if (opt.prefault)
		prefault(t);
	before = read_counters(t);
	started = clock_ns();
	for (uint64_t n = 0; n < opt.keys; n++)
	{
		uint64_t	hash = key_hash(n);
		uint64_t	begin = clock_ns();
		uint64_t	ns;
		Counters	after;
		int			kind;

		must(t, pmh_insert(t, hash, n, false), "insert");
		ns = clock_ns() - begin;
		after = read_counters(t);
		kind = what_happened(&before, &after);
		histogram_add(&all, ns);
		histogram_add(&by_kind[kind], ns);
		sum[kind] += ns;
		total += ns;
		histogram_add(&interval.histogram, ns);
		interval.sum += ns;
		interval.splits += after.n[SPLIT] - before.n[SPLIT];
		interval.grows += after.n[GROWING] - before.n[GROWING];
		interval.doublings += after.n[DOUBLING] - before.n[DOUBLING];
		before = after;
		if ((n + 1) % each == 0)
		{
			uint64_t	segments[BENCH_STRATEGIES];

			write_interval(csv, &interval, n + 1,
						   (double) (n + 1) / (double) segments_by_strategy(t, segments));
		}
	}
	printf("timeline       %llu inserts: %.3f Mops/s\n", (unsigned long long) opt.keys,
		   (double) opt.keys * 1e3 / (double) (clock_ns() - started));
	figure("timeline", "mops", (double) opt.keys * 1e3 / (double) (clock_ns() - started));
	histogram_print(&all, "timeline");
	for (int kind = 0; kind < NKINDS; kind++)
		print_kind(&by_kind[kind], sum[kind], total, kind);
	print_space(t, "timeline");
	check_table(t);
	pmh_close(t);
	if (csv != NULL)
		fclose(csv);
}

/*
 * What the machine itself takes away: as many pieces of work as there are keys,
 * each on one cache line, of about half a microsecond.
 */
void
op_pauses(void)
{
	static Histogram pauses;
	volatile uint64_t sink = 0;

	memset(&pauses, 0, sizeof(pauses));
	for (uint64_t n = 0; n < opt.keys; n++)
	{
		uint64_t	begin = clock_ns();

		for (int i = 0; i < PAUSE_WORK; i++)
			sink += (uint64_t) i;
		histogram_add(&pauses, clock_ns() - begin);
	}
	printf("pauses         %llu pieces of work on one cache line\n",
		   (unsigned long long) opt.keys);
	histogram_print(&pauses, "pauses");
}

/* ---- look-ups while the table grows ---- */

typedef struct Reader
{
	uint64_t	keys;			/* 0 .. keys - 1 are in the table throughout */
	uint64_t	seed;
	int			stop;
	uint64_t	wrong;
	double		mops;
} Reader;

static void *
read_until_stopped(void *arg)
{
	Reader	   *r = arg;
	PmhTable   *t = open_table();
	PmhValues	values = {0};
	uint64_t	ops = 0;
	uint64_t	begin;

	if (opt.prefault)
		prefault(t);
	begin = clock_ns();
	while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE))
	{
		uint64_t	key = next_random(&r->seed) % r->keys;

		must(t, pmh_lookup(t, key_hash(key), &values), "look-up");
		r->wrong += values.n != 1 || values.value[0] != key;
		ops++;
	}
	r->mops = (double) ops * 1e3 / (double) (clock_ns() - begin);
	pmh_values_free(&values);
	pmh_close(t);
	return NULL;
}

static pthread_t
start_reader(Reader *r)
{
	pthread_t	thread;

	if (pthread_create(&thread, NULL, read_until_stopped, r) != 0)
	{
		fprintf(stderr, "pmh_bench: could not create a thread\n");
		exit(1);
	}
	return thread;
}

static void
stop_reader(Reader *r, pthread_t thread)
{
	__atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	if (r->wrong > 0)
	{
		fprintf(stderr, "pmh_bench: mixed: %llu answers were wrong\n",
				(unsigned long long) r->wrong);
		exit(1);
	}
}

static void
insert_range(PmhTable *t, uint64_t from, uint64_t to)
{
	for (uint64_t key = from; key < to; key++)
		must(t, pmh_insert(t, key_hash(key), key, false), "insert");
}

/*
 * Half of the keys are inserted, and one thread looks them up: alone; beside
 * another reader (what two processors at work cost each other anyway); and
 * while the other half is inserted.
 */
void
op_mixed(void)
{
	uint64_t	half = opt.keys / 2 > 0 ? opt.keys / 2 : 1;
	Reader		alone = {.keys = half, .seed = 1};
	Reader		beside[2] = {{.keys = half, .seed = 2}, {.keys = half, .seed = 3}};
	Reader		growing = {.keys = half, .seed = 4};
	PmhTable   *t;
	pthread_t	thread[2];

	renew_table();
	t = open_table();
	insert_range(t, 0, half);
	thread[0] = start_reader(&alone);
	sleep(REST_SECONDS);
	stop_reader(&alone, thread[0]);
	for (int i = 0; i < 2; i++)
		thread[i] = start_reader(&beside[i]);
	sleep(REST_SECONDS);
	for (int i = 0; i < 2; i++)
		stop_reader(&beside[i], thread[i]);
	thread[0] = start_reader(&growing);
	insert_range(t, half, opt.keys);
	stop_reader(&growing, thread[0]);
	printf("mixed          look-ups: %.3f Mops/s alone, %.3f beside another reader,"
		   " %.3f while the table grows\n", alone.mops, beside[0].mops, growing.mops);
	figure("mixed", "alone", alone.mops);
	figure("mixed", "beside", beside[0].mops);
	figure("mixed", "growing", growing.mops);
	print_space(t, "mixed");
	check_table(t);
	pmh_close(t);
}
