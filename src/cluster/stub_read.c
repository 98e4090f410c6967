/*-------------------------------------------------------------------------
 *
 * stub_read.c
 *	  Reading the stub of an index: by its relation, by its fork, in recovery.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "common/relpath.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/checksum.h"
#include "storage/smgr.h"

#include "cluster/cluster.h"
#include "cluster/durable.h"
#include "cluster/stub.h"
#include "cluster/try.h"

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
	return found && pmhash_stub_is_known(stub);
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
	return pmhash_stub_is_known(stub);
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
static uint64
stub_of_fork(PmhashNode node, uint16 *flags)
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
	return pmhash_stub_is_known(&stub) ? stub.file_id : 0;
}

/*
 * A bad checksum, an error of the disk, a main fork that is not there or may not be
 * opened.
 */
static bool
page_is_at_fault(int sqlstate)
{
	return sqlstate == ERRCODE_DATA_CORRUPTED ||
		sqlstate == ERRCODE_UNDEFINED_FILE ||
		sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE ||
		sqlstate == ERRCODE_INDEX_CORRUPTED ||
		sqlstate == ERRCODE_IO_ERROR;
}

/*
 * pmhash_stub_try
 *		Have a page read, and go on if it can't be.
 *
 * For what must not fail because a stub can't be read: above all the commands that do
 * away with it.  As pmhash_try, if the page is at fault.
 */
ErrorData *
pmhash_stub_try(PmhashTried read, void *arg)
{
	return pmhash_try(read, arg, page_is_at_fault);
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
succeeds(PmhashTried read, Reading *reading)
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

	reading->file_id = stub_of_fork(reading->node, &reading->flags);
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

/* The same of stub_of_fork. */
bool
pmhash_stub_of_fork_may_be_read(PmhashNode node, uint64 *file_id, uint16 *flags)
{
	Reading		reading = {.node = node};
	bool		done = succeeds(read_of_fork, &reading);

	*file_id = done ? reading.file_id : 0;
	*flags = done ? reading.flags : 0;
	return done;
}
