/*-------------------------------------------------------------------------
 *
 * pmh_bench.c
 *	  The engine by itself: throughput, latencies, space.  See --help.
 *
 * Workers are threads or processes; each has a handle of its own.  What they
 * share is in one anonymous mapping: the lock table, a barrier, results.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "bucket.h"
#include "error.h"
#include "handle.h"
#include "layout.h"
#include "lock.h"
#include "space.h"
#include "table.h"

#define STRIPES			65536
#define MAX_GROUP		1024

typedef struct WorkerResult
{
	uint64_t	ops;
	uint64_t	begin;
	uint64_t	end;
	uint64_t	wrong;			/* answers that were not right */
	Histogram	histogram;
} WorkerResult;

typedef struct Shared
{
	int			arrived;		/* at the barrier */
	int			go;
	WorkerResult worker[MAX_WORKERS];
} Shared;

Options		opt;

static Shared *shared;
static PmhEnv env;
static Zipf zipf;

/*
 * "zipf": the key of each value; and how many values each key has, and their
 * sum.
 */
static uint32_t *zipf_key;
static uint32_t *zipf_count;
static uint64_t *zipf_sum;

void
fail(const char *what, PmhResult result, const PmhError *error)
{
	fprintf(stderr, "pmh_bench: %s: result %d: %s%s%s\n", what, (int) result,
			error->detail, error->sys_errno != 0 ? " " : "",
			error->sys_errno != 0 ? strerror(error->sys_errno) : "");
	exit(1);
}

static void *
share_memory(size_t size)
{
	void	   *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
							  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
	{
		perror("pmh_bench: mmap");
		exit(1);
	}
	return memory;
}

/* ---- table ---- */

/* Let the file grow to have a run of opt.reserve bytes. */
static void
reserve_space(PmhTable *t)
{
	t->need.blocks = opt.reserve >> PMH_BLOCK_SHIFT;
	t->need.seen = pmh_blocks_with_space(t);
	must(t, pmh_provide(t), "reserving space");
}

static void
create_table(void)
{
	PmhError	error;
	PmhTable   *t;
	PmhResult	result = pmh_create(opt.file, NULL, &env, &t, &error);

	if (result != PMH_OK)
		fail(opt.file, result, &error);
	reserve_space(t);
	pmh_close(t);
}

PmhTable *
open_table(void)
{
	PmhError	error;
	PmhTable   *t;
	PmhResult	result = pmh_open(opt.file, &env, &t, &error);

	if (result != PMH_OK)
		fail(opt.file, result, &error);
	return t;
}

void
must(PmhTable *t, PmhResult result, const char *what)
{
	if (result != PMH_OK)
		fail(what, result, pmh_error(t));
}

/* Have every page of the mapping in our page table, writable. */
void
prefault(PmhTable *t)
{
	long		page = sysconf(_SC_PAGESIZE);

	for (size_t at = 0; at < t->file.bound; at += (size_t) page)
		(void) __atomic_fetch_or((uint8_t *) t->file.base + at, 0, __ATOMIC_RELAXED);
}

void
print_space(PmhTable *t, const char *op)
{
	PmhStats	s;

	must(t, pmh_stats(t, &s), "statistics");
	printf("    space: %llu entries, %.2f bytes each in use (%.2f of the file), load factor %.3f,"
		   " depth %u..%u of %u\n",
		   (unsigned long long) s.entries,
		   s.entries ? (double) s.used_bytes / (double) s.entries : 0,
		   s.entries ? (double) s.file_bytes / (double) s.entries : 0,
		   s.load_factor, s.min_depth, s.max_depth, s.global_depth);
	printf("    segments %llu (single %llu, two choice %llu, stash %llu), elsewhere %llu, stash %llu,"
		   " lists %llu with %llu values in %llu bytes\n",
		   (unsigned long long) s.segments, (unsigned long long) s.segments_single,
		   (unsigned long long) s.segments_two_choice, (unsigned long long) s.segments_stash,
		   (unsigned long long) s.entries_elsewhere, (unsigned long long) s.entries_stash,
		   (unsigned long long) s.lists, (unsigned long long) s.list_entries,
		   (unsigned long long) s.list_bytes);
	printf("    grows %llu, splits %llu, doublings %llu, compactions %llu, strategy changes %llu\n",
		   (unsigned long long) s.grows, (unsigned long long) s.splits,
		   (unsigned long long) s.doublings, (unsigned long long) s.compactions,
		   (unsigned long long) s.strategy_changes);
	figure(op, "entries", (double) s.entries);
	figure(op, "bytes_per_entry", s.entries ? (double) s.used_bytes / (double) s.entries : 0);
	figure(op, "load_factor", s.load_factor);
	figure(op, "list_share", s.entries ? (double) s.list_entries / (double) s.entries : 0);
}

static void
report_finding(void *arg, uint64_t offset, const char *finding)
{
	(void) arg;
	fprintf(stderr, "pmh_bench: check: offset %llu: %s\n", (unsigned long long) offset, finding);
}

void
check_table(PmhTable *t)
{
	if (opt.check)
		must(t, pmh_check(t, report_finding, NULL), "check");
}

/* ---- the operations, as one worker does its share of them ---- */

typedef struct Share
{
	PmhTable   *t;
	WorkerResult *result;
	uint64_t	first;			/* of the keys 0 .. opt.keys - 1 */
	uint64_t	n;
} Share;

typedef void (*Operation) (Share *share);

/*
 * Visit the share's keys in an order that has nothing to do with insertion: the
 * next one after 'key' (any of them to begin with).  No division, so that the
 * order costs no more than going through them one by one.
 */
typedef struct Order
{
	uint64_t	first;
	uint64_t	n;
	uint64_t	step;
	uint64_t	at;
} Order;

static inline Order
shuffle(const Share *s)
{
	return (Order) {s->first, s->n, UINT64_C(2654435761) % s->n, 12345 % s->n};
}

static inline uint64_t
next_key(Order *order)
{
	uint64_t	key = order->first + order->at;
	uint64_t	next = order->at + order->step;

	order->at = next >= order->n ? next - order->n : next;
	return key;
}

static inline uint64_t
begin_op(void)
{
	return opt.latency ? clock_ns() : 0;
}

static inline void
end_op(Share *s, uint64_t begin)
{
	if (opt.latency)
		histogram_add(&s->result->histogram, clock_ns() - begin);
}

static void
op_insert(Share *s)
{
	for (uint64_t i = 0; i < s->n; i++)
	{
		uint64_t	key = s->first + i;
		uint64_t	begin = begin_op();

		must(s->t, pmh_insert(s->t, key_hash(key), key, false), "insert");
		end_op(s, begin);
	}
}

/*
 * Look-ups of keys that are there, or not.  What is not the look-up itself is
 * kept short: the processor works ahead over a few hundred instructions only.
 */
static inline void
look_up_keys(Share *s, uint64_t base, bool there)
{
	PmhTable   *t = s->t;
	PmhValues	values = {0};
	Order		order = shuffle(s);
	uint64_t	wrong = 0;

	for (uint64_t left = s->n; left > 0; left--)
	{
		uint64_t	key = base + next_key(&order);
		uint64_t	begin = begin_op();

		must(t, pmh_lookup(t, key_hash(key), &values), "look-up");
		end_op(s, begin);
		wrong += there ? values.n != 1 || values.value[0] != key : values.n != 0;
	}
	s->result->wrong += wrong;
	pmh_values_free(&values);
}

static void
op_hit(Share *s)
{
	look_up_keys(s, 0, true);
}

static void
op_miss(Share *s)
{
	look_up_keys(s, opt.keys, false);
}

/*
 * What hits cannot do without: to find the home bucket, and to load its version,
 * its line 0, and the line of a slot, which line 0 tells.  Nothing is compared.
 */
static void
op_floor(Share *s)
{
	PmhTable   *t = s->t;
	PmhValues	values = {0};
	Order		order = shuffle(s);
	uint64_t	sum = 0;

	must(t, pmh_lookup(t, key_hash(0), &values), "look-up");	/* notes the directory */
	for (uint64_t left = s->n; left > 0; left--)
	{
		uint64_t	hash = key_hash(next_key(&order));
		PmhHome		home;
		uint32_t	state;

		if (!pmh_home_find(t, hash, &home))
			abort();
		for (unsigned line = 1; line < PMH_BUCKET_SIZE / PMH_LINE; line++)
			__builtin_prefetch(home.bucket->bytes + line * PMH_LINE);
		state = pmh_bucket_state(home.bucket);
		sum += pmh_version_load(home.version) +
			pmh_slot_load_word(home.bucket, PMH_LINE0_SLOTS + (state & 7));
	}
	s->result->wrong += sum == 0;
	pmh_values_free(&values);
}

typedef struct GroupKeys
{
	uint64_t	key[MAX_GROUP];
	uint64_t	found;
	uint64_t	wrong;
} GroupKeys;

static void
group_found(void *arg, size_t i, uint64_t value)
{
	GroupKeys  *g = arg;

	g->found++;
	g->wrong += g->key[i] != value;
}

/* Look keys up in groups; base is added to each key, values_each expected. */
static void
look_up_groups(Share *s, uint64_t base, uint64_t values_each)
{
	GroupKeys	g;
	uint64_t	hash[MAX_GROUP];
	Order		order = shuffle(s);

	for (uint64_t done = 0; done < s->n;)
	{
		uint64_t	n = s->n - done < opt.group ? s->n - done : opt.group;
		uint64_t	begin = begin_op();

		for (uint64_t i = 0; i < n; i++)
		{
			g.key[i] = base + next_key(&order);
			hash[i] = key_hash(g.key[i]);
		}
		g.found = g.wrong = 0;
		must(s->t, pmh_lookup_group(s->t, hash, n, group_found, &g), "group look-up");
		end_op(s, begin);
		s->result->wrong += g.wrong + (g.found != n * values_each);
		done += n;
	}
}

static void
op_group(Share *s)
{
	look_up_groups(s, 0, 1);
}

static void
op_group_miss(Share *s)
{
	look_up_groups(s, opt.keys, 0);
}

/* Next group of pairs of a share; how many. */
static size_t
make_entries(const Share *s, uint64_t done, PmhEntry *entry)
{
	uint64_t	n = s->n - done < opt.group ? s->n - done : opt.group;

	for (uint64_t i = 0; i < n; i++)
	{
		entry[i].value = s->first + done + i;
		entry[i].hash = key_hash(entry[i].value);
	}
	return n;
}

static void
op_group_insert(Share *s)
{
	PmhEntry	entry[MAX_GROUP];

	for (uint64_t done = 0; done < s->n;)
	{
		size_t		n = make_entries(s, done, entry);
		uint64_t	begin = begin_op();
		size_t		in;

		must(s->t, pmh_insert_group(s->t, entry, n, false, &in), "group insert");
		end_op(s, begin);
		done += n;
	}
}

static void
op_group_delete(Share *s)
{
	PmhEntry	entry[MAX_GROUP];

	for (uint64_t done = 0; done < s->n;)
	{
		size_t		n = make_entries(s, done, entry);
		uint64_t	begin = begin_op();
		size_t		removed;

		must(s->t, pmh_delete_group(s->t, entry, n, &removed), "group delete");
		end_op(s, begin);
		s->result->wrong += removed != n;
		done += n;
	}
}

static void
op_delete(Share *s)
{
	Order		order = shuffle(s);

	for (uint64_t i = 0; i < s->n; i++)
	{
		uint64_t	key = next_key(&order);
		uint64_t	begin = begin_op();
		PmhResult	result = pmh_delete(s->t, key_hash(key), key);

		end_op(s, begin);
		s->result->wrong += result == PMH_NOT_FOUND;
		if (result != PMH_NOT_FOUND)
			must(s->t, result, "delete");
	}
}

/* Value i belongs to key zipf_key[i]. */
static void
op_zipf_insert(Share *s)
{
	for (uint64_t i = s->first; i < s->first + s->n; i++)
	{
		uint64_t	begin = begin_op();

		must(s->t, pmh_insert(s->t, key_hash(zipf_key[i]), i, false), "insert");
		end_op(s, begin);
	}
}

/*
 * All keys once: the number and the sum of the values of each are looked at,
 * which takes no more than to go through them.
 */
static void
op_zipf_search(Share *s)
{
	PmhTable   *t = s->t;
	PmhValues	values = {0};
	uint64_t	wrong = 0;

	for (uint64_t key = s->first; key < s->first + s->n; key++)
	{
		uint64_t	begin = begin_op();
		uint64_t	sum = 0;

		must(t, pmh_lookup(t, key_hash(key), &values), "look-up");
		end_op(s, begin);
		for (size_t i = 0; i < values.n; i++)
			sum += values.value[i];
		wrong += values.n != zipf_count[key] || sum != zipf_sum[key];
	}
	s->result->wrong += wrong;
	pmh_values_free(&values);
}

/* The same, and every value is looked at by itself. */
static void
op_zipf_verify(Share *s)
{
	PmhValues	values = {0};

	for (uint64_t key = s->first; key < s->first + s->n; key++)
	{
		must(s->t, pmh_lookup(s->t, key_hash(key), &values), "look-up");
		s->result->wrong += values.n != zipf_count[key];
		for (size_t i = 0; i < values.n; i++)
			s->result->wrong += values.value[i] >= opt.keys ||
				zipf_key[values.value[i]] != key ||
				(i > 0 && values.value[i] <= values.value[i - 1]);
	}
	pmh_values_free(&values);
}

/* ---- workers ---- */

typedef struct Start
{
	Operation	operation;
	uint64_t	keys;			/* in all */
	int			number;
} Start;

static void
wait_at_barrier(void)
{
	__atomic_fetch_add(&shared->arrived, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE) == 0)
		usleep(20);
}

static void *
work(void *arg)
{
	Start	   *start = arg;
	WorkerResult *result = &shared->worker[start->number];
	uint64_t	each = start->keys / (uint64_t) opt.workers;
	Share		s = {open_table(), result, each * (uint64_t) start->number, each};

	if (start->number == opt.workers - 1)
		s.n = start->keys - s.first;
	if (opt.prefault)
		prefault(s.t);
	memset(result, 0, sizeof(*result));
	wait_at_barrier();
	count_begin();
	result->begin = clock_ns();
	start->operation(&s);
	result->end = clock_ns();
	result->ops = s.n;
	pmh_close(s.t);
	return NULL;
}

static void
run_threads(Start *start)
{
	pthread_t	thread[MAX_WORKERS];

	for (int i = 0; i < opt.workers; i++)
	{
		if (pthread_create(&thread[i], NULL, work, &start[i]) != 0)
		{
			fprintf(stderr, "pmh_bench: could not create a thread\n");
			exit(1);
		}
	}
	while (__atomic_load_n(&shared->arrived, __ATOMIC_ACQUIRE) < opt.workers)
		usleep(100);
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < opt.workers; i++)
		pthread_join(thread[i], NULL);
}

/* Wait for workers to arrive; one that ends before that has failed. */
static void
await_processes(void)
{
	while (__atomic_load_n(&shared->arrived, __ATOMIC_ACQUIRE) < opt.workers)
	{
		if (waitpid(-1, NULL, WNOHANG) > 0)
		{
			fprintf(stderr, "pmh_bench: a worker has failed\n");
			exit(1);
		}
		usleep(100);
	}
}

static void
run_processes(Start *start)
{
	bool		failed = false;

	fflush(stdout);
	for (int i = 0; i < opt.workers; i++)
	{
		pid_t		pid = fork();

		if (pid < 0)
		{
			perror("pmh_bench: fork");
			exit(1);
		}
		if (pid == 0)
		{
			work(&start[i]);
			_exit(0);
		}
	}
	await_processes();
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < opt.workers; i++)
	{
		int			status;

		failed = failed || wait(&status) < 0 || status != 0;
	}
	if (failed)
	{
		fprintf(stderr, "pmh_bench: a worker has failed\n");
		exit(1);
	}
}

/* Let all workers do an operation on their shares of 'keys'; print results. */
static void
run(const char *name, Operation operation, uint64_t keys)
{
	Start		start[MAX_WORKERS];
	static Histogram all;
	uint64_t	begin = UINT64_MAX;
	uint64_t	end = 0;
	uint64_t	ops = 0;
	uint64_t	wrong = 0;

	shared->arrived = shared->go = 0;
	for (int i = 0; i < opt.workers; i++)
		start[i] = (Start) {operation, keys, i};
	if (opt.processes)
		run_processes(start);
	else
		run_threads(start);

	memset(&all, 0, sizeof(all));
	for (int i = 0; i < opt.workers; i++)
	{
		const WorkerResult *r = &shared->worker[i];

		begin = r->begin < begin ? r->begin : begin;
		end = r->end > end ? r->end : end;
		ops += r->ops;
		wrong += r->wrong;
		histogram_merge(&all, &r->histogram);
	}
	printf("%-14s %d %s: %llu ops in %.3f s: %.3f Mops/s\n", name, opt.workers,
		   opt.processes ? (opt.workers == 1 ? "process" : "processes") :
		   (opt.workers == 1 ? "thread" : "threads"),
		   (unsigned long long) ops, (double) (end - begin) / 1e9,
		   (double) ops * 1e3 / (double) (end - begin));
	figure(name, "mops", (double) ops * 1e3 / (double) (end - begin));
	if (all.n > 0)
		histogram_print(&all, name);
	count_end(name, ops);
	if (wrong > 0)
	{
		fprintf(stderr, "pmh_bench: %s: %llu answers were wrong\n", name,
				(unsigned long long) wrong);
		exit(1);
	}
}

static void
run_and_show(const char *name, Operation operation, uint64_t keys)
{
	PmhTable   *t;

	run(name, operation, keys);
	t = open_table();
	print_space(t, name);
	check_table(t);
	pmh_close(t);
}

/* ---- operations that are not shared out ---- */

void
renew_table(void)
{
	if (unlink(opt.file) != 0 && errno != ENOENT)
	{
		perror("pmh_bench: unlink");
		exit(1);
	}
	create_table();
}

/* The first open in another run of the system. */
static void
op_recover(void)
{
	PmhError	error;
	PmhTable   *t;
	uint64_t	begin;
	uint64_t	ns;
	PmhResult	result;

	env.instance++;
	begin = clock_ns();
	result = pmh_open(opt.file, &env, &t, &error);
	ns = clock_ns() - begin;
	if (result != PMH_OK)
		fail("recovery", result, &error);
	printf("recover        open with recovery in %.3f ms\n", (double) ns / 1e6);
	figure("recover", "ms", (double) ns / 1e6);
	check_table(t);
	pmh_close(t);
}

uint64_t
zipf_keys(void)
{
	return opt.keys >= opt.values_each ? opt.keys / opt.values_each : 1;
}

/* Draw the keys of all values beforehand: generating them is not measured. */
static uint64_t
draw_zipf(double theta)
{
	uint64_t	keys = zipf_keys();
	uint64_t	seed = 1;
	uint64_t	most = 0;

	zipf_init(&zipf, keys, theta);
	memset(zipf_count, 0, opt.keys * sizeof(uint32_t));
	memset(zipf_sum, 0, opt.keys * sizeof(uint64_t));
	for (uint64_t i = 0; i < opt.keys; i++)
	{
		zipf_key[i] = (uint32_t) zipf_next(&zipf, &seed);
		zipf_sum[zipf_key[i]] += i;
		if (++zipf_count[zipf_key[i]] > most)
			most = zipf_count[zipf_key[i]];
	}
	printf("zipf %.2f: %llu values of %llu keys, the most frequent key has %llu\n", theta,
		   (unsigned long long) opt.keys, (unsigned long long) keys,
		   (unsigned long long) most);
	return keys;
}

static void
op_zipf(void)
{
	if (zipf_key == NULL)
	{
		zipf_key = share_memory(opt.keys * sizeof(uint32_t));
		zipf_count = share_memory(opt.keys * sizeof(uint32_t));
		zipf_sum = share_memory(opt.keys * sizeof(uint64_t));
	}
	for (int i = 0; i < NTHETAS; i++)
	{
		uint64_t	keys = draw_zipf(opt.theta[i]);
		char		insert[40];
		char		search[40];
		char		verify[40];

		renew_table();
		snprintf(insert, sizeof(insert), "zipf_insert_%g", opt.theta[i]);
		snprintf(search, sizeof(search), "zipf_search_%g", opt.theta[i]);
		run_and_show(insert, op_zipf_insert, opt.keys);
		snprintf(verify, sizeof(verify), "zipf_verify_%g", opt.theta[i]);
		run(search, op_zipf_search, keys);
		run(verify, op_zipf_verify, keys);
	}
}

/* Dead entries that VACUUM takes out together. */
#define REMOVED_TOGETHER	65536

/* A sweep over everything; takes out the values divisible by 'remove', if any. */
static void
sweep_table(const char *name, uint64_t remove)
{
	PmhTable   *t = open_table();
	PmhEntry   *dead = malloc(REMOVED_TOGETHER * sizeof(PmhEntry));
	PmhSweep	sweep;
	PmhResult	result;
	uint64_t	seen = 0;
	uint64_t	removed = 0;
	uint64_t	begin;
	size_t		ndead = 0;
	size_t		n;

	if (dead == NULL)
	{
		fprintf(stderr, "pmh_bench: out of memory\n");
		exit(1);
	}
	if (opt.prefault)
		prefault(t);
	begin = clock_ns();
	must(t, pmh_sweep_begin(t, &sweep), "sweep");
	while ((result = pmh_sweep_next(t, &sweep)) == PMH_OK)
	{
		seen += sweep.n;
		for (size_t i = 0; i < sweep.n && remove != 0; i++)
		{
			if (sweep.entries[i].value % remove != 0)
				continue;
			dead[ndead++] = sweep.entries[i];
			if (ndead < REMOVED_TOGETHER)
				continue;
			must(t, pmh_delete_group(t, dead, ndead, &n), "removal");
			removed += n;
			ndead = 0;
		}
	}
	if (result != PMH_DONE)
		must(t, result, "sweep");
	pmh_sweep_end(&sweep);
	must(t, pmh_delete_group(t, dead, ndead, &n), "removal");
	removed += n;
	printf("%-14s %llu entries in %.3f s, %llu removed\n", name, (unsigned long long) seen,
		   (double) (clock_ns() - begin) / 1e9, (unsigned long long) removed);
	free(dead);
	check_table(t);
	pmh_close(t);
}

static void
op_sweep(void)
{
	sweep_table("sweep", 0);
}

static void
op_vacuum(void)
{
	sweep_table("vacuum", 2);
}

static void
op_machine(void)
{
	PmhTable   *t = open_table();

	measure_machine(t);
	pmh_close(t);
}

static void
do_op(const char *name)
{
	static const struct
	{
		const char *name;
		Operation	shared_out;
		bool		changes;
	}			ops[] = {
		{"insert", op_insert, true},
		{"hit", op_hit, false},
		{"miss", op_miss, false},
		{"floor", op_floor, false},
		{"group", op_group, false},
		{"group-miss", op_group_miss, false},
		{"delete", op_delete, true},
		{"group-insert", op_group_insert, true},
		{"group-delete", op_group_delete, true},
	};
	static const struct
	{
		const char *name;
		void		(*alone) (void);
	}			others[] = {
		{"machine", op_machine},
		{"grow", op_grow},
		{"grow-zipf", op_grow_zipf},
		{"timeline", op_timeline},
		{"pauses", op_pauses},
		{"mixed", op_mixed},
		{"filter", op_filter},
		{"trace", op_trace},
		{"recover", op_recover},
		{"zipf", op_zipf},
		{"sweep", op_sweep},
		{"vacuum", op_vacuum},
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
	{
		if (strcmp(name, ops[i].name) != 0)
			continue;
		if (ops[i].changes)
			run_and_show(name, ops[i].shared_out, opt.keys);
		else
			run(name, ops[i].shared_out, opt.keys);
		return;
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
	{
		if (strcmp(name, others[i].name) == 0)
		{
			others[i].alone();
			return;
		}
	}
	fprintf(stderr, "pmh_bench: unknown operation \"%s\"; try --help\n", name);
	exit(1);
}

/* ---- options ---- */

static void
help(void)
{
	printf("pmh_bench measures the pmhash engine by itself.\n"
		   "\n"
		   "Usage: pmh_bench [OPTION]...\n"
		   "\n"
		   "  --op LIST            operations, in this order (default\n"
		   "                       machine,insert,hit,miss,group,delete):\n"
		   "                         machine       memory and persist latency\n"
		   "                         insert        keys 0 .. N-1, one by one\n"
		   "                         hit, miss     look-ups of keys that are there, or not\n"
		   "                         floor         the loads that a hit cannot do without\n"
		   "                         group, group-miss, group-insert, group-delete\n"
		   "                                       the same in groups, with prefetch\n"
		   "                         delete        all keys, in another order\n"
		   "                         recover       time of the first open after a crash\n"
		   "                         sweep, vacuum walk everything; and take half of it out\n"
		   "                         grow          new table: space while it grows (one worker)\n"
		   "                         grow-zipf     the same, keys drawn as for zipf\n"
		   "                         timeline      new table: latency of each insert, by what\n"
		   "                                       it set off, and over time (one worker)\n"
		   "                         pauses        latency of as many pieces of work on one\n"
		   "                                       cache line: what the machine takes away\n"
		   "                         mixed         new table: look-ups of one thread at rest,\n"
		   "                                       beside another reader, while the table grows\n"
		   "                         filter        new table: a filter in DRAM in front of\n"
		   "                                       look-ups, by load and strategy\n"
		   "                         zipf          new table for each theta: N values, insert\n"
		   "                                       and search-all; every value of every key is\n"
		   "                                       verified\n"
		   "                         trace         single operations between marks, for a tracer\n"
		   "                                       of memory (trace_lines.py)\n"
		   "                       hit, group and the deletes need the keys of an insert before;\n"
		   "                       a wrong answer ends the program with status 1\n"
		   "  --keys N             number of keys (default 10000000)\n"
		   "  --threads N          workers are N threads (default 1) ...\n"
		   "  --procs N            ... or N processes; each has its own mapping\n"
		   "  --file PATH          the table; must not exist, is removed in the end\n"
		   "                       (default pmh_bench.PID in $TMPDIR or /tmp)\n"
		   "  --keep               do not remove it\n"
		   "  --existing           it is there already, with the keys of an insert\n"
		   "  --force-pmem         flush and fence even if the file is not persistent memory\n"
		   "  --reserve BYTES      free space that a new file begins with\n"
		   "  --prefault           workers touch all pages before they begin\n"
		   "  --group N            keys handed over together (default 64, at most %d)\n"
		   "  --latency            take the time of each operation (of each group)\n"
		   "  --theta A,B          skew of zipf (default 0.5,0.8)\n"
		   "  --values-each N      values of a key on average, with zipf (default 10)\n"
		   "  --csv PATH           course of time, written by grow, timeline, filter\n"
		   "  --figures PATH       append every figure: label,operation,workers,figure,value\n"
		   "  --label TEXT         what stands in front of them\n"
		   "  --check              check the structure after changes\n"
		   "  --help               this text\n"
		   "\n"
		   "Keys are 8-byte integers hashed with XXH3; the value is the key's number.\n"
		   "Latencies include the time of reading the clock twice (see machine).\n",
		   MAX_GROUP);
}

static uint64_t
number(const char *text, uint64_t least, uint64_t most)
{
	char	   *end;
	unsigned long long n = strtoull(text, &end, 10);

	if (*end != '\0' || n < least || n > most)
	{
		fprintf(stderr, "pmh_bench: \"%s\" is not a number from %llu to %llu\n", text,
				(unsigned long long) least, (unsigned long long) most);
		exit(1);
	}
	return n;
}

static void
split_ops(char *list)
{
	opt.nops = 0;
	for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ","))
	{
		if (opt.nops == MAX_OPS)
		{
			fprintf(stderr, "pmh_bench: too many operations\n");
			exit(1);
		}
		opt.op[opt.nops++] = word;
	}
}

static void
parse_theta(const char *text)
{
	if (sscanf(text, "%lf,%lf", &opt.theta[0], &opt.theta[1]) != NTHETAS ||
		opt.theta[0] < 0 || opt.theta[0] >= 1 || opt.theta[1] < 0 || opt.theta[1] >= 1)
	{
		fprintf(stderr, "pmh_bench: --theta takes two numbers from 0 to below 1\n");
		exit(1);
	}
}

static void
parse_options(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"op", required_argument, NULL, 'o'},
		{"keys", required_argument, NULL, 'n'},
		{"threads", required_argument, NULL, 't'},
		{"procs", required_argument, NULL, 'p'},
		{"file", required_argument, NULL, 'f'},
		{"keep", no_argument, NULL, 'k'},
		{"existing", no_argument, NULL, 'e'},
		{"force-pmem", no_argument, NULL, 'P'},
		{"reserve", required_argument, NULL, 'R'},
		{"prefault", no_argument, NULL, 'F'},
		{"group", required_argument, NULL, 'g'},
		{"latency", no_argument, NULL, 'l'},
		{"theta", required_argument, NULL, 'z'},
		{"values-each", required_argument, NULL, 'V'},
		{"csv", required_argument, NULL, 'c'},
		{"figures", required_argument, NULL, 'G'},
		{"label", required_argument, NULL, 'L'},
		{"check", no_argument, NULL, 'C'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0}
	};
	int			c;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1)
	{
		switch (c)
		{
			case 'o':
				split_ops(optarg);
				break;
			case 'n':
				opt.keys = number(optarg, 1, UINT32_MAX);
				break;
			case 't':
			case 'p':
				opt.workers = (int) number(optarg, 1, MAX_WORKERS);
				opt.processes = c == 'p';
				break;
			case 'f':
				opt.file = optarg;
				break;
			case 'k':
				opt.keep = true;
				break;
			case 'e':
				opt.existing = true;
				break;
			case 'P':
				opt.force_pmem = true;
				break;
			case 'R':
				opt.reserve = number(optarg, 0, UINT64_MAX);
				break;
			case 'F':
				opt.prefault = true;
				break;
			case 'g':
				opt.group = (uint32_t) number(optarg, 1, MAX_GROUP);
				break;
			case 'l':
				opt.latency = true;
				break;
			case 'z':
				parse_theta(optarg);
				break;
			case 'V':
				opt.values_each = number(optarg, 1, 1000000);
				break;
			case 'c':
				opt.csv = optarg;
				break;
			case 'G':
				opt.figures = optarg;
				break;
			case 'L':
				opt.label = optarg;
				break;
			case 'C':
				opt.check = true;
				break;
			case 'h':
				help();
				exit(0);
			default:
				exit(1);
		}
	}
	if (optind < argc)
	{
		fprintf(stderr, "pmh_bench: unexpected argument \"%s\"; try --help\n", argv[optind]);
		exit(1);
	}
}

static const char *
default_file(void)
{
	static char path[4096];
	const char *dir = getenv("TMPDIR");

	snprintf(path, sizeof(path), "%s/pmh_bench.%d", dir != NULL ? dir : "/tmp", (int) getpid());
	return path;
}

int
main(int argc, char **argv)
{
	static char default_ops[] = "machine,insert,hit,miss,group,delete";

	opt = (Options) {.keys = 10000000, .workers = 1, .group = 64, .theta = {0.5, 0.8}, .values_each = 10,
		.label = ""};
	split_ops(default_ops);
	parse_options(argc, argv);
	if (opt.file == NULL)
		opt.file = default_file();
	clock_calibrate();
	shared = share_memory(sizeof(Shared));
	env.locks = pmh_locks_init(share_memory(pmh_locks_size(STRIPES)), STRIPES);
	env.instance = 1;
	env.force_pmem = opt.force_pmem;

	if (!opt.existing)
		create_table();
	for (int i = 0; i < opt.nops; i++)
		do_op(opt.op[i]);
	if (!opt.keep)
		unlink(opt.file);
	return 0;
}
