/*-------------------------------------------------------------------------
 *
 * memory.c
 *	  How much memory there is for files, by what /proc and the cgroups say: a
 *	  directory with such files is made for each case.
 *
 *-------------------------------------------------------------------------
 */
#include "fixture.h"

static char root[256];

/* Make a file below the root, and the directories that it is in. */
static void
make(const char *name, const char *content)
{
	char		command[1024];

	snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s/%s')\" && printf '%s' >'%s/%s'", root, name, content,
			 root, name);
	REQUIRE(system(command) == 0);
}

/* A file of a machine, and the MiB that it has by all its files so far. */
static const struct
{
	const char *groups;			/* /proc/self/cgroup of a new machine; NULL: the same as before */
	const char *name;			/* of another file; NULL: none */
	const char *content;
	uint64_t	available;
}			known[] = {
	/* no limits */
	{"3:cpu:/a\n2:memory:/\n0::/\n", NULL, NULL, 500},
	{NULL, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n", 500},
	{NULL, "sys/fs/cgroup/memory.max", "max\n", 500},
	{"", "proc/meminfo", "MemAvailable:  0 kB\n", 0},
	{NULL, "proc/meminfo", "nothing\n", 0},
	/* version 1: the group above has the lower limit in the end */
	{"9:name=systemd:/x\n2:memory:/a/b\n0::/\n", "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "314572800\n", 300},
	{NULL, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "262144000\n", 250},
	/* version 2 */
	{"0::/a\n", "sys/fs/cgroup/a/memory.max", "314572800\n", 300},
	{NULL, "sys/fs/cgroup/memory.max", "104857600\n", 100},
	/* a container: the path is the host's, what is mounted its own */
	{"0::/docker/123456\n", "sys/fs/cgroup/memory.max", "67108864\n", 64}
};

int
main(void)
{
	char		command[700];

	snprintf(root, sizeof(root), "%s", fixture_path("memory"));
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
	{
		if (known[i].groups != NULL)
		{
			REQUIRE(system(command) == 0);
			make("proc/meminfo", "MemTotal: 99999999 kB\nMemFree: 1 kB\nMemAvailable:  512000 kB\n");
			make("proc/self/cgroup", known[i].groups);
		}
		if (known[i].name != NULL)
			make(known[i].name, known[i].content);
		if (!CHECK(pmh_available_memory(root) == known[i].available << 20))
			fprintf(stderr, "case %zu\n", i);
	}
	CHECK(pmh_available_memory("") > 0);
	CHECK(system(command) == 0);
	return unit_done("memory");
}
