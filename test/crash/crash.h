/*-------------------------------------------------------------------------
 *
 * crash.h
 *	  What the parts of the crash-state enumerator know of each other.
 *
 *	recorder.c		pm.h in private memory: stores by cache line, until a flush and a
 *					fence have made them durable; sites
 *	dependency.c	is what a commit store relies on durable?
 *	enumerate.c		the images of a crash point
 *	image.c			recover an image, check it, go on with it
 *	model.c			which pairs the table should hold
 *	operation.c		operations on the table under test
 *	workloads.c		what is done to it
 *	crash.c			options, processes, figures
 *
 * Further programs, on a stand-in for the server (server_stand_ins.c):
 *	journal.c		the same for the undo journal, compiled as it is
 *	starts.c		lives of a server: what a start decides, on real files, with calls
 *					that fail
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CRASH_H
#define PMH_CRASH_H

#include <setjmp.h>

#include "pm.h"
#include "recorder.h"
#include "table.h"

#define TABLE_NAME		"table"

/* Values from here on are those of fresh entries, unknown to the model. */
#define FRESH_VALUES	(UINT64_C(1) << 45)

/* ---- the model (model.c) ---- */

typedef struct ModelEntry
{
	PmhEntry	pair;
	bool		maybe;			/* an operation on it is in flight */
	uint32_t	seen;			/* by which walk */
	uint32_t	gone;			/* in which image it was deleted */
	uint32_t	next;			/* chain of the hash table */
	uint64_t	lsn;			/* end of the WAL it depends on; 0: none */
} ModelEntry;

typedef struct Model
{
	ModelEntry *entry;
	uint32_t	n;
	uint32_t	room;
	uint32_t	nmaybe;
	uint32_t   *head;			/* hash table of chains */
	uint32_t	nheads;			/* a power of two */
	bool		all_or_nothing; /* those in flight come together or not at all */
	uint64_t	sum;			/* of a hash of each entry */
} Model;

#define NO_ENTRY	UINT32_MAX

extern void model_clear(Model *m);
extern uint32_t model_find(const Model *m, uint64_t hash, uint64_t value);
extern uint32_t model_add(Model *m, uint64_t hash, uint64_t value);
extern void model_remove(Model *m, uint32_t i);
extern void model_set_maybe(Model *m, uint32_t i, bool maybe);
extern void model_set_lsn(Model *m, uint32_t i, uint64_t lsn);

/* ---- state of a worker ---- */

/* Figures of a workload, in memory that the processes share: each can be added up. */
typedef struct Figures
{
	uint64_t	images;
	uint64_t	recovery_images;	/* of these, crashes inside recovery */
	uint64_t	known;			/* those that were equal, once recovered, to one
								 * found right before, and not checked again */
	uint64_t	operations;
	uint64_t	fresh_operations;	/* in recovered images */
	uint64_t	crash_points;
	uint64_t	sampled;		/* of these, those of whose images a sample was taken */
	uint64_t	adopted;		/* images the workload went on from */
	uint64_t	failures;
	uint64_t	missing;		/* flushes or fences found missing */
	uint64_t	nanoseconds;
	uint64_t	done;			/* is it complete? */
} Figures;

typedef struct Shared
{
	uint64_t	lock;			/* of 'finished' */
	Figures		finished;		/* of all random tasks that are complete */
	uint64_t	next_task;
	uint64_t	failures;
} Shared;

typedef struct Crash
{
	/* options */
	uint64_t	sample;			/* of a point with too many images, so many */
	bool		first_failure;	/* stop at the first one */

	/* the workload */
	const char *workload;
	uint64_t	seed;
	Figures    *figures;
	PmhTable   *table;
	PmhLocks   *locks[LEVELS];
	uint64_t	instance;
	bool		armed;
	bool		creating;		/* no table may be there */
	uint64_t	focus;			/* hash that the present operation is about */
	char		operation[160];
	Model		model;

	/* images */
	uint64_t	image;			/* number of the present one */
	uint32_t	walk;			/* number of the last walk */
	bool		rest_tested;	/* what is durable now has been tested */
	uint64_t	rng;
	uint64_t	replay_end;		/* entries whose LSN is after it must be gone */
	const char *(*before_open) (unsigned level);	/* start of a server */
	void		(*before_insert) (const PmhEntry *entries, size_t n);
	uint64_t	crash_recovery; /* recovery is crashed in one of so many images */
	double		adopt;			/* probability to go on from an image */
	jmp_buf	   *adopted;		/* where to */
	const char *adopt_at;		/* only at fences of this function, if given */
} Crash;

extern Crash crash;
extern Shared *shared;

/* Random numbers from crash.rng: fixed seed, fixed sequence. */
extern uint64_t crash_random(void);

/* A bijection of 64 bits. */
extern uint64_t crash_mix(uint64_t x);

/* Count and print a failure, or (missing) a flush or fence left out. */
extern void crash_report(uint64_t *number, const char *format,...) __attribute__((format(printf, 2, 3)));
#define crash_failure(...)	crash_report(&crash.figures->failures, __VA_ARGS__)
#define crash_missing(...)	crash_report(&crash.figures->missing, __VA_ARGS__)

/* ---- images (image.c) ---- */

/*
 * Recover what memory 'level' holds, check it and go on with it.  NULL if all
 * is right, else what is wrong.  The memory is changed.
 */
extern const char *image_check(unsigned level);

/* The index file's environment at a level. */
extern PmhEnv crash_env(unsigned level);

/* Lay down what is wrong, for functions that return it. */
extern const char *say(const char *format,...) __attribute__((format(printf, 1, 2)));

/* ---- crash points (enumerate.c) ---- */

extern void enumerate(unsigned level, const PmSite *site);

/* ---- dependencies (dependency.c) ---- */

extern void dependency_check(void *addr, size_t size, uint64_t value,
							 const PmSite *site);
extern void dependency_unlock(const uint64_t *lock);

/* ---- operations on the table under test (operation.c) ---- */

/* Crash points are looked at only while armed. */
extern void arm(bool on);

extern void op_create(void);
extern void op_insert(uint64_t hash, uint64_t value, bool fence_first);
extern void op_delete(uint64_t hash, uint64_t value);
extern void op_insert_group(const PmhEntry *entries, size_t n, bool fence_first);
extern void op_delete_group(const PmhEntry *entries, size_t n);

/* A complete sweep that takes out what dead() says (NULL: nothing). */
extern void op_sweep(bool (*dead) (const PmhEntry *entry));

/* Shrink the table, if that pays; a step is an operation of its own. */
extern bool op_shrink(void);
extern void op_bulk(PmhEntry *entries, size_t n, int fill);

/* Close and open again as after a crash with nothing in flight. */
extern void op_restart(void);

/* Go on from an image that was adopted: the caller came here by longjmp. */
extern void op_after_adoption(void);

/* ---- workloads (workloads.c) ---- */

typedef struct Workload
{
	const char *name;
	void		(*run) (void);
} Workload;

extern const Workload workloads[];
extern const unsigned nworkloads;

/* Random operations from a seed; what they are called. */
extern const char random_name[];
extern void run_random(uint64_t seed);

#endif							/* PMH_CRASH_H */
