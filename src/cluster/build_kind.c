/*-------------------------------------------------------------------------
 *
 * build_kind.c
 *	  Which workers build an index, and what these say they are at.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_index.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cluster/build_kind.h"

/* Which workers build an index, of this row of pg_index?  Runs no user's function. */
PmhashBuildKind
pmhash_build_kind(HeapTuple index)
{
	return heap_attisnull(index, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(index, Anum_pg_index_indpred, NULL) ?
		PMHASH_BUILD_PLAIN : PMHASH_BUILD_EXPRESSIONS;
}

/*
 * pmhash_index_label
 *		What messages call an index, whose name may be "": not known.
 *
 * Allocated in the current memory context.
 */
const char *
pmhash_index_label(Oid index, const char *name)
{
	return name[0] != '\0' ? psprintf("index \"%s\"", name) :
		psprintf("index with OID %u", index);
}

/* pg_stat_activity is to say which index a worker is at: that may take long. */
void
pmhash_report_index(const char *doing, Relation index)
{
	const char *schema = get_namespace_name(RelationGetNamespace(index));
	const char *name = RelationGetRelationName(index);
	char	   *activity = psprintf("%s pmhash index %s", doing,
									quote_qualified_identifier(schema, name));

	pgstat_report_activity(STATE_RUNNING, activity);
	pfree(activity);
}
