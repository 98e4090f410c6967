/*-------------------------------------------------------------------------
 *
 * am_callbacks.c
 *	  What this layer knows of the access method on top of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "storage/sinval.h"

#include "cluster/base/am_callbacks.h"

ambuild_function pmhash_am_build = NULL;
PmhashFillFunction pmhash_am_fill = NULL;

/* Is it an index of ours? */
bool
pmhash_is_index(Relation rel)
{
	return rel->rd_rel->relkind == RELKIND_INDEX &&
		rel->rd_indam != NULL && rel->rd_indam->ambuild == pmhash_am_build;
}

/*
 * Open a relation that a user has named by its OID, or of which the name has been looked
 * up before it was locked, with AccessShareLock.  What is not there is the user's ERROR;
 * relation_open takes it for an internal one.
 */
Relation
pmhash_open_named(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	return rel;
}

/* ERROR unless a relation that a user has named is an index of ours. */
void
pmhash_require_ours(Relation rel)
{
	if (pmhash_is_index(rel))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" is not a pmhash index", RelationGetRelationName(rel)),
			 rel->rd_rel->relkind == RELKIND_PARTITIONED_INDEX ?
			 errdetail("It is a partitioned index; each partition has an index of its own.") : 0));
}

/*
 * Plans that use an index of the table are to be made anew, here or everywhere, and
 * at once, as stub_generation works at once: what CacheInvalidateRelcache does
 * comes at the end of the transaction, and not at all if that aborts.
 */
void
pmhash_forget_plans(Oid database, Oid table, bool everywhere)
{
	SharedInvalidationMessage message;

	memset(&message, 0, sizeof(message));
	message.rc.id = SHAREDINVALRELCACHE_ID;
	message.rc.dbId = database;
	message.rc.relId = table;
	if (everywhere)
		SendSharedInvalidMessages(&message, 1);
	else
		LocalExecuteInvalidationMessage(&message);
}
