/*-------------------------------------------------------------------------
 *
 * wal_record.c
 *	  Encode and decode the WAL records of logged indexes.
 *
 * The carrier is RM_XLOG_ID / XLOG_NOOP, with our magic number in front of the
 * data.  A server without this library does not start on records of a custom
 * resource manager ("resource manager with ID ... not registered"), but replays
 * NOOPs by doing nothing: a lost backup or standby would be worse than a missing
 * index.  Core writes no NOOP itself.  What reads records of RM_XLOG_ID, in 15 to
 * 18, and what it does with a NOOP:
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
 * RmgrTable const, another carrier takes a change of write_record(), of
 * pmhash_wal_log_file_gone_with() and of the places that call pmhash_wal_decode().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xloginsert.h"
#include "access/xlogreader.h"
#include "catalog/pg_control.h"

#include "cluster/wal/wal_record.h"

#define MAGIC_AND_VERSION	(PMHASH_WAL_MAGIC | PMHASH_WAL_VERSION)
#define MAGIC_MASK			0xffffff00

/* bytes after the head and before the entries */
#define DELETE_SIZE			8
#define FILE_NEW_SIZE		12
#define FILE_GONE_SIZE		4

/* Guards: another layout, or another number, is another PMHASH_WAL_VERSION. */
StaticAssertDecl(PMHASH_WAL_HEAD_SIZE == sizeof(uint32) + 2 * sizeof(uint8) +
				 sizeof(uint16) + sizeof(uint64),
				 "the head is what put_head puts");
StaticAssertDecl(PMHASH_WAL_ENTRY_SIZE == sizeof(uint64) + sizeof(BlockNumber) +
				 sizeof(OffsetNumber),
				 "an entry is what put_entry puts");
StaticAssertDecl(DELETE_SIZE == sizeof(Oid) + sizeof(TransactionId),
				 "DELETE has database and horizon");
StaticAssertDecl(FILE_NEW_SIZE == 3 * sizeof(Oid),
				 "FILE_NEW has database, table and index");
StaticAssertDecl(FILE_GONE_SIZE == sizeof(Oid), "FILE_GONE has a database");
StaticAssertDecl(PMHASH_WAL_INSERT == 1 && PMHASH_WAL_DELETE == 2 &&
				 PMHASH_WAL_FILE_NEW == 3 && PMHASH_WAL_FILE_GONE == 4 &&
				 PMHASH_WAL_SWEPT == 5,
				 "the types of records have other numbers");

#define MAX_RECORD_SIZE \
	(PMHASH_WAL_HEAD_SIZE + DELETE_SIZE + \
	 PMHASH_WAL_MAX_ENTRIES * PMHASH_WAL_ENTRY_SIZE)

/* A record being put together. */
typedef struct Writer
{
	int			size;
	char		bytes[MAX_RECORD_SIZE];
} Writer;

static void
put(Writer *writer, const void *bytes, int size)
{
	memcpy(writer->bytes + writer->size, bytes, size);
	writer->size += size;
}

static void
put_head(Writer *writer, PmhashWalType type, uint8 flags, int count,
		 uint64 file_id)
{
	uint32		magic = MAGIC_AND_VERSION;
	uint8		type_byte = (uint8) type;
	uint16		n = (uint16) count;

	writer->size = 0;
	put(writer, &magic, sizeof(magic));
	put(writer, &type_byte, sizeof(type_byte));
	put(writer, &flags, sizeof(flags));
	put(writer, &n, sizeof(n));
	put(writer, &file_id, sizeof(file_id));
}

/* Block and offset stand as two numbers: ItemPointerData has its high half first. */
static void
put_entry(Writer *writer, uint64 hash, const ItemPointerData *tid)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);
	OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(tid);

	put(writer, &hash, sizeof(hash));
	put(writer, &block, sizeof(block));
	put(writer, &offset, sizeof(offset));
}

/* The record as it is goes to WAL.  Returns its end. */
static XLogRecPtr
write_record(Writer *writer)
{
	XLogBeginInsert();
	XLogRegisterData(writer->bytes, writer->size);
	return XLogInsert(RM_XLOG_ID, XLOG_NOOP);
}

XLogRecPtr
pmhash_wal_log_inserts(uint64 file_id, int count, const uint64 *hashes,
					   const ItemPointerData *tids)
{
	XLogRecPtr	end = InvalidXLogRecPtr;
	Writer		writer;
	int			n;

	for (int i = 0; i < count; i += n)
	{
		n = Min(count - i, PMHASH_WAL_MAX_ENTRIES);
		put_head(&writer, PMHASH_WAL_INSERT, 0, n, file_id);
		for (int j = i; j < i + n; j++)
			put_entry(&writer, hashes[j], &tids[j]);
		end = write_record(&writer);
	}
	return end;
}

XLogRecPtr
pmhash_wal_log_deletes(uint64 file_id, Oid database, TransactionId horizon,
					   uint8 flags, int count, const uint64 *hashes,
					   const ItemPointerData *tids)
{
	XLogRecPtr	end = InvalidXLogRecPtr;
	Writer		writer;
	int			n;

	for (int i = 0; i < count; i += n)
	{
		n = Min(count - i, PMHASH_WAL_MAX_ENTRIES);
		put_head(&writer, PMHASH_WAL_DELETE, flags, n, file_id);
		put(&writer, &database, sizeof(database));
		put(&writer, &horizon, sizeof(horizon));
		for (int j = i; j < i + n; j++)
			put_entry(&writer, hashes[j], &tids[j]);
		end = write_record(&writer);
	}
	return end;
}

XLogRecPtr
pmhash_wal_log_file_new(uint64 file_id, Oid database, Oid heap, Oid index)
{
	Writer		writer;

	put_head(&writer, PMHASH_WAL_FILE_NEW, 0, 0, file_id);
	put(&writer, &database, sizeof(database));
	put(&writer, &heap, sizeof(heap));
	put(&writer, &index, sizeof(index));
	return write_record(&writer);
}

static void
put_file_gone(Writer *writer, uint64 file_id, Oid database)
{
	put_head(writer, PMHASH_WAL_FILE_GONE, 0, 0, file_id);
	put(writer, &database, sizeof(database));
}

XLogRecPtr
pmhash_wal_log_file_gone(uint64 file_id, Oid database)
{
	Writer		writer;

	put_file_gone(&writer, file_id, database);
	return write_record(&writer);
}

XLogRecPtr
pmhash_wal_log_file_gone_with(uint64 file_id, Oid database, Buffer page)
{
	Writer		writer;

	put_file_gone(&writer, file_id, database);
	XLogBeginInsert();
	XLogRegisterBuffer(0, page, REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	XLogRegisterData(writer.bytes, writer.size);
	return XLogInsert(RM_XLOG_ID, XLOG_FPI);
}

XLogRecPtr
pmhash_wal_log_swept(uint64 file_id)
{
	Writer		writer;

	put_head(&writer, PMHASH_WAL_SWEPT, 0, 0, file_id);
	return write_record(&writer);
}

/* Takes 'size' bytes from *from, of which the caller knows that they are there. */
static void
take(const char **from, void *bytes, int size)
{
	memcpy(bytes, *from, size);
	*from += size;
}

/* The length that a record of this type and count has, or 0 if there is none. */
static Size
length_of(uint8 type, uint16 count)
{
	bool		has_entries = count >= 1 && count <= PMHASH_WAL_MAX_ENTRIES;
	Size		entries = (Size) count * PMHASH_WAL_ENTRY_SIZE;

	switch ((PmhashWalType) type)
	{
		case PMHASH_WAL_INSERT:
			return has_entries ? PMHASH_WAL_HEAD_SIZE + entries : 0;
		case PMHASH_WAL_DELETE:
			return has_entries ? PMHASH_WAL_HEAD_SIZE + DELETE_SIZE + entries : 0;
		case PMHASH_WAL_FILE_NEW:
			return count == 0 ? PMHASH_WAL_HEAD_SIZE + FILE_NEW_SIZE : 0;
		case PMHASH_WAL_FILE_GONE:
			return count == 0 ? PMHASH_WAL_HEAD_SIZE + FILE_GONE_SIZE : 0;
		case PMHASH_WAL_SWEPT:
			return count == 0 ? PMHASH_WAL_HEAD_SIZE : 0;
	}
	return 0;					/* of a later version */
}

/* What stands between the head and the entries. */
static void
take_body(const char *from, PmhashWalRecord *record)
{
	switch (record->type)
	{
		case PMHASH_WAL_DELETE:
			take(&from, &record->database, sizeof(record->database));
			take(&from, &record->horizon, sizeof(record->horizon));
			break;
		case PMHASH_WAL_FILE_NEW:
			take(&from, &record->database, sizeof(record->database));
			take(&from, &record->heap, sizeof(record->heap));
			take(&from, &record->index, sizeof(record->index));
			break;
		case PMHASH_WAL_FILE_GONE:
			take(&from, &record->database, sizeof(record->database));
			break;
		case PMHASH_WAL_INSERT:
		case PMHASH_WAL_SWEPT:
			break;
	}
	if (record->count > 0)
		record->entries = from;
}

/* Decode the data of a record, of 'length' bytes. */
static PmhashWalVerdict
decode(const char *data, Size length, PmhashWalRecord *record)
{
	const char *from = data;
	uint32		magic;
	uint8		type;

	memset(record, 0, sizeof(*record));
	if (length < sizeof(magic))
		return PMHASH_WAL_NOT_OURS;
	take(&from, &magic, sizeof(magic));
	if ((magic & MAGIC_MASK) != PMHASH_WAL_MAGIC)
		return PMHASH_WAL_NOT_OURS;
	if (magic != MAGIC_AND_VERSION || length < PMHASH_WAL_HEAD_SIZE)
		return PMHASH_WAL_UNKNOWN;

	take(&from, &type, sizeof(type));
	take(&from, &record->flags, sizeof(record->flags));
	take(&from, &record->count, sizeof(record->count));
	take(&from, &record->file_id, sizeof(record->file_id));
	if (length != length_of(type, record->count))
		return PMHASH_WAL_UNKNOWN;
	if ((record->flags & ~(type == PMHASH_WAL_DELETE ? PMHASH_WAL_CATALOG : 0)) != 0)
		return PMHASH_WAL_UNKNOWN;
	record->type = (PmhashWalType) type;
	take_body(from, record);
	return PMHASH_WAL_OURS;
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
	if (!is_xlog_record(reader, XLOG_NOOP) && !pmhash_wal_comes_with_page(reader))
		return PMHASH_WAL_NOT_OURS;
	return decode(XLogRecGetData(reader), XLogRecGetDataLen(reader), record);
}

void
pmhash_wal_entry(const PmhashWalRecord *record, int i, uint64 *hash,
				 ItemPointer tid)
{
	const char *from = record->entries + (Size) i * PMHASH_WAL_ENTRY_SIZE;
	BlockNumber block;
	OffsetNumber offset;

	take(&from, hash, sizeof(*hash));
	take(&from, &block, sizeof(block));
	take(&from, &offset, sizeof(offset));
	ItemPointerSet(tid, block, offset);
}
