/*-------------------------------------------------------------------------
 *
 * journal.c
 *	  Crash states of the undo journal: an index file and a journal in one
 *	  memory, a write-ahead log that is two numbers.
 *
 * Each entry is noted in the journal, with the LSN of its heap tuple, as the
 * access method does.  A crash loses some WAL that was not flushed: the end of
 * replay is anywhere between what was flushed and what was inserted.  The
 * undo of the cluster layer is run on each image, crashed in turn, and run
 * again.  Then the index must hold exactly the entries whose WAL survived.
 *
 * undo_journal.c is compiled as it is.  Under it stands a server that has a pool
 * of one index file and one journal, and errors that jump.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

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
#include "crash.h"
#include "server_stand_ins.h"

#define JOURNAL_NAME		"journal"
#define FILE_ID				UINT64CONST(9)

/* More would make too many images: each record has nine variants. */
#define MAX_GROUP			3

/* In one of so many images another data directory is tried first. */
#define OLDER_DIRECTORY		8

/* Undo is crashed in one of so many images: it has many crash points. */
#define CRASH_UNDO			16

static uint64_t wal_inserted;	/* the write-ahead log, and of that durable */
static uint64_t wal_flushed;
static uint64_t replay_end;		/* of the image at level 1: control keeps it */
static uint64_t undo_end;		/* where replay is said to have ended */
static uint64_t noted;			/* WAL durably noted to have been flushed */
static uint64_t nvalues;
static uint64_t instance;		/* of this server life */
static unsigned undo_level;		/* of the memory that is undone */
static const char *complaint;	/* the index was removed, or is not believed: nothing that should happen */
static jmp_buf error_jump;
static PmhashShared shared_memory;

/* ---- what stands in for the server ---- */

PmhashShared *pmhash_shared = &shared_memory;
PmhashCounts pmhash_counts;

GIVES(XLogRecPtr, GetXLogInsertRecPtr, (void), wal_inserted)
GIVES(XLogRecPtr, GetFlushRecPtr, (TimeLineID *tli), wal_flushed)
GIVES(XLogRecPtr, GetXLogReplayRecPtr, (TimeLineID *tli), undo_end)
DOES(XLogFlush, (XLogRecPtr lsn), wal_flushed = Max(wal_flushed, lsn))

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	if (server_error_level >= ERROR)
		longjmp(error_jump, 1);
}

GIVES(int, errmsg, (const char *format,...), 0)

/* The pool.  No page of the recorder's files is ever lost. */
GIVES(const char *, pmhash_pool_path, (void), "pool")
GIVES(const char *, pmhash_shown_path, (const char *path), path)
DOES(pmhash_journal_path, (char *path), strcpy(path, JOURNAL_NAME))
DOES(pmhash_file_path, (char *path, Oid database, uint64 file_id), strcpy(path, TABLE_NAME))
GIVES(PmhEnv, pmhash_engine_env, (void), crash_env(undo_level))
DOES(pmhash_disable, (const char *reason), complaint = "the undo journal has been given up")
DOES(pmhash_trust_none, (PmhashControl *control, PmhashReason reason, const char *why),
	 complaint = "the undo journal is not believed")
GIVES(bool, pmhash_remove_token, (char *reason), true)
GIVES(bool, pmhash_pool_is_present, (void), true)

/* Files that the recorder keeps are there; a journal has the size that is wanted. */
int
stat(const char *path, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	if (strcmp(path, TABLE_NAME) != 0)
		st->st_size = (off_t) ((shared_memory.journal_records + 1) * sizeof(PmhashJournalRecord));
	return 0;
}

int
unlink(const char *path)
{
	if (strcmp(path, TABLE_NAME) == 0)
		complaint = "undo has removed the index file";
	return 0;
}

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

/* ---- recovery ---- */

/* Undo what depends on WAL after 'end'.  False if that ended with an ERROR. */
static bool
undo(uint64_t end)
{
	PmhashControl control = {.journal_instance = instance};

	undo_end = end;
	complaint = NULL;
	if (setjmp(error_jump) != 0)
		return false;
	pmhash_undo(&control);
	return true;
}

/* Recover as a server start does: undo, under the new instance. */
static const char *
undo_first(unsigned level)
{
	if (level == 1)
		replay_end = wal_flushed + crash_random() % (wal_inserted - wal_flushed + 1);
	crash.replay_end = replay_end;
	undo_level = level;
	if (noted != 0 && crash_random() % OLDER_DIRECTORY == 0)
	{
		/* A data directory that has less WAL than was flushed is an older one. */
		if (!undo(noted - 1) || complaint == NULL)
			return say("replay that ended before flushed WAL is believed");
	}
	if (!undo(replay_end))
		return say("undo ended with an error");
	return complaint;
}

/* ---- what is done ---- */

/* Note entries as the access method does, for the transaction's record. */
static void
note_entries(const PmhEntry *entries, size_t n)
{
	PmhashFile	file = {.file_id = FILE_ID, .journaled = true};

	for (size_t i = 0; i < n; i++)
		model_set_lsn(&crash.model,
					  model_find(&crash.model, entries[i].hash, entries[i].value),
					  wal_inserted);
	XactLastRecEnd = wal_inserted;
	pmhash_journal_note(&file, entries, (int) n);
}

static void
start(uint64_t nrecords)
{
	arm(false);
	nvalues = noted = 0;
	if (wal_inserted == 0)
		wal_inserted = 1000000;
	wal_flushed = wal_inserted;
	op_create();
	instance = 77;
	begin_life(nrecords);
	crash.before_open = undo_first;
	crash.crash_recovery = CRASH_UNDO;
	crash.before_insert = note_entries;
}
/* A few buckets; every fifth is one of two keys with many values. */
static PmhEntry
new_entry(void)
{
	uint64_t	r = crash_random();
	uint64_t	key = r % 5 == 0 ? r >> 8 & 1 : r >> 8 & 63;
	PmhEntry	entry = {(key * 77 & 0xff) | (key & 1) << 20 | (key >> 3) << 60, 0};

	nvalues++;
	entry.value = (nvalues & 0x1fff) << 32 | ((nvalues * UINT64_C(2654435761)) & 0xffffffff);
	return entry;
}

static void
note_flushed(void)
{
	pmhash_journal_note_flushed(wal_flushed);
	noted = wal_flushed;
	enumerate(0, NULL);
}

static void
flush_some_wal(void)
{
	uint64_t	unflushed = wal_inserted - wal_flushed;

	if (crash_random() % 8 == 0)
		wal_flushed += crash_random() % (unflushed + 1);
	if (crash_random() % 32 == 0)
		note_flushed();
}

/* Some entry that is there: removal waits for WAL. */
static void
delete_one(void)
{
	PmhEntry	pair;

	if (crash.model.n == 0)
		return;
	pair = crash.model.entry[crash_random() % crash.model.n].pair;
	wal_inserted += 100;
	wal_flushed = wal_inserted;
	note_flushed();
	op_delete(pair.hash, pair.value);
}

static void
insert_some(void)
{
	PmhEntry	group[MAX_GROUP];
	size_t		n = 1 + crash_random() % MAX_GROUP;

	wal_inserted += 40 + crash_random() % 100;	/* by its transaction */
	for (size_t i = 0; i < n; i++)
		group[i] = new_entry();
	if (n == 1)
		op_insert(group[0].hash, group[0].value, true);
	else
		op_insert_group(group, n, true);
}

static void
run_for(uint64_t noperations)
{
	arm(true);
	for (uint64_t i = 0; i < noperations; i++)
	{
		flush_some_wal();
		if (crash.model.n > 60 || crash_random() % 10 == 0)
			delete_one();
		else
			insert_some();
	}
	arm(false);
}

/* A ring with room: records are written, few are reused. */
static void
run_write(void)
{
	start(200);
	run_for(60);
}

/* A ring that is shorter than a group: records are overwritten all the time. */
static void
run_reuse(void)
{
	start(3);
	run_for(100);
}

/* WAL is hardly ever flushed: much to undo, many crashes in undo. */
static void
run_replay(void)
{
	start(40);
	arm(true);
	for (unsigned i = 0; i < 20; i++)
	{
		wal_inserted += 40 + crash_random() % 100;	/* by its transaction */
		op_insert(new_entry().hash, ++nvalues, true);
	}
	arm(false);
}

/* A flipped bit in each second record that has been written. */
static void
damage_records(uint64_t nrecords)
{
	PmFile		file;
	PmhError	error;
	PmhashJournalRecord *record;

	if (pm_open(&file, JOURNAL_NAME, true, &error) != PMH_OK)
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

/*
 * A server life takes over the journal of the one before, which nothing needs any more, and
 * writes over a part of it: what was damaged in the rest must not come back.
 */
static void
run_take_over(void)
{
	start(60);
	run_for(50);
	wal_flushed = wal_inserted;
	noted = 0;
	damage_records(60);
	instance++;
	begin_life(60);
	run_for(25);
}

const char	random_name[] = "journal_random";

void
run_random(uint64_t seed)
{
	crash.rng = seed;
	start(2 + crash_random() % 30);
	run_for(100);
}

const Workload workloads[] = {
	{"journal_write", run_write},
	{"journal_reuse", run_reuse},
	{"journal_replay", run_replay},
	{"journal_take_over", run_take_over},
};

const unsigned nworkloads = sizeof(workloads) / sizeof(workloads[0]);
