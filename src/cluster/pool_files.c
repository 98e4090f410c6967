/*-------------------------------------------------------------------------
 *
 * pool_files.c
 *	  The files that are in the pool, one after the other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>

#include "cluster/durable.h"
#include "cluster/pool_files.h"
#include "cluster/pool_names.h"

/*
 * Is it for want of descriptors or memory that something could not be opened?  Then it
 * can be soon.
 */
bool
pmhash_is_passing(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR;
}

static bool
visit_directory(const char *path, bool top, PmhashVisit visit, void *arg)
{
	DIR		   *dir = opendir(path);
	struct dirent *de;
	char		child[MAXPGPATH];
	const char *name;
	bool		going = dir != NULL || !pmhash_is_passing(errno);
	bool		ok = true;
	uint64		file_id;
	Oid			database;

	while (dir != NULL && going && (de = pmhash_next_name(dir, &ok)) != NULL)
	{
		name = de->d_name;
		snprintf(child, MAXPGPATH, "%s/%s", path, name);
		if (top && pmhash_parse_database_name(name, &database))
			going = visit_directory(child, false, visit, arg);
		else if (top ? name[0] != '.' : pmhash_parse_file_name(name, &file_id))
			going = visit(child, !top, arg);
	}
	if (!ok && pmhash_is_passing(errno))
		going = false;
	if (dir != NULL)
		closedir(dir);
	return going;
}

/*
 * Call visit for each file of the pool with its path and whether it is an index file,
 * until it returns false: then this does, and also if a directory could not be read for
 * want of descriptors or memory.  Files that come or go meanwhile may be left out, and
 * what is in a directory that cannot be read for another reason is.  Raises no error;
 * holds up to two descriptors.  For the postmaster too.
 */
bool
pmhash_each_pool_file(PmhashVisit visit, void *arg)
{
	return visit_directory(pmhash_pool_path(), true, visit, arg);
}
