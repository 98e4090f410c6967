/*-------------------------------------------------------------------------
 *
 * object_hook.c
 *	  What pmhash takes note of when objects are made, altered and dropped.
 *
 * The server calls the hook for each object that a statement makes, alters or drops,
 * before the change can be seen.  What is noted is looked at when the statement or the
 * transaction is over; only a new database is looked at here and now, since its files
 * are copied next (new_database.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "utils/lsyscache.h"

#include "am/object_hook.h"
#include "am/row_types.h"
#include "cluster/life_cycle.h"

static object_access_hook_type previous_hook = NULL;

/* A column of a table, or an attribute of a composite type. */
static void
note_column(ObjectAccessType access, Oid relid, AttrNumber attno)
{
	if (access == OAT_POST_CREATE || access == OAT_DROP)
		pmhash_row_types_note(relid, 0);
	else if (access == OAT_POST_ALTER)
		pmhash_row_types_note(relid, attno);
}

static void
note_database(ObjectAccessType access, Oid database)
{
	if (access == OAT_DROP)
		pmhash_note_database_drop(database);
	else if (access == OAT_POST_CREATE)
		pmhash_note_database(database);
}

static void
object_hook(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	if (previous_hook)
		previous_hook(access, classId, objectId, subId, arg);
	if (classId == DatabaseRelationId)
		note_database(access, objectId);
	else if (classId == RelationRelationId && subId == 0)
	{
		if (access == OAT_DROP && get_rel_relkind(objectId) == RELKIND_INDEX)
			pmhash_note_drop(objectId);
	}
	else if (classId == RelationRelationId && subId > 0)
		note_column(access, objectId, (AttrNumber) subId);
}

/* Install the hook.  Called once, while the library is preloaded. */
void
pmhash_object_hook_init(void)
{
	previous_hook = object_access_hook;
	object_access_hook = object_hook;
}
