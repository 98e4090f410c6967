/*-------------------------------------------------------------------------
 *
 * mappings.c
 *	  What a handle takes of its process: no descriptor, one mapping, addresses
 *	  in proportion to the file; and what happens when there is none to be had,
 *	  or when the file has lost its name.
 *
 *-------------------------------------------------------------------------
 */
#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>

#include "content.h"

#define KEYS		UINT64_C(20000)
#define LARGE		(5 * KEYS)		/* more than the first mapping has room for */
#define FILES		40

static const char *path;
static PmhValues values;

/* ---- a kernel before 6.12 ---- */

/*
 * There mmap with MAP_FIXED has unmapped what was at that place when it finds that it
 * cannot go on, by strict accounting (vm.overcommit_memory = 2) of private memory that can
 * be written.
 */
static bool strict;

extern void *__real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t at);
extern void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t at);

void *
__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t at)
{
	bool		fixed = (flags & MAP_FIXED) != 0;

	if ((flags & MAP_ANONYMOUS) == 0 || !strict || (prot & PROT_WRITE) == 0 ||
		len <= pmh_whole_pages(1))
		return __real_mmap(addr, len, prot, flags, fd, at);
	if (fixed)
		(void) munmap(addr, len);
	errno = ENOMEM;
	return MAP_FAILED;
}

/* ---- what a process has ---- */

static unsigned
open_descriptors(void)
{
	DIR		   *dir = opendir("/proc/self/fd");
	unsigned	n = 0;

	REQUIRE(dir != NULL);
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

static unsigned
mapped_areas(void)
{
	FILE	   *maps = fopen("/proc/self/maps", "r");
	unsigned	n = 0;
	int			c;

	REQUIRE(maps != NULL);
	while ((c = fgetc(maps)) != EOF)
		n += c == '\n';
	fclose(maps);
	return n;
}

/* No more descriptors, or addresses, than there are; true: as many as before. */
static void
allow(int resource, bool more)
{
	static rlim_t before;

	if (more)
		(void) set_limit(resource, before);
	else
		before = set_limit(resource, resource == RLIMIT_NOFILE ? 3 : 1);
}

/* No more addresses than it has now, and so many more. */
static void
allow_addresses(uint64_t more)
{
	FILE	   *f = fopen("/proc/self/statm", "r");
	unsigned long pages;

	REQUIRE(f != NULL && fscanf(f, "%lu", &pages) == 1);
	fclose(f);
	allow(RLIMIT_AS, false);
	(void) set_limit(RLIMIT_AS, pages * 4096 + more);
}

/* ---- a table ---- */

/* From 'key' on until there are n, or one fails; *key is that one. */
static PmhResult
insert(PmhTable *t, uint64_t *key, uint64_t n)
{
	PmhResult	result = PMH_OK;

	while (*key < n && (result = pmh_insert(t, fixture_hash(*key), *key, false)) == PMH_OK)
		(*key)++;
	return result;
}

/* ---- descriptors ---- */

static void
test_no_descriptor(void)
{
	PmhEnv		env = fixture_env(1);
	unsigned	before = open_descriptors();
	PmhTable   *t = fixture_create(path);
	PmhTable   *other = fixture_open(path, 1);
	PmhTable   *third;
	PmhError	error;
	uint64_t	key = 0;
	PmhHead		head;
	size_t		mapped;

	CHECK(open_descriptors() == before);
	REQUIRE(insert(t, &key, KEYS) == PMH_OK);
	CHECK(open_descriptors() == before);

	/* Readers need none, whatever others have added. */
	mapped = other->file.bound;
	allow(RLIMIT_NOFILE, false);
	check_keys(other, KEYS, 1);
	CHECK(other->file.bound > mapped);

	/* Writers need one when the file has to grow; nothing is lost. */
	CHECK(insert(t, &key, 3 * KEYS) == PMH_ERR_NO_DESCRIPTOR);
	CHECK(pmh_error(t)->sys_errno == EMFILE && pmh_error(t)->detail[0] != '\0');
	CHECK(pmh_open(path, &env, &third, &error) == PMH_ERR_NO_DESCRIPTOR);
	CHECK(pmh_examine(path, &head, &error) == PMH_ERR_NO_DESCRIPTOR);
	CHECK(pmh_shut(path, &env, 5, 0, &error) == PMH_ERR_NO_DESCRIPTOR);
	check_keys(t, key, 1);
	allow(RLIMIT_NOFILE, true);
	CHECK(insert(t, &key, 3 * KEYS) == PMH_OK);
	check_keys(other, 3 * KEYS, 1);
	CHECK_SOUND(t);
	pmh_close(other);
	pmh_close(t);
	CHECK(open_descriptors() == before);
}

/* ---- addresses ---- */

/* One area a file, and few more when it has grown. */
static void
test_areas(void)
{
	static PmhTable *table[FILES];
	char		name[FILES][100];
	unsigned	before = mapped_areas();

	for (int i = 0; i < FILES; i++)
	{
		uint64_t	key = 0;

		snprintf(name[i], sizeof(name[i]), "%.80s.%d", path, i);
		table[i] = fixture_create(name[i]);
		CHECK(table[i]->file.addresses == 1024 * 1024);
		REQUIRE(insert(table[i], &key, i % 8 == 0 ? LARGE : KEYS) == PMH_OK);
		CHECK((table[i]->file.outgrown != NULL) == (i % 8 == 0));
		CHECK(table[i]->file.addresses <= 16 * table[i]->file.bound);
	}
	/* malloc has a few of its own. */
	CHECK(mapped_areas() - before <= FILES + FILES / 2);
	for (int i = 0; i < FILES; i++)
	{
		check_keys(table[i], KEYS, 1);
		pmh_close(table[i]);
		unlink(name[i]);
	}
}

/* Where there are few addresses, so many times the file's size, others need them, too. */
static void
test_few_addresses(uint64_t times)
{
#ifndef __SANITIZE_ADDRESS__
	PmhTable   *t = fixture_create(path);
	uint64_t	key = 0;

	REQUIRE(insert(t, &key, KEYS) == PMH_OK);
	pmh_close(t);
	allow_addresses(times * fixture_file_size(path));
	t = fixture_open(path, 1);
	CHECK(t->file.addresses >= t->file.bound &&
		  t->file.addresses <= pmh_whole_pages(t->file.bound + t->file.bound / 8));
	check_keys(t, KEYS, 1);
	allow(RLIMIT_AS, true);
	CHECK(insert(t, &key, LARGE) == PMH_OK);
	check_keys(t, LARGE, 1);
	pmh_close(t);
#endif
}

/*
 * What others let a file grow by can be read without a system call: the mapping is where
 * it was, and as long.
 */
static void
test_grown_by_others(void)
{
	PmhTable   *t = fixture_create(path);
	PmhTable   *other = fixture_open(path, 1);
	const char *base = other->file.base;
	size_t		bound = other->file.bound;
	uint64_t	key = 0;

	REQUIRE(insert(t, &key, KEYS) == PMH_OK);
	CHECK(other->file.bound == bound);
	check_keys(other, KEYS, 1);
	CHECK(other->file.base == base && other->file.outgrown == NULL);
	CHECK(other->file.bound > 4 * bound && other->file.bound <= t->file.bound);
	pmh_close(other);
	pmh_close(t);
}

/* ---- pointers ---- */

#define GROWTHS		7

/* A pointer stays good and sees what is stored, however far the file grows. */
static void
test_old_pointers(void)
{
	PmhTable   *t = fixture_create(path);
	char	   *pointer[GROWTHS];
	uint64_t	place[GROWTHS];
	size_t		size = t->file.bound;

	for (unsigned i = 0; i < GROWTHS; i++)
	{
		place[i] = size - PMH_LINE;
		pointer[i] = pmh_at(t, place[i]);
		REQUIRE(pm_extend(&t->file, size, 4 * size, &t->error) == PMH_OK);
		size *= 4;
		REQUIRE(pm_raise_bound(&t->file, size, &t->error) == PMH_OK);
	}
	CHECK(t->file.outgrown != NULL && t->file.outgrown->next != NULL);
	for (unsigned i = 0; i < GROWTHS; i++)
	{
		strcpy(pointer[i], "by an old pointer");
		CHECK(strcmp(pmh_at(t, place[i]), "by an old pointer") == 0);
		strcpy(pmh_at(t, place[i]), "by a new one");
		CHECK(strcmp(pointer[i], "by a new one") == 0);
	}

	/* A fault in an old mapping is one of the file. */
	REQUIRE(truncate(path, PMH_HEADER_SIZE) == 0);
	CHECK(pm_load((uint64_t *) (void *) pointer[2]) == 0);
	CHECK(pm_is_lost(&t->file) && t->file.lost - 1 <= place[2]);
	CHECK(pmh_conclude(t, PMH_OK) == PMH_ERR_LOST);
	pmh_close(t);
	pmh_locks_init(fixture_locks(), FIXTURE_STRIPES);
}

/* ---- a file without its name ---- */

/* It can be used until it has to grow; another file of that name is let alone. */
static void
test_name_is_gone(bool replaced)
{
	PmhTable   *t = fixture_create(path);
	PmhTable   *another = NULL;
	uint64_t	key = 0;
	struct stat st;

	REQUIRE(insert(t, &key, KEYS) == PMH_OK);
	unlink(path);
	if (replaced)
	{
		another = fixture_create(path);
		CHECK(stat(path, &st) == 0);
	}
	CHECK(insert(t, &key, 10 * KEYS) == PMH_ERR_NO_FILE);
	CHECK(pmh_error(t)->detail[0] != '\0');
	check_keys(t, key, 1);
	CLOSE_SOUND(t);
	if (another != NULL)
	{
		off_t		size = st.st_size;

		CHECK(stat(path, &st) == 0 && st.st_size == size);
		CLOSE_SOUND(another);
	}
}

/* ---- memory that is short ---- */

/* Of a file that has lost much, one page at a time can be replaced by zeroes. */
static void
test_zeroes_are_short(void)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	key = 0;
	size_t		size;
	unsigned char core;

	REQUIRE(insert(t, &key, KEYS) == PMH_OK);
	size = t->file.bound;
	REQUIRE(truncate(path, (off_t) PMH_HEADER_SIZE) == 0);
	strict = true;
	for (size_t at = size / 2 / 4096 * 4096; at < size; at += 4096)
	{
		/* Nothing is at an address that others could take. */
		REQUIRE(mincore(t->file.base + at, 4096, &core) == 0);
		CHECK(pm_load((uint64_t *) pmh_at(t, at)) == 0);
	}
	strict = false;
	CHECK(pm_is_lost(&t->file) && pmh_conclude(t, PMH_OK) == PMH_ERR_LOST);
	pmh_close(t);
	pmh_locks_init(fixture_locks(), FIXTURE_STRIPES);
}

/* ---- a bucket in the part that is not mapped ---- */

/*
 * Is the home bucket of this hash in the part of the file that a handle has mapped, and
 * its alternative one, which ends at *end, not?
 */
static bool
alternative_is_beyond(const PmhTable *t, uint64_t hash, uint64_t *end)
{
	PmhHome		home;
	uint32_t	hashing;

	if (!pmh_home_find(t, hash, &home) || !pmh_home_current(&home))
		return false;
	hashing = pmh_elem_hashing(home.elem);
	*end = PMH_BUCKET_SIZE +
		pmh_elem_bucket_offset(home.elem,
							   pmh_alt_bucket(hash, hashing, pmh_home_bucket(hash, hashing)));
	return *end > t->file.bound;
}

/*
 * Another handle has made the file longer: the short way to a bucket is not taken then
 * (lock_spot in entry.c), and all of the segment is mapped before it is written to.
 */
static void
test_alternative_is_beyond(void)
{
	PmhTable   *t = fixture_create(path);
	PmhTable   *other = fixture_open(path, 1);
	uint64_t	key = 0;
	uint64_t	mine = UINT64_C(1) << 40;
	unsigned	met = 0;

	for (unsigned round = 0; round < 100; round++)
	{
		uint64_t	end;

		REQUIRE(insert(other, &key, key + 2000) == PMH_OK);
		for (unsigned i = 0; i < 2000; i++, mine++)
		{
			if (!alternative_is_beyond(t, fixture_hash(mine), &end))
				continue;
			REQUIRE(pmh_insert(t, fixture_hash(mine), mine, false) == PMH_OK);
			CHECK(t->file.bound >= end);
			met++;
			break;
		}
		REQUIRE(pmh_lookup(t, fixture_hash(key - 1), &values) == PMH_OK);
	}
	CHECK(met >= 2);
	pmh_close(other);
	pmh_close(t);
}

/*
 * The same of the stash: a handle knows of the file as far as an extension with home and
 * alternative, both full, and the main part lies further up.
 */
static void
test_stash_is_beyond(void)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	key = 0;
	unsigned	met = 0;

	REQUIRE(insert(t, &key, 40000) == PMH_OK);
	for (uint64_t i = 0; i < 20000; i++)
	{
		uint64_t	hash = fixture_hash(key + i) & ~UINT64_C(0xff);

		for (uint64_t low = 0; low < 40; low++)
		{
			PmhPlace	place;
			uint32_t	home;
			uint32_t	alt;

			REQUIRE(pmh_locate(t, hash, &place) == PMH_OK);
			home = pmh_home_bucket(hash, place.hashing);
			alt = pmh_alt_bucket(hash, place.hashing, home);
			if (place.ext == 0 || place.ext > place.main || home < PMH_IN_MAIN ||
				alt < PMH_IN_MAIN)
				break;
			if (pmh_state_full(pmh_bucket_state(pmh_bucket(t, &place, home)) &
							   pmh_bucket_state(pmh_bucket(t, &place, alt))))
			{
				t->file.bound = place.stash;
				met++;
			}
			REQUIRE(pmh_insert(t, hash | low, low, false) == PMH_OK);
			CHECK(t->file.bound > place.stash);
		}
	}
	CHECK(met > 20);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("mappings");
	TEST(test_no_descriptor());
	TEST(test_few_addresses(3));
	TEST(test_few_addresses(14));
	TEST(test_grown_by_others());
	TEST(test_areas());
	TEST(test_old_pointers());
	TEST(test_name_is_gone(false));
	TEST(test_name_is_gone(true));
	TEST(test_zeroes_are_short());
	TEST(test_alternative_is_beyond());
	TEST(test_stash_is_beyond());
	pmh_values_free(&values);
	unlink(path);
	return unit_done("mappings");
}
