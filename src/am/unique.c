/*-------------------------------------------------------------------------
 *
 * unique.c
 *	  Unique indexes: inserts and builds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "am/build.h"
#include "am/scan.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/wal/logged.h"

/*
 * Inserts into a unique index.
 *
 * btree looks for equal keys and inserts under the write lock of one page, and
 * so two inserters of a key cannot miss each other.  Here the lock of the key
 * (shared.h) guards a look at the index and the insertion, and nothing else:
 * the rows are visited without it, as functions of users may run and pages may
 * have to be read for that.  So it takes two steps, again and again:
 *
 *	look	visit the row of each entry that has the key's hash.  One that is in the
 *			table for good is an error; if its fate is open, wait for the transaction
 *			that decides it, and look again.
 *	insert	under the lock read the entries again.  If each of them has been looked
 *			at, and still belongs to the same row (the removal epoch says so), insert.
 *			If not, look at them.
 *
 * The first time there is nothing that has been looked at, and for a new key there
 * is nothing to be looked at either.
 *
 * No duplicate can pass: of two inserters of a key one has the lock first.  The
 * other finds its entry, and does not insert before it has seen that row dead.
 * A row that has been seen dead stays so: it is committed as deleted, or its inserter
 * has aborted, or we have deleted it ourselves; a HOT chain with a dead end gets no
 * new member.  An updater that has ended a row by another version of it has put
 * that one's entry in before it committed, so it is new to us.
 *
 * A session that waits has no entry in yet, as with btree: so A never waits for B
 * because of a row of B's that waits for A, and what is left are deadlocks that rows
 * or other keys make, as with btree.
 *
 * With UNIQUE_CHECK_PARTIAL (ON CONFLICT, subscribers, deferred constraints) no
 * session is waited for: if a row may be in the way, the entry goes in all the same,
 * and false is returned.  The order of the insertions decides which of two sees the
 * other, so one of them goes on; if both gave way they might do so for ever.  A row of
 * ON CONFLICT that has to go gets no entry.
 */

/* How things stand with the rows that have been looked at. */
typedef enum Verdict
{
	FREE,						/* none is in the way */
	TAKEN,						/* one has this key */
	OPEN						/* that depends on a transaction */
} Verdict;

typedef struct UniqueInsert
{
	Relation	heap;
	Relation	index;
	PmhashFile *file;
	PmhEntry	entry;
	ItemPointerData tid;		/* of the row */
	Datum	   *values;
	bool	   *isnull;
	const PmhashKeys *keys;
	bool		noted;			/* in the journal */
	IndexUniqueCheck check;
	uint64		epoch;			/* removal epoch before others[] was read */
	uint64	   *others;			/* entries of the hash, ascending, without ours */
	size_t		nothers;
	size_t		capacity;
	TransactionId wait_for;		/* OPEN: for this one, or */
	uint32		token;			/* if not 0, for its speculative insertion */
} UniqueInsert;

/* What is there, while a key's lock is held.  Used again, as long as it is not large. */
static PmhValues present;

/* Values that memory is kept for. */
#define PRESENT_KEPT	4096

/* Has everything been looked at that is there, and is it what it was then? */
static bool
nothing_is_new(const UniqueInsert *insert)
{
	size_t		at = 0;

	for (size_t i = 0; i < present.n; i++)
	{
		if (present.value[i] == insert->entry.value)
			continue;
		while (at < insert->nothers && insert->others[at] < present.value[i])
			at++;
		if (at == insert->nothers || insert->others[at] != present.value[i])
			return false;
	}
	return insert->nothers == 0 ||
		pmhash_removal_epoch(insert->file) == insert->epoch;
}

/*
 * What is there is to be looked at, and not needed in present[] any more.  True if our own
 * entry is among it.
 */
static bool
keep_present(UniqueInsert *insert, uint64 epoch)
{
	bool		found = false;

	insert->others = pmhash_reserve(CurrentMemoryContext, insert->others, &insert->capacity,
									present.n, sizeof(uint64));
	insert->epoch = epoch;
	insert->nothers = 0;
	for (size_t i = 0; i < present.n; i++)
	{
		Assert(i == 0 || present.value[i] > present.value[i - 1]);
		if (present.value[i] == insert->entry.value)
			found = true;
		else
			insert->others[insert->nothers++] = present.value[i];
	}
	if (present.capacity > PRESENT_KEPT)
		pmh_values_free(&present);
	return found;
}

/*
 * Insert the entry, unless there is one that has not been looked at; if 'anyway', in
 * any case.  True if it is in; else what is there is in others[] then.
 */
static bool
insert_unless_new(UniqueInsert *insert, bool anyway)
{
	PmhashFile *file = insert->file;
	LWLock	   *lock = pmhash_key_lock(file, insert->entry.hash);
	bool		inserted = false;
	uint64		epoch;
	size_t		done;
	PmhResult	result;

	if (file->journaled && !insert->noted)
		pmhash_journal_note(file, &insert->entry, 1);
	insert->noted = true;
	PMH_STOP_POINT("insert_after_journal");
	epoch = pmhash_removal_epoch(file);
	Assert(!LWLockHeldByMe(lock));
	LWLockAcquire(lock, LW_EXCLUSIVE);
	result = pmh_lookup(file->table, insert->entry.hash, &present);
	if (result == PMH_OK && (anyway || nothing_is_new(insert)))
	{
		PMH_STOP_POINT("unique_before_insert");
		result = file->logged ? pmhash_insert_and_log(file, &insert->entry, 1, &done) :
			pmh_insert(file->table, insert->entry.hash, insert->entry.value,
					   file->journaled);
		inserted = result == PMH_OK;
	}
	LWLockRelease(lock);
	if (result != PMH_OK)
		pmhash_insert_failed(insert->index, file, result);
	if (inserted)
		pmhash_count(PMHASH_INSERTS, 1);
	(void) keep_present(insert, epoch);
	return inserted;
}

/* Is the row at this TID in the way? */
static Verdict
look_at(UniqueInsert *insert, PmhashRow *row, PmhashScanDead *dead, uint64 value)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	SnapshotData dirty;
	bool		all_dead;

	CHECK_FOR_INTERRUPTS();
	if (pmhash_known_dead(insert->file, value))
		return FREE;
	InitDirtySnapshot(dirty);
	if (!pmhash_row_fetch(row, value, &dirty, &all_dead))
	{
		PmhEntry	entry = {insert->entry.hash, value};

		if (all_dead)
			pmhash_note_dead(dead, row->context, insert->index, insert->file,
							 insert->epoch, entry);
		return FREE;
	}
	/* another row may have its TID by now */
	if (!insert->keys->exact &&
		(!pmhash_row_key(row, &dirty, values, isnull) ||
		 !pmhash_keys_equal(insert->index, values, insert->values)))
		return FREE;
	if (insert->check == UNIQUE_CHECK_PARTIAL)
		return TAKEN;
	insert->wait_for = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
	insert->token = dirty.speculativeToken;
	return TransactionIdIsValid(insert->wait_for) ? OPEN : TAKEN;
}

static Verdict
look_at_others(UniqueInsert *insert)
{
	Verdict		verdict = FREE;
	PmhashScanDead dead = {0};
	PmhashRow	row;

	if (insert->nothers == 0)
		return FREE;
	Assert(!LWLockHeldByMe(pmhash_key_lock(insert->file, insert->entry.hash)));
	PMH_STOP_POINT("unique_before_look");
	pmhash_dead_entries_settle(insert->index, insert->file);
	pmhash_row_begin(&row, insert->heap, insert->index);
	for (size_t i = 0; i < insert->nothers && verdict == FREE; i++)
		verdict = look_at(insert, &row, &dead, insert->others[i]);
	pmhash_hand_over_dead(&dead, insert->index, insert->file);
	pmhash_row_end(&row);
	return verdict;
}

/*
 * A row has our key.  True if that is no error as ours has gone; its entry is made
 * then, unless there is one.  False: look again.
 */
static bool
taken(UniqueInsert *insert)
{
	Relation	index = insert->index;
	ItemPointerData tid = insert->tid;	/* changed by the look-up */

	Assert(insert->check != UNIQUE_CHECK_PARTIAL);
	if (pmhash_removal_epoch(insert->file) != insert->epoch)
		return false;			/* was that the row that the entry is of? */

	/*
	 * Is ours alive?  CREATE INDEX CONCURRENTLY inserts rows that others may have deleted
	 * meanwhile, so that another one has the key: validate_index.
	 */
	if (table_index_fetch_tuple_check(insert->heap, &tid, SnapshotSelf, NULL))
	{
		char	   *key;

		/* a conflict of serializable transactions is the better error */
		pmhash_check_readers(index, insert->file, insert->keys, insert->entry.hash);
		key = BuildIndexValueDescription(index, insert->values, insert->isnull);
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("duplicate key value violates unique constraint \"%s\"",
						RelationGetRelationName(index)),
				 key ? errdetail("Key %s already exists.", key) : 0,
				 errtableconstraint(insert->heap, RelationGetRelationName(index))));
	}
	if (insert->check == UNIQUE_CHECK_YES)
	{
		insert->check = UNIQUE_CHECK_PARTIAL;
		(void) insert_unless_new(insert, true);
	}
	return true;
}

/*
 * UNIQUE_CHECK_YES and UNIQUE_CHECK_EXISTING.  For that our entry has to be there, and what
 * is beside it is looked at.
 */
static void
check_and_insert(UniqueInsert *insert)
{
	bool		existing = insert->check == UNIQUE_CHECK_EXISTING;

	for (;;)
	{
		if (!existing && insert_unless_new(insert, false))
			return;
		if (existing)
		{
			uint64		epoch = pmhash_removal_epoch(insert->file);

			pmhash_check_result(insert->index, insert->file,
								pmh_lookup(insert->file->table, insert->entry.hash, &present));
			if (!keep_present(insert, epoch))
				ereport(ERROR,
						(errcode(ERRCODE_INTERNAL_ERROR),
						 errmsg("failed to re-find tuple within index \"%s\"",
								RelationGetRelationName(insert->index)),
						 errhint("This may be because of a non-immutable index expression."),
						 errtableconstraint(insert->heap,
											RelationGetRelationName(insert->index))));
		}
		switch (look_at_others(insert))
		{
			case FREE:
				PMH_STOP_POINT("unique_looked");
				if (existing)
					return;
				break;
			case TAKEN:
				if (taken(insert))
					return;
				insert->nothers = 0;
				break;
			case OPEN:
				/* until it is known what becomes of the row that is in the way */
				if (pmhash_removal_epoch(insert->file) != insert->epoch)
					;			/* perhaps it is not in the way at all */
				else if (insert->token != 0)
					SpeculativeInsertionWait(insert->wait_for, insert->token);
				else
					XactLockTableWait(insert->wait_for, insert->index, &insert->tid,
									  XLTW_InsertIndex);
				insert->nothers = 0;
				break;
		}
	}
}

/*
 * Insert an entry of a row, whose key has no NULLs, into a unique index.
 *
 * check says what else: as for aminsert.  values and isnull: the key.  Returns what
 * aminsert does: true if the key is known to be there once.  ERROR for a duplicate
 * (23505) and as pmhash_insert.  Waits for transactions that have inserted or
 * deleted a row of this key, unless check is UNIQUE_CHECK_PARTIAL: false if a row may be in
 * the way.  As soon as the entry is in others may wait for us, and core goes on to other
 * unique indexes, where we may wait for them.  So a row that has to go gets none.
 */
bool
pmhash_insert_unique(Relation heap, Relation index, PmhashFile *file,
					 const PmhashKeys *keys, const PmhEntry *entry,
					 Datum *values, bool *isnull,
					 IndexUniqueCheck check)
{
	UniqueInsert insert = {
		.heap = heap,
		.index = index,
		.file = file,
		.entry = *entry,
		.values = values,
		.isnull = isnull,
		.keys = keys,
		.check = check
	};
	HeapTupleData tuple;
	Buffer		buffer;
	bool		is_killed = false;
	bool		unique = true;

	Assert(check != UNIQUE_CHECK_NO && index->rd_index->indisunique);
	Assert(memchr(isnull, true, keys->ncolumns) == NULL);
	pmhash_value_to_tid(entry->value, &insert.tid);
	if (check != UNIQUE_CHECK_PARTIAL)
		check_and_insert(&insert);
	else
	{
		while (unique && !insert_unless_new(&insert, false))
			unique = look_at_others(&insert) == FREE;

		/*
		 * Is our row one that core kills if we say that another may be in the way?  That
		 * is so for ON CONFLICT (execIndexing.c: specConflict), and not for a subscriber,
		 * which looks once more for the other one and goes on without it
		 * (execReplication.c, CheckAndReportConflict), nor for deferred constraints.
		 */
		tuple.t_self = insert.tid;
		if (!unique && index->rd_index->indimmediate && pmhash_is_heap_table(heap) &&
			heap_fetch(heap, SnapshotAny, &tuple, &buffer, false))
		{
			is_killed = HeapTupleHeaderIsSpeculative(tuple.t_data);
			ReleaseBuffer(buffer);
		}
		if (!unique && !is_killed)
			(void) insert_unless_new(&insert, true);
	}
	if (insert.others != NULL)
		pfree(insert.others);
	return unique;
}

/*
 * Builds of unique indexes: does any key come twice?
 *
 * Keys that are equal have equal hashes, so they are in one partition when it is
 * loaded.  The hashes of a partition are copied and sorted; nearly always none
 * comes twice, and that was all.  Rows of a hash that does are visited: those that
 * are still alive, as SnapshotDirty sees them, must not have equal keys.
 *
 * That is what is wanted for both kinds of builds.  With a lock that keeps writers out,
 * what the scan has found is alive, or was ended by a transaction that is over,
 * or by ours.  In CREATE INDEX CONCURRENTLY rows come and go: a row whose
 * deletion is not committed may come back, and counts; rows that come later are
 * checked by the sessions that insert them.
 */

struct PmhashBuildUnique
{
	MemoryContext context;
	Relation	heap;
	Relation	index;
	uint64	   *hash;			/* of what is being checked */
	size_t		capacity;
	HTAB	   *remembered;		/* hashes, or NULL */
};

/* For a build of index on heap; all memory is taken from context. */
PmhashBuildUnique *
pmhash_build_unique_make(MemoryContext context, Relation heap, Relation index)
{
	PmhashBuildUnique *unique = MemoryContextAllocZero(context,
													   sizeof(PmhashBuildUnique));

	Assert(CheckRelationLockedByMe(heap, ShareUpdateExclusiveLock, true));
	unique->context = context;
	unique->heap = heap;
	unique->index = index;
	return unique;
}

/* Does the row at a TID count, that is, is it alive, without NULLs in its key? */
static bool
row_counts(PmhashRow *row, uint64 value, Datum *values, bool *isnull)
{
	SnapshotData dirty;
	bool		all_dead;

	CHECK_FOR_INTERRUPTS();
	InitDirtySnapshot(dirty);
	return pmhash_row_fetch(row, value, &dirty, &all_dead) &&
		pmhash_row_key(row, &dirty, values, isnull);
}

/*
 * ERROR if two of the rows at value[0 .. n), which are of one hash, have one key; others
 * are rare.
 */
static void
check_rows(PmhashBuildUnique *unique, const uint64 *value, size_t n)
{
	Datum		a[INDEX_MAX_KEYS];
	Datum		b[INDEX_MAX_KEYS];
	bool		a_isnull[INDEX_MAX_KEYS];
	bool		b_isnull[INDEX_MAX_KEYS];
	PmhashRow	row;
	PmhashRow	other;
	char	   *key;

	if (n < 2)
		return;
	pmhash_row_begin(&row, unique->heap, unique->index);
	pmhash_row_begin(&other, unique->heap, unique->index);
	for (size_t i = 0; i + 1 < n; i++)
	{
		if (!row_counts(&row, value[i], a, a_isnull))
			continue;
		for (size_t j = i + 1; j < n; j++)
		{
			if (!row_counts(&other, value[j], b, b_isnull) ||
				!pmhash_keys_equal(unique->index, a, b))
				continue;
			key = BuildIndexValueDescription(unique->index, a, a_isnull);
			ereport(ERROR,
					(errcode(ERRCODE_UNIQUE_VIOLATION),
					 errmsg("could not create unique index \"%s\"",
							RelationGetRelationName(unique->index)),
					 key ? errdetail("Key %s is duplicated.", key) :
					 errdetail("Duplicate keys exist."),
					 errtableconstraint(unique->heap,
										RelationGetRelationName(unique->index))));
		}
	}
	pmhash_row_end(&other);
	pmhash_row_end(&row);
}

static int
compare_numbers(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return (x > y) - (x < y);
}

/*
 * Check the entries of all rows whose hashes are in one range, in any order.  ERROR
 * (23505) if two of the rows have one key.
 */
void
pmhash_build_unique_check(PmhashBuildUnique *unique, const PmhEntry *entries, size_t n)
{
	uint64	   *hash = pmhash_reserve(unique->context, unique->hash, &unique->capacity, n,
									  sizeof(uint64));
	size_t		nrepeated = 0;
	MemoryContext context;
	size_t		capacity;
	size_t		nfound = 0;
	PmhEntry   *found;
	uint64	   *value;
	size_t		same = 0;

	unique->hash = hash;
	for (size_t i = 0; i < n; i++)
		hash[i] = entries[i].hash;
	pmhash_sort_numbers(hash, n);
	for (size_t i = 1; i < n; i++)
	{
		if (hash[i] == hash[i - 1] && (nrepeated == 0 || hash[nrepeated - 1] != hash[i]))
			hash[nrepeated++] = hash[i];
	}
	if (nrepeated == 0)
		return;

	/* the rows of each of these hashes together */
	context = AllocSetContextCreate(unique->context, "pmhash repeated hashes",
									ALLOCSET_DEFAULT_SIZES);
	capacity = 2 * nrepeated;
	Assert(capacity <= n);
	found = MemoryContextAllocHuge(context, capacity * sizeof(PmhEntry));
	for (size_t i = 0; i < n; i++)
	{
		if (bsearch(&entries[i].hash, hash, nrepeated, sizeof(uint64),
					compare_numbers) == NULL)
			continue;
		if (nfound == capacity)
		{
			capacity *= 2;
			found = repalloc_huge(found, capacity * sizeof(PmhEntry));
		}
		found[nfound++] = entries[i];
	}
	pmhash_sort_entries(found, nfound);
	value = MemoryContextAllocHuge(context, nfound * sizeof(uint64));
	for (size_t i = 0; i < nfound; i++)
	{
		value[same++] = found[i].value;
		if (i + 1 == nfound || found[i + 1].hash != found[i].hash)
		{
			Assert(same > 1);
			check_rows(unique, value, same);
			same = 0;
		}
	}
	MemoryContextDelete(context);
}

/*
 * Remember the hashes of entries that are not loaded by whole ranges, to be checked
 * when all are in the file.  There are few hashes, with many rows each.
 */
void
pmhash_build_unique_remember(PmhashBuildUnique *unique, const PmhEntry *entries,
							 size_t n)
{
	if (unique->remembered == NULL)
	{
		HASHCTL		control = {
			.keysize = sizeof(uint64),
			.entrysize = sizeof(uint64),
			.hcxt = unique->context
		};

		unique->remembered = hash_create("pmhash repeated hashes", 256, &control,
										 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	for (size_t i = 0; i < n; i++)
		(void) hash_search(unique->remembered, &entries[i].hash, HASH_ENTER, NULL);
}

/* Check what has been remembered; ERROR as pmhash_build_unique_check. */
void
pmhash_build_unique_check_remembered(PmhashBuildUnique *unique, PmhashFile *file)
{
	HASH_SEQ_STATUS sequence;
	uint64	   *hash;
	PmhValues	found = {0};

	if (unique->remembered == NULL)
		return;
	hash_seq_init(&sequence, unique->remembered);
	PG_TRY();
	{
		while ((hash = hash_seq_search(&sequence)) != NULL)
		{
			pmhash_check_result(unique->index, file, pmh_lookup(file->table, *hash, &found));
			check_rows(unique, found.value, found.n);
		}
	}
	PG_FINALLY();
	{
		pmh_values_free(&found);
	}
	PG_END_TRY();
}
