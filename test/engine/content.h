/*-------------------------------------------------------------------------
 *
 * content.h
 *	  What tests put into a table, take out, and look for: keys, each with its number as
 *	  its only value, and values of one hash.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CONTENT_H
#define PMH_CONTENT_H

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "fixture.h"

/* The values from .. to - 1 of a hash. */
static inline void
put_values(PmhTable *t, uint64_t hash, uint64_t from, uint64_t to)
{
	for (uint64_t v = from; v < to; v++)
		REQUIRE(pmh_insert(t, hash, v, false) == PMH_OK);
}

/* Every step-th of them is taken out at once, as VACUUM does. */
static inline void
take_values(PmhTable *t, uint64_t hash, uint64_t from, uint64_t to, uint64_t step)
{
	PmhEntry   *entry = malloc((to - from + 1) * sizeof(*entry));
	size_t		n = 0;
	size_t		removed;

	REQUIRE(entry != NULL);
	for (uint64_t v = from; v < to; v += step)
		entry[n++] = (PmhEntry) {hash, v};
	REQUIRE(pmh_delete_group(t, entry, n, &removed) == PMH_OK && removed == n);
	free(entry);
}

static inline void
put_keys(PmhTable *t, uint64_t from, uint64_t to)
{
	for (uint64_t key = from; key < to; key++)
		REQUIRE(pmh_insert(t, fixture_hash(key), key, false) == PMH_OK);
}

/* The keys from .. to - 1 but those that 'keep' divides (0: none). */
static inline void
take_keys(PmhTable *t, uint64_t from, uint64_t to, uint64_t keep)
{
	PmhEntry   *entry = malloc((to - from + 1) * sizeof(*entry));
	size_t		n = 0;
	size_t		removed;

	REQUIRE(entry != NULL);
	for (uint64_t key = from; key < to; key++)
	{
		if (keep == 0 || key % keep != 0)
			entry[n++] = (PmhEntry) {fixture_hash(key), key};
	}
	REQUIRE(pmh_delete_group(t, entry, n, &removed) == PMH_OK && removed == n);
	free(entry);
}

/* Of the keys below n just those are there that 'keep' divides (0: none). */
static inline void
check_keys(PmhTable *t, uint64_t n, uint64_t keep)
{
	PmhValues	values = {0};

	for (uint64_t key = 0; key < n; key++)
	{
		bool		there = keep != 0 && key % keep == 0;

		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		CHECK(values.n == (there ? 1 : 0) && (!there || values.value[0] == key));
	}
	pmh_values_free(&values);
}

/* A hash has so many values. */
static inline void
check_number(PmhTable *t, uint64_t hash, size_t n)
{
	PmhValues	values = {0};

	CHECK(pmh_lookup(t, hash, &values) == PMH_OK && values.n == n);
	pmh_values_free(&values);
}

/* The segment of a hash is copied to other space, as what replaces segments does. */
static inline void
move_segment(PmhTable *t, uint64_t hash)
{
	PmhResult	result;

	do
	{
		PmhBuild   *build = &pmh_workspace[0];
		PmhPlace	place;

		REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
		pmh_build_begin(t, build, pmh_elem_size(place.elem));
		build->strategy = pmh_elem_strategy(place.elem);
		for (uint32_t i = 0; i < place.buckets; i++)
			memcpy(&build->bucket[i], pmh_bucket(t, &place, i), PMH_BUCKET_SIZE);
		result = pmh_segment_replace(t, &place, NULL, 1);
		pmh_segment_unlock(&place);
	} while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	REQUIRE(result == PMH_OK);
}

/* Found of a group look-up are so many: for PmhFound. */
static inline void
count_found(void *arg, size_t key, uint64_t value)
{
	(*(uint64_t *) arg)++;
}

static inline uint32_t
directory_depth(PmhTable *t)
{
	return pmh_dirword_depth(pm_load(&pmh_live(t)->dirword));
}

static inline PmhResult
double_directory(PmhTable *t)
{
	return pmh_conclude(t, pmh_directory_double(t, directory_depth(t)));
}

/* ---- the file, and the process ---- */

/* What is in a file now. */
static inline char *
read_bytes(const char *path, size_t *size)
{
	int			fd = open(path, O_RDONLY);
	char	   *bytes;

	*size = fixture_file_size(path);
	bytes = malloc(*size);
	REQUIRE(bytes != NULL && fd >= 0 && pread(fd, bytes, *size, 0) == (ssize_t) *size);
	close(fd);
	return bytes;
}

/* Put that there; the file is the same inode as before. */
static inline void
write_bytes(const char *path, const void *bytes, size_t size)
{
	int			fd = open(path, O_RDWR | O_TRUNC);

	REQUIRE(fd >= 0 && pwrite(fd, bytes, size, 0) == (ssize_t) size);
	close(fd);
}

/* The process may have so much of something; gives what it might have before. */
static inline rlim_t
set_limit(int resource, rlim_t most)
{
	struct rlimit limit;
	rlim_t		before;

	REQUIRE(getrlimit(resource, &limit) == 0);
	before = limit.rlim_cur;
	limit.rlim_cur = most;
	REQUIRE(setrlimit(resource, &limit) == 0);
	return before;
}

/* A child process does something; how it has ended.  What it checks is its exit status. */
static inline int
in_child(void (*run) (const void *arg), const void *arg)
{
	int			status;
	pid_t		pid;

	fflush(stdout);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0)
	{
		unit_failed = 0;
		run(arg);
		_exit(unit_failed != 0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return status;
}

#endif							/* PMH_CONTENT_H */
