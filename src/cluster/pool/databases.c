/*-------------------------------------------------------------------------
 *
 * databases.c
 *	  Which databases there are: in the pool, and in the catalog; is one there at all?  Which
 *	  user may see where files are, and what may reveal rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <unistd.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/snapmgr.h"

#include "cluster/base/control_file.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"

/* Databases that have a directory in the pool. */
List *
pmhash_databases_in_pool(void)
{
	DIR		   *dir = AllocateDir(pmhash_pool_path());
	struct dirent *de;
	List	   *databases = NIL;
	Oid			database;

	while ((de = ReadDir(dir, pmhash_pool_path())) != NULL)
	{
		if (pmhash_parse_database_name(de->d_name, &database))
			databases = lappend_oid(databases, database);
	}
	FreeDir(dir);
	return databases;
}

/*
 * Those that can be connected to, and all, of those that exist.  In a transaction; the
 * lists are made in 'context'.  (The system caches are not there in a process that is in
 * no database.)
 */
static void
scan_databases(MemoryContext context, List **connectable, List **all)
{
	Relation	rel = table_open(DatabaseRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(rel, 0, NULL);
	HeapTuple	tuple;

	Assert(IsTransactionState());
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old = MemoryContextSwitchTo(context);

		*all = lappend_oid(*all, form->oid);
		if (form->datallowconn && form->datconnlimit != DATCONNLIMIT_INVALID_DB)
			*connectable = lappend_oid(*connectable, form->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
}

/*
 * Databases that exist and can be connected to; *all those that exist.  A
 * database that CREATE DATABASE is still making is not among them, but there
 * can be no index in it either.
 */
List *
pmhash_databases_in_catalog(List **all)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *connectable = NIL;

	Assert(!IsTransactionState());
	*all = NIL;
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	scan_databases(context, &connectable, all);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return connectable;
}

/*
 * pmhash_if_database_is_dropped
 *		Call a function if there is no such database, and none with this OID that a
 *		process could connect to before it returns.
 *
 * What pg_database has said some time ago does not do: CREATE DATABASE may be given the
 * OID of one that has been dropped.  The lock is one that connecting to a database
 * conflicts with, so that none does from before the look at pg_database on.  For the
 * launcher of a primary (a lock of this mode cannot be had in recovery), outside
 * transactions.  Waits for no process.  False: there is one, or that is not known now.
 */
bool
pmhash_if_database_is_dropped(Oid database, void (*act) (Oid database))
{
	MemoryContext context = CurrentMemoryContext;
	List	   *connectable = NIL;
	List	   *all = NIL;
	LOCKTAG		tag;
	bool		dropped;

	Assert(!IsTransactionState() && !RecoveryInProgress());
	StartTransactionCommand();
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	dropped = LockAcquire(&tag, ShareLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
	if (dropped)
		scan_databases(CurrentMemoryContext, &connectable, &all);
	dropped = dropped && !list_member_oid(all, database);
	if (dropped)
		act(database);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return dropped;
}

/*
 * Remove the directory of a database that does not exist any more.  Since DROP
 * DATABASE commits synchronously (dbcommands.c, ForceSyncCommit) it won't come
 * back.  Another one with its OID may: the caller sees to it that there is none yet.
 * What can't be removed rmtree says.
 */
void
pmhash_remove_dropped(Oid database)
{
	char		path[MAXPGPATH];

	Assert(OidIsValid(database) && database != MyDatabaseId);
	pmhash_database_path(path, database);
	if (access(path, F_OK) == 0)
		(void) rmtree(path, true);
}

/* ==== who may see ==== */

/* Is this user the owner of the index (InvalidOid: it has none), or in pg_monitor? */
static bool
has_right_to_details(Oid user, Oid index)
{
	if (has_privs_of_role(user, ROLE_PG_MONITOR))
		return true;
	if (!OidIsValid(index))
		return false;
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(RelationRelationId, index, user);
#else
	return pg_class_ownercheck(index, user);
#endif
}

/*
 * May this user see where the files are and why a rebuild has failed?  That may
 * reveal rows, as an expression of the index that fails for one shows its
 * value, and the server's directories: for the owner of the index (InvalidOid: it has
 * none) and for pg_monitor, which superusers are members of.
 *
 * In an operation in the rights of a table's owner two users look on, and both must
 * have the right: the owner, whose functions may put down what they see (ANALYZE by a
 * superuser or autovacuum), and the one outside, which reads the message (pmhash.check).
 */
bool
pmhash_may_see_details(Oid index)
{
	return !IsTransactionState() ||
		(has_right_to_details(GetUserId(), index) &&
		 (!InSecurityRestrictedOperation() ||
		  has_right_to_details(GetOuterUserId(), index)));
}
