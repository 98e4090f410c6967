/*-------------------------------------------------------------------------
 *
 * wal_record.c
 *	  Encode and decode the WAL records of logged indexes.
 *
 * The carrier is RM_XLOG_ID / XLOG_NOOP, with our magic number in front of the data
 * (src/README, "Standbys").  Core writes no NOOP itself.  What reads records of RM_XLOG_ID,
 * in 15 to 18, and what it does with a NOOP:
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
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "access/xlogreader.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "cluster/base/tid_value.h"
#include "cluster/wal/wal_record.h"

#define MAGIC_AND_VERSION	(PMHASH_WAL_MAGIC | PMHASH_WAL_VERSION)
#define MAGIC_MASK			0xffffff00

/* The most that is before the entries: the head, and what FILE_NEW has. */
#define MAX_FIELDS_SIZE		(PMHASH_WAL_HEAD_SIZE + 3 * sizeof(Oid))

/* Guards: another layout, or another number, is another PMHASH_WAL_VERSION. */
StaticAssertDecl(PMHASH_WAL_HEAD_SIZE == sizeof(uint32) + 2 * sizeof(uint8) +
				 sizeof(uint16) + sizeof(uint64),
				 "the head is what move_fields moves first");
StaticAssertDecl(PMHASH_WAL_ENTRY_SIZE == sizeof(uint64) + sizeof(BlockNumber) +
				 sizeof(OffsetNumber),
				 "an entry is what move_entry moves");
StaticAssertDecl(PMHASH_WAL_INSERT == 1 && PMHASH_WAL_DELETE == 2 &&
				 PMHASH_WAL_FILE_NEW == 3 && PMHASH_WAL_FILE_GONE == 4 &&
				 PMHASH_WAL_SWEPT == 5 && PMHASH_WAL_DEAD == 6,
				 "the types of records have other numbers");

/* A value of ours goes to *at, or comes from there. */
static void
move(char **at, void *ours, Size size, bool writing)
{
	if (writing)
		memcpy(*at, ours, size);
	else
		memcpy(ours, *at, size);
	*at += size;
}

/*
 * All of a record but its entries or pieces, in the order in which it stands in WAL.  Returns where
 * these begin; NULL if this version knows no such type.
 */
static char *
move_fields(char *at, uint32 *magic, PmhashWalRecord *record, bool writing)
{
	move(&at, magic, sizeof(*magic), writing);
	move(&at, &record->type, sizeof(record->type), writing);
	move(&at, &record->flags, sizeof(record->flags), writing);
	move(&at, &record->count, sizeof(record->count), writing);
	move(&at, &record->file_id, sizeof(record->file_id), writing);
	switch ((PmhashWalType) record->type)
	{
		case PMHASH_WAL_INSERT:
		case PMHASH_WAL_SWEPT:
			return at;
		case PMHASH_WAL_DELETE:
			move(&at, &record->database, sizeof(record->database), writing);
			move(&at, &record->horizon, sizeof(record->horizon), writing);
			return at;
		case PMHASH_WAL_FILE_NEW:
			move(&at, &record->database, sizeof(record->database), writing);
			move(&at, &record->heap, sizeof(record->heap), writing);
			move(&at, &record->index, sizeof(record->index), writing);
			return at;
		case PMHASH_WAL_FILE_GONE:
		case PMHASH_WAL_DEAD:
			move(&at, &record->database, sizeof(record->database), writing);
			return at;
	}
	return NULL;
}

/* Block and offset stand as two numbers: ItemPointerData has its high half first. */
static void
move_entry(char **at, PmhEntry *entry, bool writing)
{
	BlockNumber block = pmhash_value_to_block(entry->value);
	OffsetNumber offset = pmhash_value_to_offset(entry->value);
	ItemPointerData tid;

	move(at, &entry->hash, sizeof(entry->hash), writing);
	move(at, &block, sizeof(block), writing);
	move(at, &offset, sizeof(offset), writing);
	ItemPointerSet(&tid, block, offset);
	entry->value = pmhash_tid_to_value(&tid);
}

/* Can a record of that type have so many entries, and these flags? */
static bool
is_possible(const PmhashWalRecord *record)
{
	bool		has_entries = record->type == PMHASH_WAL_INSERT ||
		record->type == PMHASH_WAL_DELETE;

	return (record->count > 0) == has_entries &&
		(record->size > 0) == (record->type == PMHASH_WAL_DEAD) &&
		record->count <= PMHASH_WAL_MAX_ENTRIES &&
		(record->flags & ~(record->type == PMHASH_WAL_DELETE ? PMHASH_WAL_CATALOG : 0)) == 0;
}

XLogRecPtr
pmhash_wal_log(const PmhashWalRecord *record, const PmhEntry *entries, Buffer page)
{
	char		bytes[MAX_FIELDS_SIZE + PMHASH_WAL_MAX_ENTRIES * PMHASH_WAL_ENTRY_SIZE];
	PmhashWalRecord copy = *record;
	uint32		magic = MAGIC_AND_VERSION;
	char	   *at = move_fields(bytes, &magic, &copy, true);

	Assert(at != NULL && is_possible(record));
	Assert(XLogInsertAllowed());
	Assert(!BufferIsValid(page) || CritSectionCount > 0);
	for (int i = 0; i < record->count; i++)
	{
		PmhEntry	entry = entries[i];

		Assert(pmhash_value_to_offset(entry.value) != InvalidOffsetNumber);
		move_entry(&at, &entry, true);
	}
	XLogBeginInsert();
	if (BufferIsValid(page))
		XLogRegisterBuffer(0, page, REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	XLogRegisterData(bytes, at - bytes);
	if (record->size > 0)
		XLogRegisterData((char *) unconstify(uint8 *, record->pieces), record->size);
	return XLogInsert(RM_XLOG_ID, BufferIsValid(page) ? XLOG_FPI : XLOG_NOOP);
}

static bool
is_xlog_record(const XLogReaderState *reader, uint8 kind)
{
	return XLogRecGetRmid(reader) == RM_XLOG_ID &&
		(XLogRecGetInfo(reader) & ~XLR_INFO_MASK) == kind;
}

bool
pmhash_wal_comes_with_page(XLogReaderState *reader)
{
	return is_xlog_record(reader, XLOG_FPI);
}

PmhashWalVerdict
pmhash_wal_decode(XLogReaderState *reader, PmhashWalRecord *record)
{
	const char *data = XLogRecGetData(reader);
	Size		length = XLogRecGetDataLen(reader);
	char		fields[MAX_FIELDS_SIZE] = {0};
	uint32		magic;
	char	   *end;

	if (!is_xlog_record(reader, XLOG_NOOP) && !pmhash_wal_comes_with_page(reader))
		return PMHASH_WAL_NOT_OURS;
	memset(record, 0, sizeof(*record));
	if (length > 0)
		memcpy(fields, data, Min(length, sizeof(fields)));
	end = move_fields(fields, &magic, record, false);
	if (length < sizeof(magic) || (magic & MAGIC_MASK) != PMHASH_WAL_MAGIC)
		return PMHASH_WAL_NOT_OURS;
	if (magic != MAGIC_AND_VERSION || end == NULL || length < (Size) (end - fields))
		return PMHASH_WAL_UNKNOWN;
	record->entries = data + (end - fields);
	length -= end - fields;
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
	char	   *at = unconstify(char *, record->entries) + i * PMHASH_WAL_ENTRY_SIZE;
	PmhEntry	entry = {0};

	Assert(i >= 0 && i < record->count);
	move_entry(&at, &entry, false);
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
