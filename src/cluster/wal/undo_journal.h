/*-------------------------------------------------------------------------
 *
 * undo_journal.h
 *	  The undo journal: its format, and what other files note in it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_UNDO_JOURNAL_H
#define PMHASH_UNDO_JOURNAL_H

#include "access/xlogdefs.h"

#include "cluster/base/control_file.h"
#include "engine/table.h"

#define PMHASH_JOURNAL_MAGIC	UINT64CONST(0x4c4e4a48534d50ff)
#define PMHASH_RECORD_BUSY		PG_UINT64_MAX

/* The first line of a journal file. */
typedef struct PmhashJournalHeader
{
	uint64		magic;
	uint64		instance;		/* whose journal it is */
	uint64		records;		/* that the file has room for; not all may be used */
	uint64		flushed;		/* end of a WAL record known to be flushed */
	uint64		reserved[4];
} PmhashJournalHeader;

/* One record: a cache line.  All zeroes: never used. */
typedef struct PmhashJournalRecord
{
	uint64		file_id;
	uint64		hash;
	uint64		value;
	uint64		lsn;			/* end of WAL the entry depends on */
	uint64		flushed;		/* end of a record known to be flushed, or 0 */
	uint64		instance;
	Oid			database;
	uint32		reserved[2];
	uint32		crc;			/* CRC-32C of all before; 0 while it is written */
} PmhashJournalRecord;

/*
 * Guards: another layout is another PMHASH_JOURNAL_MAGIC.  A record is a cache line,
 * and ends with its CRC.
 */
PMHASH_AT(PmhashJournalHeader, magic, 0);
PMHASH_AT(PmhashJournalHeader, instance, 8);
PMHASH_AT(PmhashJournalHeader, records, 16);
PMHASH_AT(PmhashJournalHeader, flushed, 24);
PMHASH_AT(PmhashJournalHeader, reserved, 32);
PMHASH_SIZE(PmhashJournalHeader, 64);

PMHASH_AT(PmhashJournalRecord, file_id, 0);
PMHASH_AT(PmhashJournalRecord, hash, 8);
PMHASH_AT(PmhashJournalRecord, value, 16);
PMHASH_AT(PmhashJournalRecord, lsn, 24);
PMHASH_AT(PmhashJournalRecord, flushed, 32);
PMHASH_AT(PmhashJournalRecord, instance, 40);
PMHASH_AT(PmhashJournalRecord, database, 48);
PMHASH_AT(PmhashJournalRecord, reserved, 52);
PMHASH_AT(PmhashJournalRecord, crc, 60);
PMHASH_SIZE(PmhashJournalRecord, 64);

extern XLogRecPtr pmhash_insert_end(void);
extern bool pmhash_journal_provide(char *reason);
extern void pmhash_journal_begin(uint64 instance, bool *pmem);
extern void pmhash_journal_map(void);
extern void pmhash_journal_note_flushed(XLogRecPtr lsn);
extern void pmhash_undo(PmhashControl *control);

#endif							/* PMHASH_UNDO_JOURNAL_H */
