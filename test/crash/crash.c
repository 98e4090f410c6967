/*-------------------------------------------------------------------------
 *
 * crash.c
 *	  Crash-state enumeration: options, worker processes, figures.
 *	  test/README.md, "Crash states".
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crash.h"
#include "lock.h"
#include "pm.h"
#include "table.h"

#define LOCK_STRIPES	64
#define MAX_WORKLOADS	64
#define MAX_WORKERS		64

/* Without a new image for so long something runs in a circle. */
#define HANG_SECONDS	60

/* Random images from which on it tells something how many of them were equal. */
#define ENOUGH_FOR_KNOWN	20000

/* Failures printed of each workload. */
#define PRINT_FAILURES	5

Crash		crash;
Shared	   *shared;

static void add_figures(Figures *to, const Figures *from);

static Figures *figures;		/* by workload */
static bool chosen[MAX_WORKLOADS];
static uint64_t wanted_images;
static unsigned nworkers = 2;
static uint64_t first_seed = 1;
static bool with_random = true;
static bool random_chosen;
static struct timespec start_time;

/* ---- random numbers ---- */

uint64_t
crash_mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

uint64_t
crash_random(void)
{
	crash.rng += UINT64_C(0x9e3779b97f4a7c15);
	return crash_mix(crash.rng);
}

/* In the place of the C library's: file ids are the same in each run. */
ssize_t
getrandom(void *buffer, size_t length, unsigned int flags)
{
	(void) flags;
	memset(buffer, 0x5a, length);
	return (ssize_t) length;
}

/* ---- failures ---- */

static double
seconds_since_start(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) (now.tv_sec - start_time.tv_sec) +
		(double) (now.tv_nsec - start_time.tv_nsec) * 1e-9;
}

/* Processor time of the workers. */
static double
processor_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_CHILDREN, &usage);
	return (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		(double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

void
crash_report(uint64_t *number, const char *format,...)
{
	va_list		args;
	char		text[1000];

	if (++*number <= PRINT_FAILURES)
	{
		va_start(args, format);
		vsnprintf(text, sizeof(text), format, args);
		va_end(args);
		fprintf(stderr, "crash_%s: %s\n", crash.workload, text);
	}
	__atomic_fetch_add(&shared->failures, 1, __ATOMIC_RELAXED);
	if (crash.first_failure)
		_exit(1);
}

/* A signal from inside the engine, or no progress. */
static void
fatal(int signal_number)
{
	static volatile uint64_t last_image;

	if (signal_number == SIGALRM && last_image != crash.image)
	{
		last_image = crash.image;
		alarm(HANG_SECONDS);
		return;
	}
	fprintf(stderr, "crash_%s: %s: image %llu: %s\n", crash.workload, crash.operation,
			(unsigned long long) crash.image,
			signal_number == SIGALRM ? "no progress" : strsignal(signal_number));
	crash.figures->failures++;
	__atomic_fetch_add(&shared->failures, 1, __ATOMIC_RELAXED);
	_exit(1);
}

/* ---- running ---- */

static void
begin_workload(const char *name, uint64_t seed, Figures *f)
{
	recorder_reset();
	model_clear(&crash.model);
	crash.workload = name;
	crash.seed = seed;
	crash.figures = f;
	crash.rng = crash_mix(seed);
	crash.table = NULL;
	crash.creating = false;
	crash.adopted = NULL;
	crash.adopt = 0;
	crash.adopt_at = NULL;
	crash.replay_end = UINT64_MAX;
	crash.before_open = NULL;
	crash.crash_recovery = 1;
	crash.before_insert = NULL;
	crash.operation[0] = '\0';
	for (unsigned level = 0; level < LEVELS; level++)
		pmh_locks_init(crash.locks[level], LOCK_STRIPES);
}

static void
end_workload(double since)
{
	arm(false);
	if (crash.table != NULL)
		pmh_close(crash.table);
	crash.table = NULL;
	__atomic_fetch_add(&crash.figures->nanoseconds,
					   (uint64_t) ((seconds_since_start() - since) * 1e9), __ATOMIC_RELAXED);
}

static uint64_t
all_images(void)
{
	uint64_t	n = 0;

	for (unsigned i = 0; i < nworkloads; i++)
		n += figures[i].images;
	return n + shared->finished.images;
}

static void
killed_hook(const PmSite *site)
{
	crash.rest_tested = false;
	enumerate(0, site);
}

/* A random task is complete: its figures are not lost any more. */
static void
finish_random(Figures *task)
{
	task->done = true;
	pmh_lock(&shared->lock);
	add_figures(&shared->finished, task);
	pmh_unlock(&shared->lock);
}

/* Take tasks until there are none: the workloads, then seeds of random ones. */
static void
worker(void)
{
	alarm(HANG_SECONDS);
	recorder_at_fence = enumerate;
	recorder_at_store = dependency_check;
	recorder_at_unlock = dependency_unlock;
	recorder_at_killed = killed_hook;
	for (;;)
	{
		uint64_t	task = __atomic_fetch_add(&shared->next_task, 1, __ATOMIC_RELAXED);
		double		since = seconds_since_start();

		if (task < nworkloads)
		{
			if (!chosen[task])
				continue;
			begin_workload(workloads[task].name, first_seed, &figures[task]);
			workloads[task].run();
			crash.figures->done = true;
		}
		else
		{
			uint64_t	seed = first_seed + task - nworkloads;
			Figures		random = {0};

			if (!with_random || all_images() >= wanted_images)
				break;
			begin_workload(random_name, seed, &random);
			run_random(crash_mix(seed));
			end_workload(since);
			finish_random(&random);
			continue;
		}
		end_workload(since);
	}
}

static void *
share(size_t bytes)
{
	void	   *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
						 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
	{
		perror("mmap");
		exit(1);
	}
	return p;
}

static void
wait_for_workers(void)
{
	for (unsigned running = nworkers; running > 0; running--)
	{
		int			status;

		if (waitpid(-1, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
			__atomic_fetch_add(&shared->failures, 1, __ATOMIC_RELAXED);
	}
}

static void
run_workers(void)
{
	pid_t		pid[MAX_WORKERS];

	for (unsigned i = 0; i < nworkers; i++)
	{
		fflush(NULL);
		pid[i] = fork();
		if (pid[i] < 0)
		{
			perror("fork");
			exit(1);
		}
		if (pid[i] == 0)
		{
			signal(SIGSEGV, fatal);
			signal(SIGBUS, fatal);
			signal(SIGFPE, fatal);
			signal(SIGALRM, fatal);
			worker();
			_exit(0);
		}
	}
	wait_for_workers();
}

/* ---- figures ---- */

static void
add_figures(Figures *to, const Figures *from)
{
	for (size_t i = 0; i < sizeof(Figures) / sizeof(uint64_t); i++)
		((uint64_t *) to)[i] += ((const uint64_t *) from)[i];
}

static void
print_figures(const char *name, const Figures *f)
{
	printf("%-16s %10llu %10llu %9llu %7llu %8llu %8llu %8.1f %7.1f\n", name,
		   (unsigned long long) f->images, (unsigned long long) (f->images - f->known),
		   (unsigned long long) f->recovery_images,
		   (unsigned long long) f->operations, (unsigned long long) f->crash_points,
		   (unsigned long long) f->sampled, (double) f->nanoseconds * 1e-9,
		   f->images ? (double) f->nanoseconds * 1e-3 / (double) f->images : 0.0);
}

static void
print_unreached(void)
{
	for (unsigned id = 1; id <= sites_count(); id++)
	{
		const PmSite *s = site_of(id);

		if (site_hits[id] == 0 && strcmp(s->kind, "store") != 0)
			printf("never reached: %s at %s:%d (%s)\n", s->kind, site_base_name(s),
				   s->line, s->function);
	}
}

static unsigned results;		/* TAP lines printed */

/* TAP: a line for a workload. */
static void
print_result(const char *name, const Figures *f)
{
	printf("%s %u - crash: %s (%llu images)\n",
		   f->failures + f->missing == 0 && f->done && f->images > 0 ? "ok" : "not ok",
		   ++results, name, (unsigned long long) f->images);
}

/*
 * TAP: are images that recovery makes equal told from others?  If something of a
 * life were left in each of them (see memory_hash), a run would be as good, and
 * get a quarter as far, and none would be known.  Random operations have some: three in
 * four of many millions of images of the engine, but of the first hundred thousand one in
 * fifty, and one in 150 in some tasks.
 */
static void
print_known(const Figures *random)
{
	bool		some = random->images >= ENOUGH_FOR_KNOWN;

	printf("%s %u - crash: images that recovery makes equal are known (%llu)%s\n",
		   !some || random->known > random->images / 1000 ? "ok" : "not ok", ++results,
		   (unsigned long long) random->known, some ? "" : " # SKIP few images");
}

static void
print_all(void)
{
	Figures		random = {0};
	Figures		total = {0};

	printf("%-16s %10s %10s %9s %7s %8s %8s %8s %7s\n", "workload", "images", "checked", "in recov.",
		   "ops", "points", "sampled", "seconds", "us each");
	for (unsigned i = 0; i < nworkloads; i++)
	{
		if (!chosen[i])
			continue;
		print_figures(workloads[i].name, &figures[i]);
		add_figures(&total, &figures[i]);
	}
	add_figures(&random, &shared->finished);
	if (with_random)
		print_figures(random_name, &random);
	add_figures(&total, &random);
	print_figures("total", &total);
	printf("\n%llu images, all recovered,\n"
		   "%llu checked and used (the others, once recovered, equal such a one),\n"
		   "%llu crashes inside recovery, %llu operations crashed, %llu in recovered images,\n"
		   "%llu images gone on from,\n"
		   "%.0f s, %.0f s of processor time in this run, %.0f images a second of that\n",
		   (unsigned long long) total.images,
		   (unsigned long long) (total.images - total.known),
		   (unsigned long long) total.recovery_images,
		   (unsigned long long) total.operations, (unsigned long long) total.fresh_operations,
		   (unsigned long long) total.adopted,
		   seconds_since_start(), processor_seconds(),
		   (double) total.images / processor_seconds());
	printf("\n");
	if (with_random)
		print_unreached();
	for (unsigned i = 0; i < nworkloads; i++)
	{
		if (chosen[i])
			print_result(workloads[i].name, &figures[i]);
	}
	if (with_random && random.images > 0)
	{
		print_result(random_name, &random);
		print_known(&random);
	}
	printf("1..%u\n", results);
}

static void
list_sites(void)
{
	for (unsigned id = 1; id <= sites_count(); id++)
	{
		const PmSite *s = site_of(id);

		printf("%s %s:%d %s\n", s->kind, site_base_name(s), s->line, s->function);
	}
}

/* ---- options ---- */

static void
usage(void)
{
	fprintf(stderr,
			"usage: crash [OPTION]...     (or journal)\n"
			"  --workload=NAME        only this one (may be repeated); --list names them\n"
			"  --images=N             random operations until there are N images\n"
			"  --no-random            no random operations\n"
			"  --seed=N               first seed\n"
			"  --workers=N            processes (default 2)\n"
			"  --sample=N             crash points of more than 65,536 images: so many (default 300)\n"
			"  --first-failure        stop at the first failure\n"
			"  --list-sites           print what stores, commits, copies, flushes, fences\n"
			"  --suppress-flush=FILE:LINE, --suppress-fence=, --suppress-copy=,\n"
			"  --suppress-commit=     leave it out\n");
	exit(2);
}

static void
choose_workload(const char *name)
{
	for (unsigned i = 0; i < nworkloads; i++)
	{
		if (strcmp(workloads[i].name, name) == 0)
		{
			chosen[i] = true;
			return;
		}
	}
	if (strcmp(name, random_name) == 0)
	{
		random_chosen = true;
		return;
	}
	fprintf(stderr, "no workload \"%s\"\n", name);
	exit(2);
}

static void
suppress(const char *kind, const char *where)
{
	if (site_suppress(kind, where))
		return;
	fprintf(stderr, "no %s at %s\n", kind, where);
	exit(2);
}

static void
read_options(int argc, char **argv)
{
	static const struct option options[] = {
		{"workload", required_argument, NULL, 'w'},
		{"list", no_argument, NULL, 'l'},
		{"images", required_argument, NULL, 'i'},
		{"no-random", no_argument, NULL, 'n'},
		{"seed", required_argument, NULL, 's'},
		{"workers", required_argument, NULL, 'p'},
		{"sample", required_argument, NULL, 'm'},
		{"first-failure", no_argument, NULL, '1'},
		{"list-sites", no_argument, NULL, 'L'},
		{"suppress-flush", required_argument, NULL, 'S'},
		{"suppress-fence", required_argument, NULL, 'S'},
		{"suppress-copy", required_argument, NULL, 'S'},
		{"suppress-commit", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0}
	};
	bool		any = false;
	int			which;
	int			c;

	while ((c = getopt_long(argc, argv, "", options, &which)) != -1)
	{
		switch (c)
		{
			case 'w':
				choose_workload(optarg);
				any = true;
				break;
			case 'l':
				for (unsigned i = 0; i < nworkloads; i++)
					printf("%s\n", workloads[i].name);
				printf("%s\n", random_name);
				exit(0);
			case 'i':
				wanted_images = strtoull(optarg, NULL, 10);
				break;
			case 'n':
				with_random = false;
				break;
			case 's':
				first_seed = strtoull(optarg, NULL, 10);
				break;
			case 'p':
				nworkers = (unsigned) strtoul(optarg, NULL, 10);
				if (nworkers == 0 || nworkers > MAX_WORKERS)
					usage();
				break;
			case 'm':
				crash.sample = strtoull(optarg, NULL, 10);
				break;
			case '1':
				crash.first_failure = true;
				break;
			case 'L':
				list_sites();
				exit(0);
			case 'S':
				suppress(options[which].name + strlen("suppress-"), optarg);
				break;
			default:
				usage();
		}
	}
	if (optind < argc)
		usage();
	if (any)
		with_random = random_chosen;
	for (unsigned i = 0; i < nworkloads && !any; i++)
		chosen[i] = true;
}

int
main(int argc, char **argv)
{
	clock_gettime(CLOCK_MONOTONIC, &start_time);
	crash.sample = 300;
	wanted_images = 20000000;

	/* Handles come and go with every image: keep their memory. */
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_MXFAST, 0);

	sites_init();
	read_options(argc, argv);
	recorder_init();
	shared = share(sizeof(Shared));
	figures = share(nworkloads * sizeof(Figures));
	for (unsigned level = 0; level < LEVELS; level++)
		crash.locks[level] = pmh_locks_init(aligned_alloc(64, pmh_locks_size(LOCK_STRIPES)),
											LOCK_STRIPES);
	run_workers();
	print_all();
	return shared->failures != 0;
}
