/*-------------------------------------------------------------------------
 *
 * wal_record.h
 *	  What logged indexes write to WAL, and how it is read back.
 *
 * Include postgres.h first.  src/README, "Standbys", has the rules for what writes
 * which record when.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_WAL_RECORD_H
#define PMHASH_WAL_RECORD_H

#include "access/xlogdefs.h"
#include "access/xlogreader.h"
#include "storage/block.h"
#include "storage/buf.h"

#include "engine/table.h"

/*
 * The data of a record, without any alignment and in the server's own byte
 * order, as all WAL:
 *
 *	magic and version	4 bytes
 *	type				1		PmhashWalType
 *	not used			1		0
 *	n					2		number of entries
 *	file_id				8
 *	database			4		not of INSERT
 *	horizon				4		not of INSERT; 0 but for DELETE
 *	then of INSERT and DELETE n times {hash 8, block 4, offset 2}; of DEAD pieces: {length 1,
 *	so many bytes}, a bit for each offset, is a block that has dead rows; {0, block 4} before
 *	it, if it is the first one, or does not follow the last one
 *
 * With the 24 bytes of a record's header, the 2 of a short data header and this
 * head of 16, an entry alone takes 56 bytes of WAL; one of many takes 14.
 */
#define PMHASH_WAL_MAGIC		0x484d5000	/* the last byte is the version */
#ifndef PMHASH_WAL_VERSION		/* test/t/standby/standby_bad_cases: a primary of another version */
#define PMHASH_WAL_VERSION		4
#endif

#define PMHASH_WAL_ENTRY_SIZE	14
#define PMHASH_WAL_MAX_ENTRIES	256 /* of one record */

/* The types stand in WAL: never renumber. */
typedef enum PmhashWalType
{
	PMHASH_WAL_INSERT = 1,		/* entries are in the file */
	PMHASH_WAL_DELETE,			/* entries are about to be removed from it */
	PMHASH_WAL_FILE_NEW,		/* a committed transaction has made files, of which this
								 * is one: look what is to be built */
	PMHASH_WAL_FILE_GONE,		/* dropped, replaced, or invalid; id 0, with a page: the
								 * one that this named before, which is not known */
	PMHASH_WAL_SWEPT,			/* a bulk delete is over */
	PMHASH_WAL_DEAD				/* all entries of these rows are about to be removed */
} PmhashWalType;

/* A record.  What its type does not have is zero. */
typedef struct PmhashWalRecord
{
	/* as it stands in WAL, one behind the other */
	uint32		magic;			/* and version: pmhash_wal_log's */
	uint8		type;			/* PmhashWalType */
	uint8		unused;
	uint16		count;			/* entries; 1 to 256 for INSERT and DELETE */
	uint64		file_id;
	Oid			database;
	TransactionId horizon;		/* DELETE: conflicts with snapshots up to it, if
								 * valid */

	/* what follows there */
	const char *entries;		/* if decoded: in the data; pmhash_wal_entry */
	const uint8 *pieces;		/* DEAD: what pmhash_wal_piece reads */
	uint32		size;			/* of them */
} PmhashWalRecord;

/* Whose record is it? */
typedef enum PmhashWalVerdict
{
	PMHASH_WAL_OURS,			/* decoded */
	PMHASH_WAL_NOT_OURS,		/* not our magic number */
	PMHASH_WAL_UNKNOWN			/* ours, but of another version or type, or of a
								 * length that can't be */
} PmhashWalVerdict;

/*
 * Decode the record that was read last into *record, whose entries then point into the
 * reader's memory.  Raises no error, takes no lock, allocates nothing.
 */
extern PmhashWalVerdict pmhash_wal_decode(XLogReaderState *reader,
										  PmhashWalRecord *record);

/* Of RM_XLOG_ID: is it one whose page comes before what it says to us? */
extern bool pmhash_wal_comes_with_page(XLogReaderState *reader);

/* Entry i of a decoded record. */
extern PmhEntry pmhash_wal_entry(const PmhashWalRecord *record, int i);

/*
 * The piece of a block in pieces[0 .. size), at *at, which moves behind it; *block, that of
 * the piece before, becomes its block.  Returns where its length stands, which is never 0.
 * 0: there is none, or (*at is not size) it can't be read.
 */
extern uint32 pmhash_wal_piece(const uint8 *pieces, uint32 size, uint32 *at,
							   BlockNumber *block);

/*
 * Write a record with entries[0 .. record->count); returns its end, up to which nothing is
 * flushed.  In a backend that may write WAL.  What can fail while a record is written is a
 * PANIC, as for any WAL; before it is begun, an ERROR for want of memory can be raised
 * nowhere (XLogBeginInsert and XLogRegisterData use arrays that the backend has allocated
 * when it started).
 *
 * page, or InvalidBuffer: in one record with that page, as it is in the buffer: changed,
 * dirty, locked exclusively, of the standard layout.  In a critical section then, and the
 * caller puts the LSN on the page.
 */
extern XLogRecPtr pmhash_wal_log(const PmhashWalRecord *record, const PmhEntry *entries,
								 Buffer page);

extern XLogRecPtr pmhash_log_event(PmhashWalType type, uint64 file_id);
extern void pmhash_announce_file(uint64 file_id);
extern void pmhash_log_new_files(bool made);

#endif							/* PMHASH_WAL_RECORD_H */
