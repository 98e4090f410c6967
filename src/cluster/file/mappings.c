/*-------------------------------------------------------------------------
 *
 * mappings.c
 *	  Mapped files of a process in the order of their use, and how many it keeps.
 *
 * For backends (file_cache.c) and the startup process of a standby
 * (standby_redo.c).  A process has vm.max_map_count areas (65,530 by default) for all
 * its purposes, of which a mapping takes one, and some memory: 3 KB, and the pages that
 * have been touched, which are the file's, but count as the process' in what ps shows.
 * Of what its user calls idle, that which was used longest ago goes first:
 *	- all but the last RESIDENT_FILES rest: they give up their pages, and the next use
 *	  costs some page faults;
 *	- all but the last pmhash.mapped_files are unmapped, and so are those past a
 *	  quarter of vm.max_map_count.  The next use maps the file again, which takes many
 *	  times as long.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "storage/fd.h"

#include "cluster/cluster.h"
#include "cluster/file/files.h"

/* Files whose pages a process keeps from one transaction, or record, to the next. */
#define RESIDENT_FILES		1000

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
	mapping->resting = false;
	dlist_push_tail(&all->awake, &mapping->order);
	all->n_awake++;
}

/* Take a mapping out, which its user is to unmap. */
void
pmhash_mapping_remove(PmhashMappings *all, PmhashMapping *mapping)
{
	Assert(mapping->table != NULL);
	dlist_delete(&mapping->order);
	if (mapping->resting)
		all->n_resting--;
	else
		all->n_awake--;
	mapping->resting = false;
	mapping->table = NULL;
}

/* It is used: it goes last. */
void
pmhash_mapping_use(PmhashMappings *all, PmhashMapping *mapping)
{
	Assert(mapping->table != NULL);
	if (mapping->resting)
	{
		all->n_resting--;
		all->n_awake++;
	}
	mapping->resting = false;
	dlist_delete(&mapping->order);
	dlist_push_head(&all->awake, &mapping->order);
}

/* It will not be used soon: it goes first.  It is not resting. */
void
pmhash_mapping_used_up(PmhashMappings *all, PmhashMapping *mapping)
{
	Assert(!mapping->resting);
	dlist_delete(&mapping->order);
	dlist_push_tail(&all->awake, &mapping->order);
}

/* ---- all ---- */

/* The mapping in a list that was used longest ago, if it is idle. */
static PmhashMapping *
least_used(PmhashMappings *all, dlist_head *list)
{
	PmhashMapping *last;

	if (dlist_is_empty(list))
		return NULL;
	last = dlist_tail_element(PmhashMapping, order, list);
	return all->is_idle(last) ? last : NULL;
}

/* A mapping is not used for now: give up its pages. */
static void
put_to_rest(PmhashMappings *all, PmhashMapping *mapping)
{
	Assert(!mapping->resting && all->is_idle(mapping));
	pmh_rest(mapping->table);
	mapping->resting = true;
	dlist_delete(&mapping->order);
	dlist_push_head(&all->resting, &mapping->order);
	all->n_awake--;
	all->n_resting++;
}

/*
 * As long as there are more than 'resident' with pages, or 'most' in all: let what
 * is idle rest, and unmap it.
 */
static void
trim(PmhashMappings *all, int resident, int most)
{
	PmhashMapping *mapping;

	while (all->n_awake > resident && (mapping = least_used(all, &all->awake)) != NULL)
		put_to_rest(all, mapping);
	while (all->n_awake + all->n_resting > most &&
		   ((mapping = least_used(all, &all->resting)) != NULL ||
			(mapping = least_used(all, &all->awake)) != NULL))
		all->unmap(mapping);
}

/* Keep to the limits.  Costs nothing as long as there are few.  Raises no error. */
void
pmhash_mappings_trim(PmhashMappings *all)
{
	if (unlikely(all->n_awake + all->n_resting >
				 Min(RESIDENT_FILES, pmhash_mapped_files)))
		trim(all, RESIDENT_FILES, most_mapped());
}

/*
 * Unmap all that is idle, to make room for another mapping.  False if there was
 * nothing.
 */
bool
pmhash_mappings_make_room(PmhashMappings *all)
{
	int			before = all->n_awake + all->n_resting;

	trim(all, INT_MAX, 0);
	return all->n_awake + all->n_resting < before;
}
