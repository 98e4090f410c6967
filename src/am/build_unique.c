/*-------------------------------------------------------------------------
 *
 * build_unique.c
 *	  Builds of unique indexes: does any key come twice?
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
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "row_key.h"
#include "spool.h"
#include "unique.h"

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

	unique->context = context;
	unique->heap = heap;
	unique->index = index;
	return unique;
}

pg_noreturn static void
key_is_duplicated(PmhashBuildUnique *unique, Datum *values, bool *isnull)
{
	char	   *key = BuildIndexValueDescription(unique->index, values, isnull);

	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("could not create unique index \"%s\"",
					RelationGetRelationName(unique->index)),
			 key ? errdetail("Key %s is duplicated.", key) :
			 errdetail("Duplicate keys exist."),
			 errtableconstraint(unique->heap,
								RelationGetRelationName(unique->index))));
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

/* Leave only the rows in value[0 .. n) that count; returns how many. */
static size_t
leave_those_that_count(PmhashRow *row, uint64 *value, size_t n)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	size_t		left = 0;

	for (size_t i = 0; i < n; i++)
	{
		if (row_counts(row, value[i], values, isnull))
			value[left++] = value[i];
	}
	return left;
}

/* ERROR if two of the rows at value[0 .. n) have one key; others are rare. */
static void
compare_rows(PmhashBuildUnique *unique, PmhashRow *row, PmhashRow *other,
			 const uint64 *value, size_t n)
{
	Datum		a[INDEX_MAX_KEYS];
	Datum		b[INDEX_MAX_KEYS];
	bool		a_isnull[INDEX_MAX_KEYS];
	bool		b_isnull[INDEX_MAX_KEYS];

	for (size_t i = 0; i + 1 < n; i++)
	{
		if (!row_counts(row, value[i], a, a_isnull))
			continue;
		for (size_t j = i + 1; j < n; j++)
		{
			if (row_counts(other, value[j], b, b_isnull) &&
				pmhash_keys_equal(unique->index, a, b))
				key_is_duplicated(unique, a, a_isnull);
		}
	}
}

/* Look at the rows of one hash.  Overwrites value[]. */
static void
check_rows(PmhashBuildUnique *unique, uint64 *value, size_t n)
{
	PmhashRow	row;
	PmhashRow	other;

	pmhash_row_begin(&row, unique->heap, unique->index);
	n = leave_those_that_count(&row, value, n);
	if (n > 1)
	{
		pmhash_row_begin(&other, unique->heap, unique->index);
		compare_rows(unique, &row, &other, value, n);
		pmhash_row_end(&other);
	}
	pmhash_row_end(&row);
}

/* ---- a partition ---- */

/* Sort numbers; leave those that come more than once, each once. */
static size_t
leave_repeated(uint64 *number, size_t n)
{
	size_t		left = 0;

	pmhash_sort_numbers(number, n);
	for (size_t i = 1; i < n; i++)
	{
		if (number[i] == number[i - 1] &&
			(left == 0 || number[left - 1] != number[i]))
			number[left++] = number[i];
	}
	return left;
}

static int
compare_numbers(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return (x > y) - (x < y);
}

/* The entries whose hash is one of hash[0 .. nrepeated), in its order. */
static PmhEntry *
entries_of_hashes(const uint64 *hash, size_t nrepeated, const PmhEntry *entries,
				  size_t n, MemoryContext context, size_t *nfound)
{
	size_t		capacity = 2 * nrepeated;
	PmhEntry   *found = MemoryContextAllocHuge(context, capacity * sizeof(PmhEntry));

	*nfound = 0;
	for (size_t i = 0; i < n; i++)
	{
		if (bsearch(&entries[i].hash, hash, nrepeated, sizeof(uint64),
					compare_numbers) == NULL)
			continue;
		if (*nfound == capacity)
		{
			capacity *= 2;
			found = repalloc_huge(found, capacity * sizeof(PmhEntry));
		}
		found[(*nfound)++] = entries[i];
	}
	pmhash_sort_entries(found, *nfound);
	return found;
}

/* Check the rows of entries sorted by hash, those of each hash together. */
static void
check_sorted(PmhashBuildUnique *unique, const PmhEntry *entries, size_t n,
			 MemoryContext context)
{
	uint64	   *value = MemoryContextAllocHuge(context, n * sizeof(uint64));
	size_t		same = 0;

	for (size_t i = 0; i < n; i++)
	{
		value[same++] = entries[i].value;
		if (i + 1 == n || entries[i + 1].hash != entries[i].hash)
		{
			check_rows(unique, value, same);
			same = 0;
		}
	}
}

/*
 * Check the entries of all rows whose hashes are in one range, in any order.  ERROR
 * (23505) if two of the rows have one key.
 */
void
pmhash_build_unique_check(PmhashBuildUnique *unique, const PmhEntry *entries, size_t n)
{
	size_t		nrepeated;

	if (n > unique->capacity)
	{
		if (unique->hash != NULL)
			pfree(unique->hash);
		unique->capacity = 0;
		unique->hash = MemoryContextAllocHuge(unique->context, n * sizeof(uint64));
		unique->capacity = n;
	}
	for (size_t i = 0; i < n; i++)
		unique->hash[i] = entries[i].hash;
	nrepeated = leave_repeated(unique->hash, n);
	if (nrepeated > 0)
	{
		MemoryContext context = AllocSetContextCreate(unique->context,
													  "pmhash repeated hashes",
													  ALLOCSET_DEFAULT_SIZES);
		size_t		nfound;
		PmhEntry   *found = entries_of_hashes(unique->hash, nrepeated, entries, n,
											  context, &nfound);

		check_sorted(unique, found, nfound, context);
		MemoryContextDelete(context);
	}
}

/* ---- what does not fit in memory ---- */

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

/* The rows of a hash in the file. */
static void
check_hash(PmhashBuildUnique *unique, PmhashFile *file, uint64 hash)
{
	PmhValues	found = {0};
	PmhResult	result = pmh_lookup(file->table, hash, &found);
	size_t		n = found.n;
	uint64	   *value = NULL;

	if (result == PMH_OK && n >= 2)
		value = MemoryContextAllocExtended(unique->context, n * sizeof(uint64),
										   MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
	if (value != NULL)
		memcpy(value, found.value, n * sizeof(uint64));
	pmh_values_free(&found);
	if (result != PMH_OK)
		pmhash_engine_error(unique->index, file, result);
	if (n < 2)
		return;
	if (value == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	check_rows(unique, value, n);
	pfree(value);
}

/* Check what has been remembered; ERROR as pmhash_build_unique_check. */
void
pmhash_build_unique_check_remembered(PmhashBuildUnique *unique, PmhashFile *file)
{
	HASH_SEQ_STATUS sequence;
	uint64	   *hash;

	if (unique->remembered == NULL)
		return;
	hash_seq_init(&sequence, unique->remembered);
	while ((hash = hash_seq_search(&sequence)) != NULL)
		check_hash(unique, file, *hash);
}
