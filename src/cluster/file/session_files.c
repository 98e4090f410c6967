/*-------------------------------------------------------------------------
 *
 * session_files.c
 *	  The files of this session's temporary indexes; and how a file is removed, of whatever
 *	  index.
 *
 * They go with their transactions as others do (life_cycle.c), and with the session at
 * the latest.  No other session can read the stubs of such indexes, so this list is what
 * is known of their files; and it has which of their main forks a transaction replaces,
 * which storage.c does not note for temporary relations.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "cluster/base/pool_names.h"
#include "cluster/file/file_cache.h"
#include "cluster/file/life_cycle.h"
#include "cluster/wal/logged.h"

typedef struct SessionFile
{
	Oid			heap;			/* table of the index */
	PmhashFork	fork;			/* that it was made for */
	uint64		file_id;
	bool		doubtful;		/* the index, or another one on that table, has got
								 * another main fork in this transaction */
	char	   *path;
} SessionFile;

static List *files = NIL;		/* in TopMemoryContext */
static bool any_doubtful = false;

/* The file at path has been removed. */
static void
forget_file(const char *path)
{
	ListCell   *lc;

	foreach(lc, files)
	{
		SessionFile *file = lfirst(lc);

		if (strcmp(file->path, path) != 0)
			continue;
		pfree(file->path);
		pfree(file);
		files = foreach_delete_current(files, lc);
		return;
	}
}

/*
 * Remove a file.  It may be gone already.  Never raises an error, since it is called after
 * commit and in aborts: what can't be removed is logged, and tried again by the cleaner.
 */
void
pmhash_unlink(const char *path)
{
	const char *name = last_dir_separator(path);
	uint64		file_id;
	bool		is_ours = name != NULL && pmhash_parse_file_name(name + 1, &file_id);

	if (unlink(path) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not remove file \"%s\": %m", path)));
	forget_file(path);			/* path may be its own, freed now */
	if (is_ours)
		pmhash_file_is_not_new(file_id);
}

/*
 * Remove a file that nobody uses any more, or will.  But idle sessions may keep it mapped for
 * days.  So it is cut off, as the server does with its own files (md.c, mdunlinkfork), for its
 * space to be free at once: when it has no name any more, so that none meets it cut off.
 */
void
pmhash_remove_file(const char *path)
{
	int			fd = BasicOpenFile(path, O_WRONLY | PG_BINARY);

	pmhash_unlink(path);
	if (fd < 0)
		return;
	if (ftruncate(fd, 0) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not truncate removed file: %m")));
	(void) close(fd);
}

static void
remove_all(int code, Datum arg)
{
	while (files != NIL)
		pmhash_unlink(((SessionFile *) linitial(files))->path);
}

/* The file of a temporary index has been made. */
void
pmhash_session_file_made(const PmhashFile *file, Relation index)
{
	static bool registered = false;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	SessionFile *made = palloc0(sizeof(SessionFile));

	made->heap = index->rd_index->indrelid;
	made->fork = pmhash_fork_of(index);
	made->file_id = file->file_id;
	made->path = pstrdup(file->path);
	files = lappend(files, made);
	MemoryContextSwitchTo(old);
	if (!registered)
		before_shmem_exit(remove_all, (Datum) 0);
	registered = true;
}

/*
 * The file made for the main fork that a temporary index has, into path[MAXPGPATH];
 * false if there is none.
 */
bool
pmhash_session_file_of(Relation index, char *path)
{
	PmhashFork	fork = pmhash_fork_of(index);

	for (int i = list_length(files) - 1; i >= 0; i--)
	{
		const SessionFile *file = list_nth(files, i);

		if (memcmp(&file->fork, &fork, sizeof(fork)) != 0)
			continue;
		strlcpy(path, file->path, MAXPGPATH);
		return true;
	}
	return false;
}

/*
 * An index of a temporary table is getting another file, with a new main fork: look
 * which of that table's files are still wanted before commit.
 */
void
pmhash_session_file_replaced(Oid heap)
{
	ListCell   *lc;

	foreach(lc, files)
	{
		SessionFile *file = lfirst(lc);

		if (file->heap != heap)
			continue;
		file->doubtful = true;
		any_doubtful = true;
	}
}

/* Have a look taken at each file that may not be wanted any more. */
void
pmhash_session_files_look(void (*look) (const char *path, Oid heap, uint64 file_id))
{
	ListCell   *lc;

	if (!any_doubtful)
		return;
	any_doubtful = false;
	foreach(lc, files)
	{
		SessionFile *file = lfirst(lc);

		if (file->doubtful)
			look(file->path, file->heap, file->file_id);
		file->doubtful = false;
	}
}
