/*-------------------------------------------------------------------------
 *
 * dead_tids.c
 *	  The TIDs of dead rows that VACUUM has found: a set, and records of it.
 *
 * VACUUM's callback searches a sorted array of dead TIDs (vacuum.c, vac_tid_reaped).  Called
 * in the order of hashes it misses the cache at every step of every search.  Here it is one
 * look at the block, which is all for most blocks if few rows are dead, and one at its bits.
 * The bits are what is logged, as they are.
 *
 * A record says what is to be removed by itself: a standby sweeps its file for each one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"

#include "cluster/base/control_file.h"
#include "cluster/wal/dead_tids.h"
#include "cluster/wal/wal_record.h"

/*
 * What a record has at most, about: those who write commit records wait for one that is being
 * written, and a standby's startup process needs as much memory, and 4 bytes for a block.
 */
#ifdef PMH_STOP_POINTS
#define RECORD_BYTES	1024
#else
#define RECORD_BYTES	(16 * 1024 * 1024)
#endif
#define RECORD_BLOCKS	(4 * 1024 * 1024)

/* Entries removed together: more than twice as many as a step of a sweep has. */
#define BATCH_ENTRIES	65536

StaticAssertDecl(MaxHeapTuplesPerPage / 8 < PG_UINT8_MAX,
				 "the length of a piece is a byte");

/* Does another record begin with that block? */
static bool
record_is_full(const PmhashDeadTids *set, BlockNumber block)
{
	int			start = set->records == NIL ? 0 : llast_int(set->records);
	BlockNumber first;

	if (set->records == NIL || set->made.len - start >= RECORD_BYTES)
		return true;
	memcpy(&first, set->made.data + start + 1, sizeof(first));
	return block - first >= RECORD_BLOCKS;
}

/* Add one.  They come in ascending order. */
void
pmhash_dead_tids_add(PmhashDeadTids *set, BlockNumber block, OffsetNumber offset)
{
	bool		full;
	int			piece;

	if (block >= set->nblocks || offset > MaxHeapTuplesPerPage)
		elog(ERROR, "TID (%u,%u) is dead for VACUUM, but was not in the table",
			 block, offset);
	if (set->at[block] == 0)
	{
		Assert(set->records == NIL || block > set->last);
		full = record_is_full(set, block);
		if (full)
			set->records = lappend_int(set->records, set->made.len);
		if (full || block != set->last + 1)
		{
			appendStringInfoChar(&set->made, 0);
			appendBinaryStringInfo(&set->made, (char *) &block, sizeof(block));
		}
		set->at[block] = set->made.len;
		set->last = block;
		appendStringInfoChar(&set->made, 0);
	}
	piece = set->at[block];
	while (set->made.len - piece <= 1 + offset / 8)
	{
		set->made.data[piece]++;
		appendStringInfoChar(&set->made, 0);
	}
	set->made.data[piece + 1 + offset / 8] |= 1 << (offset % 8);
	set->pieces = (uint8 *) set->made.data;
	set->ndead++;
}

/* The set that a record has.  False with a reason. */
static bool
read_set(PmhashDeadTids *set, const uint8 *pieces, uint32 size, char *reason)
{
	BlockNumber block = InvalidBlockNumber;
	uint32		at = 0;
	uint32		piece;

	memset(set, 0, sizeof(*set));
	set->pieces = pieces;
	while ((piece = pmhash_wal_piece(pieces, size, &at, &block)) != 0)
	{
		if (set->nblocks == 0)
			set->first = block;
		if (block - set->first < set->nblocks || block - set->first >= RECORD_BLOCKS)
			break;
		set->nblocks = block - set->first + 1;
	}
	if (piece != 0 || at != size)
		return pmhash_fail(reason, "a record of dead rows can't be read");
	set->at = palloc_extended(set->nblocks * sizeof(*set->at),
							  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);
	if (set->at == NULL)
		return pmhash_fail(reason, "there is no memory for a record of dead rows");
	at = 0;
	while ((piece = pmhash_wal_piece(pieces, size, &at, &block)) != 0)
		set->at[block - set->first] = piece;
	return true;
}

/*
 * On a standby: take all entries of the rows that a record has out of a table, and find out
 * what is free, if that is not known.  pause is called between the steps, and may raise an ERROR
 * or exit.  False with a reason.
 */
bool
pmhash_remove_dead(PmhTable *table, const uint8 *pieces, uint32 size,
				   void (*pause) (void), char *reason)
{
	static PmhEntry batch[BATCH_ENTRIES];
	PmhashDeadTids set;
	PmhSweep	sweep;
	PmhResult	result;
	PmhResult	deleted = PMH_OK;
	size_t		n = 0;
	size_t		removed;

	if (!read_set(&set, pieces, size, reason))
		return false;
	result = pmh_sweep_begin(table, &sweep);
	while (result == PMH_OK)
	{
		result = pmh_sweep_next(table, &sweep);
		for (size_t i = 0; i < sweep.n; i++)
		{
			if (pmhash_is_dead(&set, sweep.entries[i].value))
				batch[n++] = sweep.entries[i];
			Assert(n < BATCH_ENTRIES);
		}

		/* Not each buffer of a list at once: it is walked through for that. */
		if (n > 0 && (batch[0].hash != batch[n - 1].hash || n > BATCH_ENTRIES / 2 ||
					  result != PMH_OK))
		{
			deleted = pmh_delete_group(table, batch, n, &removed);
			if (deleted != PMH_OK)
				result = deleted;
			n = 0;
		}
		pause();
	}
	pmh_sweep_end(&sweep);
	pfree(set.at);
	return result == PMH_DONE ||
		pmhash_fail(reason, "could not use the file: %s", pmh_error(table)->detail);
}
