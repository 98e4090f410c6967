/*-------------------------------------------------------------------------
 *
 * new_database.c
 *	  A database is made: nothing in the pool has its OID.
 *
 * The OID of a database that has been dropped may come back: CREATE DATABASE ... OID.
 * If the template is an older copy of that one, stubs of the new database name files of
 * the dropped one, and say that they are of this database; and so do these files.  All
 * agrees, but they have what the dropped database had in the end.  The server guards
 * its own files against that (dbcommands.c, check_db_file_conflict).  So what is left in
 * the pool goes before anything is copied.
 *
 * An OID that the server has drawn itself is no danger: the stubs of a template have the
 * template's OID, or one of a database that the template was copied from.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#include "cluster/base/counters.h"
#include "cluster/base/data_directory.h"
#include "cluster/base/durable.h"
#include "cluster/base/shared.h"
#include "cluster/file/life_cycle.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/rebuild_table.h"

static bool oid_is_given = false;	/* by the statement at work */

/* Before a utility statement: does it make a database with a given OID? */
void
pmhash_note_statement(const Node *statement)
{
	ListCell   *lc;

	if (!IsA(statement, CreatedbStmt))
		return;
	oid_is_given = false;
	foreach(lc, ((const CreatedbStmt *) statement)->options)
		oid_is_given |= strcmp(lfirst_node(DefElem, lc)->defname, "oid") == 0;
}

/* Are there index files of that OID in the pool, or may there be? */
static bool
has_files(Oid database)
{
	char		path[MAXPGPATH];
	DIR		   *dir;
	struct dirent *de;
	uint64		file_id;
	bool		found = false;

	pmhash_database_path(path, database);
	dir = AllocateDir(path);
	if (dir == NULL)
		return errno != ENOENT;
	while (!found && (de = ReadDir(dir, path)) != NULL)
		found = pmhash_parse_file_name(de->d_name, &file_id);
	FreeDir(dir);
	return found;
}

/*
 * Remove the directory of a database that does not exist any more.  Since DROP
 * DATABASE commits synchronously (dbcommands.c, ForceSyncCommit) it won't come
 * back.  Another one with its OID may: the caller sees to it that there is none yet.
 */
void
pmhash_remove_dropped(Oid database)
{
	char		path[MAXPGPATH];
	uint64	   *files;
	int			n;

	pmhash_counters_forget_dropped(database);
	files = pmhash_list_files(database, &n);
	for (int i = 0; i < n; i++)
	{
		pmhash_file_path(path, database, files[i]);
		pmhash_unlink(path);
	}
	pmhash_database_path(path, database);
	if (rmdir(path) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not remove directory \"%s\": %m", path)));
}

static void
remove_files(Oid database)
{
	pmhash_rebuild_forget(database);
	pmhash_remove_dropped(database);
	if (has_files(database))
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not remove index files of a dropped database with OID %u",
						database),
				 errdetail("The server log says why."),
				 errhint("Give the new database another OID, or none.")));
}

/*
 * The pool is not used in this server life.  In the next one it may be trusted again,
 * for what this life leaves out of an index it marks in the stub (trust.c,
 * pmhash_refuse_trust); this would not be.
 */
static void
refuse_next_life(void)
{
	char		reason[PMHASH_REASON_SIZE];

	if (!pmhash_remove_token(reason))
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("pmhash is disabled, and files of a dropped database cannot be given up: %s",
						reason),
				 errhint("Give the new database another OID, or none.")));
}

/*
 * pmhash_database_is_new
 *		A row of pg_database has been inserted, and no process can see it yet.
 *
 * The index of its OIDs has let it in, so there is no other one with this OID, and those
 * that were connected to one are gone (DROP DATABASE sees to that).  ERROR if files of
 * that may be left.
 */
void
pmhash_database_is_new(Oid database)
{
	if (pmhash_shared == NULL)
		return;
	if (pmhash_shared->usable && pmhash_pool_is_present())
		remove_files(database);
	else if (!oid_is_given)
		return;
	else if (pmhash_shared->usable)
		pmhash_require_pool_present();
	else
		refuse_next_life();
}
