/*-------------------------------------------------------------------------
 *
 * relations.c
 *	  Indexes of ours, what this layer knows of the access method on top of it, and the
 *	  shared buffers of a relation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "storage/buf_internals.h"
#include "storage/lwlock.h"
#include "storage/sinval.h"

#include "cluster/base/relations.h"
#include "cluster/cluster.h"

ambuild_function pmhash_am_build = NULL;
PmhashFillFunction pmhash_am_fill = NULL;

/* Is it an index of ours? */
bool
pmhash_is_index(Relation rel)
{
	return rel->rd_rel->relkind == RELKIND_INDEX &&
		rel->rd_indam != NULL && rel->rd_indam->ambuild == pmhash_am_build;
}

/*
 * Open a relation that a user has named by its OID, or of which the name has been looked
 * up before it was locked, with AccessShareLock.  What is not there is the user's ERROR;
 * relation_open takes it for an internal one.
 */
Relation
pmhash_open_named(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	Assert(IsTransactionState());
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	return rel;
}

/* ERROR unless a relation that a user has named is an index of ours. */
void
pmhash_require_ours(Relation rel)
{
	if (pmhash_is_index(rel))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" is not a pmhash index", RelationGetRelationName(rel)),
			 rel->rd_rel->relkind == RELKIND_PARTITIONED_INDEX ?
			 errdetail("It is a partitioned index; each partition has an index of its own.") : 0));
}

/*
 * Plans that use an index of the table are to be made anew, at once, as stub_generation
 * works at once: what CacheInvalidateRelcache does comes at the end of the transaction, and
 * not at all if that aborts.
 */
void
pmhash_forget_plans(Oid database, Oid table)
{
	SharedInvalidationMessage message;

	Assert(CritSectionCount == 0);
	memset(&message, 0, sizeof(message));
	message.rc.id = SHAREDINVALRELCACHE_ID;
	message.rc.dbId = database;
	message.rc.relId = table;
	SendSharedInvalidMessages(&message, 1);
}

/*
 * pmhash_buffer_of
 *		The shared buffer that has a block of a main fork, or InvalidBuffer.
 *
 * Of a relation that is not temporary.  It may be another's when this returns:
 * ReadRecentBuffer finds out.  Takes the lock of a partition of the buffer table, as
 * every read of a block does (bufmgr.c, BufferAlloc).  Raises no error.
 */
Buffer
pmhash_buffer_of(PmhashNode node, BlockNumber block)
{
	BufferTag	tag;
	uint32		hash;
	LWLock	   *lock;
	int			number;

	Assert(BlockNumberIsValid(block));
#if PG_VERSION_NUM >= 160000
	InitBufferTag(&tag, &node, MAIN_FORKNUM, block);
#else
	INIT_BUFFERTAG(tag, node, MAIN_FORKNUM, block);
#endif
	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);
	LWLockAcquire(lock, LW_SHARED);
	number = BufTableLookup(&tag, hash);
	LWLockRelease(lock);
	return number < 0 ? InvalidBuffer : number + 1;
}
