/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  pmhash.check(): is the file sound, and does the index agree with its
 *	  table?
 *
 * The method is that of bt_index_check (contrib/amcheck/verify_nbtree.c): only
 * AccessShareLock on table and index, so that only statements wait for us that
 * want AccessExclusiveLock.  ShareUpdateExclusiveLock would keep VACUUM away
 * and make some of what follows simpler, but each check would then cancel an
 * autovacuum or wait for a VACUUM.  So anything may be going on, and three things
 * are checked:
 *
 *	1. The structure of the file (pmh_check).  What only shows while there
 *	   are no writers, that is the space map and the free lists, is left out.
 *
 *	2. Every row that a snapshot sees and that is to be indexed has exactly one
 *	   entry: (hash of its key, TID of the root of its HOT chain).
 *
 *	3. Every entry names a row that has its key.
 *
 * 2 and 3 work in batches of maintenance_work_mem.  Rows are sorted by hash
 * and looked up, each key once a batch; entries are sorted by TID, so that the
 * table is read in order once a batch.  Nothing is estimated or sampled.
 * The entries of a key, of which there may be any number, are read piece by piece, and
 * each piece is compared with the rows of the batch.
 *
 * Why nothing is reported on a live server that is not wrong
 *
 * Rows without an entry.  The snapshot is registered before anything is read.
 * A row it sees was committed before, hence its entry was in the index before;
 * and as long as the snapshot is registered neither VACUUM nor a scan that
 * removes dead entries takes it away.  So every later look-up must find it.
 * (An index that older snapshots may not use, indcheckxmin, is refused under
 * such a snapshot, as by amcheck.  So is a file that a standby has built without rows
 * which such a snapshot sees, there and after its promotion.)
 *
 * Rows with two entries.  A look-up may meet one entry twice if a writer moves
 * it into a value list meanwhile.  It never moves back, and it cannot be taken
 * out and put in again, as above.  So a second look-up meets it once.
 *
 * Entries beyond the end of the table.  The row came before the entry, and a
 * table does not get shorter as long as we have a lock on it.
 *
 * Entries whose line pointer is unused, or holds a heap-only tuple.  A line
 * pointer is freed after its entries have been removed, so an entry that we
 * saw may be gone, and its TID may be another row's.  Or even that of a row
 * with the same key, inserted after we had looked at the page.  Therefore such
 * an entry is only suspect.  When the batch is through it is looked up again,
 * and if it is still there, once more with the page locked.  With the lock,
 * no process can use or free the line pointer.  An entry which is there at this
 * moment was put in when its line pointer was in use for its row, and the line
 * pointer cannot be freed before the entry is removed: it is wrong.
 *
 * Entries with another key than their row.  As before, and moreover the keys
 * of a row's HOT chain have to be read with care: see below.
 *
 * All this is true of the file that the index has.  It may get another one meanwhile,
 * so before anything is reported we look whether it has (report_disagreement).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "am/am.h"
#include "am/fetch.h"
#include "am/keys.h"
#include "cluster/base/relations.h"
#include "engine/stop_point.h"

/*
 * Does an entry fit the row that it names?  The heap's side of pmhash.check.
 *
 * The keys of a row's HOT chain have to be read with care, since writers and
 * VACUUM may be at work on the table:
 *	 - A line pointer that is dead says nothing: legal, VACUUM is to come.
 *	 - Keys are computed from a copy of the page, after its lock has been
 *	   released, so values in TOAST must still be there.  They are for tuples which
 *	   are not removable under our snapshot's xmin, since no VACUUM, not of the
 *	   TOAST table either, works with a later horizon: its own was computed before
 *	   our snapshot was taken, from transactions running then, or it heeds our xmin.
 *	   Tuples that are dead by that measure, or of a transaction of another
 *	   backend that is still in progress (it may abort, and VACUUM come by), have
 *	   no key for us; they are "unknown".
 *	 - All members of a HOT chain have one key, except those that were there
 *	   when the index was built: the member then indexed, and all after it in
 *	   the chain, have the key of the entry; older ones may have others.
 *	   A live member (committed, not deleted, no update under way) is the last
 *	   of its chain that counts, so if there is one it must match, provided that
 *	   no known member does.  If no member is live, unknown ones may be what was
 *	   indexed; then the entry is legal.  If all are known, one must match.
 *
 * The predicate of a partial index is a part of the key in all this.
 */

/* What an entry has to do with the row that it names. */
typedef enum EntryCheck
{
	ENTRY_FITS,
	ENTRY_BEYOND_END,
	ENTRY_WITHOUT_ROW,
	ENTRY_HEAP_ONLY,
	ENTRY_OTHER_KEY
} EntryCheck;

/* What there is to know of a member of a HOT chain. */
typedef enum Knowledge
{
	TUPLE_NOT_SEEN = 0,			/* not classified yet */
	TUPLE_UNKNOWN,				/* its key cannot be read safely */
	TUPLE_KNOWN,				/* it can, but a newer one may count */
	TUPLE_LIVE					/* it can, and it is the current one */
} Knowledge;

PG_FUNCTION_INFO_V1(pmhash_check);

/* Findings that are reported; the comparison with the table ends at the last. */
#define MAX_FINDINGS	10
#define FINDING_SIZE	256

typedef struct CheckState
{
	Relation	heap;
	Relation	index;
	PmhashFile *file;
	PmhashKeys *keys;
	Snapshot	snapshot;

	/* rows to be looked up, or entries to be compared with their rows */
	PmhEntry   *batch;
	size_t		n;
	size_t		capacity;
	size_t		limit;

	/* of the engine, not in the context */
	PmhSweep	sweep;
	bool		sweeping;

	/* comparing entries with rows: keys of rows, and the page looked at last */
	BufferAccessStrategy access;
	IndexInfo  *indexInfo;
	EState	   *estate;
	ExprContext *econtext;
	ExprState  *predicate;
	TupleTableSlot *slot;
	PGAlignedBlock page;
	Knowledge	knowledge[MaxHeapTuplesPerPage + 1];	/* by offset */

	uint64		findings;
	char		finding[MAX_FINDINGS][FINDING_SIZE];
} CheckState;

/* ---- heap pages ---- */

/* What is to be known of a tuple in a locked buffer. */
static Knowledge
classify(CheckState *state, Buffer buffer, BlockNumber block, OffsetNumber offset)
{
	HeapTupleData tuple;

	Assert(BufferGetBlockNumber(buffer) == block);
	pmhash_tuple_on_page(state->heap, BufferGetPage(buffer), block, offset, &tuple);
	switch (HeapTupleSatisfiesVacuum(&tuple, state->snapshot->xmin, buffer))
	{
		case HEAPTUPLE_LIVE:
			return TUPLE_LIVE;
		case HEAPTUPLE_RECENTLY_DEAD:
		case HEAPTUPLE_DELETE_IN_PROGRESS:
			return TUPLE_KNOWN;
		case HEAPTUPLE_INSERT_IN_PROGRESS:
			if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple.t_data)))
				return TUPLE_KNOWN;
			return TUPLE_UNKNOWN;
		case HEAPTUPLE_DEAD:
			break;
	}
	return TUPLE_UNKNOWN;
}

/*
 * Copy the page that n entries name, and classify the members of their
 * chains.  Returns the buffer, share-locked.
 */
static Buffer
check_read_page(CheckState *state, const PmhEntry *entry, size_t n)
{
	BlockNumber block = pmhash_value_to_block(entry->value);
	Page		page = (Page) state->page.data;
	OffsetNumber member[MaxHeapTuplesPerPage];
	Buffer		buffer;

	Assert(n > 0);
	buffer = ReadBufferExtended(state->heap, MAIN_FORKNUM, block, RBM_NORMAL,
								state->access);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(page, BufferGetPage(buffer), BLCKSZ);
	memset(state->knowledge, TUPLE_NOT_SEEN, sizeof(state->knowledge));
	for (size_t i = 0; i < n; i++)
	{
		int			members;

		Assert(pmhash_value_to_block(entry[i].value) == block);
		members = pmhash_chain_members(page, pmhash_value_to_offset(entry[i].value), member);
		for (int m = 0; m < members; m++)
		{
			Knowledge  *knowledge = &state->knowledge[member[m]];

			if (*knowledge == TUPLE_NOT_SEEN)
				*knowledge = classify(state, buffer, block, member[m]);
		}
	}
	return buffer;
}

/* Does a tuple of the page copied last have an entry with this hash? */
static bool
tuple_has_hash(CheckState *state, BlockNumber block, OffsetNumber offset,
			   uint64 wanted)
{
	MemoryContext old = MemoryContextSwitchTo(state->econtext->ecxt_per_tuple_memory);
	HeapTupleData tuple;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	uint64		hash;
	bool		has = false;

	pmhash_tuple_on_page(state->heap, (Page) state->page.data, block, offset, &tuple);
	ExecStoreHeapTuple(&tuple, state->slot, false);
	if (ExecQual(state->predicate, state->econtext))
	{
		FormIndexDatum(state->indexInfo, state->slot, state->estate, values,
					   isnull);
		has = pmhash_keys_hash(state->keys, values, isnull, &hash) &&
			hash == wanted;
	}
	ExecClearTuple(state->slot);
	MemoryContextSwitchTo(old);
	ResetExprContext(state->econtext);
	return has;
}

/*
 * Compare an entry with the row that it names, that is with the members of its chain, in
 * the page that check_read_page has copied.
 */
static EntryCheck
check_entry(CheckState *state, const PmhEntry *entry)
{
	Page		page = (Page) state->page.data;
	OffsetNumber root = pmhash_value_to_offset(entry->value);
	OffsetNumber member[MaxHeapTuplesPerPage];
	int			n;
	bool		live = false;
	bool		unknown = false;

	if (root < FirstOffsetNumber || root > MaxHeapTuplesPerPage ||
		root > PageGetMaxOffsetNumber(page))
		return ENTRY_WITHOUT_ROW;
	if (ItemIdIsDead(PageGetItemId(page, root)))
		return ENTRY_FITS;
	if (!ItemIdIsUsed(PageGetItemId(page, root)))
		return ENTRY_WITHOUT_ROW;
	if (!pmhash_is_root(page, root))
		return ENTRY_HEAP_ONLY;
	n = pmhash_chain_members(page, root, member);
	for (int m = 0; m < n; m++)
	{
		Knowledge	knowledge = state->knowledge[member[m]];

		Assert(knowledge != TUPLE_NOT_SEEN);
		if (knowledge == TUPLE_UNKNOWN)
			unknown = true;
		else if (tuple_has_hash(state, pmhash_value_to_block(entry->value), member[m],
								entry->hash))
			return ENTRY_FITS;
		if (knowledge == TUPLE_LIVE)
			live = true;
	}
	if (n == 0)
		return ENTRY_WITHOUT_ROW;
	return unknown && !live ? ENTRY_FITS : ENTRY_OTHER_KEY;
}

/* Entries of the first batch's memory; it doubles up to maintenance_work_mem. */
#define FIRST_BATCH		4096

/* Marks on values of a batch, above the 47 bits of a TID. */
#define MARK_FOUND		(UINT64CONST(1) << 62)
#define MARK_REPEATED	(UINT64CONST(1) << 63)

StaticAssertDecl(PMH_VALUE_BITS <= 62, "marks are no bits of a value");

#define ST_SORT sort_by_value
#define ST_ELEMENT_TYPE PmhEntry
#define ST_COMPARE(a, b) ((a)->value < (b)->value ? -1 : (a)->value > (b)->value)
#define ST_SCOPE static
#define ST_CHECK_FOR_INTERRUPTS
#define ST_DEFINE
#include "lib/sort_template.h"

/* Findings as lines of an errdetail. */
static char *
list_findings(CheckState *state)
{
	StringInfoData lines;
	uint64		listed = Min(state->findings, MAX_FINDINGS);

	initStringInfo(&lines);
	for (uint64 i = 0; i < listed; i++)
		appendStringInfo(&lines, "%s%s", i > 0 ? "\n" : "", state->finding[i]);
	if (state->findings > listed)
		appendStringInfo(&lines, "\nThere are %llu more findings.",
						 (unsigned long long) (state->findings - listed));
	return lines.data;
}

/*
 * ERROR for what has been found, if the index has the file still that is checked.  If it
 * was marked, or a standby has given it up, no entry is put in or removed any more, and
 * line pointers are freed all the same: what was found may come from that.
 */
pg_noreturn static void
report_disagreement(CheckState *state)
{
	Assert(state->findings > 0 && state->findings <= MAX_FINDINGS);
	if (pmhash_open_for_reading(state->index, NULL) != state->file)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("index \"%s\" has got another file while it was checked",
						RelationGetRelationName(state->index))));
	/* not an error of this transaction: the index must not be used any more */
	pmhash_index_invalidate(state->index, state->file, PMHASH_REASON_DAMAGED);
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" does not agree with table \"%s\"",
					RelationGetRelationName(state->index),
					RelationGetRelationName(state->heap)),
			 errdetail("%s%s", list_findings(state),
					   state->findings == MAX_FINDINGS ?
					   "\nThe check ended here; there may be more." : ""),
			 errhint("%s", pmhash_rebuild_hint(state->index))));
}

/* PmhReport: note what the engine's check has found.  Must not raise an error. */
static void
note_structure(void *arg, uint64_t offset, const char *finding)
{
	CheckState *state = arg;

	if (state->findings < MAX_FINDINGS)
		snprintf(state->finding[state->findings], FINDING_SIZE,
				 "%s (offset %llu)", finding, (unsigned long long) offset);
	state->findings++;
}

/* Note a finding about a row or entry; ERROR if there have been enough. */
static void
note_row(CheckState *state, const char *format, uint64 hash, uint64 value)
{
	char		row[64];

	Assert(state->findings < MAX_FINDINGS && value <= PMH_VALUE_MAX);
	snprintf(row, sizeof(row), "(%u,%u)", pmhash_value_to_block(value),
			 pmhash_value_to_offset(value));
	snprintf(state->finding[state->findings], FINDING_SIZE, format, row,
			 (unsigned long long) hash);
	if (++state->findings == MAX_FINDINGS)
		report_disagreement(state);
}

static void
add_to_batch(CheckState *state, uint64 hash, uint64 value)
{
	if (state->n == state->capacity)
	{
		state->capacity = Min(2 * state->capacity, state->limit);
		state->batch = repalloc_huge(state->batch,
									 state->capacity * sizeof(PmhEntry));
	}
	Assert(state->n < state->capacity && value <= PMH_VALUE_MAX);
	state->batch[state->n].hash = hash;
	state->batch[state->n].value = value;
	state->n++;
}

/* ---- looking up ---- */

/*
 * Read all entries of a key, repeats and all, piece by piece.  ERROR at a cancel, also in
 * the middle of a key with very many of them.
 */
static void
look_up(CheckState *state, uint64 hash, PmhGive give, void *arg)
{
	pmhash_check_result(state->index, state->file,
						pmh_lookup_repeats(state->file->table, hash, give, arg));
}

/* How often a value has been met. */
typedef struct ValueCount
{
	uint64		value;
	uint64		n;
} ValueCount;

static void
count_values(void *arg, const uint64_t *value, size_t n)
{
	ValueCount *count = arg;

	for (size_t i = 0; i < n; i++)
		count->n += (value[i] == count->value);
}

/* How often (hash, value) is in the index. */
static uint64
count_entry(CheckState *state, uint64 hash, uint64 value)
{
	ValueCount	count = {.value = value};

	look_up(state, hash, count_values, &count);
	return count.n;
}

/* The pairs of one key in the batch, ascending by value. */
typedef struct KeyPairs
{
	PmhEntry   *pair;
	size_t		n;
	uint64		least;			/* value; most of those met are no row of this batch */
	uint64		greatest;
} KeyPairs;

/* Mark those of the values of a key that are there. */
static void
mark_values(void *arg, const uint64_t *value, size_t n)
{
	const KeyPairs *key = arg;
	PmhEntry   *pair = key->pair;

	for (size_t i = 0; i < n; i++)
	{
		size_t		low = 0;
		size_t		high = key->n;

		if (value[i] < key->least || value[i] > key->greatest)
			continue;
		while (low < high)
		{
			size_t		middle = low + (high - low) / 2;

			if ((pair[middle].value & PMH_VALUE_MAX) < value[i])
				low = middle + 1;
			else
				high = middle;
		}
		if (low < key->n && (pair[low].value & PMH_VALUE_MAX) == value[i])
			pair[low].value |= (pair[low].value & MARK_FOUND) ?
				MARK_REPEATED : MARK_FOUND;
	}
}

/* Sort the pairs of the batch by hash, and mark those that are in the index. */
static void
mark_batch(CheckState *state)
{
	size_t		next;

	pmhash_sort_entries(state->batch, state->n);
	for (size_t first = 0; first < state->n; first = next)
	{
		KeyPairs	key = {.pair = state->batch + first};

		CHECK_FOR_INTERRUPTS();
		for (next = first + 1; next < state->n; next++)
		{
			if (state->batch[next].hash != state->batch[first].hash)
				break;
		}
		key.n = next - first;
		Assert(state->batch[first].value <= state->batch[next - 1].value);
		Assert(state->batch[next - 1].value <= PMH_VALUE_MAX);
		key.least = state->batch[first].value;
		key.greatest = state->batch[next - 1].value;
		look_up(state, state->batch[first].hash, mark_values, &key);
	}
}

/* Look the rows of the batch up, and empty it. */
static void
check_rows(CheckState *state)
{
	mark_batch(state);
	for (size_t i = 0; i < state->n; i++)
	{
		uint64		hash = state->batch[i].hash;
		uint64		mark = state->batch[i].value & ~PMH_VALUE_MAX;
		uint64		value = state->batch[i].value & PMH_VALUE_MAX;

		if (mark == 0)
			note_row(state, "Row %s has no entry (its hash is %016llx).",
					 hash, value);
		else if ((mark & MARK_REPEATED) && count_entry(state, hash, value) > 1)
			note_row(state, "Row %s has more than one entry with hash %016llx.",
					 hash, value);
	}
	state->n = 0;
}

/* IndexBuildCallback: a row that is to be in the index. */
static void
take_row(Relation index, ItemPointer tid, Datum *values, bool *isnull,
		 bool tupleIsAlive, void *arg)
{
	CheckState *state = arg;
	uint64		hash;

	if (!pmhash_keys_hash(state->keys, values, isnull, &hash))
		return;
	add_to_batch(state, hash, pmhash_tid_to_value(tid));
	if (state->n == state->limit)
		check_rows(state);
}

/*
 * Compare the entries of the batch with their rows, a page at a time, and empty it.
 *
 * Those that do not fit are suspect: reported are those that are really wrong.  Each is
 * judged with its page locked: it is not if it is not in the index any more.  The end of a
 * table that we have locked only moves on, so beyond it there is no page to lock and no
 * need to.
 */
static void
check_entries(CheckState *state)
{
	static const char *const format[] = {
		[ENTRY_BEYOND_END] = "There is an entry for row %s, which is beyond the end of the table (hash %016llx).",
		[ENTRY_WITHOUT_ROW] = "There is an entry for row %s, which does not exist (hash %016llx).",
		[ENTRY_HEAP_ONLY] = "There is an entry for row %s, which is a heap-only tuple (hash %016llx).",
		[ENTRY_OTHER_KEY] = "There is an entry for row %s, whose key is another one or not to be indexed (hash %016llx)."
	};
	BlockNumber blocks = RelationGetNumberOfBlocks(state->heap);
	PmhEntry   *entry = state->batch;
	size_t		suspects = 0;
	size_t		next;

	sort_by_value(entry, state->n);
	for (size_t first = 0; first < state->n; first = next)
	{
		BlockNumber block = pmhash_value_to_block(entry[first].value);

		CHECK_FOR_INTERRUPTS();
		for (next = first + 1; next < state->n; next++)
		{
			if (pmhash_value_to_block(entry[next].value) != block)
				break;
		}
		if (block < blocks)
			UnlockReleaseBuffer(check_read_page(state, &entry[first], next - first));
		for (size_t i = first; i < next; i++)
		{
			if (block >= blocks || check_entry(state, &entry[i]) != ENTRY_FITS)
				entry[suspects++] = entry[i];
		}
	}
	state->n = suspects;
	mark_batch(state);
	for (size_t i = 0; i < state->n; i++)
	{
		PmhEntry	suspect = state->batch[i];
		EntryCheck	verdict = ENTRY_BEYOND_END;

		CHECK_FOR_INTERRUPTS();
		if ((suspect.value & MARK_FOUND) == 0)
			continue;
		suspect.value &= PMH_VALUE_MAX;
		if (pmhash_value_to_block(suspect.value) < RelationGetNumberOfBlocks(state->heap))
		{
			Buffer		buffer = check_read_page(state, &suspect, 1);
			uint64		count = count_entry(state, suspect.hash, suspect.value);

			UnlockReleaseBuffer(buffer);
			verdict = count == 0 ? ENTRY_FITS : check_entry(state, &suspect);
		}
		if (verdict != ENTRY_FITS)
			note_row(state, format[verdict], suspect.hash, suspect.value);
	}
	state->n = 0;
}

static void
check_all_entries(CheckState *state)
{
	PmhSweep   *sweep = &state->sweep;
	PmhResult	result = pmh_sweep_begin_reading(state->file->table, sweep);

	Assert(state->n == 0 && !state->sweeping);
	pmhash_check_result(state->index, state->file, result);
	state->sweeping = true;
	state->access = GetAccessStrategy(BAS_BULKREAD);
	state->indexInfo = BuildIndexInfo(state->index);
	state->estate = CreateExecutorState();
	state->econtext = GetPerTupleExprContext(state->estate);
	state->predicate = ExecPrepareQual(state->indexInfo->ii_Predicate, state->estate);
	state->slot = MakeSingleTupleTableSlot(RelationGetDescr(state->heap), &TTSOpsHeapTuple);
	state->econtext->ecxt_scantuple = state->slot;
	while ((result = pmh_sweep_next(state->file->table, sweep)) == PMH_OK)
	{
		CHECK_FOR_INTERRUPTS();
		for (size_t i = 0; i < sweep->n; i++)
		{
			add_to_batch(state, sweep->entries[i].hash, sweep->entries[i].value);
			if (state->n == state->limit)
				check_entries(state);
		}
	}
	if (result != PMH_DONE)
		pmhash_engine_error(state->index, state->file, result);
	check_entries(state);
	ExecDropSingleTupleTableSlot(state->slot);
	FreeExecutorState(state->estate);
	FreeAccessStrategy(state->access);
}

static void
check_structure(CheckState *state)
{
	PmhResult	result;

	for (;;)
	{
		result = pmh_check(state->file->table, note_structure, state);
		if (result != PMH_CANCELLED)
			break;
		CHECK_FOR_INTERRUPTS();
		state->findings = 0;
	}
	if (result == PMH_ERR_CORRUPT && state->findings > 0)
	{
		pmhash_index_invalidate(state->index, state->file, PMHASH_REASON_DAMAGED);
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("file \"%s\" of index \"%s\" is damaged",
						pmhash_shown_path(state->file->path),
						RelationGetRelationName(state->index)),
				 errdetail("%s", list_findings(state)),
				 errhint("%s", pmhash_rebuild_hint(state->index))));
	}
	pmhash_check_result(state->index, state->file, result);
}

/*
 * Compare index and table, in both directions.
 *
 * The table is scanned as the first scan of CREATE INDEX CONCURRENTLY does, but with
 * our snapshot and without waiting for writers (compare verify_nbtree.c).
 */
static void
check_against_table(CheckState *state)
{
	const char *table = RelationGetRelationName(state->heap);
	const char *index = RelationGetRelationName(state->index);
	IndexInfo  *indexInfo = BuildIndexInfo(state->index);
	const char *refused = NULL;
	TableScanDesc scan;

	indexInfo->ii_Concurrent = true;
	indexInfo->ii_Unique = false;
	indexInfo->ii_ExclusionOps = NULL;
	indexInfo->ii_ExclusionProcs = NULL;
	indexInfo->ii_ExclusionStrats = NULL;
	state->limit = Max((size_t) maintenance_work_mem * 1024 / sizeof(PmhEntry),
					   FIRST_BATCH);
	state->capacity = FIRST_BATCH;
	state->batch = palloc(state->capacity * sizeof(PmhEntry));
	state->keys = pmhash_keys_make(state->index, state->file->seed);
	state->snapshot = RegisterSnapshot(GetTransactionSnapshot());
	Assert(IsMVCCSnapshot(state->snapshot));

	/*
	 * A new snapshot needs no look at the index; one of an older transaction may see
	 * tuples that it, or its file, does not have.
	 */
	if (IsolationUsesXactSnapshot())
	{
		HeapTupleHeader entry = state->index->rd_indextuple->t_data;

		if (state->index->rd_index->indcheckxmin &&
			!TransactionIdPrecedes(HeapTupleHeaderGetXmin(entry), state->snapshot->xmin))
			refused = "The index is younger than the snapshot, and the table had been updated before.";
		else if (pmhash_open_for_scan(state->index, state->snapshot) != state->file)
			refused = "The file of the index may lack rows that the snapshot sees.";
	}
	if (refused != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("index \"%s\" cannot be checked using the transaction's snapshot",
						index),
				 errdetail("%s", refused)));

	PG_TRY();
	{
		elog(DEBUG1, "checking that rows of table \"%s\" are in index \"%s\"", table, index);
		scan = table_beginscan_strat(state->heap, state->snapshot, 0, NULL, true, true);
		table_index_build_scan(state->heap, state->index, indexInfo, true, false,
							   take_row, state, scan);
		check_rows(state);
		PMH_STOP_POINT("check_before_entries");
		elog(DEBUG1, "checking that entries of index \"%s\" are in table \"%s\"", index, table);
		check_all_entries(state);
	}
	PG_FINALLY();
	{
		if (state->sweeping)
			pmh_sweep_end(&state->sweep);
	}
	PG_END_TRY();

	if (state->findings > 0)
		report_disagreement(state);
	UnregisterSnapshot(state->snapshot);
}

/*
 * pmhash.check(index regclass, heapallindexed boolean) returns void
 *
 * ERROR with the first findings if the file of the index is damaged or, with
 * heapallindexed, does not have exactly the rows of the table; also if it is
 * no index that we can check.  Takes AccessShareLock on table and index until
 * it returns.
 *
 * As in amcheck: the table is locked before the index, lest there be a
 * deadlock; functions in the index's expressions and predicate run as the
 * table's owner; permission to call us is a matter of GRANT.
 */
Datum
pmhash_check(PG_FUNCTION_ARGS)
{
	Oid			indexOid = PG_GETARG_OID(0);
	bool		heapallindexed = PG_GETARG_BOOL(1);
	Oid			heapOid = IndexGetRelation(indexOid, true);
	Relation	heap = NULL;
	Relation	index;
	PmhashCaller caller;
	MemoryContext context;
	MemoryContext old;
	CheckState *state;

	if (OidIsValid(heapOid))
	{
		heap = pmhash_open_named(heapOid);
		pmhash_be_owner(heap, &caller);
	}
	index = pmhash_open_named(indexOid);
	pmhash_require_index(index);
	if (!index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot check index \"%s\"",
						RelationGetRelationName(index)),
				 errdetail("The index is not valid: its CREATE INDEX or REINDEX has not been completed.")));

	/* Looked up without a lock: is it still the table of this index? */
	if (heap == NULL || heapOid != IndexGetRelation(indexOid, false))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("could not open the table of index \"%s\"",
						RelationGetRelationName(index))));
	if (heapallindexed && !pmhash_is_heap_table(heap))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot compare an index with table \"%s\"",
						RelationGetRelationName(heap)),
				 errdetail("Its table access method is not heap."),
				 errhint("Use pmhash.check(index, false) to check the file alone.")));

	/* in memory of its own */
	context = AllocSetContextCreate(CurrentMemoryContext, "pmhash check",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	state = palloc0(sizeof(CheckState));
	state->heap = heap;
	state->index = index;
	state->file = pmhash_open_for_reading(index, NULL);
	elog(DEBUG1, "checking file \"%s\" of index \"%s\"", state->file->path,
		 RelationGetRelationName(index));
	check_structure(state);
	if (heapallindexed)
		check_against_table(state);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);

	pmhash_be_caller(&caller);
	relation_close(index, AccessShareLock);
	relation_close(heap, AccessShareLock);
	PG_RETURN_VOID();
}
