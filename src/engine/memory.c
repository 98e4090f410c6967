/*-------------------------------------------------------------------------
 *
 * memory.c
 *	  How much memory there is for what files hold: what the system can give without
 *	  swapping, or less if a cgroup that this process is in has a lower limit.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"

#define PATH		4096

/* The number after 'name', which begins a line of a file; 'otherwise': there is none. */
static uint64_t
number_in(const char *path, const char *name, uint64_t otherwise)
{
	char		line[256];
	FILE	   *f = fopen(path, "re");

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

uint64_t
pmh_available_memory(const char *root)
{
	char		path[3 * PATH];
	char		line[PATH];
	uint64_t	available;
	FILE	   *f;

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	available = number_in(path, "MemAvailable:", 0) * 1024;
	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
	{
		/* number:controllers:path, of version 2 without controllers */
		char	   *controllers = strchr(line, ':');
		char	   *group = controllers == NULL ? NULL : strchr(++controllers, ':');
		bool		second = group == controllers;

		if (group == NULL || (!second && strncmp(controllers, "memory:", 7) != 0))
			continue;
		group++;

		/*
		 * The group, and those above it.  In a container the path may be the host's, of
		 * which there is nothing; the top is the container's then.
		 */
		for (char *end = group + strcspn(group, "\n"); end != NULL; end = strrchr(group, '/'))
		{
			uint64_t	limit;

			*end = '\0';
			snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s/%s", root,
					 second ? "" : "/memory", group,
					 second ? "memory.max" : "memory.limit_in_bytes");
			limit = number_in(path, "", UINT64_MAX);
			if (limit < available)
				available = limit;
		}
	}
	if (f != NULL)
		fclose(f);
	return available;
}
