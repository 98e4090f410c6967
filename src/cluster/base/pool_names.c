/*-------------------------------------------------------------------------
 *
 * pool_names.c
 *	  Where the pool is, and what the files in it are called.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "cluster/base/control_file.h"
#include "cluster/cluster.h"

static char pool_path[MAXPGPATH];

/* Absolute path of the pool.  Valid after pmhash_set_pool_path. */
const char *
pmhash_pool_path(void)
{
	return pool_path;
}

/* path must have room for MAXPGPATH bytes, in all of these. */
void
pmhash_database_path(char *path, Oid database)
{
	snprintf(path, MAXPGPATH, "%s/%u", pool_path, database);
}

/* The path of an index file; MAXPGPATH bytes, as all of these. */
void
pmhash_file_path(char *path, Oid database, uint64 file_id)
{
	Assert(file_id != 0);
	snprintf(path, MAXPGPATH, "%s/%u/" PMHASH_ID_FORMAT ".pmh",
			 pool_path, database, file_id);
}

/* The path of the undo journal. */
void
pmhash_journal_path(char *path)
{
	snprintf(path, MAXPGPATH, "%s/journal", pool_path);
}

/* Is name that of an index file? Sets its id. */
bool
pmhash_parse_file_name(const char *name, uint64 *file_id)
{
	if (strlen(name) != 20 || strspn(name, "0123456789abcdef") != 16 ||
		strcmp(name + 16, ".pmh") != 0)
		return false;
	*file_id = strtoull(name, NULL, 16);
	return true;
}

/* Is name that of a database's directory? Sets its OID. */
bool
pmhash_parse_database_name(const char *name, Oid *database)
{
	size_t		len = strlen(name);

	if (len == 0 || len > 10 || strspn(name, "0123456789") != len)
		return false;
	*database = (Oid) strtoul(name, NULL, 10);
	return true;
}

/* Is it where it is if no setting names a directory: beside the data directory? */
bool
pmhash_pool_is_default(void)
{
	return pmhash_directory == NULL || pmhash_directory[0] == '\0';
}

/* Find out where the pool is, by the configuration. */
void
pmhash_set_pool_path(void)
{
	if (!pmhash_pool_is_default())
		strlcpy(pool_path, pmhash_directory, MAXPGPATH);
	else
	{
		char		data[MAXPGPATH];

		strlcpy(data, DataDir, MAXPGPATH);
		canonicalize_path(data);
		snprintf(pool_path, MAXPGPATH, "%s.pmhash", data);
	}
	canonicalize_path(pool_path);
}
