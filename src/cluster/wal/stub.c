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
 * is in the file's header.  Here it is made and changed; stub_read.c reads it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "access/transam.h"
#include "access/xloginsert.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "storage/smgr.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/wal_record.h"
#include "engine/stop_point.h"

/* A stub that names a file. */
static PmhashStub
make_stub(uint16 flags, uint64 file_id, PmhashSeed seed, PmhashReason reason)
{
	PmhashStub	stub;

	memset(&stub, 0, sizeof(stub));
	stub.magic = PMHASH_STUB_MAGIC;
	stub.version = PMHASH_STUB_VERSION;
	stub.flags = flags;
	stub.file_id = file_id;
	stub.seed = seed;
	stub.reason = reason;
	stub.database = MyDatabaseId;
	return stub;
}

/* Lay a stub out on an empty page image. */
static void
fill_page(Page page, const PmhashStub *stub)
{
	PageInit(page, BLCKSZ, 0);
	memcpy(PageGetContents(page), stub, sizeof(PmhashStub));

	/* Generic WAL and full-page images leave the hole out: not our bytes. */
	((PageHeader) page)->pd_lower =
		(PageGetContents(page) + sizeof(PmhashStub)) - (char *) page;
}

/* Put a stub on a locked buffer of the main fork, logged if the index is. */
static void
log_page(Relation index, Buffer buffer, const PmhashStub *stub)
{
	GenericXLogState *state = GenericXLogStart(index);
	Page		page = GenericXLogRegisterBuffer(state, buffer,
												 GENERIC_XLOG_FULL_IMAGE);

	fill_page(page, stub);
	GenericXLogFinish(state);
}

/*
 * The same, and standbys are not to follow the stub's file any more: in one record (P6),
 * so that neither a crash nor a standby finds one without the other.
 */
static void
log_page_and_end(Buffer buffer, const PmhashStub *stub)
{
	Page		page = BufferGetPage(buffer);
	XLogRecPtr	end;

	START_CRIT_SECTION();
	fill_page(page, stub);
	MarkBufferDirty(buffer);
	end = pmhash_wal_log_file_gone_with(stub->file_id, MyDatabaseId, buffer);
	PageSetLSN(page, end);
	END_CRIT_SECTION();
}

/*
 * Make block 0 of an empty main fork the stub of file_id.
 */
void
pmhash_stub_create(Relation index, uint16 flags, uint64 file_id, PmhashSeed seed)
{
	Buffer		buffer;
	PmhashStub	stub;

	buffer = ReadBufferExtended(index, MAIN_FORKNUM, P_NEW, RBM_ZERO_AND_LOCK,
								NULL);
	if (BufferGetBlockNumber(buffer) != 0)
		elog(ERROR, "index \"%s\" already contains data",
			 RelationGetRelationName(index));
	stub = make_stub(flags, file_id, seed, (flags & PMHASH_STUB_INVALID) != 0 ?
					 PMHASH_REASON_MOVED : PMHASH_REASON_NONE);
	log_page(index, buffer, &stub);
	UnlockReleaseBuffer(buffer);
}

/*
 * Write another file's id into an existing stub: that of an unlogged index after a crash,
 * which has none yet (flags 0), or of an invalid one whose new file is about to be filled
 * (PMHASH_STUB_FILLING).  The caller sees to it that no other process does the same.
 */
void
pmhash_stub_fill(Relation index, uint16 flags, uint64 file_id, PmhashSeed seed)
{
	Buffer		buffer = ReadBuffer(index, 0);
	PmhashStub	stub = make_stub(flags, file_id, seed, PMHASH_REASON_NONE);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	log_page(index, buffer, &stub);
	UnlockReleaseBuffer(buffer);
}

/*
 * A file that was being filled is complete: this transaction has done it, which is over.
 * False, and nothing done, if it must not be used any more.
 */
bool
pmhash_stub_filled(Relation index, uint64 file_id, FullTransactionId by)
{
	Buffer		buffer = ReadBuffer(index, 0);
	PmhashStub	stub;
	bool		found;

	Assert(FullTransactionIdIsNormal(by));
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(&stub, PageGetContents(BufferGetPage(buffer)), sizeof(stub));
	found = stub.magic == PMHASH_STUB_MAGIC && stub.file_id == file_id &&
		(stub.flags & ~PMHASH_STUB_WAL) == PMHASH_STUB_FILLING;
	if (found)
	{
		stub.flags &= ~PMHASH_STUB_FILLING;
		stub.filled_by = U64FromFullTransactionId(by);
		log_page(index, buffer, &stub);
	}
	UnlockReleaseBuffer(buffer);
	return found;
}

/*
 * Replace those of PMHASH_STUB_WAL in a stub that names file_id and is not marked as
 * invalid; false, and nothing done, if it is not such a one, or a copy of another
 * database's.
 */
bool
pmhash_stub_set_wal(Relation index, uint64 file_id, uint16 wal)
{
	Buffer		buffer = ReadBuffer(index, 0);
	PmhashStub	stub;
	bool		found;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(&stub, PageGetContents(BufferGetPage(buffer)), sizeof(stub));
	found = stub.magic == PMHASH_STUB_MAGIC && stub.file_id == file_id &&
		stub.database == MyDatabaseId && (stub.flags & PMHASH_STUB_INVALID) == 0;
	if (found)
	{
		stub.flags = (stub.flags & ~PMHASH_STUB_WAL) | wal;
		log_page(index, buffer, &stub);
	}
	UnlockReleaseBuffer(buffer);
	return found;
}

/*
 * Mark a stub: its file is never to be used again.  With file_id only if it names that one.
 * The id stays, so that the file can be removed.  A page that is not one of ours is
 * replaced, one that is not there is made.  The record stands in WAL before any that this
 * transaction writes from now on; if the file was logged, or may have been, it is the one
 * for standbys, too (P6).  Tells whether the stub was not marked before.
 */
bool
pmhash_stub_invalidate(Relation index, uint64 file_id, PmhashReason reason)
{
	Buffer		buffer;
	Page		page;
	PmhashStub	stub;
	PmhashStub	marked;
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
	ours = pmhash_stub_is_known(&stub);
	mark = (!ours || (stub.flags & PMHASH_STUB_INVALID) == 0) &&
		(file_id == 0 || (ours && stub.file_id == file_id));
	if (mark)
	{
		marked = make_stub(PMHASH_STUB_INVALID, ours ? stub.file_id : 0,
						   ours ? stub.seed : (PmhashSeed) {0}, reason);
		PMH_STOP_POINT("stub_before_mark");
		if (ours ? pmhash_flags_logged(stub.flags) :
			RelationIsPermanent(index) && XLogIsNeeded())
			log_page_and_end(buffer, &marked);
		else
			log_page(index, buffer, &marked);
		PMH_STOP_POINT("stub_marked");

		/*
		 * Before others can see the mark, and leave rows out: sessions read their stubs
		 * again, and what has been read through the file is guarded by locks on the table.
		 */
		pmhash_stub_changed();
		TransferPredicateLocksToHeapRelation(index);
	}
	UnlockReleaseBuffer(buffer);
	UnlockRelationForExtension(index, ExclusiveLock);
	PMH_STOP_POINT("stub_let_go");
	return mark;
}

/*
 * Write the stub of the init fork: "make a new file".  After a crash reinit.c copies it
 * over the main fork, and no callback says so; the first open makes the file.  Same way of
 * writing, for the same reasons, as btbuildempty (nbtree.c): not through shared buffers,
 * logged even with wal_level=minimal, and synced.
 */
void
pmhash_stub_create_init(Relation index)
{
	SMgrRelation smgr = RelationGetSmgr(index);
	PGIOAlignedBlock block;
	Page		page = (Page) block.data;
	PmhashStub	stub = make_stub(PMHASH_STUB_NEW_FILE, 0, (PmhashSeed) {0},
										PMHASH_REASON_NONE);

	fill_page(page, &stub);
	pmhash_set_checksum(page, 0);
	smgrextend(smgr, INIT_FORKNUM, 0, (char *) page, true);
	log_newpage(&pmhash_node_of_smgr(smgr), INIT_FORKNUM, 0, page, true);
	smgrimmedsync(smgr, INIT_FORKNUM);
}

/* Is the file of a stub with these flags logged? */
bool
pmhash_flags_logged(uint16 flags)
{
	return (flags & PMHASH_STUB_LOGGED) != 0 &&
		(flags & PMHASH_STUB_INVALID) == 0 && XLogIsNeeded();
}
