/*-------------------------------------------------------------------------
 *
 * stop_cut.c
 *	  The end of a shrink: what is past the new end of the file is given back where
 *	  that harms no process that has it mapped, and what cannot be given back stays.
 *
 * The engine is compiled with PMH_STOP_POINTS here, and fallocate is wrapped when
 * this program is linked (see the Makefile).
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "directory.h"
#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "layout.h"
#include "live.h"
#include "map.h"
#include "pm.h"
#include "stop_point.h"
#include "table.h"
#include "unit.h"

#define KEYS			UINT64_C(20000)
#define STAYING			20		/* one key in so many */
#define OLD_DEPTH		10		/* a directory in blocks of its own */
#define FULL_SIZE		"size=16m"
#define NOT_ALLOWED		2		/* exit status of a child */

static PmhTable *table;
static PmhTable *idle;			/* of a process that does nothing meanwhile */
static PmhValues values;
static int	no_hole;			/* errno of fallocate, or 0 */
static bool no_descriptor;		/* none at the end of the shrink */
static unsigned refused;

/* ---- what fails ---- */

extern int	__real_fallocate(int fd, int mode, off_t from, off_t len);
extern int	__wrap_fallocate(int fd, int mode, off_t from, off_t len);

int
__wrap_fallocate(int fd, int mode, off_t from, off_t len)
{
	if (no_hole == 0 || (mode & FALLOC_FL_PUNCH_HOLE) == 0)
		return __real_fallocate(fd, mode, from, len);
	refused++;
	errno = no_hole;
	return -1;
}

static bool cutting;

void
pmh_stop_point(const char *name)
{
	cutting = strcmp(name, "cut_before_punch") == 0;
}

static bool
reserve_descriptor(void)
{
	bool		refuse = no_descriptor && cutting;

	refused += refuse;
	return !refuse;
}

static void
release_descriptor(void)
{
}

/* ---- a file that shrinks ---- */

static void
look_up_one(PmhTable *t)
{
	CHECK(pmh_lookup(t, fixture_hash(0), &values) == PMH_OK);
	CHECK(values.n == 1 && values.value[0] == 0);
}

/*
 * Most of a table goes.  'idle' has looked a key up before, and has seen a directory that
 * is past the end of the file when that has shrunk.
 */
static void
make_table(const char *path)
{
	table = fixture_create(path);
	for (uint64_t i = 0; i < KEYS; i++)
		REQUIRE(pmh_insert(table, fixture_hash(i), i, false) == PMH_OK);
	for (uint32_t depth = 0; depth < OLD_DEPTH; depth++)
		REQUIRE(pmh_conclude(table, pmh_directory_double(table, depth)) == PMH_OK);
	idle = fixture_open(path, 1);
	look_up_one(idle);
	CHECK(idle->seen_offset == pmh_dirword_offset(pm_load(&pmh_live(table)->dirword)));
	for (uint64_t i = 0; i < KEYS; i++)
	{
		if (i % STAYING != 0)
			REQUIRE(pmh_delete(table, fixture_hash(i), i) == PMH_OK);
	}
}

static void
shrink_table(void)
{
	PmhShrink	shrink;
	PmhResult	result;

	REQUIRE(pmh_shrink_begin(table, PMH_DEFAULT_FILL, &shrink) == PMH_OK);
	while ((result = pmh_shrink_step(table, &shrink)) == PMH_OK)
		continue;
	CHECK(result == PMH_DONE && shrink.bytes_after < shrink.bytes_before / 2);
	pmh_shrink_end(&shrink);
	CHECK(idle->seen_offset >= pmh_blocks(table) << PMH_BLOCK_SHIFT);
}

static void
close_table(const char *path)
{
	CHECK(pmh_check(idle, true, fixture_report, NULL) == PMH_OK);
	pmh_close(idle);
	pmh_close(table);
	unlink(path);
}

/* Bytes that a file has of its file system. */
static uint64_t
allocated(const char *path)
{
	struct stat st;

	REQUIRE(stat(path, &st) == 0);
	return (uint64_t) st.st_blocks * 512;
}

static bool
is_on(const char *path, unsigned long magic)
{
	struct statfs fs;

	REQUIRE(statfs(path, &fs) == 0);
	return (unsigned long) fs.f_type == magic;
}

static bool
gives_back(const char *path)
{
	return is_on(path, EXT4_SUPER_MAGIC) || is_on(path, XFS_SUPER_MAGIC);
}

/*
 * Space is given back where a load from a hole takes none, and kept where it
 * does; what an idle process looks up takes none in either case.
 */
static void
given_back(const char *path)
{
	uint64_t	before;
	uint64_t	after;
	uint64_t	length;

	make_table(path);
	before = allocated(path);
	shrink_table();
	after = allocated(path);
	length = pmh_blocks(table) << PMH_BLOCK_SHIFT;
	if (is_on(path, TMPFS_MAGIC))
		CHECK(after == before);
	else if (gives_back(path))
		CHECK(after < before && after <= length + 64 * 1024);
	look_up_one(idle);
	CHECK(allocated(path) == after);
	CHECK(idle->seen_offset < length);

	/* What was kept is there for what the file grows by. */
	for (uint64_t i = KEYS; i < 2 * KEYS; i++)
		REQUIRE(pmh_insert(i % 2 == 0 ? idle : table, fixture_hash(i), i, false) == PMH_OK);
	close_table(path);
}

/* The next start cuts the file, wherever it is. */
static void
cut_by_next_start(const char *path)
{
	PmhTable   *t;

	make_table(path);
	shrink_table();
	pmh_close(idle);
	pmh_close(table);
	t = fixture_open(path, 2);
	CHECK(fixture_file_size(path) ==
		  pmh_whole_pages(pmh_blocks(t) << PMH_BLOCK_SHIFT));
	CHECK(allocated(path) <= fixture_file_size(path) + 64 * 1024);
	CHECK(pmh_check(t, true, fixture_report, NULL) == PMH_OK);
	pmh_close(t);
	unlink(path);
}

/* ---- in file systems of our own ---- */

static bool
write_text(const char *path, const char *text)
{
	int			fd = open(path, O_WRONLY);
	bool		done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t) strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

/* From now on this process alone may mount; false if it may not. */
static bool
be_alone(void)
{
	char		user[64];
	char		group[64];

	snprintf(user, sizeof(user), "0 %u 1", (unsigned) geteuid());
	snprintf(group, sizeof(group), "0 %u 1", (unsigned) getegid());
	return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
		write_text("/proc/self/setgroups", "deny") &&
		write_text("/proc/self/uid_map", user) &&
		write_text("/proc/self/gid_map", group);
}

/* An overlayfs in dir on directories that are there too; false if it may not be. */
static bool
mount_overlay(const char *dir)
{
	static const char *const part[] = {"lower", "upper", "work", "merged"};
	char		path[4][4200];
	char		options[4 * 4200];

	for (int i = 0; i < 4; i++)
	{
		snprintf(path[i], sizeof(path[i]), "%s/%s", dir, part[i]);
		REQUIRE(mkdir(path[i], 0700) == 0);
	}
	snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", path[0], path[1],
			 path[2]);
	return mount("overlay", path[3], "overlay", 0, options) == 0;
}

static void
fill_up(const char *path)
{
	int			fd = open(path, O_RDWR | O_CREAT, 0600);
	off_t		end = 0;

	REQUIRE(fd >= 0);
	while (posix_fallocate(fd, end, 4096) == 0)
		end += 4096;
	close(fd);
	CHECK(end > 0);
}

/* Another file takes all that is free of a tmpfs when the file has shrunk. */
static void
look_up_where_all_is_full(const char *dir, bool overlay)
{
	char		path[4200];
	char		filler[4200];

	if (!be_alone() || mount("tmpfs", dir, "tmpfs", 0, FULL_SIZE) != 0 ||
		(overlay && !mount_overlay(dir)))
		_exit(NOT_ALLOWED);
	snprintf(path, sizeof(path), "%s/%stable", dir, overlay ? "merged/" : "");
	snprintf(filler, sizeof(filler), "%s/filler", dir);
	make_table(path);
	shrink_table();
	fill_up(filler);
	look_up_one(idle);
	CHECK(pmh_insert(idle, fixture_hash(KEYS), KEYS, false) == PMH_OK);
	CHECK(!pm_is_lost(&idle->file));
	close_table(path);
}

/* Where an overlayfs is on a disk, space goes back as it does there. */
static void
give_back_below(const char *dir, bool overlay)
{
	char		path[4200];
	uint64_t	before;

	if (!be_alone() || (overlay && !mount_overlay(dir)))
		_exit(NOT_ALLOWED);
	snprintf(path, sizeof(path), "%s/%stable", dir, overlay ? "merged/" : "");
	make_table(path);
	before = allocated(path);
	shrink_table();
	look_up_one(idle);
	if (gives_back(dir))
		CHECK(allocated(path) < before);
	close_table(path);
}

/* What a child has mounted is gone with it; what it has made in dir is not. */
static void
empty(const char *dir)
{
	char		command[4200];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	CHECK(system(command) == 0);
}

static void
in_child(void (*test) (const char *dir, bool overlay), bool overlay)
{
	char		dir[4096];
	int			status;
	pid_t		child;

	snprintf(dir, sizeof(dir), "%s.d", fixture_path("stop_cut"));
	REQUIRE(mkdir(dir, 0700) == 0);
	fflush(stdout);
	child = fork();
	REQUIRE(child >= 0);
	if (child == 0)
	{
		test(dir, overlay);
		_exit(unit_failed == 0 ? 0 : 1);
	}
	REQUIRE(waitpid(child, &status, 0) == child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_ALLOWED)
		printf("# not tried: this may not be mounted here\n");
	else
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	empty(dir);
}

/* ---- space that cannot be given back ---- */

/* The shrink has done all it was to do, and ends without an error. */
static void
ends_all_the_same(const char *path, int hole_errno, bool descriptor)
{
	make_table(path);
	no_hole = hole_errno;
	no_descriptor = !descriptor;
	refused = 0;
	shrink_table();
	no_hole = 0;
	no_descriptor = false;
	CHECK(refused > 0);
	CHECK(pm_load(&pmh_run(table)->shrink_limit) == 0 && fixture_no_lock_held());
	look_up_one(idle);
	close_table(path);
}

int
main(void)
{
	const char *path = fixture_path("stop_cut");
	char		in_memory[64];

	snprintf(in_memory, sizeof(in_memory), "/dev/shm/pmhash_stop_cut.%d", (int) getpid());
	pmh_set_descriptor_callbacks(reserve_descriptor, release_descriptor);
	TEST(given_back(path));
	TEST(given_back(in_memory));
	TEST(cut_by_next_start(path));
	TEST(cut_by_next_start(in_memory));
	TEST(in_child(look_up_where_all_is_full, false));
	TEST(in_child(look_up_where_all_is_full, true));
	TEST(in_child(give_back_below, true));
	TEST(ends_all_the_same(path, ENOSPC, true));
	TEST(ends_all_the_same(path, EDQUOT, true));
	TEST(ends_all_the_same(path, 0, false));
	pmh_values_free(&values);
	return unit_done("stop_cut");
}
