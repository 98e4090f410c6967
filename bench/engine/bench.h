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

#define XXH_INLINE_ALL
#include <xxhash.h>

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
	bool		existing;		/* the table is there already */
	uint64_t	reserve;		/* bytes of free space in a new file */
	uint32_t	group;			/* keys handed over together */
	const char *file;
	const char *csv;
	const char *figures;		/* file that figures are appended to, or NULL */
	const char *label;			/* put in front of them */
	double		theta[NTHETAS];
	uint64_t	values_each;	/* of a key, on average, with zipf */
} Options;

/* ---- pmh_bench.c ---- */

extern Options opt;

/* Tell of an error and end the program. */
extern void fail(const char *what, PmhResult result, const PmhError *error);
extern void must(PmhTable *t, PmhResult result, const char *what);

/* The table of opt.file: made anew, and opened. */
extern void renew_table(void);
extern PmhTable *open_table(void);

/* Have every page of the mapping in our page table, writable. */
extern void prefault(PmhTable *t);

/* Print the space of a table after an operation; check it, if wanted. */
extern void print_space(PmhTable *t, const char *op);
extern void check_table(PmhTable *t);

/* How many keys zipf draws from. */
extern uint64_t zipf_keys(void);

/* ---- growth.c: what happens while a table grows ---- */

extern void op_grow(void);
extern void op_grow_zipf(void);
extern void op_timeline(void);
extern void op_pauses(void);
extern void op_mixed(void);

/* So many strategies an element can tell apart. */
#define BENCH_STRATEGIES	4

/* Slots of all segments, and segments by PmhStrategy; from the directory alone. */
extern uint64_t segments_by_strategy(PmhTable *t, uint64_t segments[BENCH_STRATEGIES]);

/* ---- trace.c: operations between marks ---- */

extern void op_trace(void);

/* ---- filter.c: a filter in DRAM ---- */

extern void op_filter(void);

/* ---- count.c: stores, flushes and fences, in pmh_count ---- */

#ifdef PMH_RECORD
extern void count_begin(void);
extern void count_end(const char *op, uint64_t ops);
#else
#define count_begin()		((void) 0)
#define count_end(op, ops)	((void) 0)
#endif

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
extern void histogram_print(const Histogram *h, const char *op);

/* Append a figure of an operation to the file that an option names, if any. */
extern void figure(const char *op, const char *name, double value);

/* Cost of a dependent load from memory, and of making a line persistent. */
extern void measure_machine(PmhTable *t);

/* ---- workload.c: keys and distributions ---- */

/* Hash of a key, as the access method makes it for an 8-byte key. */
static inline uint64_t
key_hash(uint64_t key)
{
	return XXH3_64bits(&key, sizeof(key));
}

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
