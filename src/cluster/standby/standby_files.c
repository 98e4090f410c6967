/*-------------------------------------------------------------------------
 *
 * standby_files.c
 *	  The files that a standby finds in its pool: which are its own, and those that
 *	  have to go.
 *
 * All of this runs in the postmaster, or under the lock, and raises no ERROR.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <unistd.h>

#include "cluster/base/durable.h"
#include "cluster/base/identity.h"
#include "cluster/base/pool_names.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/standby/standby_state.h"

/* Where a file is, is being made, and its delta: MAXPGPATH bytes each. */
void
pmhash_standby_paths(Oid database, uint64 file_id, char *path, char *new_path,
					 char *delta_path)
{
	char		directory[MAXPGPATH];

	pmhash_database_path(directory, database);
	pmhash_file_path(path, database, file_id);
	snprintf(new_path, MAXPGPATH, "%s/" PMHASH_ID_FORMAT ".new", directory, file_id);
	snprintf(delta_path, MAXPGPATH, "%s/" PMHASH_ID_FORMAT ".delta", directory,
			 file_id);
}

/*
 * A file that was this server's own when it was the primary.  Whether its index is
 * logged is not known here: the stub says so to each process that would use it.  Hence
 * its timeline is 0: under another primary it cannot be kept (S4).  And the table is not
 * known, until a builder has seen that the index is logged (pmhash_standby_wants).
 */
static void
adopt(Oid database, uint64 file_id, int *next)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashStandbyRow *row = &standby->row[*next];
	char		path[MAXPGPATH];
	PmhashIdentity id;
	PmhError	error;

	if (*next == PMHASH_STANDBY_FILES)
		return;
	pmhash_file_path(path, database, file_id);
	if (pmh_read_identity(path, &id, &error) != PMH_OK || id.file_id != file_id ||
		id.database != database ||
		(id.flags & (PMHASH_IDENTITY_TEMP | PMHASH_IDENTITY_UNLOGGED)) != 0)
		return;
	row->file_id = standby->id[*next] = file_id;
	row->database = database;
	row->timeline = 0;
	row->heap = InvalidOid;
	row->usable_xmin = InvalidFullTransactionId;
	row->status = PMHASH_STANDBY_LIVE;
	row->restored = true;
	row->life = ++standby->lives;
	(*next)++;
}

/* ---- the pool's files ---- */

/* What a file in a database's directory is, by its name. */
typedef enum FileKind
{
	FOREIGN_FILE,
	INDEX_FILE,					/* <id>.pmh */
	WORK_FILE					/* <id>.new, <id>.delta */
} FileKind;

static FileKind
kind_of(const char *name, uint64 *file_id)
{
	if (pmhash_parse_file_name(name, file_id))
		return INDEX_FILE;
	if (strspn(name, "0123456789abcdef") != 16 ||
		(strcmp(name + 16, ".new") != 0 && strcmp(name + 16, ".delta") != 0))
		return FOREIGN_FILE;
	*file_id = strtoull(name, NULL, 16);
	return WORK_FILE;
}

/* Called for each file; false ends the walk, and makes it false. */
typedef bool (*FileAction) (Oid database, const char *path, FileKind kind,
							uint64 file_id, void *arg);

static bool
for_each_in_database(Oid database, FileAction action, void *arg)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH + NAMEDATALEN];
	DIR		   *dir;
	struct dirent *de;
	FileKind	kind;
	uint64		file_id;
	bool		ok = true;
	int			save_errno;

	pmhash_database_path(directory, database);
	dir = opendir(directory);
	if (dir == NULL)
		return errno == ENOENT;
	while (ok && (de = pmhash_next_name(dir, &ok)) != NULL)
	{
		kind = kind_of(de->d_name, &file_id);
		snprintf(path, sizeof(path), "%s/%.64s", directory, de->d_name);
		if (kind != FOREIGN_FILE)
			ok = action(database, path, kind, file_id, arg);
	}
	save_errno = errno;
	closedir(dir);
	errno = save_errno;
	return ok;
}

/* Everything in the pool that belongs to an index.  One descriptor at a time. */
static bool
for_each_file(FileAction action, void *arg)
{
	DIR		   *dir = opendir(pmhash_pool_path());
	struct dirent *de;
	Oid			database;
	bool		ok = dir != NULL;
	int			save_errno;

	while (ok && (de = pmhash_next_name(dir, &ok)) != NULL)
	{
		if (pmhash_parse_database_name(de->d_name, &database))
			ok = for_each_in_database(database, action, arg);
	}
	save_errno = errno;
	if (dir != NULL)
		closedir(dir);
	errno = save_errno;
	return ok;
}

static bool
adopt_file(Oid database, const char *path, FileKind kind, uint64 file_id, void *arg)
{
	if (kind == INDEX_FILE)
		adopt(database, file_id, arg);
	return true;
}

static bool
clear_file(Oid database, const char *path, FileKind kind, uint64 file_id, void *arg)
{
	const bool *all = arg;

	if (all == NULL && kind == INDEX_FILE && pmhash_standby_owns(database, file_id))
		return true;
	return unlink(path) == 0 || errno == ENOENT;
}

static bool
clear_work_file(Oid database, const char *path, FileKind kind, uint64 file_id, void *arg)
{
	if (kind == WORK_FILE && unlink(path) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not remove file \"%s\": %m", path)));
	return true;
}

/*
 * Remove what builds of an earlier life have left, whatever this server is now: no
 * process knows it.  For the postmaster, or when there is no builder.
 */
void
pmhash_standby_clear_work(void)
{
	(void) for_each_file(clear_work_file, NULL);
}

/*
 * Remove what is not LIVE: files that have missed records must not be there when the
 * server is promoted.  Under the lock.  False with errno if one can't be removed.
 */
bool
pmhash_standby_clear_files(void)
{
	return for_each_file(clear_file, NULL);
}

/*
 * Remove the directory of a database, with all that is in it.  False with errno.  Under
 * the lock.
 */
bool
pmhash_standby_clear_database(Oid database)
{
	bool		all = true;
	char		path[MAXPGPATH];

	if (!for_each_in_database(database, clear_file, &all))
		return false;
	pmhash_database_path(path, database);
	return rmdir(path) == 0 || errno == ENOENT;
}

/*
 * All files in the pool are LIVE that were this server's own as a primary.  False with
 * errno if they can't be listed.
 */
bool
pmhash_standby_adopt_files(void)
{
	int			next = 0;

	return for_each_file(adopt_file, &next);
}
