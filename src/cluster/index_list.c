/*-------------------------------------------------------------------------
 *
 * index_list.c
 *	  The pmhash indexes of a database, as its catalogs list them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cluster/am_callbacks.h"
#include "cluster/index_list.h"
#include "cluster/try.h"

/*
 * Is this a handler function of this library?  Looked up by the name of the C
 * function first: calling every handler would load libraries of others, and
 * fail if one of those is missing.
 */
static bool
is_our_handler(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Datum		source;
	bool		isnull;
	bool		named = false;
	const IndexAmRoutine *routine;

	if (!HeapTupleIsValid(tuple))
		return false;
	source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);
	if (!isnull)
		named = strcmp(TextDatumGetCString(source), "pmhash_handler") == 0;
	ReleaseSysCache(tuple);
	if (!named)
		return false;
	routine = GetIndexAmRoutine(function);
	return routine->ambuild == pmhash_am_build;
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

typedef struct Opening
{
	Oid			relid;
	bool		there;
} Opening;

static void
open_and_close(void *arg)
{
	Opening    *opening = arg;
	Relation	index = try_relation_open(opening->relid, NoLock);

	opening->there = index != NULL;
	if (index != NULL)
		relation_close(index, NoLock);
}

/*
 * A row that is missing is an internal error of the server's (relcache.c, syscache.c).
 * So is much else, which may pass (elog.c, errcode_for_file_access).
 */
static bool
may_be_of_catalogs(int sqlstate)
{
	return sqlstate == ERRCODE_INTERNAL_ERROR ||
		sqlstate == ERRCODE_DATA_CORRUPTED ||
		sqlstate == ERRCODE_INDEX_CORRUPTED;
}

/*
 * pmhash_open_listed
 *		Open an index that pmhash_list_indexes has listed.
 *
 * For what goes through all of them, and must not end at one.  The caller holds a lock
 * on it, and closes it with NoLock.  NULL, and *error is NULL: it is gone.  NULL, and
 * *error is set (in the current memory context): it can't be opened, as what the
 * catalogs say of it is damaged, or for a moment.  Not to be called in a parallel
 * operation.
 */
Relation
pmhash_open_listed(Oid relid, ErrorData **error)
{
	Opening		opening = {relid, false};

	*error = pmhash_try(open_and_close, &opening, may_be_of_catalogs);
	return *error == NULL && opening.there ? try_relation_open(relid, NoLock) : NULL;
}
