/*-------------------------------------------------------------------------
 *
 * ab_side.c
 *	  One build of the engine as a shared object for pmh_ab: see ab.h.
 *
 * Compiled with the headers of the engine that it is linked with, which may be
 * older ones: handle.h was a part of internal.h once.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ab.h"
#include "table.h"
#if __has_include("handle.h")
#include "handle.h"
#include "space.h"
#else
#include "internal.h"
#endif

#define STRIPES		65536
#define GROUP		64

static PmhTable *table;
static PmhEnv env;
static PmhValues values;
static const char *file_path;
static uint64_t keys;
static uint64_t rows;			/* so many of them are values of one key */

/* Where a series of operations in scattered order is; as in pmh_bench.c. */
static uint64_t step;
static uint64_t place;

static void
fail(const char *what, const PmhError *error)
{
	fprintf(stderr, "pmh_ab: %s: %s\n", what, error->detail);
	exit(1);
}

static void
must(PmhResult result, const char *what)
{
	if (result != PMH_OK)
		fail(what, pmh_error(table));
}

/* The number of the key that a value belongs to, its first value. */
static inline uint64_t
first_of(uint64_t value)
{
	return rows == 1 || value >= keys ? value : value % (keys / rows);
}

static inline uint64_t
key_hash(uint64_t value)
{
	uint64_t	key = first_of(value);

	return XXH3_64bits(&key, sizeof(key));
}

static inline uint64_t
next_key(void)
{
	uint64_t	key = place;
	uint64_t	next = place + step;

	place = next >= keys ? next - keys : next;
	return key;
}

/* Have every page of the mapping in our page table, writable. */
static void
touch_pages(void)
{
	long		page = sysconf(_SC_PAGESIZE);

	for (size_t at = 0; at < table->file.bound; at += (size_t) page)
		(void) __atomic_fetch_or((uint8_t *) table->file.base + at, 0, __ATOMIC_RELAXED);
}

/* A new table; the space that is reserved is there when it is opened again. */
static void
make_table(uint64_t reserve)
{
	PmhError	error;

	if (pmh_create(file_path, NULL, &env, &table, &error) != PMH_OK)
		fail("creating the file", &error);
	table->need.blocks = reserve >> PMH_BLOCK_SHIFT;
	table->need.seen = pmh_blocks_with_space(table);
	must(pmh_provide(table), "reserving space");
	pmh_close(table);
}

static PmhLocks *
make_locks(void)
{
	void	   *memory = mmap(NULL, pmh_locks_size(STRIPES), PROT_READ | PROT_WRITE,
							  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
	{
		perror("pmh_ab: mmap");
		exit(1);
	}
	return pmh_locks_init(memory, STRIPES);
}

static void
begin(const char *path, uint64_t nkeys, uint64_t key_rows, uint64_t reserve, bool durable,
	  void **locks)
{
	PmhError	error;

	if (*locks == NULL)
		*locks = make_locks();
	env.locks = *locks;
	env.instance = 1;
	env.force_pmem = durable;
	file_path = path;
	keys = nkeys;
	rows = key_rows;
	step = UINT64_C(2654435761) % keys;
	if (reserve != 0)
		make_table(reserve);
	if (pmh_open(path, &env, &table, &error) != PMH_OK)
		fail("opening the file", &error);
	touch_pages();
}

static uint64_t
run_single(AbOp op, uint64_t at, uint64_t n)
{
	uint64_t	wrong = 0;

	for (uint64_t i = at; i < at + n; i++)
	{
		uint64_t	key = op == AB_INSERT ? i : next_key();

		if (op == AB_INSERT)
			must(pmh_insert(table, key_hash(key), key, false), "insert");
		else if (op == AB_DELETE)
			wrong += pmh_delete(table, key_hash(key), key) != PMH_OK;
	}
	return wrong;
}

/* What is not the look-up itself is short: processors work ahead only so far. */
static inline uint64_t __attribute__((always_inline))
look_up(uint64_t n, uint64_t base, bool there, bool dependent)
{
	uint64_t	wrong = 0;
	uint64_t	last = 0;

	for (uint64_t left = n; left > 0; left--)
	{
		uint64_t	key = base + next_key() + last;

		must(pmh_lookup(table, key_hash(key), &values), "look-up");
		if (there)
			wrong += values.n != rows || values.value[0] != first_of(key);
		else
			wrong += values.n != 0;
		if (dependent)
		{
			last = there ? values.value[0] - first_of(key) : values.n;
			__asm__ volatile ("" : "+r" (last));	/* 0, but only the answer tells */
		}
	}
	return wrong;
}

typedef struct Found
{
	uint64_t	key[GROUP];
	uint64_t	right;
} Found;

static void
found(void *arg, size_t i, uint64_t value)
{
	Found	   *f = arg;

	f->right += f->key[i] == value;
}

static uint64_t
run_group(AbOp op, uint64_t at, uint64_t n)
{
	uint64_t	wrong = 0;

	for (uint64_t i = at; i < at + n; i += GROUP)
	{
		size_t		m = at + n - i < GROUP ? at + n - i : GROUP;
		size_t		done = 0;
		Found		f = {.right = 0};
		PmhEntry	entry[GROUP];
		uint64_t	hash[GROUP];

		for (size_t j = 0; j < m; j++)
		{
			f.key[j] = op == AB_GROUP_INSERT ? i + j : next_key();
			hash[j] = key_hash(f.key[j]);
			entry[j] = (PmhEntry) {hash[j], f.key[j]};
		}
		if (op == AB_GROUP_INSERT)
			must(pmh_insert_group(table, entry, m, false, &done), "insert");
		else if (op == AB_GROUP_DELETE)
			must(pmh_delete_group(table, entry, m, &done), "delete");
		else
		{
			must(pmh_lookup_group(table, hash, m, found, &f), "look-up");
			done = f.right;
		}
		wrong += done != m;
	}
	return wrong;
}

static uint64_t
run(AbOp op, uint64_t at, uint64_t n)
{
	place = (uint64_t) ((12345 + (unsigned __int128) at * step) % keys);
	switch (op)
	{
		case AB_HIT:
			return look_up(n, 0, true, false);
		case AB_MISS:
			return look_up(n, keys, false, false);
		case AB_DEPENDENT_HIT:
			return look_up(n, 0, true, true);
		case AB_DEPENDENT_MISS:
			return look_up(n, keys, false, true);
		case AB_GROUP_INSERT:
		case AB_GROUP_HIT:
		case AB_GROUP_DELETE:
			return run_group(op, at, n);
		default:
			return run_single(op, at, n);
	}
}

static void
tell_space(AbSpace *space)
{
	PmhStats	s;

	must(pmh_stats(table, &s), "statistics");
	space->entries = s.entries;
	space->bytes_per_entry = s.entries ? (double) s.used_bytes / (double) s.entries : 0;
	space->load_factor = s.load_factor;
}

static void
end(bool keep)
{
	pmh_values_free(&values);
	pmh_close(table);
	if (!keep)
		(void) unlink(file_path);
}

__attribute__((visibility("default")))
const AbSide pmh_ab_side = {begin, run, tell_space, end};
