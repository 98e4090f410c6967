/*-------------------------------------------------------------------------
 *
 * init.c
 *	  Set everything up, once in a process that loads the library.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "cluster/base/am_callbacks.h"
#include "cluster/base/gucs.h"
#include "cluster/cluster.h"
#include "cluster/open/open.h"
#include "cluster/replay/replay.h"
#include "cluster/server/engine_hooks.h"
#include "cluster/server/startup.h"
#include "cluster/workers/workers.h"

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
	pmhash_standby_redo_init();
	pmhash_worker_init();
}
