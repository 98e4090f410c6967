/*-------------------------------------------------------------------------
 *
 * examine_order.c
 *	  A file is examined, without being mapped, while its directory moves to a part
 *	  that has just been added to it: it is a sound file at any moment, whichever words of
 *	  the header a read comes to first.
 *
 * pread is wrapped when this program is linked (see the Makefile): it reads one piece
 * of what it is to read, the file becomes the other one, and it reads the rest.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <string.h>

#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "pm.h"
#include "segment.h"
#include "unit.h"

#define MOST_READS		10		/* of one examination */

static const char *path;
static char small[PMH_HEADER_SIZE];	/* the header before growth and doubling ... */
static char large[PMH_HEADER_SIZE];	/* ... and after it */

/* ---- a read beside others ---- */

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

/* ---- the two files ---- */

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
	path = fixture_path("examine_order");
	make_files();
	writable = open(path, O_RDWR);
	REQUIRE(writable >= 0);
	TEST(test_change(small, large));
	TEST(test_mixture());
	close(writable);
	unlink(path);
	return unit_done("examine_order");
}
