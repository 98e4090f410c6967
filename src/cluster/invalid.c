/*-------------------------------------------------------------------------
 *
 * invalid.c
 *	  Invalid indexes: reasons, and telling everybody.
 *
 * An index is invalid if the file that its stub names must not be used.  That
 * may be seen from the file (there is none, it is damaged, its eras are over),
 * and it is so for certain once the stub says so.  Before anyone leaves the
 * index alone, that is inserts a row without an entry or lets VACUUM free TIDs
 * that have one, the stub is marked.  The mark is in WAL before the commit
 * record of who has relied on it, so a file that turns up again, in this run
 * or a later one, is not taken for a complete one.
 *
 * Backends that still have the file open learn of the mark by a counter in
 * shared memory that each of them compares before it uses an index.  A scan
 * that has begun before goes on with the old file: the rows missing from it
 * are of transactions that began to leave them out after the mark, hence after
 * the snapshot of that scan was taken.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster/internal.h"

/* Why the index is invalid, for a message or a view: part of a sentence. */
const char *
pmhash_reason_text(PmhashReason reason)
{
	switch (reason)
	{
		case PMHASH_REASON_NONE:
			break;
		case PMHASH_REASON_NO_STUB:
			return "it has no stub page";
		case PMHASH_REASON_MISSING:
			return "it does not exist";
		case PMHASH_REASON_DAMAGED:
			return "it is damaged";
		case PMHASH_REASON_UNREADABLE:
			return "it cannot be read";
		case PMHASH_REASON_VERSION:
			return "it was made by another version of pmhash";
		case PMHASH_REASON_OTHER_CLUSTER:
			return "it belongs to another cluster";
		case PMHASH_REASON_OTHER_DATABASE:
			return "it belongs to another database";
		case PMHASH_REASON_OTHER_INDEX:
			return "it belongs to another index";
		case PMHASH_REASON_APART:
			return "server and pool directory have not been together all the time since it was made";
		case PMHASH_REASON_POWER:
			return "it was not written back, and what was in the page cache may be lost";
		case PMHASH_REASON_DISABLED:
			return "rows were written while pmhash was disabled";
		case PMHASH_REASON_OUTDATED:
			return "it is an older copy";
		case PMHASH_REASON_FILLING:
			return "it has not been filled completely";
		case PMHASH_REASON_FILLED:
			return "transactions that are older than it are still running";
	}
	return "it is not to be used";
}

/*
 * A stub has been changed in place.  To be called after the change, before
 * anything is done that relies on it.
 */
void
pmhash_stub_changed(void)
{
	pg_atomic_fetch_add_u64(&pmhash_shared->stub_generation, 1);
}
