/*-------------------------------------------------------------------------
 *
 * stub.c
 *	  The stub: one ordinary page in the index's main fork that names the
 *	  index file.
 *
 * The page goes through shared buffers and WAL like any other, so that the
 * stub, and with it ownership of the file, follows the index through abort,
 * DROP, backup, SET TABLESPACE and crash recovery.  It carries the file's
 * random id and the seed of its key hash; whatever else identifies the file
 * is in the file's header.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "access/xloginsert.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"

#include "cluster/internal.h"

/* Lay a stub out on an empty page image. */
static void
fill_page(Page page, uint16 flags, uint64 file_id, uint64 seed,
		  PmhashReason reason)
{
	PmhashStub *stub;

	PageInit(page, BLCKSZ, 0);
	stub = (PmhashStub *) PageGetContents(page);
	memset(stub, 0, sizeof(PmhashStub));
	stub->magic = PMHASH_STUB_MAGIC;
	stub->version = PMHASH_STUB_VERSION;
	stub->flags = flags;
	stub->file_id = file_id;
	stub->seed = seed;
	stub->reason = reason;

	/* Generic WAL and full-page images leave the hole out: not our bytes. */
	((PageHeader) page)->pd_lower = ((char *) stub + sizeof(PmhashStub)) - (char *) page;
}

/* Put a stub on a locked buffer of the main fork, logged if the index is. */
static void
log_page(Relation index, Buffer buffer, uint16 flags, uint64 file_id,
		 uint64 seed, PmhashReason reason)
{
	GenericXLogState *state = GenericXLogStart(index);
	Page		page = GenericXLogRegisterBuffer(state, buffer,
												 GENERIC_XLOG_FULL_IMAGE);

	fill_page(page, flags, file_id, seed, reason);
	GenericXLogFinish(state);
}

/*
 * Read the stub of an index.  False if there is none: no fork, no block, or a
 * page that was never filled.  With zero_on_error a damaged page counts as
 * none (for DROP, which must not fail for that).  ERROR if the page is
 * something else, or of a version this code does not know.  The caller holds
 * a lock on the index.
 */
bool
pmhash_stub_read(Relation index, bool zero_on_error, PmhashStub *stub)
{
	Buffer		buffer;
	Page		page;
	bool		found;

	if (!smgrexists(RelationGetSmgr(index), MAIN_FORKNUM) ||
		RelationGetNumberOfBlocks(index) == 0)
		return false;

	buffer = ReadBufferExtended(index, MAIN_FORKNUM, 0,
								zero_on_error ? RBM_ZERO_ON_ERROR : RBM_NORMAL,
								NULL);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	found = !PageIsNew(page);
	if (found)
		memcpy(stub, PageGetContents(page), sizeof(PmhashStub));
	UnlockReleaseBuffer(buffer);

	if (!found)
		return false;
	if (stub->magic != PMHASH_STUB_MAGIC || stub->version != PMHASH_STUB_VERSION)
	{
		if (zero_on_error)
			return false;
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" has an invalid stub page",
						RelationGetRelationName(index)),
				 errdetail("Block 0 has magic number %X, version %u; %X, version %u was expected.",
						   stub->magic, stub->version,
						   PMHASH_STUB_MAGIC, PMHASH_STUB_VERSION),
				 errhint("REINDEX INDEX makes a new one.")));
	}
	return true;
}

/*
 * Make block 0 of an empty main fork the stub of file_id.
 */
void
pmhash_stub_create(Relation index, uint64 file_id, uint64 seed)
{
	Buffer		buffer;

	buffer = ReadBufferExtended(index, MAIN_FORKNUM, P_NEW, RBM_ZERO_AND_LOCK,
								NULL);
	if (BufferGetBlockNumber(buffer) != 0)
		elog(ERROR, "index \"%s\" already contains data",
			 RelationGetRelationName(index));
	log_page(index, buffer, 0, file_id, seed, PMHASH_REASON_NONE);
	UnlockReleaseBuffer(buffer);
}

/*
 * Write another file's id into an existing stub: that of an unlogged index
 * after a crash, which has none yet, or of an invalid one that has been
 * rebuilt.  The caller sees to it that nobody else does the same.
 */
void
pmhash_stub_fill(Relation index, uint64 file_id, uint64 seed)
{
	Buffer		buffer = ReadBuffer(index, 0);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	log_page(index, buffer, 0, file_id, seed, PMHASH_REASON_NONE);
	UnlockReleaseBuffer(buffer);
}

/*
 * Mark a stub: its file is never to be used again.  With file_id only if it
 * names that one.  The id stays, so that the file can be removed.  A page that
 * is not one of ours is replaced, one that is not there is made.  The record
 * stands in WAL before any that this transaction writes from now on.  Tells
 * whether the stub was not marked before.
 */
bool
pmhash_stub_invalidate(Relation index, uint64 file_id, PmhashReason reason)
{
	Buffer		buffer;
	Page		page;
	PmhashStub	stub;
	bool		ours;
	bool		mark;

	LockRelationForExtension(index, ExclusiveLock);
	if (RelationGetNumberOfBlocks(index) == 0)
	{
		buffer = ReadBufferExtended(index, MAIN_FORKNUM, P_NEW,
									RBM_ZERO_AND_LOCK, NULL);
	}
	else
	{
		buffer = ReadBufferExtended(index, MAIN_FORKNUM, 0, RBM_ZERO_ON_ERROR,
									NULL);
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	}
	page = BufferGetPage(buffer);
	memset(&stub, 0, sizeof(stub));
	if (!PageIsNew(page))
		memcpy(&stub, PageGetContents(page), sizeof(PmhashStub));
	ours = stub.magic == PMHASH_STUB_MAGIC && stub.version == PMHASH_STUB_VERSION;
	mark = (!ours || (stub.flags & PMHASH_STUB_INVALID) == 0) &&
		(file_id == 0 || (ours && stub.file_id == file_id));
	if (mark)
		log_page(index, buffer, PMHASH_STUB_INVALID, ours ? stub.file_id : 0,
				 ours ? stub.seed : 0, reason);
	UnlockReleaseBuffer(buffer);
	UnlockRelationForExtension(index, ExclusiveLock);
	return mark;
}

/*
 * Write the stub of the init fork: "make a new file".  After a crash reinit.c
 * copies it over the main fork without telling anyone; the first open makes
 * the file.  Same way of writing, for the same reasons, as btbuildempty
 * (nbtree.c): not through shared buffers, logged even with wal_level=minimal,
 * and synced.
 */
void
pmhash_stub_create_init(Relation index)
{
	SMgrRelation smgr = RelationGetSmgr(index);
	PGAlignedBlock block;
	Page		page = (Page) block.data;

	fill_page(page, PMHASH_STUB_NEW_FILE, 0, 0, PMHASH_REASON_NONE);
	PageSetChecksumInplace(page, 0);
	smgrextend(smgr, INIT_FORKNUM, 0, (char *) page, true);
	log_newpage(&pmhash_node_of_smgr(smgr), INIT_FORKNUM, 0, page, true);
	smgrimmedsync(smgr, INIT_FORKNUM);
}
