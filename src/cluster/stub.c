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

#include "access/generic_xlog.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xloginsert.h"
#include "common/relpath.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/checksum.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"

#include "cluster/cluster.h"
#include "cluster/durable.h"
#include "cluster/moved.h"
#include "cluster/stub.h"
#include "cluster/wal_record.h"
#include "engine/stop_point.h"

/* A stub that names a file. */
static PmhashStub
make_stub(uint16 flags, uint64 file_id, uint64 seed, PmhashReason reason)
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
 * The same, logged even if the fork is new in this transaction and its other changes
 * need no WAL (wal_level = minimal): for one that is about to be deleted and may come
 * back, and after the commit.  Raises no error.
 */
static void
log_page_always(Buffer buffer, const PmhashStub *stub, bool permanent)
{
	START_CRIT_SECTION();
	fill_page(BufferGetPage(buffer), stub);
	MarkBufferDirty(buffer);
	if (permanent)
		(void) log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
}

/*
 * Has the index a main fork?  One that is open is there: the caller's lock keeps it.
 * (smgrexists would close and open it; the planner has just taken its length.)
 */
static bool
has_main_fork(Relation index)
{
	SMgrRelation smgr = RelationGetSmgr(index);

	return smgr->md_num_open_segs[MAIN_FORKNUM] > 0 || smgrexists(smgr, MAIN_FORKNUM);
}

/* The path of a main fork, MAXPGPATH bytes. */
static void
fork_path(PmhashNode node, char *path)
{
#if PG_VERSION_NUM >= 180000
	strlcpy(path, relpathperm(node, MAIN_FORKNUM).str, MAXPGPATH);
#else
	char	   *made = relpathperm(node, MAIN_FORKNUM);

	strlcpy(path, made, MAXPGPATH);
	pfree(made);
#endif
}

/* Is there a main fork, with its block, where it should be? */
static bool
fork_is_there(PmhashNode node)
{
	struct stat st;
	char		path[MAXPGPATH];

	fork_path(node, path);
	return stat(path, &st) == 0 && st.st_size >= BLCKSZ;
}

/*
 * Copy the stub out of a pinned buffer, and unpin that.  False: the page was never
 * filled.
 */
static bool
take_stub(Buffer buffer, PmhashStub *stub)
{
	Page		page = BufferGetPage(buffer);
	bool		found;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	found = !PageIsNew(page);
	if (found)
		memcpy(stub, PageGetContents(page), sizeof(PmhashStub));
	UnlockReleaseBuffer(buffer);
	if (found && stub->database != MyDatabaseId)
		stub->flags &= ~PMHASH_STUB_WAL;	/* records are of the original's file */
	return found;
}

static bool
is_known_version(const PmhashStub *stub)
{
	return stub->magic == PMHASH_STUB_MAGIC && stub->version == PMHASH_STUB_VERSION;
}

/*
 * Read the stub of an index.  False if there is none: no fork, no block, or a
 * page that was never filled.  With zero_on_error a damaged page counts as
 * none (for DROP, which must not fail for that).  ERROR if the page is
 * something else, or of a version this code does not know.  The caller holds
 * a lock on the index.  What the transaction itself may do with a file whose stub it
 * holds (pmhash_stub_hold), and no other can, it finds in the flags.
 */
bool
pmhash_stub_read(Relation index, bool zero_on_error, PmhashStub *stub)
{
	Buffer		buffer;

	if (!has_main_fork(index) || RelationGetNumberOfBlocks(index) == 0)
		return false;

	buffer = ReadBufferExtended(index, MAIN_FORKNUM, 0,
								zero_on_error ? RBM_ZERO_ON_ERROR : RBM_NORMAL,
								NULL);
	if (!take_stub(buffer, stub))
		return false;
	if (!is_known_version(stub))
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
	pmhash_moved_stub(index, stub);
	return true;
}

/*
 * pmhash_stub_peek
 *		The stub of an index that is not temporary, if its page is in shared buffers.
 *
 * For those that look at thousands: opens neither the index, whose main fork 'node'
 * is, nor the fork, of which it only asks whether it is there; nor do the pages stay
 * mapped.  False: only pmhash_stub_read tells.  The caller holds a lock on the index.
 */
bool
pmhash_stub_peek(PmhashNode node, PmhashStub *stub)
{
	Buffer		buffer = pmhash_buffer_of(node, 0);
	bool		found;

	if (buffer == InvalidBuffer || !fork_is_there(node) ||
		!ReadRecentBuffer(node, MAIN_FORKNUM, 0, buffer))
		return false;
	found = take_stub(buffer, stub);
	pmhash_buffer_leave(buffer);
	return found && is_known_version(stub);
}

/* The same of a page that is in no shared buffer, by its file. */
static bool
look_at_file(PmhashNode node, PmhashStub *stub)
{
	char		path[MAXPGPATH];
	PGAlignedBlock block;
	Page		page = (Page) block.data;

	fork_path(node, path);
	if (pmhash_read_small(path, block.data, BLCKSZ) != BLCKSZ || PageIsNew(page) ||
		(DataChecksumsEnabled() &&
		 pg_checksum_page(block.data, 0) != ((PageHeader) page)->pd_checksum))
		return false;
	memcpy(stub, PageGetContents(page), sizeof(PmhashStub));
	return is_known_version(stub);
}

/*
 * pmhash_stub_in_recovery
 *		The file id that the stub in a permanent main fork names; 0: none, or not known.
 *
 * For the startup process, to which no ERROR must come out of a read of a buffer: none
 * would end what the buffer is marked with (bufmgr.c, AbortBufferIO), and it waits for
 * itself when it restores the page.  Raises none.
 */
uint64
pmhash_stub_in_recovery(PmhashNode node)
{
	PmhashStub	stub;

	return pmhash_stub_peek(node, &stub) || look_at_file(node, &stub) ?
		stub.file_id : 0;
}

/*
 * The file id that the stub in a permanent or unlogged main fork names, by the
 * fork's number alone: for one that this transaction is about to delete.  0 if it
 * is not one of ours, or names none.  *flags are the stub's.  ERROR if the page can't
 * be read: it may be a table's, which comes back if the commit fails, so it must not
 * be taken for an empty one here (RBM_ZERO_ON_ERROR would make it one in shared
 * buffers, whatever zero_damaged_pages says).
 */
uint64
pmhash_stub_of_fork(PmhashNode node, uint16 *flags)
{
	SMgrRelation smgr = pmhash_open_fork(node);
	Buffer		buffer;
	Page		page;
	PmhashStub	stub;

	*flags = 0;
	memset(&stub, 0, sizeof(stub));
	if (!smgrexists(smgr, MAIN_FORKNUM) || smgrnblocks(smgr, MAIN_FORKNUM) != 1)
		return 0;
	buffer = ReadBufferWithoutRelcache(node, MAIN_FORKNUM, 0, RBM_NORMAL, NULL, true);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (!PageIsNew(page))
		memcpy(&stub, PageGetContents(page), sizeof(PmhashStub));
	UnlockReleaseBuffer(buffer);
	*flags = stub.flags;
	return is_known_version(&stub) ? stub.file_id : 0;
}

/*
 * pmhash_stub_try
 *		Have a page read, and go on if it can't be.
 *
 * For what must not fail because a stub can't be read: above all the commands that do
 * away with it.  Runs in a subtransaction, which gives back what an error leaves of
 * the reading.  Returns NULL if all went well; the error (in the current memory
 * context) if the page is at fault: a bad checksum, an error of the disk, a main fork
 * that is not there or may not be opened; any other is raised again.  Not to be called
 * in a parallel operation.
 */
ErrorData *
pmhash_stub_try(PmhashStubReader read, void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		read(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		if (error->sqlerrcode != ERRCODE_DATA_CORRUPTED &&
			error->sqlerrcode != ERRCODE_UNDEFINED_FILE &&
			error->sqlerrcode != ERRCODE_INSUFFICIENT_PRIVILEGE &&
			error->sqlerrcode != ERRCODE_INDEX_CORRUPTED &&
			error->sqlerrcode != ERRCODE_IO_ERROR)
			ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}

typedef struct Reading
{
	Relation	index;
	PmhashNode	node;
	PmhashStub *stub;
	bool		found;
	uint64		file_id;
	uint16		flags;			/* ... and the flags with it */
} Reading;

/*
 * For commands that do away with the page.  Not if its file may not be opened: the server
 * would come to that after the commit, and PANIC (smgrDoPendingDeletes, smgrexists).
 */
static bool
succeeds(PmhashStubReader read, Reading *reading)
{
	ErrorData  *error = pmhash_stub_try(read, reading);

	if (error == NULL)
		return true;
	if (error->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE)
		ReThrowError(error);
	FreeErrorData(error);
	return false;
}

static void
read_of_index(void *arg)
{
	Reading    *reading = arg;

	reading->found = pmhash_stub_read(reading->index, true, reading->stub);
}

static void
read_of_fork(void *arg)
{
	Reading    *reading = arg;

	reading->file_id = pmhash_stub_of_fork(reading->node, &reading->flags);
}

/*
 * pmhash_stub_read with zero_on_error, its result in *found; false if the page can't
 * be read at all.  Not to be called in a parallel operation.
 */
bool
pmhash_stub_may_be_read(Relation index, PmhashStub *stub, bool *found)
{
	Reading		reading = {.index = index, .stub = stub};
	bool		done = succeeds(read_of_index, &reading);

	*found = done && reading.found;
	return done;
}

/* The same of pmhash_stub_of_fork. */
bool
pmhash_stub_of_fork_may_be_read(PmhashNode node, uint64 *file_id, uint16 *flags)
{
	Reading		reading = {.node = node};
	bool		done = succeeds(read_of_fork, &reading);

	*file_id = done ? reading.file_id : 0;
	*flags = done ? reading.flags : 0;
	return done;
}

/*
 * Make block 0 of an empty main fork the stub of file_id.
 */
void
pmhash_stub_create(Relation index, uint16 flags, uint64 file_id, uint64 seed)
{
	Buffer		buffer;
	PmhashStub	stub;

	buffer = ReadBufferExtended(index, MAIN_FORKNUM, P_NEW, RBM_ZERO_AND_LOCK,
								NULL);
	if (BufferGetBlockNumber(buffer) != 0)
		elog(ERROR, "index \"%s\" already contains data",
			 RelationGetRelationName(index));
	stub = make_stub(flags, file_id, seed, PMHASH_REASON_NONE);
	log_page(index, buffer, &stub);
	UnlockReleaseBuffer(buffer);
}

/*
 * Write another file's id into an existing stub: that of an unlogged index
 * after a crash, which has none yet (flags 0), or of an invalid one whose new
 * file is about to be filled (PMHASH_STUB_FILLING).  The caller sees to it that
 * no other process does the same.
 */
void
pmhash_stub_fill(Relation index, uint16 flags, uint64 file_id, uint64 seed)
{
	Buffer		buffer = ReadBuffer(index, 0);
	PmhashStub	stub = make_stub(flags, file_id, seed, PMHASH_REASON_NONE);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	log_page(index, buffer, &stub);
	UnlockReleaseBuffer(buffer);
}

/*
 * Replace the flags of a stub that names file_id and has the flags 'from', and no
 * others; false, and nothing done, if it does not.  Those of PMHASH_STUB_WAL do
 * not count, and stay.
 */
static bool
change_flags(Relation index, uint64 file_id, uint16 from, uint16 to,
			 PmhashReason reason, FullTransactionId older)
{
	Buffer		buffer = ReadBuffer(index, 0);
	PmhashStub	stub;
	bool		found;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(&stub, PageGetContents(BufferGetPage(buffer)), sizeof(stub));
	found = stub.magic == PMHASH_STUB_MAGIC && stub.file_id == file_id &&
		(stub.flags & ~PMHASH_STUB_WAL) == from;
	if (found)
	{
		stub.flags = to | (stub.flags & PMHASH_STUB_WAL);
		stub.reason = reason;
		stub.older = U64FromFullTransactionId(older);
		log_page(index, buffer, &stub);
	}
	UnlockReleaseBuffer(buffer);
	return found;
}

/* The 64-bit number of a transaction id that is not older than 2^31 ids. */
static FullTransactionId
widen(TransactionId xid)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);

	if (xid > XidFromFullTransactionId(next))
		epoch--;
	return FullTransactionIdFromEpochAndXid(epoch, xid);
}

/*
 * A file that was being filled is complete, but for rows that only snapshots see
 * whose xmin is 'older' or precedes it.  False if it must not be used any more.
 */
bool
pmhash_stub_filled(Relation index, uint64 file_id, TransactionId older)
{
	return change_flags(index, file_id, PMHASH_STUB_FILLING, PMHASH_STUB_FILLED,
						PMHASH_REASON_NONE,
						widen(older));
}

/*
 * Replace those of PMHASH_STUB_WAL in a stub that names file_id and is not marked as
 * invalid; false, and nothing done, if it is not such a one, or a copy of another
 * database's.  With none of them standbys give their files up, if they were to have
 * some, at the same point of WAL.
 */
bool
pmhash_stub_set_wal(Relation index, uint64 file_id, uint16 wal)
{
	Buffer		buffer = ReadBuffer(index, 0);
	PmhashStub	stub;
	bool		found;
	bool		ends;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(&stub, PageGetContents(BufferGetPage(buffer)), sizeof(stub));
	found = stub.magic == PMHASH_STUB_MAGIC && stub.file_id == file_id &&
		stub.database == MyDatabaseId && (stub.flags & PMHASH_STUB_INVALID) == 0;
	if (found)
	{
		ends = wal == 0 && pmhash_flags_logged(stub.flags);
		stub.flags = (stub.flags & ~PMHASH_STUB_WAL) | wal;
		if (ends)
			log_page_and_end(buffer, &stub);
		else
			log_page(index, buffer, &stub);
	}
	UnlockReleaseBuffer(buffer);
	return found;
}

/* There are no such snapshots any more.  False as above. */
bool
pmhash_stub_validate(Relation index, uint64 file_id)
{
	return change_flags(index, file_id, PMHASH_STUB_FILLED, 0,
						PMHASH_REASON_NONE, InvalidFullTransactionId);
}

/* ---- forks that come back with an abort ---- */

/*
 * Give the stub in a locked buffer this flag for its use, if it names file_id, and is
 * not marked as invalid.  If the file was logged standbys give theirs up at the same
 * point of WAL.  False: nothing was changed.
 */
static bool
restrict_use(Buffer buffer, uint64 file_id, uint16 flag, PmhashReason reason,
			 bool permanent)
{
	PmhashStub	stub;
	bool		ends;

	if (PageIsNew(BufferGetPage(buffer)))
		return false;
	memcpy(&stub, PageGetContents(BufferGetPage(buffer)), sizeof(stub));
	if (!is_known_version(&stub) || stub.file_id != file_id ||
		(stub.flags & (PMHASH_STUB_INVALID | flag)) != 0)
		return false;
	ends = pmhash_flags_logged(stub.flags);
	stub.flags &= flag == PMHASH_STUB_INVALID ? 0 : PMHASH_STUB_WAL;
	stub.flags |= flag;
	stub.reason = reason;
	if (ends)
		log_page_and_end(buffer, &stub);
	else
		log_page_always(buffer, &stub, permanent);
	return true;
}

static bool
fork_has_page(PmhashNode node)
{
	SMgrRelation smgr = pmhash_open_fork(node);

	return smgrexists(smgr, MAIN_FORKNUM) && smgrnblocks(smgr, MAIN_FORKNUM) > 0;
}

/*
 * The same in all main forks that indexes of the table have had in this transaction, but
 * for the one that this index has now: an abort may bring one of them back.
 */
static void
restrict_left_forks(Relation index, uint64 file_id, uint16 flag, PmhashReason reason)
{
	ListCell   *lc;

	foreach(lc, pmhash_left_forks())
	{
		const PmhashLeftFork *left = lfirst(lc);
		Buffer		buffer;

		if (left->heap != index->rd_index->indrelid ||
			memcmp(&left->node, &pmhash_node(index), sizeof(PmhashNode)) == 0 ||
			!fork_has_page(left->node))
			continue;
		buffer = ReadBufferWithoutRelcache(left->node, MAIN_FORKNUM, 0, RBM_NORMAL,
										   NULL, left->permanent);
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		(void) restrict_use(buffer, file_id, flag, reason, left->permanent);
		UnlockReleaseBuffer(buffer);
	}
}

/*
 * pmhash_stub_hold
 *		Let a stub that names file_id say FILLING, whatever becomes of this
 *		transaction, until pmhash_stub_let_go.
 *
 * Standbys give their files up.  *flags: PMHASH_STUB_FILLED if it said so, else 0.
 * False, and nothing done, if it names another file, or says FILLING or INVALID already.
 */
bool
pmhash_stub_hold(Relation index, uint64 file_id, uint16 *flags)
{
	Buffer		buffer;
	PmhashStub	stub;
	bool		held;

	restrict_left_forks(index, file_id, PMHASH_STUB_FILLING, PMHASH_REASON_NONE);
	buffer = ReadBuffer(index, 0);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(&stub, PageGetContents(BufferGetPage(buffer)), sizeof(stub));
	*flags = stub.flags & PMHASH_STUB_FILLED;
	held = restrict_use(buffer, file_id, PMHASH_STUB_FILLING, PMHASH_REASON_NONE,
						RelationIsPermanent(index));
	UnlockReleaseBuffer(buffer);
	return held;
}

/*
 * pmhash_stub_let_go
 *		The transaction has committed: the stub in this pinned buffer says what it said.
 *
 * Nothing is done if it does not name file_id, or does not say FILLING any more.
 * Returns the stub's flags.  Raises no error.
 */
uint16
pmhash_stub_let_go(Buffer buffer, uint64 file_id, uint16 flags, bool permanent)
{
	PmhashStub	stub;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(&stub, PageGetContents(BufferGetPage(buffer)), sizeof(stub));
	if (stub.magic == PMHASH_STUB_MAGIC && stub.file_id == file_id &&
		(stub.flags & PMHASH_STUB_FILLING) != 0)
	{
		stub.flags = (stub.flags & PMHASH_STUB_WAL) | flags;
		log_page_always(buffer, &stub, permanent);
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return stub.flags;
}

/* An index whose page does not tell: may standbys have a file of it? */
static bool
may_be_logged(Relation index)
{
	return RelationIsPermanent(index) && XLogIsNeeded();
}

/*
 * Mark a stub: its file is never to be used again.  With file_id only if it
 * names that one.  The id stays, so that the file can be removed.  A page that
 * is not one of ours is replaced, one that is not there is made.  The record
 * stands in WAL before any that this transaction writes from now on; if the file was
 * logged, or may have been, it is the one for standbys, too (P6).  Main forks that an
 * abort may bring back are marked first, if they name file_id.  Tells whether the stub
 * was not marked before.
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

	if (file_id != 0)
		restrict_left_forks(index, file_id, PMHASH_STUB_INVALID, reason);
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
	ours = is_known_version(&stub);
	mark = (!ours || (stub.flags & PMHASH_STUB_INVALID) == 0) &&
		(file_id == 0 || (ours && stub.file_id == file_id));
	if (mark)
	{
		marked = make_stub(PMHASH_STUB_INVALID, ours ? stub.file_id : 0,
						   ours ? stub.seed : 0, reason);
		PMH_STOP_POINT("stub_before_mark");
		if (ours ? pmhash_flags_logged(stub.flags) : may_be_logged(index))
			log_page_and_end(buffer, &marked);
		else
			log_page(index, buffer, &marked);
		PMH_STOP_POINT("stub_marked");
	}
	UnlockReleaseBuffer(buffer);
	UnlockRelationForExtension(index, ExclusiveLock);
	return mark;
}

/*
 * Write the stub of the init fork: "make a new file".  After a crash reinit.c
 * copies it over the main fork, and no callback says so; the first open makes
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
	PmhashStub	stub = make_stub(PMHASH_STUB_NEW_FILE, 0, 0, PMHASH_REASON_NONE);

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
