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
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "crash.h"
#include "server_shim.h"
#include "table.h"

/* More would make too many images: each record has nine variants. */
#define MAX_GROUP			3

/* In one of so many images another data directory is tried first. */
#define OLDER_DIRECTORY		8

/* Undo is crashed in one of so many images: it has many crash points. */
#define CRASH_UNDO			16

static uint64_t replay_end;		/* of the image at level 1: control keeps it */
static uint64_t noted;			/* WAL durably noted to have been flushed */
static uint64_t nvalues;
/* Recover as a server start does: undo, under the new instance. */
static const char *
undo_first(unsigned level)
{
	if (level == 1)
		replay_end = shim_wal_flushed +
			crash_random() % (shim_wal_inserted - shim_wal_flushed + 1);
	crash.replay_end = replay_end;
	shim_env = crash_env(level);
	if (noted != 0 && crash_random() % OLDER_DIRECTORY == 0)
	{
		/* A data directory that has less WAL than was flushed is an older one. */
		shim_complaint = NULL;
		if (!shim_undo(noted - 1) || shim_complaint == NULL)
			return say("replay that ended before flushed WAL is believed");
	}
	shim_complaint = NULL;
	if (!shim_undo(replay_end))
		return say("undo ended with an error");
	return shim_complaint;
}

/* A transaction has written WAL up to here. */
static uint64_t
write_wal(void)
{
	shim_wal_inserted += 40 + crash_random() % 100;
	return shim_wal_inserted;
}

static void
note_entries(const PmhEntry *entries, size_t n)
{
	for (size_t i = 0; i < n; i++)
		model_set_lsn(&crash.model,
					  model_find(&crash.model, entries[i].hash, entries[i].value),
					  shim_wal_inserted);
	shim_note(entries, n, shim_wal_inserted);
}

static void
start(uint64_t nrecords)
{
	arm(false);
	nvalues = noted = 0;
	if (shim_wal_inserted == 0)
		shim_wal_inserted = 1000000;
	shim_wal_flushed = shim_wal_inserted;
	op_create();
	shim_start(nrecords);
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
	shim_note_flushed(shim_wal_flushed);
	noted = shim_wal_flushed;
	enumerate(0, NULL);
}

static void
flush_some_wal(void)
{
	uint64_t	unflushed = shim_wal_inserted - shim_wal_flushed;

	if (crash_random() % 8 == 0)
		shim_wal_flushed += crash_random() % (unflushed + 1);
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
	shim_wal_inserted += 100;
	shim_wal_flushed = shim_wal_inserted;
	note_flushed();
	op_delete(pair.hash, pair.value);
}

static void
insert_some(void)
{
	PmhEntry	group[MAX_GROUP];
	size_t		n = 1 + crash_random() % MAX_GROUP;

	write_wal();
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
		write_wal();
		op_insert(new_entry().hash, ++nvalues, true);
	}
	arm(false);
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
	shim_wal_flushed = shim_wal_inserted;
	noted = 0;
	shim_take_over(60);
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
