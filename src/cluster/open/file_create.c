/*-------------------------------------------------------------------------
 *
 * file_create.c
 *	  Making index files.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/lmgr.h"

#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/open/open.h"
#include "cluster/pool/pool.h"
#include "cluster/wal/logged.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/undo_journal.h"
#include "cluster/wal/wal_record.h"

/* A stub with another id and seed. */
static PmhashStub
new_stub(uint16 flags)
{
	uint64		file_id = 0;
	PmhashSeed	seed;

	while (file_id == 0)
	{
		if (!pg_strong_random(&file_id, sizeof(file_id)) ||
			!pg_strong_random(&seed, sizeof(seed)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate a random file id")));
	}
	return pmhash_stub_make(flags, file_id, seed, PMHASH_REASON_NONE);
}

/* The flag of a stub whose file's changes are to be logged. */
static uint16
wal_flags(Relation index)
{
	return pmhash_wants_wal(index) ? PMHASH_STUB_LOGGED : 0;
}

/*
 * Make the file of a stub and open it.  It is on the list of what an abort
 * removes from before it exists.
 */
static PmhashFile *
make_file(Relation index, const PmhashStub *stub)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH];
	PmhashIdentity id;
	PmhTable   *table;
	PmhashFile *file;
	PmhError	error;
	PmhResult	result;
	PmhEnv		env = pmhash_engine_env();
	uint64		generation = pg_atomic_read_u64(&pmhash_shared->stub_generation);

	Assert(stub->file_id != 0);
	Assert(IsTransactionState() && !RecoveryInProgress());
	pmhash_require_pool_present();
	pmhash_journal_map();
	pmhash_database_path(directory, MyDatabaseId);
	pmhash_file_path(path, MyDatabaseId, stub->file_id);
	if (mkdir(directory, 0700) != 0 && errno != EEXIST)
	{
		memset(&error, 0, sizeof(error));
		error.code = errno == ENOSPC ? PMH_ERR_NO_SPACE : PMH_ERR_IO;
		error.sys_errno = errno;
		pmhash_file_error(index, path, "create the directory of", &error);
	}
	pmhash_identity_make(index, stub->file_id, stub->seed, &id);
	if (pmhash_flags_logged(stub->flags))
		id.flags |= PMHASH_IDENTITY_LOGGED;
	pmhash_pending_create(stub->file_id, index);

	/*
	 * Under the create lock: workers list files under it, so that they never meet one
	 * whose header is still being written.  If the process has no room for another mapping,
	 * what it does not need is unmapped.
	 */
	LWLockAcquire(pmhash_lwlock(PMHASH_CREATE_LOCK), LW_SHARED);
	do
		result = pmh_create(path, &id, &env, &table, &error);
	while (result == PMH_ERR_NO_MEMORY && pmhash_entries_unmap(0));
	LWLockRelease(pmhash_lwlock(PMHASH_CREATE_LOCK));
	if (result != PMH_OK)
		pmhash_file_error(index, path, "create", &error);
	file = pmhash_entry_use(pmhash_entry_enter(index, table, stub, generation));
	if (pmh_is_pmem(table))
		fsync_fname_ext(directory, true, false, ERROR);	/* the name is as durable as the file */
	return file;
}

/*
 * Make the file of an index that is to be rebuilt beside writers, and let its stub
 * name it: from here on inserts go there (rebuild.c).  It stays even if this
 * transaction fails.  The caller holds ShareUpdateExclusiveLock on table and
 * index.  Returns the file's id.  ERROR if it can't be made.
 */
uint64
pmhash_file_begin_filling(Relation index)
{
	PmhashFile *file;
	PmhashStub	stub;

	Assert(CheckRelationLockedByMe(index, ShareUpdateExclusiveLock, true));
	pmhash_require_service(index);
	stub = new_stub(PMHASH_STUB_FILLING | wal_flags(index));
	file = make_file(index, &stub);
	HOLD_INTERRUPTS();
	pmhash_stub_write(index, &stub);
	pmhash_stub_changed();
	pmhash_pending_keep(file->file_id);
	RESUME_INTERRUPTS();
	return stub.file_id;
}

/*
 * ambuild is called for an index that may have a file already.
 *
 * It is called again on the same main fork when a table is truncated in the transaction
 * that made it, and at ON COMMIT DELETE ROWS.  Neither can be rolled back, and no other
 * transaction has seen that file: it goes now.  If the main fork is new, the old one and its
 * file go at commit.  If SET TABLESPACE has made that of a temporary index, the file was made
 * for another: it is looked for before the next commit.
 */
static void
part_with_file_before(Relation index)
{
	uint64		file_id = pmhash_made_for(index);

	if (file_id != 0)
		pmhash_remove_file(MyDatabaseId, file_id, false);
	else if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
			 pmhash_node_subid(index) != InvalidSubTransactionId)
		pmhash_fork_replaced(index);
}

/*
 * ambuild: make the file of an index and its stub.  ERROR if it can't be made.
 *
 * A table with a new main fork of its own is emptied in place (heap.c,
 * heap_truncate_one_rel), and so are its indexes.  If one of those has an older main fork
 * (the table was given another tablespace in this transaction, ATExecSetTableSpace) a
 * rollback brings all rows back and leaves that index empty, of any access method.  Ours is
 * marked as invalid then, and the file made here goes.  (CREATE INDEX CONCURRENTLY builds on an
 * older main fork as well; its index is not ready before.)
 */
PmhashFile *
pmhash_file_create(Relation index)
{
	PmhashFile *file;
	PmhashStub	stub;
	/* so that an abort removes it; else it is emptied in place (ON COMMIT DELETE ROWS) */
	bool		is_new = index->rd_createSubid != InvalidSubTransactionId ||
		pmhash_node_subid(index) != InvalidSubTransactionId;
	bool		temporary = index->rd_rel->relpersistence == RELPERSISTENCE_TEMP;

	Assert(!RecoveryInProgress() && !IsInParallelMode());
	pmhash_require_service(index);

	part_with_file_before(index);
	stub = new_stub(wal_flags(index));
	file = make_file(index, &stub);
	Assert(RelationGetNumberOfBlocks(index) == 0);

	/* (ON COMMIT DELETE ROWS comes when little can fail any more.) */
	if (!is_new && !(temporary && pmhash_transaction_is_ending) &&
		index->rd_index->indisready && pmhash_table_is_moved(index))
	{
		(void) pmhash_stub_invalidate(index, 0, PMHASH_REASON_MOVED);
		if (temporary)
			pmhash_fork_replaced(index);
		else
			pmhash_visit_at_commit(MyDatabaseId);
		return file;
	}
	pmhash_stub_write(index, &stub);
	if (pmhash_flags_logged(stub.flags))
		pmhash_announce_file(stub.file_id);
	if (!is_new)
		pmhash_pending_keep(file->file_id);
	return file;
}

void
pmhash_file_create_init(Relation index)
{
	pmhash_require_service(index);
	pmhash_stub_create_init(index);
}
