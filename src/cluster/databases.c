/*-------------------------------------------------------------------------
 *
 * databases.c
 *	  Which databases there are: in the pool, and in the catalog.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "cluster/databases.h"
#include "cluster/pool_names.h"

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
 * Databases that exist and can be connected to; *all those that exist.  A
 * database that CREATE DATABASE is still making is not among them, but there
 * can be no index in it either.
 */
List *
pmhash_databases_in_catalog(List **all)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *connectable = NIL;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	*all = NIL;
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old = MemoryContextSwitchTo(context);

		*all = lappend_oid(*all, form->oid);
		if (form->datallowconn && form->datconnlimit != DATCONNLIMIT_INVALID_DB)
			connectable = lappend_oid(connectable, form->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return connectable;
}
