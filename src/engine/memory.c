/*-------------------------------------------------------------------------
 *
 * memory.c
 *	  How much memory there is for what files hold: what the system can give without
 *	  swapping, or what the cgroups that this process is in leave of their limits.
 *
 * What a group uses counts the pages of files as well, but these make room for others.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"

#define PATH		4096

/* Where version 1 and version 2 keep the figures of a group. */
typedef struct GroupFiles
{
	const char *controllers;	/* in /proc/self/cgroup */
	const char *mounted;
	const char *limit;
	const char *usage;
	const char *active;			/* in memory.stat, as 'inactive' */
	const char *inactive;
} GroupFiles;

static const GroupFiles versions[2] = {
	{"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
	"memory.usage_in_bytes", "total_active_file ", "total_inactive_file "},
	{"", "/sys/fs/cgroup", "memory.max",
	"memory.current", "active_file ", "inactive_file "}
};

/* The number after 'name', which begins a line of a file; 'otherwise': there is none. */
static uint64_t
number_in(const char *directory, const char *file, const char *name, uint64_t otherwise)
{
	char		path[PATH + 64];
	char		line[256];
	FILE	   *f;

	snprintf(path, sizeof(path), "%s/%s", directory, file);
	f = fopen(path, "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
	{
		char	   *digits = line + strlen(name);
		char	   *end;
		uint64_t	number;

		if (strncmp(line, name, strlen(name)) != 0)
			continue;
		number = strtoull(digits, &end, 10);
		if (end > digits)
			otherwise = number;
		break;
	}
	if (f != NULL)
		fclose(f);
	return otherwise;
}

/* What a group and those above it leave of 'available'. */
static uint64_t
left_by_groups(const char *root, char *path, const GroupFiles *v, uint64_t available)
{
	/*
	 * In a container the path may be the host's, of which there is nothing; the top is
	 * the container's then.
	 */
	for (char *end = path + strlen(path); end != NULL; end = strrchr(path, '/'))
	{
		char		directory[PATH];
		uint64_t	limit;
		uint64_t	usage;

		*end = '\0';
		snprintf(directory, sizeof(directory), "%s%s%s", root, v->mounted, path);
		limit = number_in(directory, v->limit, "", UINT64_MAX);
		usage = number_in(directory, v->usage, "", 0) -
			number_in(directory, "memory.stat", v->active, 0) -
			number_in(directory, "memory.stat", v->inactive, 0);
		if ((int64_t) usage < 0)
			usage = 0;			/* the figures are not of one moment */
		if (limit < usage)
			return 0;
		if (available > limit - usage)
			available = limit - usage;
	}
	return available;
}

uint64_t
pmh_available_memory(const char *root)
{
	char		proc[PATH];
	char		path[PATH + 64];
	char		line[PATH];
	uint64_t	available;
	FILE	   *f;

	snprintf(proc, sizeof(proc), "%s/proc", root);
	available = number_in(proc, "meminfo", "MemAvailable:", 0) * 1024;
	snprintf(path, sizeof(path), "%s/self/cgroup", proc);
	f = fopen(path, "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
	{
		/* number:controllers:path */
		char	   *controllers = strchr(line, ':');
		char	   *group = controllers == NULL ? NULL : strchr(++controllers, ':');

		if (group == NULL)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		for (unsigned i = 0; i < 2; i++)
		{
			if (strcmp(controllers, versions[i].controllers) == 0)
				available = left_by_groups(root, group, &versions[i], available);
		}
	}
	if (f != NULL)
		fclose(f);
	return available;
}
