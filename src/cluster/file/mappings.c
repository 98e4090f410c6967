/*-------------------------------------------------------------------------
 *
 * mappings.c
 *	  Mapped files of a process in the order of their use, and how many it keeps.
 *
 * For backends (file_cache.c) and the startup process of a standby
 * (standby_redo.c).  A process has vm.max_map_count areas (65,530 by default) for all
 * its purposes, of which a mapping takes one, and some memory: 3 KB.  (The pages that
 * have been touched are the file's, but count as the process' in what ps shows.)
 * Of what its user calls idle, that which was used longest ago is unmapped first: all but
 * the last pmhash.mapped_files, and those past a quarter of vm.max_map_count.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "storage/fd.h"

#include "cluster/cluster.h"
#include "cluster/file/files.h"

/* What vm.max_map_count is taken for where it can't be read: Linux' default. */
#define DEFAULT_MAP_COUNT	65530

/* vm.max_map_count.  Raises no error. */
static int
map_count(void)
{
	char		text[32] = "";
	int			count = 0;
	int			fd;

	ReserveExternalFD();
	fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
	{
		if (read(fd, text, sizeof(text) - 1) > 0)
			count = atoi(text);
		close(fd);
	}
	ReleaseExternalFD();
	return count > 0 ? count : DEFAULT_MAP_COUNT;
}

/* Mappings that this process may keep. */
static int
most_mapped(void)
{
	static int	allowed = 0;

	if (allowed == 0)
	{
		allowed = map_count() / 4;	/* half of them, two each */
		allowed = Max(allowed, 1);
	}
	return Min(pmhash_mapped_files, allowed);
}

/* ---- one mapping ---- */

/* A file that has just been mapped: it goes first, unless it is used. */
void
pmhash_mapping_add(PmhashMappings *all, PmhashMapping *mapping, PmhTable *table)
{
	mapping->table = table;
	dlist_push_tail(&all->list, &mapping->order);
	all->n++;
}

/* Take a mapping out, which its user is to unmap. */
void
pmhash_mapping_remove(PmhashMappings *all, PmhashMapping *mapping)
{
	Assert(mapping->table != NULL);
	dlist_delete(&mapping->order);
	all->n--;
	mapping->table = NULL;
}

/* It is used: it goes last. */
void
pmhash_mapping_use(PmhashMappings *all, PmhashMapping *mapping)
{
	Assert(mapping->table != NULL);
	dlist_move_head(&all->list, &mapping->order);
}

/* ---- all ---- */

/* As long as there are more than 'most': unmap what is idle. */
static void
trim(PmhashMappings *all, int most)
{
	while (all->n > most)
	{
		PmhashMapping *last = dlist_tail_element(PmhashMapping, order, &all->list);

		if (!all->is_idle(last))
			return;
		all->unmap(last);
	}
}

/* Keep to the limits.  Raises no error. */
void
pmhash_mappings_trim(PmhashMappings *all)
{
	trim(all, most_mapped());
}

/*
 * Unmap all that is idle, to make room for another mapping.  False if there was
 * nothing.
 */
bool
pmhash_mappings_make_room(PmhashMappings *all)
{
	int			before = all->n;

	trim(all, 0);
	return all->n < before;
}
