/*-------------------------------------------------------------------------
 *
 * pages_lengths.c
 *	  Where pages have 64 KiB: a file ends at the end of a page, and a hole in it is
 *	  whole pages, whatever has been done to the file.
 *
 * The engine is compiled with PMH_PAGE_SIZE here: it takes 64 KiB for the size of a
 * page on any machine.  posix_fallocate is wrapped when this program is linked (see the
 * Makefile).  Of a block (16 KiB) there are four to a page, so most of the lengths that
 * the header of a file tells are within one.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>

#include "holes.h"
#include "table_alone.h"

#define PAGE			((uint64_t) PMH_PAGE_SIZE)
#define FILE_BLOCK		((off_t) 4096)	/* of the file system */

static unsigned within;			/* how often the header's length was within a page */
static unsigned holes;			/* how often there was a hole */
static bool knows_extents;

/* ---- a disk that becomes full ---- */

static off_t disk;				/* files end here at the most; 0: wherever they like */

extern int	__real_posix_fallocate(int fd, off_t from, off_t len);
extern int	__wrap_posix_fallocate(int fd, off_t from, off_t len);

static bool stored_within_page;	/* something was there, and the file ended within a page */

/* A small file that is about to grow. */
static void
look_at_content(int fd)
{
	static char content[2 * PMH_PAGE_SIZE];
	ssize_t		n = pread(fd, content, sizeof(content), 0);
	ssize_t		used = n;

	while (used > 0 && content[used - 1] == 0)
		used--;
	stored_within_page |= used > 0 && n % PMH_PAGE_SIZE != 0;
}

/* As ext4 does, it takes what there is, and then says that there is no more. */
int
__wrap_posix_fallocate(int fd, off_t from, off_t len)
{
	int			err;

	look_at_content(fd);
	if (disk == 0 || from + len <= disk)
		return __real_posix_fallocate(fd, from, len);
	err = disk > from ? __real_posix_fallocate(fd, from, disk - from) : 0;
	return err != 0 ? err : ENOSPC;
}

/* ---- what is to hold ---- */

static uint64_t
recorded_length(PmhTable *t)
{
	return pmh_blocks(t) << PMH_BLOCK_SHIFT;
}

/* Where the first hole from 'at' on begins; if there is none, 'length'. */
static uint64_t
first_hole(uint64_t at, uint64_t length)
{
	int			fd = open(path, O_RDONLY);
	uint64_t	hole = length;
	uint64_t	end;

	REQUIRE(fd >= 0);
	if (knows_extents)
		hole = next_hole(fd, at, length, &end);
	close(fd);
	return hole;
}

static void
find_out(void)
{
	knows_extents = extents_are_known(path);
	if (!knows_extents)
		printf("# holes are not looked for: this file system does not tell\n");
}

/* Holes begin and end with a page. */
static void
check_pages(uint64_t length)
{
	int			fd = open(path, O_RDONLY);
	uint64_t	end = 0;

	REQUIRE(fd >= 0);
	while (knows_extents && end < length)
	{
		CHECK(next_hole(fd, end, length, &end) % PAGE == 0);
		CHECK(end % PAGE == 0);
	}
	close(fd);
}

/*
 * The file and its holes are whole pages, and all that is in use has space; figures and
 * mappings go by the header.
 */
static void
check_lengths(PmhTable *t)
{
	uint64_t	length = fixture_file_size(path);
	uint64_t	recorded = recorded_length(t);
	uint64_t	with_space = pmh_blocks_with_space(t) << PMH_BLOCK_SHIFT;
	unsigned	there;

	if (disk == 0)
	{
		CHECK(length % PAGE == 0);
		check_pages(length);
	}
	check_holes(path, t, &there);
	CHECK(pmh_whole_pages(recorded) <= length);
	CHECK(file_bytes(t) == with_space);
	within += recorded % PAGE != 0;
	holes += there;
}

/* The same after it has been closed and recovered. */
static PmhTable *
check_recovered(PmhTable *t)
{
	t = reopen(t);
	check_lengths(t);
	CHECK(t->file.bound == recorded_length(t));
	CHECK_SOUND(t);
	return t;
}

/* What can be said of a file without mapping it is as long. */
static void
check_from_outside(PmhTable *t)
{
	PmhHead		head;
	PmhError	error;

	CHECK(pmh_examine(path, &head, &error) == PMH_OK);
	CHECK(head.instance == t->instance && head.inode.size == fixture_file_size(path));
	CHECK(head.inode.allocated >= pmh_blocks_with_space(t) << PMH_BLOCK_SHIFT);
}

/* ---- a file's life ---- */

/* A new file ends with a page before anything is stored to it. */
static void
test_create(void)
{
	PmhTable   *t;

	stored_within_page = false;
	t = create();
	CHECK(!stored_within_page);
	check_lengths(t);
	pmh_close(t);
}

static PmhTable *
load(uint64_t keys)
{
	PmhTable   *t = create();

	load_unique(t, keys, PMH_DEFAULT_FILL);
	return t;
}

/* Files of many sizes, each punched where its load ends. */
static void
test_load(void)
{
	within = 0;
	for (uint64_t keys = 1000; keys < 40000; keys += 3000)
	{
		PmhTable   *t = load(keys);

		check_lengths(t);
		check_from_outside(t);
		t = check_recovered(t);
		check_keys(t, keys, 1);
		pmh_close(t);
	}
	CHECK(within > 0);
}

/* Insert keys from *key on until the file has grown, or cannot. */
static PmhResult
grow_once(PmhTable *t, uint64_t *key)
{
	uint64_t	recorded = recorded_length(t);
	PmhResult	result = PMH_OK;

	while (result == PMH_OK && recorded_length(t) == recorded)
	{
		result = pmh_insert(t, fixture_hash(*key), *key, false);
		*key += result == PMH_OK;
	}
	check_lengths(t);
	return result;
}

/* One process extends the file, another maps what it has added. */
static void
test_growth(void)
{
	PmhTable   *t = load(5000);
	PmhTable   *other = fixture_open(path, instance);
	uint64_t	key = 5000;

	for (int i = 0; i < 20; i++)
	{
		REQUIRE(grow_once(t, &key) == PMH_OK);
		CHECK_SOUND(other);
	}
	put_keys(t, key, UNIQUE_KEYS);
	check_lengths(t);
	check_keys(other, UNIQUE_KEYS, 1);
	pmh_close(other);
	pmh_close(check_recovered(t));
}

/* Space ends at any block of the file system: growth fails, and goes on when there is some. */
static void
test_full_disk(void)
{
	PmhTable   *t = load(5000);
	uint64_t	key = 5000;
	unsigned	refused = 0;

	within = 0;
	for (disk = (off_t) fixture_file_size(path); refused < 100; disk += 7 * FILE_BLOCK)
	{
		PmhResult	result;

		while ((result = grow_once(t, &key)) == PMH_OK)
			continue;
		REQUIRE(result == PMH_ERR_NO_SPACE);
		CHECK(fixture_file_size(path) <= (uint64_t) disk);
		refused++;
		if (refused % 20 == 0)
			t = check_recovered(t);
	}
	disk = 0;
	put_keys(t, key, key + 5000);
	check_lengths(t);
	CHECK_SOUND(t);
	check_keys(t, key + 5000, 1);
	pmh_close(t);
	CHECK(within > 0);
}

/*
 * A disk that has not room for a reserve: the file takes what it must have, and keeps from
 * others no more than that.
 */
static void
test_no_reserve(void)
{
	PmhTable   *t = load(10 * UNIQUE_KEYS);
	uint64_t	key = 10 * UNIQUE_KEYS;
	unsigned	kept = 0;

	REQUIRE(recorded_length(t) > 2 * 1024 * 1024);
	for (unsigned i = 0; i < 10; i++)
	{
		disk = (off_t) (pmh_whole_pages(recorded_length(t)) + 4 * PAGE);
		REQUIRE(grow_once(t, &key) == PMH_OK);
		kept += knows_extents &&
			first_hole(recorded_length(t), fixture_file_size(path)) > pmh_whole_pages(recorded_length(t));
	}
	disk = 0;
	CHECK(kept == 0);
	CHECK_SOUND(t);
	check_keys(t, key, 1);
	pmh_close(t);
}

/* What a shrink gives back is whole pages; the file takes it again. */
static void
test_shrink(void)
{
	PmhTable   *t = load(UNIQUE_KEYS);
	PmhTable   *other = fixture_open(path, instance);
	unsigned	shrunk = 0;

	holes = 0;
	check_keys(other, UNIQUE_KEYS, 1);
	for (uint64_t keep = 2; keep <= 64; keep *= 2)
	{
		sweep_out(t, keep);
		shrunk += shrink_all(t, PMH_DEFAULT_FILL);
		check_lengths(t);
		check_from_outside(t);
		check_keys(other, UNIQUE_KEYS, keep);
	}
	CHECK(shrunk > 2);
	CHECK(holes > 0 || !knows_extents);
	for (uint64_t key = 0; key < UNIQUE_KEYS; key++)
	{
		if (key % 64 != 0)
			REQUIRE(pmh_insert(other, fixture_hash(key), key, false) == PMH_OK);
	}
	check_lengths(other);
	CHECK_SOUND(t);
	check_keys(t, UNIQUE_KEYS, 1);
	pmh_close(other);
	sweep_out(t, 64);
	CHECK(shrink_all(t, PMH_DEFAULT_FILL));
	t = check_recovered(t);
	check_keys(t, UNIQUE_KEYS, 64);
	pmh_close(t);
}

/* A file that was used with smaller pages, and ends within a page, is refused. */
static void
test_other_pages(void)
{
	PmhEnv		env;
	PmhTable   *t;
	PmhError	error;
	uint64_t	keys = 1000;
	uint64_t	recorded;

	while ((recorded = recorded_length(t = load(keys))) % PAGE == 0)
	{
		pmh_close(t);
		keys += 1000;
	}
	pmh_close(t);
	REQUIRE(truncate(path, (off_t) recorded) == 0);
	env = fixture_env(++instance);
	CHECK(pmh_open(path, &env, &t, &error) == PMH_ERR_CORRUPT);
	CHECK(fixture_no_lock_held());
}

int
main(void)
{
	path = fixture_path("pages_lengths");
	find_out();
	TEST(test_create());
	TEST(test_load());
	TEST(test_growth());
	TEST(test_full_disk());
	TEST(test_no_reserve());
	TEST(test_shrink());
	TEST(test_other_pages());
	unlink(path);
	return unit_done("pages_lengths");
}
