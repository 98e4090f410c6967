/*-------------------------------------------------------------------------
 *
 * gucs.c
 *	  Configuration variables.
 *
 * Most of them set size or location of shared things, so all are defined only
 * while shared_preload_libraries is being loaded: later the server would refuse
 * them (DefineCustomStringVariable and its sisters raise an ERROR for
 * PGC_POSTMASTER variables after start; guc.c, init_custom_variable).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/guc.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"

char	   *pmhash_directory = NULL;
int			pmhash_journal_size = 2048;
int			pmhash_cleaner_naptime = 60;
int			pmhash_warm_up = -1;
bool		pmhash_rebuild = true;
bool		pmhash_group_insert = true;
bool		pmhash_vacuum_shrink = true;
bool		pmhash_enable_join = true;
bool		pmhash_enable_pagescan = true;
bool		pmhash_wal = true;
int			pmhash_mapped_files = 16000;

void
pmhash_define_gucs(void)
{
	Assert(process_shared_preload_libraries_in_progress);

	/* those that stand when the server starts */
	DefineCustomStringVariable("pmhash.directory",
							   "Sets the directory of pmhash index files.",
							   "An empty string means the data directory's path with \".pmhash\" appended.",
							   &pmhash_directory, "",
							   PGC_POSTMASTER, GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	DefineCustomIntVariable("pmhash.journal_size",
							"Sets the size of the undo journal of entries whose WAL is not flushed yet.",
							NULL,
							&pmhash_journal_size, 2048, 64, 1024 * 1024,
							PGC_POSTMASTER, GUC_UNIT_KB,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pmhash.warm_up",
							"Sets how much of pmhash index files is read into memory when the server starts.",
							"Files are read as a whole or not at all. -1 means three quarters of the memory that is available then, without shared buffers; 0 means none.",
							&pmhash_warm_up, -1, -1, INT_MAX,
							PGC_POSTMASTER, GUC_UNIT_MB,
							NULL, NULL, NULL);

	/* those that a reload changes */
	DefineCustomIntVariable("pmhash.cleaner_naptime",
							"Sets the time between searches for pmhash index files that no index owns.",
							"Files of dropped and rebuilt indexes are removed at once; this is for what crashes and prepared transactions leave.",
							&pmhash_cleaner_naptime, 60, 1, INT_MAX / 1000,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("pmhash.rebuild",
							 "Rebuilds invalid pmhash indexes in the background.",
							 "An index is invalid if its file is missing, damaged, or may not match the table. VACUUM, ANALYZE and DDL of the table wait for a rebuild; queries and writes do not.",
							 &pmhash_rebuild, true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pmhash.wal",
							 "Logs the entries of pmhash indexes that have no storage parameter \"wal\".",
							 "Standbys build and keep index files of their own then. Has no effect on unlogged and temporary indexes, and with \"wal_level\" minimal.",
							 &pmhash_wal, true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	/* those of a session */
	DefineCustomBoolVariable("pmhash.group_insert",
							 "Inserts index entries of long statements in groups.",
							 NULL,
							 &pmhash_group_insert, true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pmhash.vacuum_shrink",
							 "Lets VACUUM return space of pmhash index files after mass deletes.",
							 NULL,
							 &pmhash_vacuum_shrink, true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pmhash.enable_join",
							 "Enables the planner's use of pmhash join plans.",
							 NULL,
							 &pmhash_enable_join, true,
							 PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pmhash.enable_pagescan",
							 "Enables the planner's use of pmhash page scan plans.",
							 NULL,
							 &pmhash_enable_pagescan, true,
							 PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pmhash.mapped_files",
							"Number of pmhash index files that a session keeps mapped from one transaction to the next.",
							"No more than a quarter of the system's limit (vm.max_map_count) is advisable.",
							&pmhash_mapped_files, 16000, 100, INT_MAX,
							PGC_USERSET, 0,
							NULL, NULL, NULL);
	MarkGUCPrefixReserved("pmhash");
}
