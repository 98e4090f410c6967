/*-------------------------------------------------------------------------
 *
 * stop_cold.c
 *	  A file that is not in memory: how many bytes are read from disk for what, and that
 *	  none are while a segment is locked.
 *
 * The pages of a file that has been written back are thrown out of memory
 * (POSIX_FADV_DONTNEED); what this process then reads is in /proc/self/io, and what it looks
 * at and asks for ahead goes through mincore and madvise, which are wrapped (--wrap).  Nothing is measured in time.
 * On a file system in memory (tmpfs) nothing is read, and nothing tested.
 *
 *-------------------------------------------------------------------------
 */
#include "content.h"

#define KEYS		UINT64_C(300000)
#define LISTED		UINT64_C(2000)	/* of them, with ten values */
#define PAGE		4096
#define PROBES		400
#define SMALL_GROUP	40
#define INSERTS		20000

static const char *path;
static PmhTable *t;
static uint64_t asked;			/* calls that ask for pages */
static uint64_t looks;			/* calls that ask whether pages are in memory */
static bool watched;			/* whether anything is read after a lock was taken */
static bool locked;				/* one has been */
static uint64_t read_before;	/* bytes read by then */

/* A number of /proc/self/io. */
static uint64_t
bytes_read(void)
{
	FILE	   *f = fopen("/proc/self/io", "r");
	char		line[100];
	unsigned long long n = 0;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		(void) sscanf(line, "read_bytes: %llu", &n);
	if (f != NULL)
		fclose(f);
	return n;
}

extern int __real_madvise(void *address, size_t size, int advice);
extern int __wrap_madvise(void *address, size_t size, int advice);

int
__wrap_madvise(void *address, size_t size, int advice)
{
	asked += advice == MADV_WILLNEED;
	return __real_madvise(address, size, advice);
}

extern int __real_mincore(void *address, size_t size, unsigned char *resident);
extern int __wrap_mincore(void *address, size_t size, unsigned char *resident);

int
__wrap_mincore(void *address, size_t size, unsigned char *resident)
{
	looks++;
	return __real_mincore(address, size, resident);
}

void
pmh_stop_point(const char *name)
{
	if (!watched || (strcmp(name, "short_before_lock") != 0 &&
					 strcmp(name, "segment_before_lock") != 0))
		return;
	locked = true;
	read_before = bytes_read();
}

/* Throw all pages of the file out of memory.  False if they cannot be. */
static bool
cool_down(void)
{
	unsigned char resident[64];
	int			fd;
	void	   *start;
	bool		cold = true;

	pmh_close(t);
	fd = open(path, O_RDWR);
	(void) fsync(fd);
	(void) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	start = mmap(NULL, 64 * PAGE, PROT_READ, MAP_SHARED, fd, 64 * PAGE);
	(void) mincore(start, 64 * PAGE, resident);
	for (int i = 0; i < 64; i++)
		cold &= (resident[i] & 1) == 0;
	munmap(start, 64 * PAGE);
	close(fd);
	t = fixture_open(path, 1);
	return cold;
}

static void
fill(void)
{
	size_t		done;
	PmhEntry   *entries = malloc((KEYS + 9 * LISTED) * sizeof(PmhEntry));
	size_t		n = 0;

	for (uint64_t key = 0; key < KEYS; key++)
	{
		for (unsigned i = 0; i < (key < LISTED ? 10 : 1); i++)
			entries[n++] = (PmhEntry) {fixture_hash(key), key * 16 + i};
	}
	CHECK(pmh_insert_group(t, entries, n, false, &done) == PMH_OK && done == n);
	free(entries);
}

/* A page for each key, and hardly more. */
static void
test_single_look_ups(void)
{
	PmhValues	values = {0};
	uint64_t	before;

	(void) pmh_lookup(t, fixture_hash(1), &values);
	before = bytes_read();
	for (uint64_t i = 0; i < PROBES; i++)
		CHECK(pmh_lookup(t, fixture_hash(KEYS + i), &values) == PMH_OK && values.n == 0);
	before = bytes_read() - before;
	CHECK(before > PROBES * PAGE / 4);	/* or nothing is tested */
	CHECK(before <= PROBES * 2 * PAGE);
	pmh_values_free(&values);
}

/* All pages of a group are asked for; if they are there, none. */
static void
test_group_look_ups(uint64_t first)
{
	uint64_t	hash[PROBES];
	uint64_t	found = 0;
	uint64_t	pages = first < LISTED ? 2 * PROBES : PROBES;	/* and that of the list */

	for (uint64_t i = 0; i < PROBES; i++)
		hash[i] = fixture_hash(first + i);
	asked = 0;
	CHECK(pmh_lookup_group(t, hash, PROBES, count_found, &found) == PMH_OK);
	CHECK(found == PROBES * (first < LISTED ? 10 : 1));
	CHECK(asked >= pages && asked < 2 * pages);
	for (unsigned i = 0; i < 20; i++)
		CHECK(pmh_lookup_group(t, hash, PROBES, count_found, &found) == PMH_OK);
	asked = 0;
	CHECK(pmh_lookup_group(t, hash, PROBES, count_found, &found) == PMH_OK);
	CHECK(asked == 0);

	/* A system call takes as long as eight keys: one serves many groups. */
	looks = 0;
	for (unsigned i = 0; i < 5 * PROBES; i += SMALL_GROUP)
		CHECK(pmh_lookup_group(t, hash + i % PROBES, SMALL_GROUP, count_found, &found) == PMH_OK);
	CHECK(looks <= 2);
	CHECK(asked == 0);
}

static void
test_group_inserts(void)
{
	PmhEntry	entries[PROBES];
	size_t		done;

	for (uint64_t i = 0; i < PROBES; i++)
		entries[i] = (PmhEntry) {fixture_hash(2 * KEYS + i), i};
	asked = 0;
	CHECK(pmh_insert_group(t, entries, PROBES, false, &done) == PMH_OK && done == PROBES);
	CHECK(asked >= 2 * PROBES);
	asked = 0;
	CHECK(pmh_delete_group(t, entries, PROBES, &done) == PMH_OK && done == PROBES);
	CHECK(asked >= PROBES);
}

/* Nothing is read while a segment is locked, but for new value buffers. */
static void
test_locks(void)
{
	uint64_t	blocked = 0;
	uint64_t	took_lock = 0;
	const PmhRun *run = pmh_run(t);
	uint64_t	before = run->splits + run->grows;

	watched = true;
	for (uint64_t i = 0; i < INSERTS; i++)
	{
		locked = false;
		if (i % 4 == 3)
			CHECK(pmh_delete(t, fixture_hash(LISTED + i), (LISTED + i) * 16) == PMH_OK);
		else
			CHECK(pmh_insert(t, fixture_hash(3 * KEYS + i), i, false) == PMH_OK);
		took_lock += locked;
		blocked += bytes_read() > read_before;
	}
	watched = false;
	CHECK(took_lock == INSERTS);
	CHECK(run->splits + run->grows > before);
	CHECK(blocked == 0);
}

/* What a walk reads next is asked for. */
static void
test_sweep(void)
{
	PmhSweep	sweep;
	uint64_t	entries = 0;

	asked = 0;
	CHECK(pmh_sweep_begin_reading(t, &sweep) == PMH_OK);
	while (pmh_sweep_next(t, &sweep) == PMH_OK)
		entries += sweep.n;
	CHECK(entries > KEYS);
	CHECK(asked >= sweep.segments_done);
	pmh_sweep_end(&sweep);
}

int
main(void)
{
	path = fixture_path("cold");
	t = fixture_create(path);
	fill();
	if (cool_down())
	{
		TEST(test_single_look_ups());
		REQUIRE(cool_down());
		TEST(test_group_look_ups(LISTED));
		REQUIRE(cool_down());
		TEST(test_group_look_ups(0));
		REQUIRE(cool_down());
		TEST(test_group_inserts());
		REQUIRE(cool_down());
		TEST(test_locks());
		REQUIRE(cool_down());
		TEST(test_sweep());
	}
	CHECK(fixture_check(t) == PMH_OK);
	pmh_close(t);
	unlink(path);
	return unit_done("stop_cold");
}
