/*-------------------------------------------------------------------------
 *
 * insert_source.c
 *	  Where the rows come from that aminsert gets: may their entries wait?
 *
 * An entry that waits in a queue must not lose its row meanwhile.  Should
 * VACUUM remove the row and another one take its TID, the queue would go on to
 * put (old hash, TID) into the table: a wrong row for ever.  A row that a
 * transaction has inserted and that this transaction does not roll back is not
 * removable while it runs, even if it deletes it (HeapTupleSatisfiesVacuum),
 * with one exception: heap_abort_speculative makes it dead to all at once.
 * src/README, "Inserts", has all cases.
 *
 * Speculative are the rows of INSERT ... ON CONFLICT.  aminsert does not see it
 * (the token is in the row, on a page that is not pinned any more), so it is
 * turned round: which statements are known to insert no such rows?
 *	  - a ModifyTable without ON CONFLICT: the index was opened in the context
 *		of a statement that we have seen start (nodeModifyTable.c: ExecInsert
 *		and ExecUpdatePrologue open indexes in es_query_cxt;
 *		ExecInitPartitionInfo does in the one that its PartitionTupleRouting was
 *		made in, which is that too), and whose plan has no ON CONFLICT anywhere;
 *	  - COPY: the index was opened in the context in which the command was
 *		called (copyfrom.c, CopyFrom).
 * All other entries do not wait: those of the workers of logical replication (they
 * have a ResultRelInfo for each row, so there is nothing to gain), of modules
 * that call the table and index access methods by themselves, in ways of their
 * own; and all of tables of another access method than heap, of whose rows we
 * know nothing.
 *
 * Nor do those of tables without a key into which a subscription brings changes, as its
 * worker has to find their rows at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/partition.h"
#include "nodes/execnodes.h"
#include "nodes/plannodes.h"
#if PG_VERSION_NUM >= 180000
#include "replication/logicalrelation.h"
#endif
#include "utils/catcache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cluster/heap_table.h"

#include "insert_queue.h"
#include "statements.h"

/* Has this plan no ON CONFLICT, as far as it is a ModifyTable? */
static bool
is_plain(const Plan *plan)
{
	return !IsA(plan, ModifyTable) ||
		((const ModifyTable *) plan)->onConflictAction == ONCONFLICT_NONE;
}

/*
 * Is every row that this statement inserts a plain one?  ModifyTable is at the top
 * of a plan, or of that of a WITH query, which is among the subplans.  A module
 * may put a node of its own there, of which we know nothing.
 */
static bool
inserts_plain_rows(const PlannedStmt *statement)
{
	ListCell   *lc;

	if (statement->commandType != CMD_SELECT && !IsA(statement->planTree, ModifyTable))
		return false;
	if (!is_plain(statement->planTree))
		return false;
	foreach(lc, statement->subplans)
	{
		const Plan *plan = lfirst(lc);

		if (plan == NULL)
			continue;
		if (!is_plain(plan) || (statement->hasModifyingCTE && IsA(plan, CustomScan)))
			return false;
	}
	return true;
}

/*
 * Does VACUUM leave the rows alone that the statement of indexInfo inserts into
 * heap, until the (sub)transaction is over?  Raises no error.
 */
bool
pmhash_rows_stay(Relation heap, const struct IndexInfo *indexInfo)
{
	const PmhashStatement *statement;

	if (!pmhash_is_heap_table(heap))
		return false;
	statement = pmhash_statement_in(indexInfo->ii_Context);
	return statement != NULL && statement->inserts &&
		(statement->planned == NULL || inserts_plain_rows(statement->planned));
}

#if PG_VERSION_NUM >= 180000

static bool
has_subscription(Oid table)
{
	CatCList   *list = SearchSysCacheList1(SUBSCRIPTIONRELMAP, ObjectIdGetDatum(table));
	bool		found = list->n_members > 0;

	ReleaseSysCacheList(list);
	return found;
}

/*
 * May a worker of logical replication look for rows of the table by an index that is not
 * unique?  It does so if the table has neither a replica identity index nor a primary
 * key (relation.c, FindLogicalRepLocalIndex), in tables that have a row in
 * pg_subscription_rel (worker.c, should_apply_changes_for_rel), and in their partitions
 * (apply_handle_tuple_routing).  ERROR as for any look at the catalogs.
 */
bool
pmhash_subscriber_looks(Relation heap)
{
	Oid			table = RelationGetRelid(heap);
	bool		found;
	List	   *ancestors;
	ListCell   *lc;

	if (OidIsValid(GetRelationIdentityOrPK(heap)))
		return false;
	found = has_subscription(table);
	if (found || !heap->rd_rel->relispartition)
		return found;
	ancestors = get_partition_ancestors(table);
	foreach(lc, ancestors)
		found = found || has_subscription(lfirst_oid(lc));
	list_free(ancestors);
	return found;
}

#else							/* it uses indexes of core's methods only */

bool
pmhash_subscriber_looks(Relation heap)
{
	return false;
}

#endif
