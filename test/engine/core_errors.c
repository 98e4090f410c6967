/*-------------------------------------------------------------------------
 *
 * core_errors.c
 *	  What can go wrong with a file: absent, there already, short, foreign,
 *	  damaged, no space left.  Each is an error; nothing crashes.  And what is none: a
 *	  file that is examined while it changes.
 *	  (Space that ends while a file grows: core_faults.c.  Damage of what recovery begins with: flipped_bits.c; anywhere: test/fuzz.)
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "content.h"

static const char *path;

/* A file with n keys, some of them with lists. */
static void
make_file(uint64_t n)
{
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;
	PmhError	error;
	char		identity[PMH_IDENTITY_SIZE] = "an identity";

	unlink(path);
	REQUIRE(pmh_create(path, identity, &env, &t, &error) == PMH_OK);
	for (uint64_t k = 0; k < n; k++)
	{
		REQUIRE(pmh_insert(t, fixture_hash(k), k, false) == PMH_OK);
		for (uint64_t v = 1; k % 50 == 0 && v < 30; v++)
			REQUIRE(pmh_insert(t, fixture_hash(k), v << 32 | k, false) == PMH_OK);
	}
	pmh_close(t);
}

static void
patch(uint64_t offset, const void *bytes, size_t len)
{
	int			fd = open(path, O_RDWR);

	REQUIRE(fd >= 0);
	REQUIRE(pwrite(fd, bytes, len, (off_t) offset) == (ssize_t) len);
	close(fd);
}

static PmhResult
try_open(uint64_t instance, PmhError *error)
{
	PmhEnv		env = fixture_env(instance);
	PmhTable   *t = (PmhTable *) &env;
	PmhResult	result = pmh_open(path, &env, &t, error);

	if (result == PMH_OK)
		pmh_close(t);
	else
	{
		CHECK(t == NULL);
		CHECK(error->code == result);
		CHECK(error->detail[0] != '\0' && error->detail[strlen(error->detail) - 1] == '.');
	}
	return result;
}

static void
test_create(void)
{
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;
	PmhError	error;
	struct stat st;
	PmhHead		head;

	unlink(path);
	CHECK(try_open(1, &error) == PMH_ERR_NO_FILE);
	CHECK(pmh_examine(path, &head, &error) == PMH_ERR_NO_FILE);
	CHECK(pmh_create("/nonexistent/dir/file", NULL, &env, &t, &error) == PMH_ERR_NO_FILE);
	CHECK(error.sys_errno == ENOENT);

	make_file(10);
	REQUIRE(stat(path, &st) == 0);
	CHECK((st.st_mode & 0777) == 0600);
	CHECK(st.st_size < 1024 * 1024);
	CHECK(pmh_examine(path, &head, &error) == PMH_OK);
	CHECK(strcmp((char *) head.identity, "an identity") == 0);
	CHECK(pmh_create(path, NULL, &env, &t, &error) == PMH_ERR_EXISTS);
	CHECK(error.sys_errno == EEXIST);
	CHECK(fixture_file_size(path) == (uint64_t) st.st_size);
	CHECK(try_open(1, &error) == PMH_OK);
}

/* The caller's note: 0 at first, written by path and through a mapping, alone. */
static void
test_note(void)
{
	const uint64_t words[2] = {11, 12};
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;
	PmhError	error;
	PmhHead		head;

	make_file(10);
	CHECK(pmh_examine(path, &head, &error) == PMH_OK);
	for (int i = 0; i < PMH_NOTE_WORDS; i++)
		CHECK(head.note[i] == 0);
	REQUIRE(pmh_open(path, &env, &t, &error) == PMH_OK);
	CHECK(pmh_write_note(path, PMH_NOTE_WORDS - 2, words, 2));
	CHECK(pmh_store_note(t, 0, 7) == PMH_OK);
	CHECK(pmh_examine(path, &head, &error) == PMH_OK);
	CHECK(head.note[0] == 7 && head.note[1] == 0 && head.note[PMH_NOTE_WORDS - 1] == 12 &&
		  head.note[PMH_NOTE_WORDS - 2] == 11);
	CHECK(strcmp((char *) head.identity, "an identity") == 0);
	pmh_close(t);
	CHECK(try_open(1, &error) == PMH_OK);
	CHECK(!pmh_write_note("/nonexistent/dir/file", 0, words, 1) && errno == ENOENT);
}

/* A file with these bytes is refused as such a one, whether it is opened or examined. */
static void
check_refused(PmhResult as, uint64_t offset, const void *bytes, size_t len)
{
	PmhError	error;
	PmhHead		head;

	make_file(10);
	patch(offset, bytes, len);
	CHECK(try_open(1, &error) == as && pmh_examine(path, &head, &error) == as);
}

static void
test_header(void)
{
	PmhError	error;
	PmhHead		head;
	uint32_t	version = 99;
	uint64_t	zero = 0;
	uint64_t	flipped = pmh_seal_blocks(1) ^ UINT64_C(1) << 50;

	CHECK(pmh_crc32c("123456789", 9) == UINT32_C(0xe3069283));
	check_refused(PMH_ERR_VERSION, offsetof(PmhFormat, version), &version, sizeof(version));
	check_refused(PMH_ERR_CORRUPT, offsetof(PmhFormat, identity), "x", 1);
	check_refused(PMH_ERR_CORRUPT, PMH_LIVE_OFFSET + offsetof(PmhLive, blocks), &flipped, sizeof(flipped));
	/* As a crash in the middle of pmh_create leaves it. */
	check_refused(PMH_ERR_FORMAT, 0, &zero, sizeof(zero));

	/* Cut off: an error, not SIGBUS. */
	make_file(10);
	REQUIRE(truncate(path, 100) == 0);
	CHECK(try_open(1, &error) == PMH_ERR_FORMAT);
	CHECK(pmh_examine(path, &head, &error) == PMH_ERR_FORMAT);
	make_file(20000);
	REQUIRE(truncate(path, (off_t) fixture_file_size(path) / 2) == 0);
	CHECK(pmh_examine(path, &head, &error) == PMH_ERR_CORRUPT);
	CHECK(try_open(2, &error) == PMH_ERR_CORRUPT);

	/* Within a page, whose rest reads as zeroes then; in the run that has made the file. */
	make_file(20000);
	REQUIRE(truncate(path, (off_t) fixture_file_size(path) - 100) == 0);
	CHECK(try_open(1, &error) == PMH_ERR_CORRUPT);
}

/* No space: nothing is left of a file that cannot be created. */
static void
test_no_space(void)
{
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;
	PmhError	error;
	rlim_t		before;

	unlink(path);
	REQUIRE(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	before = set_limit(RLIMIT_FSIZE, 4096);
	CHECK(pmh_create(path, NULL, &env, &t, &error) == PMH_ERR_NO_SPACE);
	CHECK(error.sys_errno == EFBIG);
	CHECK(access(path, F_OK) != 0);
	(void) set_limit(RLIMIT_FSIZE, before);
}

/*
 * ---- a file that is examined while it changes ----
 *
 * Its directory moves to a part that has just been added to it: it is a sound file at any
 * moment, whichever words of the header a read comes to first.  pread is wrapped when this
 * program is linked (see the Makefile): it reads one piece of what it is to read, the file
 * becomes the other one, and it reads the rest.
 */

#define MOST_READS		10		/* of one examination */

static char small[PMH_HEADER_SIZE];	/* the header before growth and doubling ... */
static char large[PMH_HEADER_SIZE];	/* ... and after it */

static int	reads;				/* so far */
static int	changing;			/* the read that meets the change; 0: none does */
static bool upwards;			/* it reads the lower words first */
static const char *becomes;
static int	writable = -1;

extern ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
extern ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);

static void
store_header(const char *header)
{
	REQUIRE(pwrite(writable, header, PMH_HEADER_SIZE, 0) == PMH_HEADER_SIZE);
}

ssize_t
__wrap_pread(int fd, void *to, size_t n, off_t at)
{
	/* Between the word of the directory and that of the length, if both are read. */
	off_t		middle = PMH_LIVE_OFFSET + offsetof(PmhLive, dirword) + sizeof(uint64_t);
	size_t		lower = middle > at && (size_t) (middle - at) < n ? (size_t) (middle - at) : 0;
	size_t		first = upwards ? 0 : lower;
	size_t		second = upwards ? lower : 0;

	if (++reads != changing)
		return __real_pread(fd, to, n, at);
	REQUIRE(offsetof(PmhLive, blocks) > offsetof(PmhLive, dirword));
	if (lower == 0)
	{
		if (!upwards)
			store_header(becomes);
		REQUIRE(__real_pread(fd, to, n, at) == (ssize_t) n);
		store_header(becomes);
		return (ssize_t) n;
	}
	REQUIRE(__real_pread(fd, (char *) to + first, upwards ? lower : n - lower,
						 at + (off_t) first) > 0);
	store_header(becomes);
	REQUIRE(__real_pread(fd, (char *) to + second, upwards ? n - lower : lower,
						 at + (off_t) second) > 0);
	return (ssize_t) n;
}

/* A table whose directory moves to where its file did not reach before. */
static void
make_files(void)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	length;
	uint32_t	depth = 0;

	do
	{
		length = pmh_blocks(t) << PMH_BLOCK_SHIFT;
		memcpy(small, pmh_at(t, 0), sizeof(small));
		REQUIRE(pmh_conclude(t, pmh_directory_double(t, depth++)) == PMH_OK);
	} while (pmh_dirword_offset(pm_load(&pmh_live(t)->dirword)) < length);
	memcpy(large, pmh_at(t, 0), sizeof(large));
	pmh_close(t);
}

static PmhResult
examine(void)
{
	PmhHead		head;
	PmhError	error;

	reads = 0;
	return pmh_examine(path, &head, &error);
}

static void
test_change(const char *from, const char *to)
{
	becomes = to;
	for (int order = 0; order < 2; order++)
	{
		upwards = order == 1;
		for (changing = 1; changing < MOST_READS; changing++)
		{
			store_header(from);
			CHECK(examine() == PMH_OK);
		}
		CHECK(reads < MOST_READS);
	}
	changing = 0;
	CHECK(examine() == PMH_OK);
}

/* (So it is seen if a header that belongs to no moment were believed.) */
static void
test_mixture(void)
{
	const PmhLive *grown = (const PmhLive *) (const void *) (large + PMH_LIVE_OFFSET);
	_Alignas(PmhLive) char mixed[PMH_HEADER_SIZE];

	memcpy(mixed, small, sizeof(mixed));
	((PmhLive *) (void *) (mixed + PMH_LIVE_OFFSET))->dirword = grown->dirword;
	store_header(mixed);
	CHECK(examine() == PMH_ERR_CORRUPT);
}

int
main(void)
{
	path = fixture_path("core_errors");
	TEST(test_create());
	TEST(test_note());
	TEST(test_header());
	TEST(test_no_space());
	make_files();
	writable = open(path, O_RDWR);
	REQUIRE(writable >= 0);
	TEST(test_change(small, large));
	TEST(test_mixture());
	close(writable);
	unlink(path);
	return unit_done("core_errors");
}
