/*-------------------------------------------------------------------------
 *
 * index_list.c
 *	  The pmhash indexes of a database, as its catalogs list them; which workers build one,
 *	  and what these say they are at.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cluster/queue/queue.h"

/*
 * Is this a handler function of this library?  Looked up by the name of the C
 * function: calling every handler would load libraries of others, and fail if one of
 * those is missing.
 */
static bool
is_our_handler(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Datum		source;
	bool		isnull;
	bool		ours = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);
	if (!isnull)
		ours = strcmp(TextDatumGetCString(source), "pmhash_handler") == 0;
	ReleaseSysCache(tuple);
	return ours;
}

/* OIDs of the access methods that are ours, whatever their names. */
List *
pmhash_access_methods(void)
{
	Relation	pg_am = table_open(AccessMethodRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(pg_am, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	List	   *ours = NIL;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_am	form = (Form_pg_am) GETSTRUCT(tuple);

		if (form->amtype == AMTYPE_INDEX && is_our_handler(form->amhandler))
			ours = lappend_oid(ours, form->oid);
	}
	systable_endscan(scan);
	table_close(pg_am, AccessShareLock);
	return ours;
}

/*
 * OIDs of the pmhash indexes of this database, those with a main fork, in the current
 * memory context.  Temporary ones only if the caller wants them: they are other
 * sessions' as well.  None is locked: each may have gone by the time it is opened.
 */
List *
pmhash_list_indexes(bool temporary)
{
	List	   *methods = pmhash_access_methods();
	Relation	pg_class;
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *indexes = NIL;

	Assert(IsTransactionState());
	if (methods == NIL)
		return NIL;
	pg_class = table_open(RelationRelationId, AccessShareLock);
	scan = systable_beginscan(pg_class, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		if (form->relkind == RELKIND_INDEX &&
			(temporary || form->relpersistence != RELPERSISTENCE_TEMP) &&
			list_member_oid(methods, form->relam))
			indexes = lappend_oid(indexes, form->oid);
	}
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return indexes;
}

/* Which workers build an index, of this row of pg_index?  Runs no user's function. */
PmhashJob
pmhash_build_job(HeapTuple index)
{
	return heap_attisnull(index, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(index, Anum_pg_index_indpred, NULL) ?
		PMHASH_JOB_PLAIN : PMHASH_JOB_EXPRESSIONS;
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

	Assert(IsTransactionState());
	pgstat_report_activity(STATE_RUNNING, activity);
	pfree(activity);
}
