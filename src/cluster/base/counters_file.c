/*-------------------------------------------------------------------------
 *
 * counters_file.c
 *	  The counters from one server life to the next.
 *
 * As PostgreSQL's own (pgstat.c) they are written when the server has been shut down
 * in order, and read and removed at the next start; after anything else they begin
 * at zero.  The postmaster does both: it is alone then, and is so only then.  What
 * tells how the server has ended is pg_control, at both ends: an immediate shutdown
 * ends the postmaster as orderly as others (postmaster.c, ExitPostmaster(0)).
 *
 * Losing the file harms only those that look at the counters.  So whatever is
 * wrong with it is logged, and then there are none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "cluster/base/control_file.h"
#include "cluster/base/counters.h"
#include "cluster/base/data_directory.h"
#include "cluster/base/durable.h"
#include "cluster/base/format.h"

#define COUNTERS_FILE		PGSTAT_STAT_PERMANENT_DIRECTORY "/pmhash.stat"
#define COUNTERS_MAGIC		UINT64CONST(0x3130544153484d50)

/* Then the server's, then the rows, then a CRC-32C of all that. */
typedef struct FileHeader
{
	uint64		magic;
	uint32		counters;		/* PMHASH_NCOUNTERS */
	uint32		row_size;
	uint64		rows;
} FileHeader;

/* Guards: another layout is another COUNTERS_MAGIC, if the header does not show it. */
PMHASH_AT(FileHeader, magic, 0);
PMHASH_AT(FileHeader, counters, 8);
PMHASH_AT(FileHeader, row_size, 12);
PMHASH_AT(FileHeader, rows, 16);
PMHASH_SIZE(FileHeader, 24);

PMHASH_AT(PmhashServerCounters, since, 0);
PMHASH_AT(PmhashServerCounters, counts, 8);
PMHASH_AT(PmhashServerCounters, lock_waits, 8 + 8 * PMHASH_NCOUNTERS);
PMHASH_AT(PmhashServerCounters, not_tracked, 16 + 8 * PMHASH_NCOUNTERS);
PMHASH_AT(PmhashServerCounters, rows, 24 + 8 * PMHASH_NCOUNTERS);
PMHASH_AT(PmhashServerCounters, most_rows, 32 + 8 * PMHASH_NCOUNTERS);
PMHASH_SIZE(PmhashServerCounters, 40 + 8 * PMHASH_NCOUNTERS);

PMHASH_AT(PmhashCountersRow, database, 0);
PMHASH_AT(PmhashCountersRow, index, 4);
PMHASH_AT(PmhashCountersRow, since, 8);
PMHASH_AT(PmhashCountersRow, counts, 16);
PMHASH_SIZE(PmhashCountersRow, 16 + 8 * PMHASH_NCOUNTERS);

/* Has the server been shut down in order, says pg_control? */
static bool
ended_in_order(void)
{
	ControlFileData server;
	char		reason[PMHASH_REASON_SIZE];

	return pmhash_read_pg_control(&server, reason) &&
		(server.state == DB_SHUTDOWNED || server.state == DB_SHUTDOWNED_IN_RECOVERY);
}

/* ---- writing ---- */

static bool
write_piece(FILE *file, const void *piece, size_t size, pg_crc32c *crc)
{
	COMP_CRC32C(*crc, piece, size);
	return fwrite(piece, 1, size, file) == size;
}

static bool
write_all(FILE *file)
{
	FileHeader	header = {0};
	PmhashServerCounters server;
	PmhashCountersRow *rows;
	pg_crc32c	crc;
	int			n;

	rows = pmhash_counters_rows(InvalidOid, &n);
	pmhash_counters_server(&server);
	header.magic = COUNTERS_MAGIC;
	header.counters = PMHASH_NCOUNTERS;
	header.row_size = sizeof(PmhashCountersRow);
	header.rows = n;
	INIT_CRC32C(crc);
	if (!write_piece(file, &header, sizeof(header), &crc) ||
		!write_piece(file, &server, sizeof(server), &crc) ||
		!write_piece(file, rows, sizeof(PmhashCountersRow) * n, &crc))
		return false;
	FIN_CRC32C(crc);
	return fwrite(&crc, sizeof(crc), 1, file) == 1;
}

/* At the end of the postmaster, as long as there is shared memory. */
void
pmhash_counters_save(int code, Datum arg)
{
	const char *temporary = COUNTERS_FILE ".tmp";
	FILE	   *file;
	bool		written;

	if (code != 0 || IsUnderPostmaster || !ended_in_order())
		return;
	file = AllocateFile(temporary, PG_BINARY_W);
	written = file != NULL && write_all(file);
	if (file != NULL && FreeFile(file) != 0)
		written = false;
	if (!written)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not write file \"%s\": %m", temporary)));
		(void) unlink(temporary);
		return;
	}
	(void) durable_rename(temporary, COUNTERS_FILE, LOG);
}

/* ---- reading ---- */

/*
 * Check all of it, and take it over.  False if it is not what we have written; it may
 * be another version's.
 */
static bool
take_over(const char *bytes, size_t size)
{
	FileHeader	header;
	PmhashServerCounters server;
	pg_crc32c	crc;
	size_t		fixed = sizeof(header) + sizeof(server) + sizeof(crc);
	uint32		stored;

	if (size < fixed)
		return false;
	memcpy(&header, bytes, sizeof(header));
	memcpy(&stored, bytes + size - sizeof(crc), sizeof(crc));
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, bytes, size - sizeof(crc));
	FIN_CRC32C(crc);
	if (header.magic != COUNTERS_MAGIC || header.counters != PMHASH_NCOUNTERS ||
		header.row_size != sizeof(PmhashCountersRow) || crc != stored ||
		header.rows != (size - fixed) / sizeof(PmhashCountersRow))
		return false;
	memcpy(&server, bytes + sizeof(header), sizeof(server));
	pmhash_counters_restore_server(&server);
	for (uint64 i = 0; i < header.rows; i++)
	{
		PmhashCountersRow row;

		memcpy(&row, bytes + sizeof(header) + sizeof(server) + i * sizeof(row),
			   sizeof(row));
		pmhash_counters_restore_row(&row);
	}
	return true;
}

static bool
read_all(FILE *file)
{
	struct stat st;
	char	   *bytes;
	bool		good = false;

	if (fstat(fileno(file), &st) != 0 || (Size) st.st_size >= MaxAllocHugeSize)
		return false;
	bytes = palloc_extended((Size) st.st_size + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
	if (bytes == NULL)
		return false;
	if (fread(bytes, 1, st.st_size, file) == (size_t) st.st_size)
		good = take_over(bytes, st.st_size);
	pfree(bytes);
	return good;
}

/* At the start of the postmaster, which has made shared memory. */
void
pmhash_counters_load(void)
{
	FILE	   *file = AllocateFile(COUNTERS_FILE, PG_BINARY_R);

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("pmhash: could not read file \"%s\": %m", COUNTERS_FILE)));
		return;
	}
	if (ended_in_order() && !read_all(file))
		ereport(LOG,
				(errmsg("pmhash: counters in file \"%s\" cannot be used and begin at zero",
						COUNTERS_FILE)));
	FreeFile(file);
	(void) unlink(COUNTERS_FILE);
}
