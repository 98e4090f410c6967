/*-------------------------------------------------------------------------
 *
 * wal_record.c
 *	  Encode and decode the WAL records of logged indexes.
 *
 * The carrier is RM_XLOG_ID / XLOG_NOOP, with our magic number in front of the data
 * (src/README, "Standbys").  Core writes no NOOP itself.  What reads records of RM_XLOG_ID,
 * in 15 to 19, and what it does with a NOOP:
 *
 *	xlog_redo (xlog.c), xlogrecovery_redo and its neighbours (xlogrecovery.c),
 *	xlog_decode (decode.c), extractPageInfo of pg_rewind, the prefetcher
 *	(xlogprefetcher.c), the reader (xlogreader.c: XLOG_SWITCH only), and since 17
 *	SummarizeXlogRecord and the reader of CHECKPOINT_REDO in the summarizer: nothing.
 *	xlog_desc names it, and says nothing of its data.
 *
 * What is to be one record with the change of a stub's page has XLOG_FPI for its carrier,
 * with the image of that page, and our data besides: xlog_redo puts back the image, all
 * others do what they do with any image of a page, and none looks at the data.  Core
 * itself writes none there (log_newpage and its like, xloginsert.c).
 *
 * Only the functions here know the carriers and the layout: should core ever make
 * RmgrTable const, another carrier takes a change of pmhash_wal_log() and of the places
 * that call pmhash_wal_decode().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "access/xlogreader.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "cluster/base/control_file.h"
#include "cluster/base/tid_value.h"
#include "cluster/wal/wal_record.h"

#define MAGIC_AND_VERSION	(PMHASH_WAL_MAGIC | PMHASH_WAL_VERSION)
#define MAGIC_MASK			0xffffff00

/* Guards: another layout, or another number, is another PMHASH_WAL_VERSION. */
PMHASH_AT(PmhashWalRecord, magic, 0);
PMHASH_AT(PmhashWalRecord, type, 4);
PMHASH_AT(PmhashWalRecord, unused, 5);
PMHASH_AT(PmhashWalRecord, count, 6);
PMHASH_AT(PmhashWalRecord, file_id, 8);
PMHASH_AT(PmhashWalRecord, database, 16);
PMHASH_AT(PmhashWalRecord, horizon, 20);
PMHASH_AT(PmhashWalRecord, entries, 24);
StaticAssertDecl(PMHASH_WAL_ENTRY_SIZE == sizeof(uint64) + sizeof(BlockNumber) +
				 sizeof(OffsetNumber),
				 "an entry is its hash, block and offset");
StaticAssertDecl(PMHASH_WAL_INSERT == 1 && PMHASH_WAL_DELETE == 2 &&
				 PMHASH_WAL_FILE_NEW == 3 && PMHASH_WAL_FILE_GONE == 4 &&
				 PMHASH_WAL_SWEPT == 5 && PMHASH_WAL_DEAD == 6,
				 "the types of records have other numbers");

#define LARGEST_HEAD	offsetof(PmhashWalRecord, entries)

/* How much is before the entries. */
static Size
head_size(const PmhashWalRecord *record)
{
	return record->type == PMHASH_WAL_INSERT ? offsetof(PmhashWalRecord, database) :
		LARGEST_HEAD;
}

/* Is there that type, and can such a record have so many entries? */
static bool
is_possible(const PmhashWalRecord *record)
{
	bool		has_entries = record->type == PMHASH_WAL_INSERT ||
		record->type == PMHASH_WAL_DELETE;

	return record->type >= PMHASH_WAL_INSERT && record->type <= PMHASH_WAL_DEAD &&
		(record->count > 0) == has_entries &&
		(record->size > 0) == (record->type == PMHASH_WAL_DEAD) &&
		record->count <= PMHASH_WAL_MAX_ENTRIES;
}

XLogRecPtr
pmhash_wal_log(const PmhashWalRecord *record, const PmhEntry *entries, Buffer page)
{
	char		bytes[LARGEST_HEAD + PMHASH_WAL_MAX_ENTRIES * PMHASH_WAL_ENTRY_SIZE];
	uint32		magic = MAGIC_AND_VERSION;
	char	   *at = bytes + head_size(record);

	Assert(is_possible(record));
	Assert(XLogInsertAllowed());
	Assert(!BufferIsValid(page) || CritSectionCount > 0);
	memcpy(bytes, record, head_size(record));
	memcpy(bytes, &magic, sizeof(magic));
	for (int i = 0; i < record->count; i++, at += PMHASH_WAL_ENTRY_SIZE)
	{
		/* as two numbers: ItemPointerData has the block's high half first */
		BlockNumber block = pmhash_value_to_block(entries[i].value);
		OffsetNumber offset = pmhash_value_to_offset(entries[i].value);

		Assert(offset != InvalidOffsetNumber);
		memcpy(at, &entries[i].hash, sizeof(uint64));
		memcpy(at + sizeof(uint64), &block, sizeof(block));
		memcpy(at + sizeof(uint64) + sizeof(block), &offset, sizeof(offset));
	}
	XLogBeginInsert();
	if (BufferIsValid(page))
		XLogRegisterBuffer(0, page, REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	XLogRegisterData(bytes, at - bytes);
	if (record->size > 0)
		XLogRegisterData((char *) unconstify(uint8 *, record->pieces), record->size);
	return XLogInsert(RM_XLOG_ID, BufferIsValid(page) ? XLOG_FPI : XLOG_NOOP);
}

/* Write a record that says no more than its type of a file of this database.  Returns its end. */
XLogRecPtr
pmhash_log_event(PmhashWalType type, uint64 file_id)
{
	Assert(!RecoveryInProgress() && file_id != 0);
	return pmhash_wal_log(&(PmhashWalRecord) {
		.type = type, .file_id = file_id, .database = MyDatabaseId
	}, NULL, InvalidBuffer);
}

/* ---- FILE_NEW ---- */

/*
 * It is no more than a call to look: what is to be built stands in stubs.  It is logged when
 * the transaction that has made a file has committed, so that a standby that replays it can
 * see the index.  If it has been prepared, or the record is lost in a crash, the index is
 * found at the next visit of the standby's launcher (launcher.c, want_visits).
 */

/* The last file that this transaction has made, and standbys are to have; or 0. */
static uint64 new_file = 0;

/* A file is there, and the stub names it: standbys are to look when that is committed. */
void
pmhash_announce_file(uint64 file_id)
{
	Assert(IsTransactionState() && !RecoveryInProgress() && file_id != 0);
	new_file = file_id;
}

/* The transaction has ended; made: it has been committed, or prepared.  Raises no error. */
void
pmhash_log_new_files(bool made)
{
	XLogRecPtr	last = XactLastRecEnd;

	if (made && new_file != 0)
	{
		XLogSetAsyncXactLSN(pmhash_log_event(PMHASH_WAL_FILE_NEW, new_file));

		/* The next transaction's entries do not depend on that (undo_journal.c). */
		XactLastRecEnd = last;
	}
	new_file = 0;
}

/* ---- reading ---- */

bool
pmhash_wal_comes_with_page(XLogReaderState *reader)
{
	return (XLogRecGetInfo(reader) & ~XLR_INFO_MASK) == XLOG_FPI;
}

PmhashWalVerdict
pmhash_wal_decode(XLogReaderState *reader, PmhashWalRecord *record)
{
	const char *data = XLogRecGetData(reader);
	Size		length = XLogRecGetDataLen(reader);
	Size		head;

	memset(record, 0, sizeof(*record));
	if (XLogRecGetRmid(reader) != RM_XLOG_ID || length < sizeof(record->magic) ||
		((XLogRecGetInfo(reader) & ~XLR_INFO_MASK) != XLOG_NOOP &&
		 !pmhash_wal_comes_with_page(reader)))
		return PMHASH_WAL_NOT_OURS;
	memcpy(record, data, Min(length, offsetof(PmhashWalRecord, database)));
	head = head_size(record);
	if ((record->magic & MAGIC_MASK) != PMHASH_WAL_MAGIC)
		return PMHASH_WAL_NOT_OURS;
	if (record->magic != MAGIC_AND_VERSION || length < head)
		return PMHASH_WAL_UNKNOWN;
	memcpy(record, data, head);
	record->entries = data + head;
	length -= head;
	if (record->type == PMHASH_WAL_DEAD)
	{
		record->pieces = (const uint8 *) record->entries;
		record->size = length;
	}
	else if (length != record->count * PMHASH_WAL_ENTRY_SIZE)
		return PMHASH_WAL_UNKNOWN;
	return is_possible(record) ? PMHASH_WAL_OURS : PMHASH_WAL_UNKNOWN;
}

PmhEntry
pmhash_wal_entry(const PmhashWalRecord *record, int i)
{
	const char *at = record->entries + i * PMHASH_WAL_ENTRY_SIZE;
	PmhEntry	entry;
	BlockNumber block;
	OffsetNumber offset;
	ItemPointerData tid;

	Assert(i >= 0 && i < record->count);
	memcpy(&entry.hash, at, sizeof(entry.hash));
	memcpy(&block, at + sizeof(entry.hash), sizeof(block));
	memcpy(&offset, at + sizeof(entry.hash) + sizeof(block), sizeof(offset));
	ItemPointerSet(&tid, block, offset);
	entry.value = pmhash_tid_to_value(&tid);
	return entry;
}

uint32
pmhash_wal_piece(const uint8 *pieces, uint32 size, uint32 *at, BlockNumber *block)
{
	uint32		piece = *at;

	if (size - piece > sizeof(*block) && pieces[piece] == 0)
	{
		memcpy(block, pieces + piece + 1, sizeof(*block));
		piece += 1 + sizeof(*block);
	}
	else
		(*block)++;
	if (piece == 0 || piece >= size || pieces[piece] == 0 || pieces[piece] >= size - piece)
		return 0;
	*at = piece + 1 + pieces[piece];
	return piece;
}
