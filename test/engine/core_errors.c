/*-------------------------------------------------------------------------
 *
 * core_errors.c
 *	  What can go wrong with a file: absent, there already, short, foreign,
 *	  damaged, no space left.  Each is an error; nothing crashes.
 *	  (Calls that fail anywhere: t/files/injected_faults.  Damage: flipped_bits.c, test/fuzz.)
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "unit.h"

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
	PmhResult	result = pmh_open(path, &env, &t, NULL, error);

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
	char		identity[PMH_IDENTITY_SIZE];

	unlink(path);
	CHECK(try_open(1, &error) == PMH_ERR_NO_FILE);
	CHECK(pmh_read_note(path, identity, NULL, &error) == PMH_ERR_NO_FILE);
	CHECK(pmh_create("/nonexistent/dir/file", NULL, &env, &t, &error) == PMH_ERR_NO_FILE);
	CHECK(error.sys_errno == ENOENT);

	make_file(10);
	REQUIRE(stat(path, &st) == 0);
	CHECK((st.st_mode & 0777) == 0600);
	CHECK(st.st_size < 1024 * 1024);
	CHECK(pmh_read_note(path, identity, NULL, &error) == PMH_OK);
	CHECK(strcmp(identity, "an identity") == 0);
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
	uint64_t	note[PMH_NOTE_WORDS];
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;
	PmhError	error;
	char		identity[PMH_IDENTITY_SIZE];

	make_file(10);
	CHECK(pmh_read_note(path, identity, note, &error) == PMH_OK);
	for (int i = 0; i < PMH_NOTE_WORDS; i++)
		CHECK(note[i] == 0);
	REQUIRE(pmh_open(path, &env, &t, NULL, &error) == PMH_OK);
	CHECK(pmh_write_note(path, PMH_NOTE_WORDS - 2, words, 2));
	CHECK(pmh_store_note(t, 0, 7) == PMH_OK);
	CHECK(pmh_read_note(path, identity, note, &error) == PMH_OK);
	CHECK(note[0] == 7 && note[1] == 0 && note[PMH_NOTE_WORDS - 1] == 12 &&
		  note[PMH_NOTE_WORDS - 2] == 11);
	CHECK(strcmp(identity, "an identity") == 0);
	pmh_close(t);
	CHECK(try_open(1, &error) == PMH_OK);
	CHECK(!pmh_write_note("/nonexistent/dir/file", 0, words, 1) && errno == ENOENT);
}

static void
test_header(void)
{
	PmhError	error;
	char		identity[PMH_IDENTITY_SIZE];
	uint32_t	version = 99;
	uint64_t	zero = 0;

	make_file(10);
	REQUIRE(truncate(path, 100) == 0);
	CHECK(try_open(1, &error) == PMH_ERR_FORMAT);
	CHECK(pmh_read_note(path, identity, NULL, &error) == PMH_ERR_FORMAT);

	make_file(10);
	patch(offsetof(PmhFormat, version), &version, sizeof(version));
	CHECK(try_open(1, &error) == PMH_ERR_VERSION);
	CHECK(pmh_read_note(path, identity, NULL, &error) == PMH_ERR_VERSION);

	make_file(10);
	patch(offsetof(PmhFormat, identity), "x", 1);
	CHECK(try_open(1, &error) == PMH_ERR_CORRUPT);
	CHECK(pmh_read_note(path, identity, NULL, &error) == PMH_ERR_CORRUPT);

	/* As a crash in the middle of pmh_create leaves it. */
	make_file(10);
	patch(0, &zero, sizeof(zero));
	CHECK(try_open(1, &error) == PMH_ERR_FORMAT);

	/* Cut off: an error, not SIGBUS. */
	make_file(20000);
	REQUIRE(truncate(path, (off_t) fixture_file_size(path) / 2) == 0);
	CHECK(try_open(1, &error) == PMH_ERR_CORRUPT);
	CHECK(try_open(2, &error) == PMH_ERR_CORRUPT);
}

/* No space: nothing is left of a file that cannot be created. */
static void
test_no_space(void)
{
	PmhEnv		env = fixture_env(1);
	PmhTable   *t;
	PmhError	error;
	struct rlimit before;
	struct rlimit limit;

	unlink(path);
	REQUIRE(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
	limit = before;
	limit.rlim_cur = 4096;
	REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHECK(pmh_create(path, NULL, &env, &t, &error) == PMH_ERR_NO_SPACE);
	CHECK(error.sys_errno == EFBIG);
	CHECK(access(path, F_OK) != 0);
	REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

int
main(void)
{
	path = fixture_path("core_errors");
	TEST(test_create());
	TEST(test_note());
	TEST(test_header());
	TEST(test_no_space());
	unlink(path);
	return unit_done("core_errors");
}
