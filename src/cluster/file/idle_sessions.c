/*-------------------------------------------------------------------------
 *
 * idle_sessions.c
 *	  Idle sessions let go of files that have been removed.
 *
 * A mapping keeps the space of a file that has been removed, and a backend looks after
 * its mappings at the end of transactions only (file_cache.c), which in an idle session
 * may be days away.  So when files have been removed the launcher has rounds: each
 * process that has mappings, and has not looked after them since, gets the signal that
 * core has for sessions which are late with invalidations (sinval.c,
 * ProcessCatchupInterrupt).  One that waits for its client has a transaction of nothing
 * then, whose begin brings the invalidations, and whose end has it look.  One that is
 * idle in a transaction takes the invalidations, and looks at the end of that.
 *
 * There are two rounds, a while apart: a file goes before the invalidation of its index
 * is sent, and the first one may come in between.
 *
 * What is kept of a process is its number in the system: that of one which has ended, or
 * which is another one's by now, costs a signal in vain.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"

#include "cluster/base/clock.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/file_cache.h"

/* Rounds after files have been removed, and ms between two, whatever is removed. */
#define ROUNDS			2
#define ROUND_PAUSE		10000

/* A process, by its number in the array of core. */
typedef struct Session
{
	pg_atomic_uint32 pid;		/* 0: it has no mappings */
	pg_atomic_uint64 round;		/* the last one in which it has looked after them */
} Session;

typedef struct Sessions
{
	pg_atomic_uint64 round;
	Session		session[FLEXIBLE_ARRAY_MEMBER];
} Sessions;

static Sessions *sessions = NULL;	/* NULL unless preloaded */

/* What the row of this process says, as far as it has written it. */
static uint64 own_round = 0;
static bool own_mapped = false;

/* Bytes of shared memory. */
Size
pmhash_idle_sessions_size(void)
{
	return add_size(offsetof(Sessions, session), mul_size(MaxBackends, sizeof(Session)));
}

/* As shared memory is made. */
void
pmhash_idle_sessions_init(void)
{
	bool		found;

	sessions = ShmemInitStruct("pmhash sessions", pmhash_idle_sessions_size(), &found);
	pg_atomic_init_u64(&sessions->round, 0);
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u32(&sessions->session[i].pid, 0);
		pg_atomic_init_u64(&sessions->session[i].round, 0);
	}
}

/* ---- the process that has mappings ---- */

/* The round that there is now. */
uint64
pmhash_look_round(void)
{
	return sessions != NULL ? pg_atomic_read_u64(&sessions->round) : 0;
}

/*
 * This process has looked after all its mappings since that round began; has it any now?
 * Writes to shared memory only if there is news.  Raises no error.
 */
void
pmhash_looked_in_round(uint64 round, bool mapped)
{
	ptrdiff_t	number;

	if (likely(mapped == own_mapped && (round == own_round || !mapped)))
		return;
	number = MyProc != NULL ? MyProc - ProcGlobal->allProcs : -1;
	if (sessions == NULL || number < 0 || number >= MaxBackends)
		return;
	pg_atomic_write_u64(&sessions->session[number].round, round);
	pg_atomic_write_u32(&sessions->session[number].pid, mapped ? MyProcPid : 0);
	own_round = round;
	own_mapped = mapped;
}

/* ---- the launcher ---- */

static void
begin_round(void)
{
	uint64		round = pg_atomic_add_fetch_u64(&sessions->round, 1);

	for (int i = 0; i < MaxBackends; i++)
	{
		uint32		pid = pg_atomic_read_u32(&sessions->session[i].pid);

		/* -1: its slot is looked for by its pid */
		if (pid != 0 && pg_atomic_read_u64(&sessions->session[i].round) < round)
			(void) SendProcSignal((pid_t) pid, PROCSIG_CATCHUP_INTERRUPT, -1);
	}
}

/*
 * Have the launcher begin a round, if files have been removed and one is due.  To be
 * called every few seconds; raises no error.
 */
void
pmhash_wake_idle_sessions(void)
{
	static uint64 seen = 0;
	static int	due = 0;
	static int64 last = 0;
	uint64		removed = pg_atomic_read_u64(&pmhash_shared->files_removed);

	if (removed != seen)
		due = ROUNDS;
	seen = removed;
	if (due == 0 || !pmhash_clock_past(last, ROUND_PAUSE))
		return;
	due--;
	last = pmhash_clock_ms();
	begin_round();
}
