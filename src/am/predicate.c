/*-------------------------------------------------------------------------
 *
 * predicate.c
 *	  Predicate locks of serializable transactions, by key.
 *
 * A reader locks pages that the index does not have, numbered by keys: the key's own
 * page at first.  The server lets a transaction have so many locks of a relation
 * (max_pred_locks_per_relation, 31 by default) and takes one of all of the index in
 * their place when these are more, which every insert meets.  So a reader of more than
 * half as many keys locks the pages of groups from then on: the 256 keys that differ in
 * their last byte only, about as many as are in a leaf page of a btree, whose locks have
 * the same limit.  A group is known where the key can be computed from the hash;
 * elsewhere it is the key's own page still.  Writers look for both.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/predicate.h"
#include "storage/proc.h"

#include "am/scan.h"

/* Keys of a group: those with the same word but for these bits. */
#define GROUP_BITS	8

#if PG_VERSION_NUM >= 170000
#define CURRENT_LXID	(MyProc->vxid.lxid)
#else
#define CURRENT_LXID	(MyProc->lxid)
#endif

/*
 * The page of a number, which is a hash or a group.  Never block 0; 31 bits, since
 * pg_locks shows page numbers as signed integers.  It shows them to all users: so they
 * are no bits of the hash, but of what a function makes of it whose key no user sees.
 */
static BlockNumber
page_of(const PmhashFile *file, uint64 number)
{
	uint64		veil = pmhash_veil(number, file->predicate_key);

	return 1 + (BlockNumber) ((veil >> 32) % 0x7fffffff);
}

static BlockNumber
page_of_group(const PmhashFile *file, const PmhashKeys *keys, uint64 hash)
{
	Assert(keys->can_return);
	return page_of(file, pmhash_keys_unhash_word(keys, hash) >> GROUP_BITS);
}

/*
 * Has this transaction read so many keys of the file that it locks groups?  Counts this
 * one, unless it is one of the last few.  So many locks of the index are not replaced:
 * core's MaxPredicateChildLocks.
 */
static bool
has_read_many(PmhashFile *file, BlockNumber page)
{
	PmhashKeyLocks *locks = &file->key_locks;
	int			most = max_predicate_locks_per_relation;

	Assert(IsolationIsSerializable());
	if (most < 0)
		most = max_predicate_locks_per_xact / -max_predicate_locks_per_relation - 1;
	if (locks->lxid != CURRENT_LXID)
	{
		memset(locks, 0, sizeof(*locks));
		locks->lxid = CURRENT_LXID;
	}
	for (int i = 0; i < (int) lengthof(locks->last); i++)
	{
		if (locks->last[i] == page)
			return false;
	}
	if (locks->count >= most / 2)
		return true;
	locks->last[locks->count++ % lengthof(locks->last)] = page;
	return false;
}

/*
 * Called after locks are taken, and before what they guard is read.  If the index has
 * been marked as invalid by then, writers may have left rows out already, without having
 * met our locks, and we would not find those rows in the file.  If it is marked later,
 * our locks are moved to the table (stub.c, pmhash_stub_invalidate).
 */
static void
check_still_valid(Relation index, Snapshot snapshot, const PmhashFile *file)
{
	Assert(IsolationIsSerializable());
	if ((XactReadOnly && XactDeferrable) ||
		pmhash_file_open_for_scan(index, snapshot) == file)
		return;
	pmhash_require_not_moved(index);	/* it has marked the index, by a row */
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access because index \"%s\" has become invalid",
					RelationGetRelationName(index)),
			 errhint("The transaction might succeed if retried.")));
}

/* A scan is about to look these keys up.  ERROR if it must not any more. */
void
pmhash_lock_keys(Relation index, PmhashFile *file, const PmhashKeys *keys,
				 const uint64 *hash, size_t n, Snapshot snapshot)
{
	if (likely(!IsolationIsSerializable()))
		return;
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true) && n > 0);
	for (size_t i = 0; i < n; i++)
	{
		BlockNumber page = page_of(file, hash[i]);

		if (keys->can_return && has_read_many(file, page))
			page = page_of_group(file, keys, hash[i]);
		PredicateLockPage(index, page, snapshot);
	}
	check_still_valid(index, snapshot, file);
}

/* A scan is about to read all of the index. */
void
pmhash_lock_all_keys(Relation index, PmhashFile *file, Snapshot snapshot)
{
	if (likely(!IsolationIsSerializable()))
		return;
	PredicateLockRelation(index, snapshot);
	check_still_valid(index, snapshot, file);
}

/*
 * Has a serializable transaction read the key, of which there is an entry now?
 *
 * A reader locks first and reads then; a writer inserts first and looks for locks
 * then.  So one of them always sees the other: if the reader did not see the entry its
 * lock was there before we looked; if it did, it visits the heap tuple and finds the
 * conflict there.  (btree and hash can look first because reader and writer meet in a
 * buffer lock, which we do not have.)
 */
void
pmhash_check_readers(Relation index, const PmhashFile *file, const PmhashKeys *keys,
					 uint64 hash)
{
	if (likely(!IsolationIsSerializable()))
		return;
	if (keys->can_return)
		CheckForSerializableConflictIn(index, NULL, page_of_group(file, keys, hash));
	CheckForSerializableConflictIn(index, NULL, page_of(file, hash));
}
