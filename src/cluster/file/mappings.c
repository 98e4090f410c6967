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
 * the last pmhash.mapped_files, by default a quarter of that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster/cluster.h"
#include "cluster/file/files.h"

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

/* Keep to the limit.  Raises no error. */
void
pmhash_mappings_trim(PmhashMappings *all)
{
	trim(all, pmhash_mapped_files);
}

/* Unmap all that is idle, to make room for another mapping.  False if there was nothing. */
bool
pmhash_mappings_make_room(PmhashMappings *all)
{
	int			before = all->n;

	trim(all, 0);
	return all->n < before;
}
