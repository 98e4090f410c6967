/*-------------------------------------------------------------------------
 *
 * am_callbacks.c
 *	  What this layer knows of the access method on top of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"

#include "cluster/am_callbacks.h"

ambuild_function pmhash_am_build = NULL;
PmhashFillFunction pmhash_am_fill = NULL;

/* Is it an index of ours? */
bool
pmhash_is_index(Relation rel)
{
	return rel->rd_rel->relkind == RELKIND_INDEX &&
		rel->rd_indam != NULL && rel->rd_indam->ambuild == pmhash_am_build;
}
