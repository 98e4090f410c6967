/*-------------------------------------------------------------------------
 *
 * stub_read.c
 *	  Reading the stub of an index: for its use, and to see what is there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/xact.h"
#include "common/relpath.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/smgr.h"

#include "cluster/base/control_file.h"
#include "cluster/cluster.h"
#include "cluster/wal/stub.h"

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

/* Copy the stub out of a page.  False: that was never filled. */
static bool
copy_stub(Page page, PmhashStub *stub)
{
	if (PageIsNew(page))
		return false;
	memcpy(stub, PageGetContents(page), sizeof(PmhashStub));
	if (stub->database != MyDatabaseId)
		stub->flags &= ~PMHASH_STUB_WAL;	/* records are of the original's file */
	return true;
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
 * Read the stub of an index.  False if there is none: no fork, no block, or a page that was
 * never filled.  With zero_on_error a damaged page counts as none (for DROP, which must not
 * fail for that).  ERROR if the page is something else, or of a version this code does not
 * know.  The caller holds a lock on the index.
 */
bool
pmhash_stub_read(Relation index, bool zero_on_error, PmhashStub *stub)
{
	Buffer		buffer;

	Assert(IsTransactionState());
	if (!has_main_fork(index) || RelationGetNumberOfBlocks(index) == 0)
		return false;

	buffer = ReadBufferExtended(index, MAIN_FORKNUM, 0,
								zero_on_error ? RBM_ZERO_ON_ERROR : RBM_NORMAL,
								NULL);
	if (!take_stub(buffer, stub))
		return false;
	if (!pmhash_stub_is_known(stub))
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

/* What the page is, if it is in shared buffers; else false. */
static bool
look_at_buffer(PmhashNode node, PmhashStub *stub, PmhashLook *look)
{
	Buffer		buffer = pmhash_buffer_of(node, 0);

	if (buffer == InvalidBuffer || !fork_is_there(node) ||
		!ReadRecentBuffer(node, MAIN_FORKNUM, 0, buffer))
		return false;
	*look = take_stub(buffer, stub) && pmhash_stub_is_known(stub) ? PMHASH_LOOK_STUB :
		PMHASH_LOOK_OTHER;
	return true;
}

/*
 * The same of a page that is in no shared buffer, by its file, in which alone errno has
 * a meaning: why there is no page; 0 if there is one, and it is damaged.
 */
static PmhashLook
look_at_file(PmhashNode node, PmhashStub *stub)
{
	char		path[MAXPGPATH];
	PGIOAlignedBlock block;
	Page		page = (Page) block.data;
	ssize_t		n;

	fork_path(node, path);
	n = pmhash_read_small(path, block.data, BLCKSZ);
	if (n == 0)
		return PMHASH_LOOK_EMPTY;
	if (n != BLCKSZ || !pmhash_page_is_sound(page, 0))
	{
		errno = n < 0 ? errno : 0;
		return PMHASH_LOOK_UNREADABLE;
	}
	return copy_stub(page, stub) && pmhash_stub_is_known(stub) ? PMHASH_LOOK_STUB :
		PMHASH_LOOK_OTHER;
}

/*
 * pmhash_stub_look_at
 *		The stub in a main fork of a relation that is not temporary, or what is there
 *		instead: an answer, never an ERROR for what is found.
 *
 * For those that must go on if a page can't be read: the commands that do away with it,
 * the cleaner, the views, and replay.  A read by the buffer manager would not do: it
 * raises an ERROR, and to catch that takes a subtransaction, for which it is too late
 * where the server deletes relations at commit (PreCommit_on_commit_actions comes after
 * AfterTriggerEndXact); in the startup process nothing would end what the buffer is
 * marked with (bufmgr.c, AbortBufferIO).  Nor is a page taken into shared buffers that is
 * none of ours, or zeroed there because it is damaged.
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
	int			save_errno;

	if (look_at_buffer(node, stub, &look))
		return look;
	look = look_at_file(node, stub);
	save_errno = errno;
	(void) look_at_buffer(node, stub, &look);
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
	return pmhash_stub_read(index, true, stub) ? PMHASH_LOOK_STUB : PMHASH_LOOK_OTHER;
}

/*
 * For a page that this transaction does away with: ERROR if its file may not be opened.
 * The server would come to that after the commit, and PANIC (smgrDoPendingDeletes,
 * smgrexists).  errno is as of the look.
 */
void
pmhash_stub_may_go(PmhashNode node, PmhashLook look)
{
	char		path[MAXPGPATH];
	int			save_errno = errno;

	if (look != PMHASH_LOOK_UNREADABLE || (errno != EACCES && errno != EPERM))
		return;
	fork_path(node, path);
	errno = save_errno;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not open file \"%s\": %m", path)));
}
