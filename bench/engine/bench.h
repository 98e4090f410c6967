/*-------------------------------------------------------------------------
 *
 * bench.h
 *	  The parts of the engine's benchmark program.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_BENCH_H
#define PMH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "table.h"

#define MAX_WORKERS		64
#define MAX_OPS			32
#define NTHETAS			2

typedef struct Options
{
	const char *op[MAX_OPS];	/* in the order given */
	int			nops;
	uint64_t	keys;
	int			workers;
	bool		processes;		/* workers are processes, not threads */
	bool		force_pmem;
	bool		prefault;
	bool		latency;
	bool		check;
	bool		keep;
	uint32_t	segment_buckets;
	uint32_t	group;			/* keys handed over together */
	const char *file;
	const char *csv;
	double		theta[NTHETAS];
} Options;

/* ---- measure.c: time, latencies, the machine ---- */

/* Nanoseconds that pass by; cheap enough for single operations. */
extern void clock_calibrate(void);
extern uint64_t clock_ns(void);

/*
 * A histogram of nanoseconds: 64 steps to each power of two, i.e. within 1.6 %.
 */
#define HISTOGRAM_STEPS		64
#define HISTOGRAM_CELLS		(HISTOGRAM_STEPS * 36)

typedef struct Histogram
{
	uint64_t	n;
	uint64_t	max;
	uint64_t	cell[HISTOGRAM_CELLS];
} Histogram;

extern void histogram_add(Histogram *h, uint64_t ns);
extern void histogram_merge(Histogram *into, const Histogram *from);
extern uint64_t histogram_percentile(const Histogram *h, double percent);
extern void histogram_print(const Histogram *h);

/* Cost of a dependent load from memory, and of making a line persistent. */
extern void measure_machine(PmhTable *t);

/* ---- workload.c: keys and distributions ---- */

/* Hash of a key, as the access method makes it for an 8-byte key. */
extern uint64_t key_hash(uint64_t key);

extern uint64_t next_random(uint64_t *state);

/* Zipf-distributed ranks 0 .. n - 1, 0 <= theta < 1. */
typedef struct Zipf
{
	uint64_t	n;
	double		theta;
	double		zetan;
	double		alpha;
	double		eta;
} Zipf;

extern void zipf_init(Zipf *zipf, uint64_t n, double theta);
extern uint64_t zipf_next(const Zipf *zipf, uint64_t *state);

#endif							/* PMH_BENCH_H */
