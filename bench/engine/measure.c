/*-------------------------------------------------------------------------
 *
 * measure.c
 *	  Time, latencies, and what the machine can do.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "bench.h"
#include "handle.h"
#include "layout.h"
#include "pm.h"
#include "table.h"

/* ---- time ---- */

static double ns_per_tick = 1;

static uint64_t
monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}

static inline uint64_t
ticks(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#else
	return monotonic_ns();
#endif
}

void
clock_calibrate(void)
{
	uint64_t	ns = monotonic_ns();
	uint64_t	begin = ticks();

	while (monotonic_ns() - ns < 50000000)
		;
	ns_per_tick = (double) (monotonic_ns() - ns) / (double) (ticks() - begin);
}

uint64_t
clock_ns(void)
{
	return (uint64_t) ((double) ticks() * ns_per_tick);
}

/* ---- latencies ---- */

/* Below 64 a cell a nanosecond; then 64 cells to each power of two. */
static unsigned
cell_of(uint64_t ns)
{
	unsigned	shift;
	unsigned	cell;

	if (ns < HISTOGRAM_STEPS)
		return (unsigned) ns;
	shift = 63 - (unsigned) __builtin_clzll(ns) - 6;
	cell = (shift + 1) * HISTOGRAM_STEPS + (unsigned) ((ns >> shift) - HISTOGRAM_STEPS);
	return cell < HISTOGRAM_CELLS ? cell : HISTOGRAM_CELLS - 1;
}

/* The least number of nanoseconds of the cell. */
static uint64_t
cell_value(unsigned cell)
{
	unsigned	shift;

	if (cell < HISTOGRAM_STEPS)
		return cell;
	shift = cell / HISTOGRAM_STEPS - 1;
	return (uint64_t) (cell % HISTOGRAM_STEPS + HISTOGRAM_STEPS) << shift;
}

void
histogram_add(Histogram *h, uint64_t ns)
{
	h->n++;
	h->cell[cell_of(ns)]++;
	if (ns > h->max)
		h->max = ns;
}

void
histogram_merge(Histogram *into, const Histogram *from)
{
	into->n += from->n;
	if (from->max > into->max)
		into->max = from->max;
	for (unsigned i = 0; i < HISTOGRAM_CELLS; i++)
		into->cell[i] += from->cell[i];
}

uint64_t
histogram_percentile(const Histogram *h, double percent)
{
	double		wanted = (double) h->n * percent / 100;
	uint64_t	seen = 0;

	for (unsigned i = 0; i < HISTOGRAM_CELLS; i++)
	{
		seen += h->cell[i];
		if (seen > 0 && (double) seen >= wanted)
			return cell_value(i);
	}
	return h->max;
}

void
histogram_print(const Histogram *h, const char *op)
{
	static const double percent[] = {50, 99, 99.9, 99.99, 99.999};
	char		name[16];

	printf("    latency ns:");
	for (unsigned i = 0; i < sizeof(percent) / sizeof(percent[0]); i++)
	{
		uint64_t	ns = histogram_percentile(h, percent[i]);

		printf(" p%g %llu", percent[i], (unsigned long long) ns);
		snprintf(name, sizeof(name), "p%g", percent[i]);
		figure(op, name, (double) ns);
	}
	printf(" max %llu\n", (unsigned long long) h->max);
	figure(op, "max", (double) h->max);
}

void
figure(const char *op, const char *name, double value)
{
	FILE	   *file;

	if (opt.figures == NULL)
		return;
	file = fopen(opt.figures, "a");
	if (file == NULL ||
		fprintf(file, "%s,%s,%d,%s,%.9g\n", opt.label, op, opt.workers, name, value) < 0 ||
		fclose(file) != 0)
	{
		perror(opt.figures);
		exit(1);
	}
}

/* ---- the machine ---- */

#define CHASE_BYTES		((size_t) 256 * 1024 * 1024)
#define CHASE_STEPS		2000000
#define PERSIST_STEPS	200000

/* A random circle through all lines of an area: each load waits for the last. */
static double
chase_ns(void)
{
	size_t		n = CHASE_BYTES / PMH_LINE;
	char	   *area = aligned_alloc(PMH_LINE, CHASE_BYTES);
	uint32_t   *order = malloc(n * sizeof(uint32_t));
	uint64_t	seed = 1;
	uint64_t	begin;
	uint32_t	at = 0;
	double		ns;

	if (area == NULL || order == NULL)
	{
		fprintf(stderr, "pmh_bench: out of memory\n");
		exit(1);
	}
	for (size_t i = 0; i < n; i++)
		order[i] = (uint32_t) i;
	for (size_t i = n - 1; i > 0; i--)
	{
		size_t		j = next_random(&seed) % i;
		uint32_t	swap = order[i];

		order[i] = order[j];
		order[j] = swap;
	}
	for (size_t i = 0; i < n; i++)
		*(uint32_t *) (area + (size_t) order[i] * PMH_LINE) = order[(i + 1) % n];
	begin = clock_ns();
	for (int i = 0; i < CHASE_STEPS; i++)
		at = *(volatile uint32_t *) (area + (size_t) at * PMH_LINE);
	ns = (double) (clock_ns() - begin) / CHASE_STEPS;
	free(area);
	free(order);
	return at == UINT32_MAX ? 0 : ns;
}

/*
 * Store, flush, fence (the latter two with --force-pmem): a line of the table's file that
 * nothing is kept in.
 */
static double
persist_ns(PmhTable *t)
{
	uint64_t   *word = &pmh_live(t)->pad1[5];
	uint64_t	begin = clock_ns();

	for (uint64_t i = 0; i < PERSIST_STEPS; i++)
	{
		pm_store64(word, i);
		pm_flush(&t->file, word, sizeof(*word));
		pm_fence(&t->file);
	}
	pm_store64(word, 0);
	return (double) (clock_ns() - begin) / PERSIST_STEPS;
}

void
measure_machine(PmhTable *t)
{
	uint64_t	begin = clock_ns();
	double		clock_cost;
	double		line;
	double		persist;

	for (int i = 0; i < 1000000; i++)
		(void) clock_ns();
	clock_cost = (double) (clock_ns() - begin) / 1000000;
	line = chase_ns();
	persist = persist_ns(t);
	printf("machine: dependent line %.0f ns, store + flush + fence %.0f ns, clock %.0f ns, "
		   "file is %s\n", line, persist, clock_cost,
		   pmh_is_pmem(t) ? "persistent memory" : "not persistent memory");
	figure("machine", "line_ns", line);
	figure("machine", "persist_ns", persist);
	figure("machine", "clock_ns", clock_cost);
}
