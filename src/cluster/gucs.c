/*-------------------------------------------------------------------------
 *
 * gucs.c
 *	  Configuration variables.
 *
 * Most of them size or place shared things, so all are defined only while
 * shared_preload_libraries is being loaded: later the server would refuse them (DefineCustomStringVariable and its sisters raise
 * an ERROR for PGC_POSTMASTER variables after start; guc.c,
 * init_custom_variable).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "cluster/internal.h"

char	   *pmhash_directory = NULL;
int			pmhash_lock_stripes = 4096;
int			pmhash_journal_size = 2048;
int			pmhash_sweep_naptime = 60;
bool		pmhash_rebuild = true;
bool		pmhash_group_insert = true;
bool		pmhash_vacuum_shrink = true;

/* The engine wants a power of two. */
static bool
check_lock_stripes(int *newval, void **extra, GucSource source)
{
	if ((*newval & (*newval - 1)) != 0)
	{
		GUC_check_errdetail("\"pmhash.lock_stripes\" must be a power of two.");
		return false;
	}
	return true;
}

/*
 * Define the variables.  Called from _PG_init while preloading.
 */
void
pmhash_define_gucs(void)
{
	DefineCustomStringVariable("pmhash.directory",
							   "Directory of pmhash index files.",
							   "An empty string means the data directory's path with \".pmhash\" appended.",
							   &pmhash_directory, "",
							   PGC_POSTMASTER, GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	DefineCustomIntVariable("pmhash.lock_stripes",
							"Number of segment locks shared by all pmhash indexes (a power of two).",
							NULL,
							&pmhash_lock_stripes, 4096, 64, 1 << 20,
							PGC_POSTMASTER, 0,
							check_lock_stripes, NULL, NULL);
	DefineCustomIntVariable("pmhash.journal_size",
							"Size of the undo journal of entries whose WAL is not flushed yet.",
							NULL,
							&pmhash_journal_size, 2048, 64, 1024 * 1024,
							PGC_POSTMASTER, GUC_UNIT_KB,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pmhash.sweep_naptime",
							"Time between looks for pmhash index files that no index owns.",
							"Dropped and rebuilt indexes are looked after at once; this is for what crashes and prepared transactions leave.",
							&pmhash_sweep_naptime, 60, 1, INT_MAX / 1000,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("pmhash.rebuild",
							 "Rebuild invalid pmhash indexes in the background.",
							 "An index is invalid if its file is missing, damaged, or may not match the table. A rebuild keeps writers out of the table while it lasts.",
							 &pmhash_rebuild, true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pmhash.group_insert",
							 "Insert index entries of long statements in groups.",
							 NULL,
							 &pmhash_group_insert, true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pmhash.vacuum_shrink",
							 "Let VACUUM give space of pmhash index files back after mass deletes.",
							 NULL,
							 &pmhash_vacuum_shrink, true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	MarkGUCPrefixReserved("pmhash");
}
