/*-------------------------------------------------------------------------
 *
 * stop_punch.c
 *	  The end of a shrink: free space is given back where that harms no process that has
 *	  the file mapped, and what cannot be given back stays.  It is taken again before
 *	  anything is stored there.
 *
 * The engine is compiled with PMH_STOP_POINTS here, and fallocate and posix_fallocate are
 * wrapped when this program is linked (see the Makefile).
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "content.h"
#include "holes.h"

#define KEYS			UINT64_C(20000)
#define STAYING			20		/* one key in so many */
#define OLD_DEPTH		10		/* a directory in blocks of its own */
#define FULL_SIZE		"size=16m"
#define NOT_ALLOWED		2		/* exit status of a child */

static PmhTable *table;
static PmhTable *idle;			/* of a process that does nothing meanwhile */
static const char *table_path;
static int	no_hole;			/* errno of fallocate, or 0 */
static bool no_space;			/* no block gets space */
static bool no_descriptor;		/* none at the end of the shrink */
static unsigned refused;
static unsigned taken_back;		/* runs of punched blocks that have got space */

/* ---- what fails, and what holds at each call ---- */

/* Blocks that space is taken from, or given to, are marked, or no part of the file yet. */
static void
check_marks(off_t from, off_t len)
{
	uint64_t	end = (uint64_t) (from + len) >> PMH_BLOCK_SHIFT;

	if (table == NULL)
		return;
	for (uint64_t block = (uint64_t) from >> PMH_BLOCK_SHIFT;
		 block < end && block < pmh_blocks(table); block++)
		CHECK(pm_load(pmh_space_kind(table, block)) == PMH_KIND_PUNCHED &&
			  pm_load(pmh_space_map(table, block)) == PMH_BLOCK_USED);
}

extern int	__real_fallocate(int fd, int mode, off_t from, off_t len);
extern int	__wrap_fallocate(int fd, int mode, off_t from, off_t len);

int
__wrap_fallocate(int fd, int mode, off_t from, off_t len)
{
	if ((mode & FALLOC_FL_PUNCH_HOLE) != 0)
		check_marks(from, len);
	if (no_hole == 0 || (mode & FALLOC_FL_PUNCH_HOLE) == 0)
		return __real_fallocate(fd, mode, from, len);
	refused++;
	errno = no_hole;
	return -1;
}

extern int	__real_posix_fallocate(int fd, off_t from, off_t len);
extern int	__wrap_posix_fallocate(int fd, off_t from, off_t len);

int
__wrap_posix_fallocate(int fd, off_t from, off_t len)
{
	if (pmh_whole_pages(1) <= PMH_BLOCK_SIZE)	/* else blocks in use are in these pages, too */
		check_marks(from, len);
	refused += no_space;
	return no_space ? ENOSPC : __real_posix_fallocate(fd, from, len);
}

static bool cutting;
static void (*act) (const char *name);	/* NULL, or called at each point */

/* May this process open any? */
static void
allow_descriptors(bool may)
{
	static rlim_t before;

	if (before == 0)
		before = set_limit(RLIMIT_NOFILE, 0);
	(void) set_limit(RLIMIT_NOFILE, may ? before : 0);
}

void
pmh_stop_point(const char *name)
{
	void		(*now) (const char *name) = act;

	cutting = strcmp(name, "punch_before_hole") == 0;
	if (no_descriptor)
	{
		allow_descriptors(!cutting);
		refused += cutting;
	}
	if (now == NULL)
		return;
	act = NULL;
	now(name);
	act = now;
}

/* ---- a file that shrinks ---- */

static void
look_up_one(PmhTable *t)
{
	check_keys(t, 1, 1);
}

/* Most of a table goes.  'idle' has looked a key up before. */
static void
make_table(const char *path)
{
	table = NULL;
	table = fixture_create(path);
	table_path = path;
	put_keys(table, 0, KEYS);
	while (directory_depth(table) < OLD_DEPTH)
		REQUIRE(double_directory(table) == PMH_OK);
	idle = fixture_open(path, 1);
	look_up_one(idle);
	CHECK(idle->seen_offset == pmh_dirword_offset(pm_load(&pmh_live(table)->dirword)));
	take_keys(table, 0, KEYS, STAYING);
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
	CHECK(pm_load(&pmh_run(table)->punched_blocks) > 0);
}

static void
close_table(void)
{
	CLOSE_SOUND(idle);
	pmh_close(table);
	table = NULL;
	unlink(table_path);
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

/* Keys come, by two handles, until one gets an error.  The file keeps its length. */
static PmhResult
fill(uint64_t from, uint64_t to)
{
	PmhResult	result = PMH_OK;

	for (uint64_t i = from; i < to && result == PMH_OK; i++)
		result = pmh_insert(i % 2 == 0 ? idle : table, fixture_hash(i), i, false);
	return result;
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
	unsigned	holes;

	make_table(path);
	before = allocated(path);
	shrink_table();
	after = allocated(path);
	length = pmh_blocks(table) << PMH_BLOCK_SHIFT;
	if (is_on(path, TMPFS_MAGIC))
		CHECK(after == before);
	else if (gives_back(path))
		CHECK(pmh_whole_pages(1) > PMH_BLOCK_SIZE ? after < before :
			  after < before / 2 && after <= (pmh_blocks_with_space(table) << PMH_BLOCK_SHIFT) + 64 * 1024);
	look_up_one(idle);
	CHECK(allocated(path) == after);

	/* Later growth takes it before the file becomes longer. */
	REQUIRE(fill(KEYS, KEYS + KEYS / 2) == PMH_OK);
	CHECK(pmh_blocks(table) << PMH_BLOCK_SHIFT == length);
	check_holes(path, table, &holes);
	CHECK(!gives_back(path) || holes > 0);
	REQUIRE(fill(KEYS + KEYS / 2, 3 * KEYS) == PMH_OK);
	CHECK(pmh_blocks(table) << PMH_BLOCK_SHIFT > length);
	check_holes(path, table, &holes);
	close_table();
}

/* What recovery finds is what was punched, wherever the file is. */
static void
found_by_next_start(const char *path)
{
	uint64_t	punched;
	unsigned	holes;

	make_table(path);
	shrink_table();
	punched = pm_load(&pmh_run(table)->punched_blocks);
	pmh_close(idle);
	pmh_close(table);
	table = fixture_open(path, 2);
	idle = fixture_open(path, 2);
	CHECK(pm_load(&pmh_run(table)->punched_blocks) == punched);
	check_holes(path, table, &holes);
	REQUIRE(fill(KEYS, 3 * KEYS) == PMH_OK);
	check_holes(path, table, &holes);
	close_table();
}

/* ---- others beside it ---- */

static uint64_t next_key;

/* What a stopped process has half done is nothing to others: they read and write. */
static void
others_at_work(const char *name)
{
	unsigned	holes;

	if (strcmp(name, "punch_before_hole") != 0 && strcmp(name, "grow_before_blocks") != 0)
		return;
	taken_back += strcmp(name, "grow_before_blocks") == 0;
	look_up_one(idle);
	check_holes(table_path, table, &holes);
	if (pm_load(&pmh_run(table)->free_units) > 100 * PMH_UNITS_PER_BLOCK)
		CHECK(pmh_insert(idle, fixture_hash(next_key), next_key, false) == PMH_OK);
	CHECK(pmh_delete(idle, fixture_hash(next_key), next_key) == PMH_OK ||
		  pm_load(&pmh_run(table)->free_units) <= 100 * PMH_UNITS_PER_BLOCK);
	next_key++;
}

static void
others_go_on(const char *path)
{
	uint64_t	length;

	make_table(path);
	length = pmh_blocks(table);
	next_key = 10 * KEYS;
	taken_back = 0;
	act = others_at_work;
	shrink_table();
	put_keys(table, KEYS, KEYS + KEYS / 2);
	act = NULL;
	CHECK(next_key > 10 * KEYS && taken_back > 1 && pmh_blocks(table) == length);
	close_table();
}

/* The file system is full: that is an error, and no block without space is used. */
static void
space_is_gone(const char *path)
{
	unsigned	holes;
	uint64_t	punched;

	make_table(path);
	shrink_table();
	no_space = true;
	refused = 0;
	punched = pm_load(&pmh_run(table)->punched_blocks);
	CHECK(fill(KEYS, 3 * KEYS) == PMH_ERR_NO_SPACE && refused > 0);
	CHECK(pm_load(&pmh_run(table)->punched_blocks) == punched && fixture_no_lock_held());
	check_holes(path, table, &holes);
	CHECK(!gives_back(path) || holes > 0);
	look_up_one(idle);
	CHECK_SOUND(idle);
	no_space = false;
	CHECK(fill(KEYS, 3 * KEYS) == PMH_OK);
	check_holes(path, table, &holes);
	close_table();
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
	while (__real_posix_fallocate(fd, end, 4096) == 0)
		end += 4096;
	close(fd);
	CHECK(end > 0);
}

typedef struct Mounting
{
	bool		memory;			/* a tmpfs in dir, which else is on disk; ... */
	bool		overlay;		/* ... and on that an overlayfs */
	char		dir[4096];
} Mounting;

/*
 * In memory another file takes all that is free when the file has shrunk: look-ups need
 * none.  On a disk space goes back through an overlayfs as well.
 */
static void
shrink_where_mounted(const void *arg)
{
	const Mounting *m = arg;
	char		path[4200];
	char		filler[4200];
	uint64_t	before;

	if (!be_alone() || (m->memory && mount("tmpfs", m->dir, "tmpfs", 0, FULL_SIZE) != 0) ||
		(m->overlay && !mount_overlay(m->dir)))
		_exit(NOT_ALLOWED);
	snprintf(path, sizeof(path), "%s/%stable", m->dir, m->overlay ? "merged/" : "");
	snprintf(filler, sizeof(filler), "%s/filler", m->dir);
	make_table(path);
	before = allocated(path);
	shrink_table();
	if (m->memory)
		fill_up(filler);
	look_up_one(idle);
	if (m->memory)
		CHECK(pmh_insert(idle, fixture_hash(KEYS), KEYS, false) == PMH_OK && !pm_is_lost(&idle->file));
	else if (gives_back(m->dir))
		CHECK(allocated(path) < before);
	close_table();
}

/* What a child has mounted is gone with it; what it has made in dir is not. */
static void
mounted(bool memory, bool overlay)
{
	Mounting	m = {memory, overlay, ""};
	char		command[4200];
	int			status;

	snprintf(m.dir, sizeof(m.dir), "%s.d", fixture_path("stop_punch"));
	REQUIRE(mkdir(m.dir, 0700) == 0);
	status = in_child(shrink_where_mounted, &m);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_ALLOWED)
		printf("# not tried: this may not be mounted here\n");
	else
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	snprintf(command, sizeof(command), "rm -rf '%s'", m.dir);
	CHECK(system(command) == 0);
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
	allow_descriptors(true);
	CHECK(refused > 0);
	CHECK(fixture_no_lock_held());
	look_up_one(idle);
	REQUIRE(fill(KEYS, 2 * KEYS) == PMH_OK);
	close_table();
}

int
main(void)
{
	const char *path = fixture_path("stop_punch");
	char		in_memory[64];

	snprintf(in_memory, sizeof(in_memory), "/dev/shm/pmhash_stop_punch.%d", (int) getpid());
	TEST(given_back(path));
	TEST(given_back(in_memory));
	TEST(found_by_next_start(path));
	TEST(found_by_next_start(in_memory));
	TEST(others_go_on(path));
	TEST(space_is_gone(path));
	TEST(mounted(true, false));
	TEST(mounted(true, true));
	TEST(mounted(false, true));
	TEST(ends_all_the_same(path, ENOSPC, true));
	TEST(ends_all_the_same(path, EDQUOT, true));
	TEST(ends_all_the_same(path, 0, false));
	return unit_done("stop_punch");
}
