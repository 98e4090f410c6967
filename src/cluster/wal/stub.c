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

#include <sys/stat.h>

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "common/relpath.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "storage/smgr.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/wal_record.h"

/* ---- writing ---- */

/* A stub; file_id: 0 if it names no file. */
PmhashStub
pmhash_stub_make(uint16 flags, uint64 file_id, PmhashSeed seed, PmhashReason reason)
{
	Assert(OidIsValid(MyDatabaseId));
	Assert(((flags & PMHASH_STUB_INVALID) != 0) == (reason != PMHASH_REASON_NONE));
	return (PmhashStub) {
		.magic = PMHASH_STUB_MAGIC, .version = PMHASH_STUB_VERSION, .flags = flags,
		.file_id = file_id, .seed = seed, .reason = reason, .database = MyDatabaseId
	};
}

/* Lay a stub out on an empty page image. */
static void
fill_page(Page page, const PmhashStub *stub)
{
	PageInit(page, BLCKSZ, 0);
	memcpy(PageGetContents(page), stub, sizeof(PmhashStub));

	/* Full-page images leave the hole out: not our bytes. */
	((PageHeader) page)->pd_lower =
		(PageGetContents(page) + sizeof(PmhashStub)) - (char *) page;
}

/*
 * Put a stub on a locked buffer of the main fork, logged if the index is.  ends: and standbys
 * are not to follow the stub's file any more.  That is one record (P6), so that neither a crash
 * nor a standby finds one without the other.
 */
static void
log_page(Relation index, Buffer buffer, const PmhashStub *stub, bool ends)
{
	Page		page = BufferGetPage(buffer);
	XLogRecPtr	end;

	Assert(!ends || (stub->flags & PMHASH_STUB_INVALID) != 0);
	START_CRIT_SECTION();
	fill_page(page, stub);
	MarkBufferDirty(buffer);
	if (ends)
	{
		end = pmhash_wal_log(&(PmhashWalRecord) {
			.type = PMHASH_WAL_FILE_GONE, .file_id = stub->file_id, .database = MyDatabaseId
		}, NULL, buffer);
		PageSetLSN(page, end);
	}
	else if (RelationNeedsWAL(index))
		log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
}

/* The page for the stub, locked: a new one if there is none. */
static Buffer
lock_page(Relation index)
{
	Buffer		buffer;

	if (RelationGetNumberOfBlocks(index) == 0)
		return ReadBufferExtended(index, MAIN_FORKNUM, P_NEW, RBM_ZERO_AND_LOCK, NULL);
	buffer = ReadBufferExtended(index, MAIN_FORKNUM, 0, RBM_ZERO_ON_ERROR, NULL);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	return buffer;
}

/*
 * Let an index have this stub: a new one, or an invalid one whose new file is about to be
 * filled (PMHASH_STUB_FILLING).  The caller sees to it that no
 * other process does the same.
 */
void
pmhash_stub_write(Relation index, const PmhashStub *stub)
{
	Buffer		buffer = lock_page(index);

	Assert(stub->file_id != 0 && !RecoveryInProgress());
	Assert((stub->flags & PMHASH_STUB_FILLING) == 0 ||
		   CheckRelationLockedByMe(index, ShareUpdateExclusiveLock, true));
	log_page(index, buffer, stub, false);
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

	Assert(FullTransactionIdIsNormal(by) && file_id != 0);
	Assert(CheckRelationLockedByMe(index, ShareUpdateExclusiveLock, true));
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(&stub, PageGetContents(BufferGetPage(buffer)), sizeof(stub));
	found = stub.magic == PMHASH_STUB_MAGIC && stub.file_id == file_id &&
		(stub.flags & ~PMHASH_STUB_LOGGED) == PMHASH_STUB_FILLING;
	if (found)
	{
		stub.flags &= ~PMHASH_STUB_FILLING;
		stub.filled_by = U64FromFullTransactionId(by);
		log_page(index, buffer, &stub, false);
		if (pmhash_flags_logged(stub.flags))
			pmhash_announce_file(file_id);
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

	Assert(reason != PMHASH_REASON_NONE && reason < PMHASH_REASON_NOT_LOGGED);
	Assert(IsTransactionState() && !RecoveryInProgress());
	Assert(!LWLockHeldByMe(pmhash_lwlock(PMHASH_CREATE_LOCK)));
	LockRelationForExtension(index, ExclusiveLock);
	buffer = lock_page(index);
	page = BufferGetPage(buffer);
	memset(&stub, 0, sizeof(stub));
	if (!PageIsNew(page))
		memcpy(&stub, PageGetContents(page), sizeof(PmhashStub));
	ours = pmhash_stub_is_known(&stub);
	mark = (!ours || (stub.flags & PMHASH_STUB_INVALID) == 0) &&
		(file_id == 0 || (ours && stub.file_id == file_id));
	if (mark)
	{
		marked = pmhash_stub_make(PMHASH_STUB_INVALID, ours ? stub.file_id : 0,
								  ours ? stub.seed : (PmhashSeed) {0}, reason);
		PMH_STOP_POINT("stub_before_mark");
		log_page(index, buffer, &marked, ours ? pmhash_flags_logged(stub.flags) :
				 RelationIsPermanent(index) && XLogIsNeeded());
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
 * Write the stub of the init fork: that of an invalid index, which has no file.  After a crash
 * reinit.c copies it over the main fork, and the index is rebuilt.  Same way of writing, for
 * the same reasons, as btbuildempty (nbtree.c): not through shared buffers, logged even with
 * wal_level=minimal, and synced.
 */
void
pmhash_stub_create_init(Relation index)
{
	SMgrRelation smgr = RelationGetSmgr(index);
	PGIOAlignedBlock block;
	Page		page = (Page) block.data;
	PmhashStub	stub = pmhash_stub_make(PMHASH_STUB_INVALID, 0, (PmhashSeed) {0},
										PMHASH_REASON_EMPTIED);

	fill_page(page, &stub);
	pmhash_set_checksum(page, 0);
	smgrextend(smgr, INIT_FORKNUM, 0, (char *) page, true);
	log_newpage(&pmhash_node(index), INIT_FORKNUM, 0, page, true);
	smgrimmedsync(smgr, INIT_FORKNUM);
}

/* Is the file of a stub with these flags logged? */
bool
pmhash_flags_logged(uint16 flags)
{
	return (flags & PMHASH_STUB_LOGGED) != 0 &&
		(flags & PMHASH_STUB_INVALID) == 0 && XLogIsNeeded();
}

/* ---- reading ---- */

/* Copy the stub out of a page.  False: it has none that this code knows. */
static bool
copy_stub(Page page, PmhashStub *stub)
{
	if (PageIsNew(page))
		return false;
	memcpy(stub, PageGetContents(page), sizeof(PmhashStub));
	if (stub->database != MyDatabaseId)
		stub->flags &= ~PMHASH_STUB_LOGGED;	/* records are of the original's file */
	return pmhash_stub_is_known(stub);
}

/* The same of a pinned buffer, which is unpinned. */
static bool
take_stub(Buffer buffer, PmhashStub *stub)
{
	bool		found;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	found = copy_stub(BufferGetPage(buffer), stub);
	UnlockReleaseBuffer(buffer);
	return found;
}

/*
 * Read the stub of an index.  False if there is none that this code knows: no fork, no block,
 * a page that was never filled, is damaged or something else.
 */
bool
pmhash_stub_read(Relation index, PmhashStub *stub)
{
	SMgrRelation smgr = RelationGetSmgr(index);
	Buffer		buffer;

	Assert(IsTransactionState() && CheckRelationLockedByMe(index, AccessShareLock, true));

	/* A fork that is open is there; smgrexists would close and open it. */
	if ((smgr->md_num_open_segs[MAIN_FORKNUM] == 0 && !smgrexists(smgr, MAIN_FORKNUM)) ||
		RelationGetNumberOfBlocks(index) == 0)
		return false;

	buffer = ReadBufferExtended(index, MAIN_FORKNUM, 0, RBM_ZERO_ON_ERROR, NULL);
	return take_stub(buffer, stub);
}

/* What the page of the main fork at path is, if it is in shared buffers; else false. */
static bool
look_at_buffer(PmhashNode node, const char *path, PmhashStub *stub, PmhashLook *look)
{
	Buffer		buffer = pmhash_buffer_of(node, 0);
	struct stat st;

	if (buffer == InvalidBuffer || stat(path, &st) != 0 || st.st_size < BLCKSZ ||
		!ReadRecentBuffer(node, MAIN_FORKNUM, 0, buffer))
		return false;
	*look = take_stub(buffer, stub) ? PMHASH_LOOK_STUB : PMHASH_LOOK_OTHER;
	return true;
}

/*
 * The same of a page that is in no shared buffer, by its file, in which alone errno has
 * a meaning: why there is no page; 0 if there is one, and it is damaged.
 */
static PmhashLook
look_at_file(const char *path, PmhashStub *stub)
{
	PGIOAlignedBlock block;
	Page		page = (Page) block.data;
	ssize_t		n = pmhash_read_small(path, block.data, BLCKSZ);

	if (n == 0)
		return PMHASH_LOOK_EMPTY;
	if (n != BLCKSZ || !pmhash_page_is_sound(page, 0))
	{
		errno = n < 0 ? errno : 0;
		return PMHASH_LOOK_UNREADABLE;
	}
	return copy_stub(page, stub) ? PMHASH_LOOK_STUB : PMHASH_LOOK_OTHER;
}

/*
 * pmhash_stub_look_at
 *		The stub in a main fork of a relation that is not temporary, or what is there
 *		instead: an answer, never an ERROR for what is found.
 *
 * For those that must go on if a page can't be read: the commands that do away with it,
 * workers, and the views.  A read by the buffer manager would not do: it
 * raises an ERROR, and to catch that takes a subtransaction, for which it is too late
 * where the server deletes relations at commit (PreCommit_on_commit_actions comes after
 * AfterTriggerEndXact).  Nor is a page taken into shared buffers that is none of ours, or
 * zeroed there because it is damaged.
 *
 * What was changed before the call is seen: the page is in a buffer, or it was written
 * before it left that, and so before the file is read.  While that is done it may come
 * into a buffer and be changed there, so that is looked at once more.
 *
 * PMHASH_LOOK_UNREADABLE: errno says why, or is 0 if the page is damaged.
 */
PmhashLook
pmhash_stub_look_at(PmhashNode node, PmhashStub *stub)
{
	PmhashLook	look;
	bool		found;
	int			save_errno;
#if PG_VERSION_NUM >= 180000
	const RelPathStr made = relpathperm(node, MAIN_FORKNUM);
	const char *path = made.str;
#else
	char	   *path = relpathperm(node, MAIN_FORKNUM);
#endif

	found = look_at_buffer(node, path, stub, &look);
	if (!found)
		look = look_at_file(path, stub);
	save_errno = errno;
	if (!found)
		(void) look_at_buffer(node, path, stub, &look);
#if PG_VERSION_NUM < 180000
	pfree(path);
#endif
	errno = save_errno;
	return look;
}

/*
 * The same of an index.  One of this session's temporary ones has its page in this
 * process, or in a file of its own, and is read as usual.
 */
PmhashLook
pmhash_stub_look(Relation index, PmhashStub *stub)
{
	if (!RelationUsesLocalBuffers(index))
		return pmhash_stub_look_at(pmhash_node(index), stub);
	return pmhash_stub_read(index, stub) ? PMHASH_LOOK_STUB : PMHASH_LOOK_OTHER;
}
