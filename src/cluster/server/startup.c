/*-------------------------------------------------------------------------
 *
 * startup.c
 *	  Shared memory, and the pool taken into use: what the postmaster does.
 *
 * postmaster	shared memory comes up (at start, and again after a crash of a
 *				child): a new instance number; the pool is taken into use
 * first user	(usually our worker): the undo journal, once (service.c); then
 *				each file by the engine when it is opened first
 * postmaster	at exit: sync and clean mark
 *
 * The server always starts: if the pool can't be used, that is logged; indexes
 * are then invalid, and what can't do without one is an ERROR that says why
 * (service.c), until the server is restarted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogdefs.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/server/server.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/undo_journal.h"

#define TRANCHE_NAME	"pmhash"
#define KEY_TRANCHE_NAME "pmhash_keys"
#define LOCK_STRIPES	4096	/* locks of segments, for all files; a power of two */

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

/* In the postmaster: which server life this is, and whether it does without its pool. */
static uint64 current_instance;
static bool given_up;

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
	RequestAddinShmemSpace(pmhash_imports_size());
	RequestNamedLWLockTranche(TRANCHE_NAME, PMHASH_NLOCKS + PMHASH_DEAD_LISTS);
	RequestNamedLWLockTranche(KEY_TRANCHE_NAME, PMHASH_KEY_LOCKS);
}

static void
init_shared_memory(void)
{
	bool		found;
	char	   *memory;

	Assert(!IsUnderPostmaster);
	memset(pmhash_shared, 0, sizeof(*pmhash_shared));
	do
		pmhash_shared->instance = pmhash_random_id();
	while (pmhash_shared->instance == current_instance);
	current_instance = pmhash_shared->instance;
	pg_atomic_init_u32(&pmhash_shared->ready, 0);
	pg_atomic_init_u32(&pmhash_shared->not_ready, 0);
	pg_atomic_init_u64(&pmhash_shared->stub_generation, 0);
	pg_atomic_init_u64(&pmhash_shared->flush_wanted, InvalidXLogRecPtr);
	for (int i = 0; i < PMHASH_WORKERS; i++)
		pg_atomic_init_u32(&pmhash_shared->worker_done[i], 0);
	pg_atomic_init_u32(&pmhash_shared->function_worker, 0);
	pg_atomic_init_u64(&pmhash_shared->no_worker, 0);
	pg_atomic_init_u64(&pmhash_shared->asked_redo, InvalidXLogRecPtr);
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
	pg_atomic_init_u64(&pmhash_shared->journal_next, 0);
	pmhash_shared->journal_lsn = ShmemInitStruct("pmhash journal records",
												 journal_lsn_size(), &found);
	for (uint64 i = 0; i < pmhash_shared->journal_records; i++)
		pg_atomic_init_u64(&pmhash_shared->journal_lsn[i], 0);
	pmhash_standby_shmem_init();
	pmhash_dead_lists_init();
	pmhash_imports_init();
	for (int i = 0; i < PMHASH_NCOUNTERS; i++)
		pg_atomic_init_u64(&pmhash_shared->counted[i], 0);
	for (int i = 0; i < PMHASH_REMOVAL_EPOCHS; i++)
		pg_atomic_init_u64(&pmhash_shared->removal_epoch[i], 0);
	for (int i = 0; i < PMHASH_JOBS * PMHASH_MAX_REQUESTS; i++)
		pg_atomic_init_u32(&pmhash_shared->request[i], InvalidOid);
	for (int i = 0; i < PMHASH_QUEUE_COUNTS; i++)
		pg_atomic_init_u32(&pmhash_shared->queues[i], 0);
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

	pmhash_shared->usable = pmhash_pool_start(&pmhash_shared->control, current_instance, reason);
	strlcpy(pmhash_shared->reason, reason, PMHASH_REASON_SIZE);
	if (pmhash_shared->usable)
		return;
	ereport(LOG,
			(errmsg("pmhash is disabled: %s", reason),
			 errdetail(PMHASH_DISABLED_DETAIL)));
	pmhash_refuse_trust();
}

/* ---- hooks ---- */

/*
 * The end of a server life, before shared memory goes.  What has been given up must not be
 * made good again (postmaster_exit).
 */
static void
note_given_up(int code, Datum arg)
{
	given_up = !pmhash_shared->usable;
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
		on_shmem_exit(note_given_up, (Datum) 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * At exit of the postmaster, or of a single-user backend: sync, clean mark.
 * Shared memory is gone by now (ipc.c, proc_exit_prepare).
 */
static void
postmaster_exit(int code, Datum arg)
{
	if (!IsUnderPostmaster && current_instance != 0 && !given_up)
		pmhash_pool_stop(current_instance);
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
	on_proc_exit(postmaster_exit, (Datum) 0);
}
