/*-------------------------------------------------------------------------
 *
 * startup.c
 *	  Shared memory, and the pool taken into use: what the postmaster does.
 *
 * postmaster	shared memory comes up (at start, and again after a crash of a
 *				child): a new instance number; the pool is taken into use
 * first user	(usually our worker): the undo journal, once (pool_life.c); then
 *				each file by the engine when it is opened first
 * postmaster	at exit: sync and clean mark
 *
 * The server always starts: if the pool can't be used, that is logged; indexes
 * are then invalid, and what can't do without one is an ERROR that says why
 * (pool_life.c), until the server is restarted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/undo_journal.h"

#define TRANCHE_NAME	"pmhash"
#define KEY_TRANCHE_NAME "pmhash_keys"
#define LOCK_STRIPES	4096	/* locks of segments, for all files; a power of two */

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

/* ---- shared memory ---- */

static uint64
journal_records(void)
{
	return (uint64) pmhash_journal_size * 1024 / sizeof(PmhashJournalRecord);
}

static Size
journal_lsn_size(void)
{
	return mul_size(journal_records(), sizeof(pg_atomic_uint64));
}

/* The engine wants 64-byte alignment. */
static Size
lock_table_size(void)
{
	return add_size(pmh_locks_size(LOCK_STRIPES), PG_CACHE_LINE_SIZE);
}

static void
request_shared_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(sizeof(PmhashShared));
	RequestAddinShmemSpace(lock_table_size());
	RequestAddinShmemSpace(journal_lsn_size());
	RequestAddinShmemSpace(sizeof(PmhashStandby));
	RequestAddinShmemSpace(pmhash_dead_lists_size());
	RequestNamedLWLockTranche(TRANCHE_NAME, PMHASH_NLOCKS + PMHASH_DEAD_LISTS);
	RequestNamedLWLockTranche(KEY_TRANCHE_NAME, PMHASH_KEY_LOCKS);
}

#if defined(PG_HAVE_ATOMIC_U32_SIMULATION) || defined(PG_HAVE_ATOMIC_U64_SIMULATION)
#error "atomics of this processor are not initialized by zeroes"
#endif

static void
init_shared_memory(void)
{
	bool		found;
	char	   *memory;

	Assert(!IsUnderPostmaster);
	memset(pmhash_shared, 0, sizeof(*pmhash_shared));
	pmhash_shared->instance = pmhash_random_id();
	pg_atomic_init_u64(&pmhash_shared->ask_from, !IsPostmasterEnvironment ? 0 :
					   pmhash_clock_ms() + PMHASH_FIRST_QUESTION);
	pmhash_shared->lwlocks = GetNamedLWLockTranche(TRANCHE_NAME);
	pmhash_shared->key_locks = GetNamedLWLockTranche(KEY_TRANCHE_NAME);
	pmhash_wait_events_name();

	memory = ShmemInitStruct("pmhash lock table", lock_table_size(), &found);
	memory = (char *) TYPEALIGN(PG_CACHE_LINE_SIZE, memory);
	pmhash_shared->locks = pmh_locks_init(memory, LOCK_STRIPES);

	pmhash_shared->journal_most = journal_records();
	pmhash_shared->journal_records = pmhash_shared->journal_most;
	pmhash_shared->journal_lsn = ShmemInitStruct("pmhash journal records",
												 journal_lsn_size(), &found);
	memset(pmhash_shared->journal_lsn, 0, journal_lsn_size());
	pmhash_shared->standby = ShmemInitStruct("pmhash standby", sizeof(PmhashStandby), &found);
	memset(pmhash_shared->standby, 0, sizeof(PmhashStandby));
	pg_atomic_init_u64(&pmhash_shared->standby->changes, 1);
	pmhash_dead_lists_init();
}

/* ---- the pool ---- */

/*
 * Take the pool into use for this server life.  If it can't be used, no file in it is trusted
 * afterwards: rows will be written that it lacks.
 */
static void
start_pool(void)
{
	char		reason[PMHASH_REASON_SIZE] = "";

	pmhash_shared->usable = pmhash_pool_start(&pmhash_shared->control, reason);
	if (pmhash_shared->usable)
		return;
	pmhash_disable_locked(reason);
	pmhash_refuse_trust();
}

/* ---- hooks ---- */

/*
 * The end of a server life, before shared memory goes: of a postmaster, or of a single-user
 * backend; or after a crash of a child.
 */
static void
life_exit(int code, Datum arg)
{
	if (!IsUnderPostmaster && pmhash_shared->usable)
		pmhash_pool_stop();
}

/*
 * Called by the postmaster each time it has made shared memory: at start, and
 * after a child has crashed (postmaster.c, reset_shared).
 */
static void
shared_memory_startup(void)
{
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	pmhash_shared = ShmemInitStruct("pmhash", sizeof(PmhashShared), &found);
	if (!found)
	{
		init_shared_memory();
		start_pool();
		on_shmem_exit(life_exit, (Datum) 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

/* Install the hooks.  While shared_preload_libraries is loaded. */
void
pmhash_startup_init(void)
{
	Assert(process_shared_preload_libraries_in_progress);
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shared_memory_startup;
}
