/*-------------------------------------------------------------------------
 *
 * large_file.c
 *	  Files up to the greatest size that there can be: what a sweep needs fits in
 *	  them, and the end of growth is an error that says so.
 *
 * They are sparse: posix_fallocate only makes a file longer here, and space
 * that is not read is taken from the space map.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>

#include "content.h"
#include "sweeps.h"

#define KEYS			UINT64_C(200)	/* with a list each */
#define LIST			UINT64_C(40)
#define GIB(n)			((uint64_t) (n) << 30)
#define LONG_RUN		4096

static const char *path;

int			__wrap_posix_fallocate(int fd, off_t offset, off_t len);

int
__wrap_posix_fallocate(int fd, off_t offset, off_t len)
{
	struct stat st;

	if (fstat(fd, &st) != 0 ||
		(st.st_size < offset + len && ftruncate(fd, offset + len) != 0))
		return errno;
	return 0;
}

static size_t largest;			/* bytes that were allocated at once, and cleared */

void	   *__wrap_calloc(size_t n, size_t size);
void	   *__real_calloc(size_t n, size_t size);

void *
__wrap_calloc(size_t n, size_t size)
{
	if (n * size > largest)
		largest = n * size;
	return __real_calloc(n, size);
}

static PmhTable *
make_table(void)
{
	PmhTable   *t = fixture_create(path);

	for (uint64_t key = 0; key < KEYS; key++)
		put_values(t, fixture_hash(key), key << 20, (key << 20) + LIST);
	return t;
}

static uint64_t
file_bytes(const PmhTable *t)
{
	return pmh_blocks(t) << PMH_BLOCK_SHIFT;
}

/*
 * Take runs of blocks until the file has so many bytes, or cannot grow.  Nothing
 * is free before the last one, so it need not be looked for there again.
 */
static PmhResult
fill(PmhTable *t, uint64_t nblocks, uint64_t bytes)
{
	PmhResult	result = PMH_OK;
	uint64_t	offset;

	while (result == PMH_OK && file_bytes(t) < bytes)
	{
		result = pmh_provide_extent(t, nblocks, &offset);
		if (result == PMH_OK)
			pm_store64(&pmh_run(t)->space_hint, (offset >> PMH_BLOCK_SHIFT) + nblocks);
	}
	return pmh_conclude(t, result);
}

/* A sweep that is to find out what is free, and takes out what is in 'odd' keys. */
static void
sweep(PmhTable *t, bool odd)
{
	Sweeper		s;
	const PmhEntry *pair;

	fixture_forget_space(t);
	sweeper_begin(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		if (odd && (pair->value >> 20 & 1) != 0)
			sweeper_take_out(&s);
	}
	CHECK(sweeper_end(&s) == PMH_OK);
}

static void
check_lists(PmhTable *t, bool odd)
{
	for (uint64_t key = 0; key < KEYS; key++)
		check_number(t, fixture_hash(key), odd || key % 2 == 0 ? LIST : 0);
}

/*
 * The check beside writers: its memory does not grow with the file.  (To know what every
 * block is used for would take 1 GB here.)
 */
static void
test_check(void)
{
	PmhTable   *t = make_table();

	REQUIRE(fill(t, LONG_RUN, GIB(129)) == PMH_OK);
	largest = 0;
	CHECK(fixture_check(t) == PMH_OK);
	CHECK(largest < 1 << 20);
	pmh_close(t);
	unlink(path);
}

/* Until nothing is left: then what is there can be read, and taken out. */
static void
test_end(void)
{
	PmhTable   *t = make_table();
	uint64_t	offset;
	PmhResult	result;

	REQUIRE(fill(t, LONG_RUN, UINT64_MAX) == PMH_ERR_TOO_LARGE);
	CHECK(strstr(pmh_error(t)->detail, "it may have 262143") != NULL);
	CHECK(file_bytes(t) <= PMH_MAX_BLOCKS << PMH_BLOCK_SHIFT);
	CHECK(file_bytes(t) + (LONG_RUN + 1) * PMH_BLOCK_SIZE > PMH_MAX_BLOCKS << PMH_BLOCK_SHIFT);
	REQUIRE(fill(t, 1, UINT64_MAX) == PMH_ERR_TOO_LARGE);

	sweep(t, false);
	CHECK(pmh_value_space_is_known(t));
	check_lists(t, true);
	sweep(t, true);
	check_lists(t, false);
	for (uint64_t key = KEYS;; key++)
	{
		result = pmh_insert(t, fixture_hash(key), key, false);
		if (result != PMH_OK)
			break;
	}
	CHECK(result == PMH_ERR_TOO_LARGE);
	check_lists(t, false);

	/* What can never be there is refused at once, without growing for it. */
	CHECK(pmh_space_alloc_extent(t, PMH_LONGEST_EXTENT + 1, &offset) == PMH_ERR_TOO_LARGE);
	pmh_close(t);
	unlink(path);
}

int
main(void)
{
	/* Sparse files are quick in memory, and slow on some file systems. */
	if (access("/dev/shm", W_OK) == 0)
		(void) setenv("TMPDIR", "/dev/shm", 1);
	path = fixture_path("large_file");
	TEST(test_check());
	TEST(test_end());
	return unit_done("large_file");
}
