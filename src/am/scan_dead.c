/*-------------------------------------------------------------------------
 *
 * scan_dead.c
 *	  Entries whose rows the executor has found dead to all transactions.
 *
 * A scan collects them and hands them over many at a time (cluster's
 * pmhash_dead_entries), by which they are removed, unless their TIDs may have
 * been given to other rows since they were read: the removal epoch says so.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

#include "scan.h"

/* Room at first, in entries. */
#define FIRST_CAPACITY	64

StaticAssertDecl(FIRST_CAPACITY <= PMHASH_DEAD_MAX, "room is never beyond the most");

/* Have the entries collected so far removed from the file of an index. */
void
pmhash_hand_over_dead(PmhashScanDead *dead, Relation index, PmhashFile *file)
{
	int			ready = dead->nready;
	int			others = dead->n - ready;

	dead->n = dead->nready = 0;
	if (ready > 0)
		pmhash_dead_entries(index, file, dead->epoch, dead->flushed, dead->entry, ready);
	if (others > 0)
		pmhash_dead_entries(index, file, dead->epoch, dead->lsn, dead->entry + ready,
							others);
}

/* The same for a scan. */
void
pmhash_scan_hand_over_dead(IndexScanDesc scan, PmhashScan *so)
{
	pmhash_hand_over_dead(&so->dead, scan->indexRelation, so->file);
}

/*
 * The LSN of the heap page on which the current element's tuple has just been
 * judged, or InvalidXLogRecPtr if that is not at hand.  It is read with the page
 * locked: a process that changes it stores it in two halves.
 */
static XLogRecPtr
judged_page_lsn(IndexScanDesc scan, PmhashScan *so)
{
	Buffer		buffer = pmhash_visited_heap_page(scan);
	XLogRecPtr	lsn;

	if (!BufferIsValid(buffer) ||
		BufferGetBlockNumber(buffer) != pmhash_value_to_block(pmhash_scan_value(so)))
		return InvalidXLogRecPtr;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	lsn = BufferGetLSNAtomic(buffer);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return lsn;
}

/* Make room for another dead entry, up to PMHASH_DEAD_MAX. */
static void
reserve_dead(PmhashScanDead *dead, MemoryContext context)
{
	if (dead->n < dead->capacity)
		return;
	dead->capacity = Min(Max(dead->capacity * 2, FIRST_CAPACITY), PMHASH_DEAD_MAX);
	if (dead->entry == NULL)
		dead->entry = MemoryContextAlloc(context, dead->capacity * sizeof(PmhEntry));
	else
		dead->entry = repalloc(dead->entry, dead->capacity * sizeof(PmhEntry));
}

/* Add a dead entry whose heap page has this LSN; InvalidXLogRecPtr: unknown. */
static void
add_dead(PmhashScanDead *dead, PmhEntry entry, XLogRecPtr lsn)
{
	bool		unknown = lsn == InvalidXLogRecPtr;

	if (dead->n == 0)
		dead->flushed = GetFlushRecPtr(NULL);
	if (!unknown && lsn <= dead->flushed)
	{
		dead->entry[dead->n++] = dead->entry[dead->nready];
		dead->entry[dead->nready++] = entry;
		return;
	}
	if (dead->n == dead->nready)	/* the first of these */
		dead->lsn = lsn;
	else if (unknown || dead->lsn == InvalidXLogRecPtr)
		dead->lsn = InvalidXLogRecPtr;
	else
		dead->lsn = Max(dead->lsn, lsn);
	dead->entry[dead->n++] = entry;
}

/*
 * pmhash_note_dead
 *		An entry's tuple is dead to all: collect such entries until there are
 *		enough or the epoch changes.
 *
 * epoch: the removal epoch from before the entry was read.  lsn: of its heap page,
 * read under a lock, past the judgement; InvalidXLogRecPtr if not known.  context:
 * where memory is taken from.
 */
void
pmhash_note_dead(PmhashScanDead *dead, MemoryContext context, Relation index,
				 PmhashFile *file, uint64 epoch, PmhEntry entry, XLogRecPtr lsn)
{
	if (dead->enough)
		return;
	if (dead->n > 0 && dead->epoch != epoch)
		pmhash_hand_over_dead(dead, index, file);
	reserve_dead(dead, context);
	dead->epoch = epoch;
	add_dead(dead, entry, lsn);
	if (dead->n == PMHASH_DEAD_MAX)
	{
		pmhash_hand_over_dead(dead, index, file);
		dead->enough = true;
	}
}

/* The current element's tuple is dead to all. */
void
pmhash_scan_note_dead(IndexScanDesc scan, PmhashScan *so)
{
	PmhEntry	entry;

	if (so->batch_hashes == NULL || so->dead.enough)
		return;
	entry.hash = pmhash_scan_hash(so);
	entry.value = pmhash_scan_value(so);
	pmhash_note_dead(&so->dead, so->context, scan->indexRelation, so->file, so->epoch,
					 entry, judged_page_lsn(scan, so));
}

/* pmhash_drop_known_dead, as a cursor calls it. */
static size_t
drop_known_dead(const void *file, uint64_t *value, size_t n)
{
	return pmhash_drop_known_dead(file, value, n);
}

/*
 * pmhash_leave_out_dead
 *		Have the next step of a cursor leave out the values whose rows are known to be
 *		dead to all, if that is wanted.
 */
void
pmhash_leave_out_dead(PmhCursor *cursor, PmhashFile *file, bool wanted)
{
	cursor->leave_out = NULL;
	if (!wanted || !pmhash_any_known_dead(file))
		return;
	cursor->leave_out = drop_known_dead;
	cursor->leave_out_argument = file;
}

/*
 * pmhash_scan_known_dead
 *		Is the row of the current element known to be dead to all?  It is to be
 *		passed over then, as if it had been visited.
 */
bool
pmhash_scan_known_dead(IndexScanDesc scan, PmhashScan *so)
{
	return unlikely(so->any_known_dead) &&
		pmhash_known_dead(so->file, pmhash_scan_value(so));
}
