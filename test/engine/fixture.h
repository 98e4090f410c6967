/*-------------------------------------------------------------------------
 *
 * fixture.h
 *	  What engine tests need around a table: a shared lock table, a scratch
 *	  path, hashes, random numbers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_FIXTURE_H
#define PMH_FIXTURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* All of the engine: check_alone.h includes segment.h, and that the rest. */
#include "../lib/check_alone.h"
#include "unit.h"

#define FIXTURE_STRIPES	1024

/* Sanitizers are slow: they get a tenth of the work. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FIXTURE_SCALE(n)	((n) / 10)
#else
#define FIXTURE_SCALE(n)	(n)
#endif

/* A lock table in memory that forked children share. */
static inline PmhLocks *
fixture_locks(void)
{
	static PmhLocks *locks;

	if (locks == NULL)
	{
		void	   *memory = mmap(NULL, pmh_locks_size(FIXTURE_STRIPES),
								  PROT_READ | PROT_WRITE,
								  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (memory == MAP_FAILED)
		{
			perror("mmap");
			exit(1);
		}
		locks = pmh_locks_init(memory, FIXTURE_STRIPES);
	}
	return locks;
}

/* As other files do, whose buffers have the same versions. */
static inline void
fixture_count_buffers_up(void)
{
	PmhLocks   *locks = fixture_locks();
	uint64_t   *version = (uint64_t *) (void *) &locks->stripe[locks->nstripes];

	for (uint64_t i = 0; i < locks->nstripes; i++)
		pmh_version_bump_shared(&version[i]);
}

static inline PmhEnv
fixture_env(uint64_t instance)
{
	PmhEnv		env = {.locks = fixture_locks(), .instance = instance};

	return env;
}

/* The same; flushed: every store is flushed and fenced. */
static inline PmhEnv
fixture_env_on(bool flushed, uint64_t instance)
{
	PmhEnv		env = fixture_env(instance);

	env.force_pmem = flushed;
	return env;
}

/* A path for this process in $TMPDIR; good until eight more have been made. */
static inline const char *
fixture_path(const char *name)
{
	static char buffer[8][4096];
	static unsigned next;
	const char *dir = getenv("TMPDIR");
	char	   *path = buffer[next++ % 8];

	snprintf(path, sizeof(buffer[0]), "%s/pmhash_%s.%d", dir != NULL ? dir : "/tmp", name, (int) getpid());
	return path;
}

/* Open a table in a run; ends the program if that cannot be. */
static inline PmhTable *
fixture_open_in(const char *path, const PmhEnv *env)
{
	PmhTable   *t;
	PmhError	error;

	if (pmh_open(path, env, &t, &error) != PMH_OK)
	{
		fprintf(stderr, "cannot open %s: %s\n", path, error.detail);
		exit(1);
	}
	return t;
}

static inline PmhTable *
fixture_open(const char *path, uint64_t instance)
{
	PmhEnv		env = fixture_env(instance);

	return fixture_open_in(path, &env);
}

/* Close it, and open it in a run that has not been: it is recovered. */
static inline PmhTable *
fixture_recover(const char *path, PmhTable *t, PmhEnv *env)
{
	pmh_close(t);
	env->instance++;
	return fixture_open_in(path, env);
}

/* Make an empty table, in place of what is there; ends the program if that cannot be. */
static inline PmhTable *
fixture_create_in(const char *path, const PmhEnv *env)
{
	PmhTable   *t;
	PmhError	error;

	unlink(path);
	if (pmh_create(path, NULL, env, &t, &error) != PMH_OK)
	{
		fprintf(stderr, "cannot create %s: %s\n", path, error.detail);
		exit(1);
	}
	return t;
}

/* The same, in the first run. */
static inline PmhTable *
fixture_create(const char *path)
{
	PmhEnv		env = fixture_env(1);

	return fixture_create_in(path, &env);
}

/* Load entries, all in one partition; ends the program if that cannot be. */
static inline void
fixture_load(PmhTable *t, PmhEntry *entries, size_t n, uint64_t expected, int fill_percent)
{
	uint32_t	depth;
	PmhBulk    *bulk;

	if (pmh_bulk_begin(t, expected, fill_percent, &depth, &bulk) != PMH_OK ||
		pmh_bulk_partition(bulk, 0, entries, n) != PMH_OK ||
		pmh_bulk_finish(bulk) != PMH_OK)
	{
		fprintf(stderr, "cannot load\n");
		exit(1);
	}
}

/* Load the values 0 .. n - 1 of one hash. */
static inline void
fixture_load_list(PmhTable *t, uint64_t hash, uint64_t n)
{
	PmhEntry   *entries = malloc(n * sizeof(*entries));

	if (entries == NULL)
		abort();
	for (uint64_t i = 0; i < n; i++)
		entries[i] = (PmhEntry) {hash, i};
	fixture_load(t, entries, n, 1, PMH_DEFAULT_FILL);
	free(entries);
}

/* Bytes of a file; ends the program if it cannot be looked at. */
static inline uint64_t
fixture_file_size(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
	{
		perror(path);
		exit(1);
	}
	return (uint64_t) st.st_size;
}

static inline void
fixture_add_piece(void *arg, const uint64_t *value, size_t n)
{
	PmhValues  *values = arg;

	if (values->n + n > values->capacity)
	{
		values->capacity = 2 * (values->n + n);
		values->value = realloc(values->value, values->capacity * sizeof(uint64_t));
		if (values->value == NULL)
			abort();
	}
	memcpy(values->value + values->n, value, n * sizeof(uint64_t));
	values->n += n;
}

/* All that pmh_lookup_repeats gives; *values is as pmh_lookup wants it. */
static inline PmhResult
fixture_lookup_repeats(PmhTable *t, uint64_t hash, PmhValues *values)
{
	values->n = 0;
	return pmh_lookup_repeats(t, hash, fixture_add_piece, values);
}

/* What a group look-up has found, to be handed on afterwards. */
typedef struct FixtureGroup
{
	size_t	   *key;
	uint64_t   *value;
	size_t		n;
} FixtureGroup;

static inline void
fixture_note_found(void *arg, size_t key, uint64_t value)
{
	FixtureGroup *group = arg;

	if ((group->n & (group->n + 1)) == 0)
	{
		group->key = realloc(group->key, (2 * group->n + 2) * sizeof(size_t));
		group->value = realloc(group->value, (2 * group->n + 2) * sizeof(uint64_t));
		if (group->key == NULL || group->value == NULL)
			abort();
	}
	group->key[group->n] = key;
	group->value[group->n++] = value;
}

/* pmh_lookup_group, and pmh_lookup for the keys with long lists. */
static inline PmhResult
fixture_lookup_group(PmhTable *t, const uint64_t *hashes, size_t n, PmhFound found, void *arg)
{
	FixtureGroup group = {0};
	PmhValues	values = {0};
	PmhResult	result = pmh_lookup_group(t, hashes, n, fixture_note_found, &group);

	for (size_t i = 0; result == PMH_OK && i < group.n; i++)
	{
		if (group.value[i] != PMH_VALUE_MANY)
		{
			found(arg, group.key[i], group.value[i]);
			continue;
		}
		result = pmh_lookup(t, hashes[group.key[i]], &values);
		for (size_t v = 0; result == PMH_OK && v < values.n; v++)
			found(arg, group.key[i], values.value[v]);
	}
	pmh_values_free(&values);
	free(group.key);
	free(group.value);
	return result;
}

/* A removal by a reader, which waits for no lock: all its steps at once. */
static inline PmhResult
fixture_delete_nowait(PmhTable *t, const PmhEntry *entries, size_t n, size_t *removed)
{
	PmhRemoval	removal;
	PmhResult	result = pmh_removal_begin(t, entries, n, false, &removal);

	*removed = 0;
	if (result != PMH_OK)
		return result;
	result = pmh_removal_step(t, &removal, SIZE_MAX);
	*removed = removal.removed;
	pmh_removal_end(&removal);
	return result == PMH_DONE ? PMH_OK : result;
}

/* A bijection of 64 bits (the finisher of SplitMix64). */
static inline uint64_t
fixture_hash(uint64_t key)
{
	uint64_t	x = key + UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static inline uint64_t
fixture_random(uint64_t *seed)
{
	*seed += UINT64_C(0x9e3779b97f4a7c15);
	return fixture_hash(*seed);
}

/* Count the values of a hash by a cursor, so many at a time; PMH_OK: to the end. */
static inline PmhResult
fixture_count_by_cursor(PmhTable *t, uint64_t hash, size_t want, uint64_t *n)
{
	PmhCursor	cursor = {0};
	PmhResult	result;

	*n = 0;
	pmh_cursor_open(t, &cursor, hash);
	while ((result = pmh_cursor_next(t, &cursor, want)) == PMH_OK)
		*n += cursor.batch.n;
	pmh_cursor_free(&cursor);
	return result == PMH_DONE ? PMH_OK : result;
}

static inline void
fixture_report(void *arg, uint64_t offset, const char *finding)
{
	fprintf(stderr, "offset %llu: %s\n", (unsigned long long) offset, finding);
}

/* Is all of it sound?  Nobody else is at work. */
#define CHECK_SOUND(t) \
	CHECK(check_alone(t, fixture_report, NULL) == PMH_OK)

#define CLOSE_SOUND(t) \
	do { \
		CHECK_SOUND(t); \
		pmh_close(t); \
	} while (0)

/* A check beside others' work. */
static inline PmhResult
fixture_check(PmhTable *t)
{
	return pmh_check(t, fixture_report, NULL);
}

/* Begin a shrink, and leave it at that. */
static inline PmhResult
fixture_begin_shrink(PmhTable *t)
{
	PmhShrink	begun;
	PmhResult	result = pmh_shrink_begin(t, PMH_DEFAULT_FILL, &begun);

	return result == PMH_DONE ? PMH_OK : result;
}

/* Shrink to the end; PMH_OK also if it does not pay. */
static inline PmhResult
fixture_shrink(PmhTable *t, int fill_percent)
{
	PmhShrink	shrink;
	PmhResult	result = pmh_shrink_begin(t, fill_percent, &shrink);

	while (result == PMH_OK)
		result = pmh_shrink_step(t, &shrink);
	return result == PMH_DONE ? PMH_OK : result;
}

/* How many locks of the fixture's tables are taken? */
static inline uint64_t
fixture_locks_held(void)
{
	const PmhLocks *locks = fixture_locks();
	uint64_t	n = 0;

	for (unsigned i = 0; i < PMH_FILE_LOCKS; i++)
		n += (locks->file[i].directory != 0) + (locks->file[i].space != 0) +
			(locks->file[i].grow != 0);
	for (uint64_t i = 0; i < locks->nstripes; i++)
		n += locks->stripe[i].lock != 0;
	return n;
}

static inline bool
fixture_no_lock_held(void)
{
	return fixture_locks_held() == 0;
}

/* For qsort and bsearch: numbers; and pairs by hash, then by value. */
static inline int
fixture_compare_numbers(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return (x > y) - (x < y);
}

static inline int
fixture_compare_entries(const void *a, const void *b)
{
	const PmhEntry *x = a;
	const PmhEntry *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return (x->value > y->value) - (x->value < y->value);
}

/* Let all value blocks be of an earlier life, as after a crash.  Nobody may be at work. */
static inline void
fixture_forget_space(PmhTable *t)
{
	uint64_t	old = 0;

	REQUIRE(pmh_map_all(t) == PMH_OK);
	for (uint64_t block = 1; block < pmh_blocks(t); block++)
	{
		uint8_t    *kind = pmh_space_kind(t, block);

		if ((pm_load(kind) & PMH_KIND_MASK) != PMH_KIND_VALUES)
			continue;
		pm_store8(kind, PMH_KIND_VALUES | PMH_ROOM_OLD);
		old++;
	}
	pm_store64(&pmh_run(t)->old_blocks, old);
}

#endif							/* PMH_FIXTURE_H */
