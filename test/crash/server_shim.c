/*-------------------------------------------------------------------------
 *
 * server_shim.c
 *	  What stands in for the PostgreSQL server under undo_journal.c, which is
 *	  compiled as it is: WAL as two numbers, a pool of one index
 *	  file and one journal, errors that jump.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <errno.h>
#include <setjmp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"
#include "cluster/wal/undo_journal.h"
#include "engine/pm.h"
#include "server_shim.h"
#include "server_stand_ins.h"

#define SHIM_TABLE		"table"
#define SHIM_JOURNAL	"journal"
#define SHIM_INSTANCE	UINT64CONST(77)
#define SHIM_FILE_ID	UINT64CONST(9)

uint64_t	shim_wal_inserted;
uint64_t	shim_wal_flushed;
PmhEnv		shim_env;
const char *shim_complaint;

static PmhashShared shared_memory;
static jmp_buf error_jump;
static uint64_t instance;		/* of this server life */
static XLogRecPtr replay_end;

/* ---- variables and functions of the server ---- */

PmhashShared *pmhash_shared = &shared_memory;
PmhashCounts pmhash_counts;

XLogRecPtr
GetXLogInsertRecPtr(void)
{
	return shim_wal_inserted;
}

XLogRecPtr
GetFlushRecPtr(TimeLineID *tli)
{
	return shim_wal_flushed;
}

void
XLogFlush(XLogRecPtr lsn)
{
	if (lsn > shim_wal_flushed)
		shim_wal_flushed = lsn;
}

XLogRecPtr
GetXLogReplayRecPtr(TimeLineID *tli)
{
	return replay_end;
}

/* ---- errors ---- */

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	if (server_error_level >= ERROR)
		longjmp(error_jump, 1);
}

int
errmsg(const char *fmt,...)
{
	return 0;
}

/* ---- the pool ---- */

const char *
pmhash_pool_path(void)
{
	return "pool";
}

const char *
pmhash_shown_path(const char *path)
{
	return path;
}

void
pmhash_journal_path(char *path)
{
	strlcpy(path, SHIM_JOURNAL, MAXPGPATH);
}

void
pmhash_file_path(char *path, Oid database, uint64 file_id)
{
	strlcpy(path, SHIM_TABLE, MAXPGPATH);
}

PmhEnv
pmhash_engine_env(void)
{
	return shim_env;
}

/* No page of the recorder's files is ever lost. */
void
pmhash_disable(const char *reason)
{
	shim_complaint = "the undo journal has been given up";
}

bool
pmhash_remove_token(char *reason)
{
	return true;
}

bool
pmhash_pool_is_present(void)
{
	return true;
}

void
pmhash_trust_none(PmhashControl *control, PmhashReason reason, const char *why)
{
	shim_complaint = "the undo journal is not believed";
}

/* Files that the recorder keeps are there; a journal has the size that is wanted. */
int
stat(const char *path, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	if (strcmp(path, SHIM_TABLE) != 0)
		st->st_size = (off_t) ((shared_memory.journal_records + 1) * sizeof(PmhashJournalRecord));
	return 0;
}

int
unlink(const char *path)
{
	if (strcmp(path, SHIM_TABLE) == 0)
		shim_complaint = "undo has removed the index file";
	return 0;
}

/* ---- what the test calls ---- */

/* Shared memory and a journal of a server life. */
static void
begin_life(uint64_t nrecords)
{
	bool		pmem;

	free(shared_memory.journal_lsn);
	memset(&shared_memory, 0, sizeof(shared_memory));
	shared_memory.instance = instance;
	shared_memory.journal_most = shared_memory.journal_records = nrecords;
	shared_memory.journal_lsn = calloc(nrecords, sizeof(pg_atomic_uint64));
	pmhash_journal_begin(instance, &pmem);
}

void
shim_start(uint64_t nrecords)
{
	instance = SHIM_INSTANCE;
	begin_life(nrecords);
}

/* A flipped bit in each second record that has been written. */
static void
damage_records(uint64_t nrecords)
{
	PmFile		file;
	PmhError	error;
	PmhashJournalRecord *record;

	if (pm_open(&file, SHIM_JOURNAL, true, &error) != PMH_OK)
		abort();
	record = (PmhashJournalRecord *) file.base;
	for (uint64_t i = 1; i <= nrecords; i += 2)
	{
		if (record[i].crc == 0)
			continue;
		pm_store64(&record[i].instance, record[i].instance ^ 4);
		pm_flush(&file, &record[i], sizeof(record[i]));
	}
	pm_fence(&file);
	pm_close(&file);
}

void
shim_take_over(uint64_t nrecords)
{
	damage_records(nrecords);
	instance++;
	begin_life(nrecords);
}

void
shim_note(const PmhEntry *entries, size_t n, uint64_t lsn)
{
	PmhashFile	file = {.file_id = SHIM_FILE_ID, .journaled = true};

	XactLastRecEnd = lsn;
	pmhash_journal_note(&file, entries, (int) n);
}

void
shim_note_flushed(uint64_t lsn)
{
	pmhash_journal_note_flushed(lsn);
}

bool
shim_undo(uint64_t end)
{
	PmhashControl control = {.journal_instance = instance};

	replay_end = end;
	if (setjmp(error_jump) != 0)
		return false;
	pmhash_undo(&control);
	return true;
}
