/*-------------------------------------------------------------------------
 *
 * identity.c
 *	  Which file is which, and of when: the identity in a file's header.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"

/* The engine's environment in this server life. */
PmhEnv
pmhash_engine_env(void)
{
	PmhEnv		env;

	memset(&env, 0, sizeof(env));
	env.locks = pmhash_shared->locks;
	env.instance = pmhash_shared->instance;
	env.shut = pmhash_shared->control.shut;
	env.shut_begun = pmhash_shared->control.shut_begun;
	env.all_shut = pmhash_shared->control.all_shut != 0;
	return env;
}

/*
 * Why a file with this identity must not be trusted, or NONE.  pmem: whether it
 * is persistent memory, which does not help it if its journal was not.
 */
PmhashReason
pmhash_identity_doubt(const PmhashIdentity *id, bool pmem)
{
	const PmhashControl *control = &pmhash_shared->control;

	if (id->version != PMHASH_IDENTITY_VERSION)
		return PMHASH_REASON_VERSION;
	if (id->system_identifier != control->system_identifier)
		return PMHASH_REASON_OTHER_CLUSTER;
	if (id->dax_era != control->dax_era)
		return (PmhashReason) control->ended_reason;
	if (!(pmem && control->pmem) && id->cache_era != control->cache_era)
		return PMHASH_REASON_POWER;
	return PMHASH_REASON_NONE;
}

/*
 * Why an open file must not be trusted (any more), or NONE: its eras may have ended in
 * this server life.
 */
PmhashReason
pmhash_table_doubt(const PmhTable *table)
{
	PmhashIdentity id;

	memcpy(&id, pmh_identity(table), sizeof(id));
	return pmhash_identity_doubt(&id, pmh_is_pmem(table));
}

/*
 * The identity of a file that is about to be made for an index.  ERROR if there is no
 * randomness.
 */
void
pmhash_identity_make(Relation index, uint64 file_id, PmhashSeed seed, PmhashIdentity *id)
{
	const PmhashControl *control = &pmhash_shared->control;

	Assert(IsTransactionState() && file_id != 0);
	memset(id, 0, sizeof(*id));
	id->version = PMHASH_IDENTITY_VERSION;
	if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		id->flags |= PMHASH_IDENTITY_TEMP;
	if (index->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED)
		id->flags |= PMHASH_IDENTITY_UNLOGGED;
	id->system_identifier = control->system_identifier;
	id->file_id = file_id;
	id->seed = seed;
	if (!pg_strong_random(id->predicate_key, sizeof(id->predicate_key)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random key")));
	id->dax_era = control->dax_era;
	id->cache_era = control->cache_era;
	id->instance = pmhash_shared->instance;
	if ((id->flags & PMHASH_IDENTITY_TEMP) == 0 && !RecoveryInProgress())
		id->creator_xid = U64FromFullTransactionId(GetTopFullTransactionId());
	id->owner_pid = MyProcPid;
	id->database = MyDatabaseId;
	id->index_oid = RelationGetRelid(index);
}
