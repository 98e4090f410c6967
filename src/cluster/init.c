/*-------------------------------------------------------------------------
 *
 * init.c
 *	  Set everything up, once in a process that loads the library.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "cluster/am_callbacks.h"
#include "cluster/cluster.h"
#include "cluster/engine_hooks.h"
#include "cluster/gucs.h"
#include "cluster/life_cycle.h"
#include "cluster/planner_hook.h"
#include "cluster/session_files.h"
#include "cluster/standby_state.h"
#include "cluster/startup.h"
#include "cluster/worker.h"

void
pmhash_cluster_init(ambuild_function build, PmhashFillFunction fill)
{
	pmhash_am_build = build;
	pmhash_am_fill = fill;
	pmhash_planner_hook_init();
	if (!process_shared_preload_libraries_in_progress)
		return;
	pmhash_define_gucs();
	pmhash_startup_init();
	pmhash_engine_hooks_init();
	pmhash_session_files_init(pmhash_unlink);
	pmhash_standby_redo_init();
	pmhash_worker_init();
}
