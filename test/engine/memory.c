/*-------------------------------------------------------------------------
 *
 * memory.c
 *	  How much memory there is for files, by what /proc and the cgroups say: a
 *	  directory with such files is made for each case.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "fixture.h"
#include "table.h"
#include "unit.h"

#define MIB		(UINT64_C(1) << 20)

static char root[256];

/* Make a file below the root, and the directories that it is in. */
static void
make(const char *name, const char *format, ...)
{
	char		path[1024];
	va_list		args;
	FILE	   *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++)
	{
		*p = '\0';
		REQUIRE(mkdir(path, 0700) == 0 || errno == EEXIST);
		*p = '/';
	}
	f = fopen(path, "w");
	REQUIRE(f != NULL);
	va_start(args, format);
	vfprintf(f, format, args);
	va_end(args);
	fclose(f);
}

static void
begin(uint64_t available, const char *groups)
{
	char		command[700];

	snprintf(command, sizeof(command), "rm -rf '%s'; mkdir '%s'", root, root);
	REQUIRE(system(command) == 0);
	make("proc/meminfo", "MemTotal: 99999999 kB\nMemFree: 1 kB\nMemAvailable:  %llu kB\n",
		 (unsigned long long) available / 1024);
	make("proc/self/cgroup", "%s", groups);
}

static void
test_no_limits(void)
{
	begin(500 * MIB, "3:cpu:/a\n2:memory:/\n0::/\n");
	CHECK(pmh_available_memory(root) == 500 * MIB);
	make("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	make("sys/fs/cgroup/memory.max", "max\n");
	CHECK(pmh_available_memory(root) == 500 * MIB);
	begin(0, "");
	CHECK(pmh_available_memory(root) == 0);
	make("proc/meminfo", "nothing\n");
	CHECK(pmh_available_memory(root) == 0);
}

/* The group above has the lower limit in the end. */
static void
test_version_1(void)
{
	begin(500 * MIB, "9:name=systemd:/x\n2:memory:/a/b\n0::/\n");
	make("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "%llu\n", 300 * MIB);
	CHECK(pmh_available_memory(root) == 300 * MIB);
	make("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "%llu\n", 250 * MIB);
	CHECK(pmh_available_memory(root) == 250 * MIB);
}

static void
test_version_2(void)
{
	begin(500 * MIB, "0::/a\n");
	make("sys/fs/cgroup/a/memory.max", "%llu\n", 300 * MIB);
	CHECK(pmh_available_memory(root) == 300 * MIB);
	make("sys/fs/cgroup/memory.max", "%llu\n", 100 * MIB);
	CHECK(pmh_available_memory(root) == 100 * MIB);
}

/* The path is the host's, what is mounted the container's. */
static void
test_container(void)
{
	begin(500 * MIB, "0::/docker/123456\n");
	make("sys/fs/cgroup/memory.max", "%llu\n", 64 * MIB);
	CHECK(pmh_available_memory(root) == 64 * MIB);
}

int
main(void)
{
	char		command[700];

	snprintf(root, sizeof(root), "%s", fixture_path("memory"));
	TEST(test_no_limits());
	TEST(test_version_1());
	TEST(test_version_2());
	TEST(test_container());
	CHECK(pmh_available_memory("") > 0);
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	CHECK(system(command) == 0);
	return unit_done("memory");
}
