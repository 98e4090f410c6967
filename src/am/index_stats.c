/*-------------------------------------------------------------------------
 *
 * index_stats.c
 *	  SQL functions about one index: pmhash_stats, pmhash_size,
 *	  pmhash_total_relation_size.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "am.h"
#include "cluster/am_callbacks.h"
#include "insert_queue.h"

PG_FUNCTION_INFO_V1(pmhash_stats);
PG_FUNCTION_INFO_V1(pmhash_size);
PG_FUNCTION_INFO_V1(pmhash_total_relation_size);

#define STATS_COLUMNS	24

/*
 * ERROR unless a relation that a user has named is a pmhash index with a file
 * that this session can read.  The caller holds a lock on it.
 */
void
pmhash_require_index(Relation index)
{
	pmhash_require_ours(index);
	if (RELATION_IS_OTHER_TEMP(index))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary indexes of other sessions")));
}

/*
 * Open the index that a user has named, with AccessShareLock.  NULL if it has
 * been dropped; ERROR if it is something else than a pmhash index with a file
 * that we can read.
 */
static Relation
open_index(Oid oid)
{
	Relation	index = try_relation_open(oid, AccessShareLock);

	if (index == NULL)
		return NULL;
	pmhash_require_index(index);
	return index;
}

/*
 * ERROR unless the user may know what is in the index: roles that may read the
 * table do, and so do those that may scan tables for statistics (pg_monitor, for
 * one).
 */
static void
check_stats_permission(Relation index)
{
	Oid			heap = IndexGetRelation(RelationGetRelid(index), false);

	if (pg_class_aclcheck(heap, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		!has_privs_of_role(GetUserId(), ROLE_PG_STAT_SCAN_TABLES))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_INDEX,
					   RelationGetRelationName(index));
}

/* The row of pmhash_stats, in the order of its OUT parameters. */
static void
stats_row(Relation index, const PmhashFile *file, const PmhStats *stats, Datum *value)
{
	int			i = 0;

	value[i++] = CStringGetTextDatum(pmhash_shown_path(index, file->path));
	value[i++] = CStringGetTextDatum(pmh_is_pmem(file->table) ? "dax" : "cache");
	value[i++] = Int64GetDatum(stats->file_bytes);
	value[i++] = Int64GetDatum(stats->used_bytes);
	value[i++] = Int64GetDatum(stats->entries);
	value[i++] = Float8GetDatum(stats->load_factor);
	value[i++] = Int32GetDatum(stats->global_depth);
	value[i++] = Int32GetDatum(stats->min_depth);
	value[i++] = Int32GetDatum(stats->max_depth);
	value[i++] = Int64GetDatum(stats->segments);
	value[i++] = Int64GetDatum(stats->segments_single);
	value[i++] = Int64GetDatum(stats->segments_two_choice);
	value[i++] = Int64GetDatum(stats->segments_stash);
	value[i++] = Int64GetDatum(stats->entries_elsewhere);
	value[i++] = Int64GetDatum(stats->entries_stash);
	value[i++] = Int64GetDatum(stats->lists);
	value[i++] = Int64GetDatum(stats->list_entries);
	value[i++] = Int64GetDatum(stats->list_bytes);
	value[i++] = Int64GetDatum(stats->value_bytes);
	value[i++] = Int64GetDatum(stats->splits);
	value[i++] = Int64GetDatum(stats->grows);
	value[i++] = Int64GetDatum(stats->doublings);
	value[i++] = Int64GetDatum(stats->compactions);
	value[i++] = Int64GetDatum(stats->strategy_changes);
	Assert(i == STATS_COLUMNS);
}

/*
 * pmhash_stats(regclass) returns record
 *
 * Exact figures by walking the whole index, which blocks no other process.  NULL if the
 * index has been dropped.  ERROR if its file cannot be used or the user may
 * not know.
 */
Datum
pmhash_stats(PG_FUNCTION_ARGS)
{
	Relation	index = open_index(PG_GETARG_OID(0));
	TupleDesc	tupdesc;
	PmhashFile *file;
	PmhStats	stats;
	PmhResult	result;
	Datum		value[STATS_COLUMNS];
	bool		isnull[STATS_COLUMNS] = {false};

	if (index == NULL)
		PG_RETURN_NULL();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != STATS_COLUMNS)
		elog(ERROR, "unexpected result type of pmhash_stats");

	check_stats_permission(index);
	file = pmhash_open_for_reading(index, NULL);
	result = pmh_stats(file->table, &stats);
	if (result != PMH_OK)
		pmhash_engine_error(index, file, result);
	stats_row(index, file, &stats, value);
	relation_close(index, AccessShareLock);

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  value, isnull)));
}

/*
 * pmhash_size(regclass) returns bigint
 *
 * Bytes that the index takes: its file and the stub in its main fork.  NULL
 * if the index has been dropped, or nothing is known of its file.
 */
Datum
pmhash_size(PG_FUNCTION_ARGS)
{
	Relation	index = open_index(PG_GETARG_OID(0));
	int64		bytes;
	bool		known;

	if (index == NULL)
		PG_RETURN_NULL();
	known = pmhash_file_size(index, &bytes);
	bytes += (int64) RelationGetNumberOfBlocks(index) * BLCKSZ;
	relation_close(index, AccessShareLock);
	if (!known)
		PG_RETURN_NULL();
	PG_RETURN_INT64(bytes);
}

/* Add the bytes of the file of an index, if it is ours.  False: they are not known. */
static bool
add_file_bytes(Oid relid, int64 *sum)
{
	Relation	index = try_relation_open(relid, AccessShareLock);
	int64		bytes = 0;
	bool		known = true;

	if (index == NULL)
		return true;
	if (pmhash_is_index(index) && !RELATION_IS_OTHER_TEMP(index))
		known = pmhash_file_size(index, &bytes);
	relation_close(index, AccessShareLock);
	*sum += bytes;
	return known;
}

/*
 * pmhash_total_relation_size(regclass) returns bigint
 *
 * What pg_total_relation_size says, and the files of the relation's pmhash indexes,
 * or its own if it is one.  NULL if it has been dropped, or nothing is known of one of
 * these files.
 */
Datum
pmhash_total_relation_size(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	Relation	rel = try_relation_open(relid, AccessShareLock);
	int64		bytes;
	bool		known = true;
	ListCell   *lc;

	if (rel == NULL)
		PG_RETURN_NULL();
	bytes = DatumGetInt64(DirectFunctionCall1(pg_total_relation_size,
											  ObjectIdGetDatum(relid)));
	if (rel->rd_rel->relkind == RELKIND_INDEX)
		known = add_file_bytes(relid, &bytes);
	else
	{
		foreach(lc, RelationGetIndexList(rel))
			known &= add_file_bytes(lfirst_oid(lc), &bytes);
	}
	relation_close(rel, AccessShareLock);
	if (!known)
		PG_RETURN_NULL();
	PG_RETURN_INT64(bytes);
}
