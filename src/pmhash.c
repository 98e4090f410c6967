/*-------------------------------------------------------------------------
 *
 * pmhash.c
 *	  Where the library is loaded: magic block and set-up.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "am/am.h"
#include "cluster/cluster.h"
#include "join/join.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	pmhash_cluster_init(pmhash_build, pmhash_build_beside_writers);
	pmhash_filler = &pmhash_standby_filler;
	pmhash_explain_init();
	if (process_shared_preload_libraries_in_progress)
	{
		pmhash_transaction_init();
		pmhash_hooks_init();
		pmhash_join_init();
	}
}
