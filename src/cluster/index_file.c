/*-------------------------------------------------------------------------
 *
 * index_file.c
 *	  Index files: making them, and finding the one that belongs to an index.
 *
 * What this backend knows already, and what it has mapped, is in open_files.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "storage/sinval.h"
#include "utils/acl.h"
#include "utils/timestamp.h"

#include "cluster/internal.h"

/* ---- messages ---- */

static int
sqlstate_of(const PmhError *error)
{
	switch (error->code)
	{
		case PMH_ERR_NO_SPACE:
			return ERRCODE_DISK_FULL;
		case PMH_ERR_NO_MEMORY:
			return ERRCODE_OUT_OF_MEMORY;
		case PMH_ERR_NO_DESCRIPTOR:
			return ERRCODE_INSUFFICIENT_RESOURCES;
		case PMH_ERR_TOO_LARGE:
			return ERRCODE_PROGRAM_LIMIT_EXCEEDED;
		case PMH_ERR_FORMAT:
		case PMH_ERR_CORRUPT:
			return ERRCODE_INDEX_CORRUPTED;
		case PMH_ERR_NO_FILE:
			return ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		default:
			return ERRCODE_IO_ERROR;
	}
}

/* Is an invalid index rebuilt without anybody doing anything? */
static bool
rebuilds_itself(Relation index)
{
	return pmhash_rebuild && pmhash_shared->usable &&
		index->rd_rel->relpersistence != RELPERSISTENCE_TEMP;
}

/* What to do about an invalid index. */
const char *
pmhash_rebuild_hint(Relation index)
{
	return rebuilds_itself(index) ?
		"Try again when the index has been rebuilt in the background; REINDEX INDEX does so now." :
		"REINDEX INDEX makes a new file.";
}

static const char *
hint_for(Relation index, const PmhError *error)
{
	switch (error->code)
	{
		case PMH_ERR_FORMAT:
		case PMH_ERR_CORRUPT:
		case PMH_ERR_NO_FILE:
		case PMH_ERR_LOST:
			return pmhash_rebuild_hint(index);
		case PMH_ERR_NO_SPACE:
			return "Free space on the file system of the pmhash directory.";
		case PMH_ERR_NO_MEMORY:
			return "The system limits the mappings of a process (vm.max_map_count); a transaction needs one for each pmhash index that it uses.";
		default:
			return NULL;
	}
}

/*
 * The engine has given a wait up because a cancel or a termination has come
 * (engine_hooks.c), which CHECK_FOR_INTERRUPTS raises.
 */
pg_noreturn static void
raise_cancelled(Relation index)
{
	CHECK_FOR_INTERRUPTS();
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("canceling statement while waiting for a lock in the file of index \"%s\"",
					RelationGetRelationName(index))));
}

/*
 * May this user see where the files are and why a rebuild has failed?  That may tell
 * of rows, as an expression of the index that fails for one tells its value, and of
 * the server's directories: for the owner of the index (NULL: nobody's) and for
 * pg_monitor, which superusers are members of.
 */
bool
pmhash_may_see_details(Relation index)
{
	if (!IsTransactionState() || has_privs_of_role(GetUserId(), ROLE_PG_MONITOR))
		return true;
	if (index == NULL)
		return false;
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(RelationRelationId, RelationGetRelid(index), GetUserId());
#else
	return pg_class_ownercheck(RelationGetRelid(index), GetUserId());
#endif
}

/*
 * A path in the pool as this user may see it: where the server's directories are
 * is for the owner of the index and for pg_monitor, as in the view; for others it
 * begins in the pool.
 */
const char *
pmhash_shown_path(Relation index, const char *path)
{
	const char *pool = pmhash_pool_path();
	size_t		length = strlen(pool);

	if (strncmp(path, pool, length) != 0 || path[length] != '/' ||
		pmhash_may_see_details(index))
		return path;
	return path + length + 1;
}

/*
 * DETAIL of an error about a file, "" for none; if the path that the error names is
 * not the whole one, the server's log has that in addition.  Returns 0, for ereport.
 */
static int
detail_of_file(const char *detail, const char *path, const char *shown)
{
	if (detail[0] != '\0')
		errdetail("%s", detail);
	if (shown != path)
		errdetail_log("%s%sThe path is \"%s\".", detail,
					  detail[0] != '\0' ? "\n" : "", path);
	return 0;
}

pg_noreturn static void
report(Relation index, const char *path, const char *what, const PmhError *error)
{
	const char *hint = hint_for(index, error);
	const char *shown;
	const char *detail = error->detail;

	if (error->code == PMH_CANCELLED)
		raise_cancelled(index);
	shown = pmhash_shown_path(index, path);
	if (detail[0] != '\0' && error->offset != 0)
		detail = psprintf("%s (offset %llu)", detail,
						  (unsigned long long) error->offset);
	ereport(ERROR,
			(errcode(sqlstate_of(error)),
			 errmsg("could not %s file \"%s\" of index \"%s\"%s%s",
					what, shown, RelationGetRelationName(index),
					error->sys_errno != 0 ? ": " : "",
					error->sys_errno != 0 ? strerror(error->sys_errno) : ""),
			 detail_of_file(detail, path, shown),
			 hint ? errhint("%s", hint) : 0));
}

void
pmhash_engine_error(Relation index, PmhashFile *file, PmhResult result)
{
	PmhError	error = *pmh_error(file->table);

	if (error.code != result)
	{
		memset(&error, 0, sizeof(error));
		error.code = result;
	}
	if (result == PMH_ERR_CORRUPT || result == PMH_ERR_FORMAT)
		pmhash_index_invalidate(index, file, PMHASH_REASON_DAMAGED);
	else if (result == PMH_ERR_LOST)
		pmhash_index_invalidate(index, file, PMHASH_REASON_UNREADABLE);
	else if (result == PMH_ERR_NO_FILE && pmhash_pool_in_place())
		pmhash_index_invalidate(index, file, PMHASH_REASON_MISSING);
	report(index, file->path, "use", &error);
}

/* ---- trouble: why an index can't be opened ---- */

/*
 * Either its file is not to be used, now and in future (reason), or something
 * that may pass is in the way (reason NONE, error).
 */
typedef struct Trouble
{
	PmhashReason reason;
	PmhError	error;			/* of the engine, or code PMH_OK */
	uint64		file_id;		/* that the stub named when it was read, or 0 */
	bool		marked;			/* the stub said that it is invalid */
	char		path[MAXPGPATH];	/* of the file, or empty */
} Trouble;

/* Is a constraint to be checked with this index, so that no row may miss? */
static bool
enforces_constraint(Relation index)
{
	return index->rd_index->indisexclusion || index->rd_index->indisunique;
}

/*
 * What to do about an invalid index whose rebuild keeps failing.  Why it fails may
 * tell of rows, which not everybody may see who meets this error: the SQLSTATE
 * has to do.
 */
static char *
failing_hint(const PmhashRebuild *rebuild)
{
	const char *hint = pmhash_rebuild_failure_hint(rebuild->sqlstate);

	return psprintf("Its rebuild has failed %d times (SQLSTATE %s; the server log and, for the owner, pmhash_indexes tell more). %s",
					rebuild->failures, unpack_sql_state(rebuild->sqlstate),
					hint ? hint : "When the cause is removed, REINDEX INDEX makes a new file.");
}

/* What is wrong with the file, which is named 'shown'. */
static char *
why_not_usable(const Trouble *trouble, const char *shown)
{
	const char *reason = pmhash_reason_text(trouble->reason);

	if (shown[0] == '\0')
		return psprintf("The index can't be used: %s.", reason);
	if (trouble->error.detail[0] == '\0')
		return psprintf("File \"%s\" can't be used: %s.", shown, reason);
	return psprintf("File \"%s\" can't be used: %s (%s).", shown, reason,
					trouble->error.detail);
}

/*
 * ERROR for an invalid index.  Its SQLSTATE tells to try again if that will
 * help: a constraint can be checked when the index has been rebuilt, and a
 * plan that is older than the index's invalidity is made anew.  It does not if the
 * rebuild fails again and again.
 */
pg_noreturn static void
raise_invalid(Relation index, const Trouble *trouble)
{
	int			sqlstate = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	PmhashRebuild rebuild;
	bool		failing = pmhash_rebuild_keeps_failing(RelationGetRelid(index), &rebuild);
	const char *shown = pmhash_shown_path(index, trouble->path);

	if (rebuilds_itself(index) && !failing)
		sqlstate = ERRCODE_T_R_SERIALIZATION_FAILURE;
	else if (trouble->reason == PMHASH_REASON_DAMAGED && !failing)
		sqlstate = ERRCODE_INDEX_CORRUPTED;
	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("pmhash index \"%s\" has no usable file",
					RelationGetRelationName(index)),
			 detail_of_file(why_not_usable(trouble, shown), trouble->path, shown),
			 errhint("%s", failing ? failing_hint(&rebuild) :
					 pmhash_rebuild_hint(index))));
}

pg_noreturn static void
raise_trouble(Relation index, const Trouble *trouble)
{
	if (trouble->reason == PMHASH_REASON_NONE)
		report(index, trouble->path, "open", &trouble->error);
	raise_invalid(index, trouble);
}

/*
 * What an error of the engine at opening a file says about the file.  Want of
 * descriptors, of memory or of mappings says nothing.
 */
static PmhashReason
reason_of(const PmhError *error)
{
	switch (error->code)
	{
		case PMH_ERR_NO_FILE:
			return PMHASH_REASON_MISSING;
		case PMH_ERR_FORMAT:
		case PMH_ERR_CORRUPT:
			return PMHASH_REASON_DAMAGED;
		case PMH_ERR_NO_DESCRIPTOR:
		case PMH_ERR_NO_MEMORY:
			return PMHASH_REASON_NONE;
		case PMH_ERR_IO:
			if (error->sys_errno == EINTR || error->sys_errno == EAGAIN)
				return PMHASH_REASON_NONE;
			return PMHASH_REASON_UNREADABLE;
		case PMH_ERR_LOST:
			return PMHASH_REASON_UNREADABLE;
		case PMH_ERR_OUTDATED:
			return PMHASH_REASON_OUTDATED;
		default:
			return PMHASH_REASON_NONE;
	}
}

/* ---- identity ---- */

/* The engine's environment in this run. */
PmhEnv
pmhash_engine_env(void)
{
	PmhEnv		env;

	memset(&env, 0, sizeof(env));
	env.locks = pmhash_shared->locks;
	env.instance = pmhash_shared->instance;
	env.shut = pmhash_shared->control.shut;
	env.shut_begun = pmhash_shared->control.shut_begun;
	env.all_shut = pmhash_shared->control.all_shut != 0;
	return env;
}

/*
 * Why a file with this identity must not be trusted, or NONE.  pmem tells
 * whether it is persistent memory, which does not help it if its journal was
 * not.
 */
PmhashReason
pmhash_identity_doubt(const PmhashIdentity *id, bool pmem)
{
	const PmhashControl *control = &pmhash_shared->control;

	if (id->version != PMHASH_IDENTITY_VERSION)
		return PMHASH_REASON_VERSION;
	if (id->system_identifier != control->system_identifier)
		return PMHASH_REASON_OTHER_CLUSTER;
	if (id->dax_era != control->dax_era)
		return id->dax_era == control->power_dax_era ?
			PMHASH_REASON_POWER : PMHASH_REASON_APART;
	if (!(pmem && control->pmem) && id->cache_era != control->cache_era)
		return PMHASH_REASON_POWER;
	return PMHASH_REASON_NONE;
}

/*
 * Is the file at trouble->path the one that the stub names?  *recovered, if not
 * NULL: has somebody opened it in this run already, and found it sound?  Nothing
 * is mapped.
 */
static bool
check_identity(const PmhashStub *stub, bool *recovered, Trouble *trouble)
{
	PmhashIdentity id;
	uint64_t	instance;
	PmhResult	result;

	result = pmh_examine(trouble->path, &id, &instance, &trouble->error);
	if (recovered != NULL)
		*recovered = result == PMH_OK && instance == pmhash_shared->instance;
	if (result != PMH_OK)
	{
		trouble->reason = reason_of(&trouble->error);
		return false;
	}
	trouble->reason = pmhash_identity_doubt(&id, true);
	if (trouble->reason != PMHASH_REASON_NONE)
		return false;
	if (id.database != MyDatabaseId)
		trouble->reason = PMHASH_REASON_OTHER_DATABASE;
	else if (id.file_id != stub->file_id || id.seed != stub->seed)
		trouble->reason = PMHASH_REASON_OTHER_INDEX;
	return trouble->reason == PMHASH_REASON_NONE;
}

static void
make_identity(Relation index, const PmhashStub *stub, bool transactional,
			  PmhashIdentity *id)
{
	const PmhashControl *control = &pmhash_shared->control;

	memset(id, 0, sizeof(*id));
	id->version = PMHASH_IDENTITY_VERSION;
	if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		id->flags |= PMHASH_IDENTITY_TEMP;
	if (index->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED)
		id->flags |= PMHASH_IDENTITY_UNLOGGED;
	id->system_identifier = control->system_identifier;
	id->file_id = stub->file_id;
	id->seed = stub->seed;
	if (!pg_strong_random(id->predicate_key, sizeof(id->predicate_key)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random key")));
	id->dax_era = control->dax_era;
	id->cache_era = control->cache_era;
	id->instance = pmhash_shared->instance;
	if (transactional)
		id->creator_xid = U64FromFullTransactionId(GetTopFullTransactionId());
	id->created_at = GetCurrentTimestamp();
	id->created_lsn = GetXLogInsertRecPtr();
	id->database = MyDatabaseId;
	id->tablespace = pmhash_node_tablespace(&pmhash_node(index));
	id->index_oid = RelationGetRelid(index);
	id->relfilenode = pmhash_node_number(&pmhash_node(index));
	id->owner_pid = MyProcPid;
	id->timeline = control->timeline;
	id->owner_start = MyStartTimestamp;
}

/* ---- making files ---- */

static void
new_stub(PmhashStub *stub)
{
	memset(stub, 0, sizeof(*stub));
	stub->magic = PMHASH_STUB_MAGIC;
	stub->version = PMHASH_STUB_VERSION;
	while (stub->file_id == 0)
	{
		if (!pg_strong_random(&stub->file_id, sizeof(stub->file_id)) ||
			!pg_strong_random(&stub->seed, sizeof(stub->seed)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate a random file id")));
	}
}

/* The file's name must be as durable as its contents. */
static void
sync_name(Relation index, const char *directory)
{
	PmhError	error;
	int			fd;

	memset(&error, 0, sizeof(error));
	ReserveExternalFD();
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) != 0)
	{
		error.code = PMH_ERR_IO;
		error.sys_errno = errno;
	}
	if (fd >= 0)
		close(fd);
	ReleaseExternalFD();
	if (error.code != PMH_OK)
		report(index, directory, "create", &error);
}

/*
 * pmh_create, under the create lock: the sweeper lists files under it, so that it
 * never meets one whose header is still being written by somebody alive.  If the
 * process has no room for another mapping, what it does not need is unmapped.
 */
static PmhResult
create_file(const char *path, const PmhashIdentity *id, PmhTable **table,
			PmhError *error)
{
	PmhEnv		env = pmhash_engine_env();
	bool		locked = LWLockHeldByMe(pmhash_lwlock(PMHASH_CREATE_LOCK));
	PmhResult	result;

	if (!locked)
		LWLockAcquire(pmhash_lwlock(PMHASH_CREATE_LOCK), LW_SHARED);
	do
		result = pmh_create(path, NULL, id, &env, table, error);
	while (result == PMH_ERR_NO_MEMORY && pmhash_entries_make_room());
	if (!locked)
		LWLockRelease(pmhash_lwlock(PMHASH_CREATE_LOCK));
	return result;
}

/*
 * Make the file of a stub and open it.  It is on the list of what an abort
 * removes from before it exists.
 */
static PmhashFile *
make_file(Relation index, const PmhashStub *stub, bool transactional)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH];
	PmhashIdentity id;
	PmhTable   *table;
	PmhashFile *file;
	PmhError	error;
	PmhResult	result;
	uint64		generation = pg_atomic_read_u64(&pmhash_shared->stub_generation);

	pmhash_require_pool_in_place();
	if (pmhash_journal_map(path, &error) != PMH_OK)
		report(index, path, "open undo journal", &error);
	pmhash_database_path(directory, MyDatabaseId);
	pmhash_file_path(path, MyDatabaseId, stub->file_id);
	if (mkdir(directory, 0700) != 0 && errno != EEXIST)
	{
		int			sys_errno = errno;
		const char *shown = pmhash_shown_path(index, directory);

		errno = sys_errno;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", shown),
				 detail_of_file("", directory, shown)));
	}
	make_identity(index, stub, transactional, &id);
	pmhash_pending_create(path, index);
	result = create_file(path, &id, &table, &error);
	if (result != PMH_OK)
		report(index, path, "create", &error);
	file = pmhash_entry_use_for_build(pmhash_entry_enter(index, table, stub, path,
														 generation));
	if (pmh_is_pmem(table))
		sync_name(index, directory);
	return file;
}

/*
 * Is the index's main fork new in this transaction, so that an abort removes
 * it?  If not, ambuild is emptying it in place (ON COMMIT DELETE ROWS), and
 * what it makes has to stay even if the transaction fails after that.
 */
static bool
storage_is_new(Relation index)
{
	return index->rd_createSubid != InvalidSubTransactionId ||
		pmhash_node_subid(index) != InvalidSubTransactionId;
}

/*
 * Make the file of an index that is to be rebuilt beside writers, and let its stub
 * name it: from here on inserts go there (refill.c).  It stays even if this
 * transaction fails.  The caller holds ShareUpdateExclusiveLock on table and
 * index.  Returns the file's id.  ERROR if it can't be made.
 */
uint64
pmhash_file_begin_filling(Relation index)
{
	PmhashFile *file;
	PmhashStub	stub;

	pmhash_require_service(index);
	new_stub(&stub);
	stub.flags = PMHASH_STUB_FILLING;
	if (pmhash_wants_wal(index))
		stub.flags |= PMHASH_STUB_LOGGED;
	file = make_file(index, &stub, true);
	HOLD_INTERRUPTS();
	pmhash_stub_fill(index, stub.flags, stub.file_id, stub.seed);
	pmhash_stub_changed();
	pmhash_pending_keep(file->path);
	RESUME_INTERRUPTS();
	if (stub.flags & PMHASH_STUB_LOGGED)
		pmhash_file_announce(index, stub.file_id);
	return stub.file_id;
}

/*
 * The file of this index that its present main fork has had before, into
 * path[MAXPGPATH]; false if there was none.  The main fork is empty by now, so
 * it is what we have noted, or what this transaction has made.  (open_files.c
 * keeps no entry that is neither mapped nor valid.)
 */
static bool
file_before(Relation index, char *path)
{
	uint64		file_id = pmhash_entry_in_fork(index);

	if (file_id == 0)
		return pmhash_pending_created(index, path) || pmhash_temp_file_of(index, path);
	pmhash_file_path(path, MyDatabaseId, file_id);
	return true;
}

/*
 * ambuild runs for an index that may have a file already.
 *
 * It runs again on the same main fork when a table is truncated in the
 * transaction that made it, and at ON COMMIT DELETE ROWS.  Neither can be rolled
 * back, and nobody else has seen that file: it goes now.  If the main fork is
 * new, the old one and its file go at commit.  Of a temporary index
 * that is emptied in place after SET TABLESPACE it may not be known which file it
 * had: that is found out before the next commit.
 */
static void
part_with_file_before(Relation index)
{
	char		path[MAXPGPATH];

	if (file_before(index, path))
	{
		pmhash_unlink(path);
		pmhash_entry_doubt(RelationGetRelid(index));	/* closed also if we fail */
	}
	else if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		pmhash_temp_file_replaced(index->rd_index->indrelid);
	else if (pmhash_node_subid(index) != InvalidSubTransactionId)
		pmhash_fork_replaced();
}

PmhashFile *
pmhash_file_create(Relation index)
{
	PmhashFile *file;
	PmhashStub	stub;
	bool		is_new = storage_is_new(index);
	bool		temporary = index->rd_rel->relpersistence == RELPERSISTENCE_TEMP;

	pmhash_require_service(index);
	part_with_file_before(index);
	new_stub(&stub);
	stub.flags = pmhash_new_wal_flags(index);
	file = make_file(index, &stub, is_new && !temporary);
	if (temporary)
		pmhash_temp_file_created(file, index);
	pmhash_stub_create(index, stub.flags, stub.file_id, stub.seed);
	if (stub.flags & PMHASH_STUB_STANDBY)
		pmhash_file_is_new(index, stub.file_id);
	if (!is_new)
		pmhash_pending_keep(file->path);
	return file;
}

void
pmhash_file_create_init(Relation index)
{
	pmhash_require_service(index);
	pmhash_stub_create_init(index);
}

/*
 * An unlogged index after a crash: reinit.c has copied the init fork over the
 * main fork, and the table is empty.  Make the file that the stub asks for,
 * unless someone else is quicker.  The create lock keeps the sweeper from
 * taking the file for an orphan before the stub names it.
 */
static PmhashFile *
make_missing_file(Relation index)
{
	PmhashFile *file = NULL;
	PmhashStub	stub;

	LockRelationForExtension(index, ExclusiveLock);
	if (pmhash_stub_read(index, false, &stub) &&
		(stub.flags & PMHASH_STUB_NEW_FILE) != 0)
	{
		new_stub(&stub);
		LWLockAcquire(pmhash_lwlock(PMHASH_CREATE_LOCK), LW_SHARED);
		file = make_file(index, &stub, false);
		pmhash_stub_fill(index, 0, stub.file_id, stub.seed);
		pmhash_pending_keep(file->path);
		LWLockRelease(pmhash_lwlock(PMHASH_CREATE_LOCK));
	}
	UnlockRelationForExtension(index, ExclusiveLock);
	return file;
}

/* ---- opening ---- */

/* Is an open file (still) trusted?  Its eras may have ended in this run. */
static PmhashReason
doubt_about(const PmhTable *table)
{
	PmhashIdentity id;

	memcpy(&id, pmh_identity(table), sizeof(id));
	return pmhash_identity_doubt(&id, pmh_is_pmem(table));
}

/*
 * Map a file.  If the process has no room for another mapping, what it does not
 * need is unmapped.
 */
static PmhResult
map_file(Trouble *trouble, PmhTable **table)
{
	PmhEnv		env = pmhash_engine_env();
	char		journal[MAXPGPATH];
	PmhResult	result;

	result = pmhash_journal_map(journal, &trouble->error);
	if (result != PMH_OK)
	{
		strlcpy(trouble->path, journal, sizeof(trouble->path));
		return result;
	}
	do
		result = pmh_open(trouble->path, &env, table, NULL, &trouble->error);
	while (result == PMH_ERR_NO_MEMORY && pmhash_entries_make_room());
	return result;
}

/*
 * Map the file that the stub names, which check_identity has found to be the
 * right one, and enter it.  NULL: trouble.
 */
static PmhashEntry *
open_existing(Relation index, const PmhashStub *stub, uint64 generation,
			  Trouble *trouble)
{
	PmhTable   *table;

	if (map_file(trouble, &table) != PMH_OK)
	{
		trouble->reason = reason_of(&trouble->error);
		return NULL;
	}

	/* Once more: this file may be of another class than the pool. */
	trouble->reason = doubt_about(table);
	if (trouble->reason != PMHASH_REASON_NONE)
	{
		pmh_close(table);
		return NULL;
	}
	return pmhash_entry_enter(index, table, stub, trouble->path, generation);
}

/*
 * Read the stub and say what it is good for; false: trouble.  A stub page that
 * can't be read is one that does not name a file.
 */
static bool
read_stub(Relation index, PmhashUse use, PmhashStub *stub, Trouble *trouble)
{
	if (!pmhash_stub_read(index, true, stub))
	{
		trouble->reason = PMHASH_REASON_NO_STUB;
		return false;
	}
	trouble->file_id = stub->file_id;
	if (stub->file_id != 0)
		pmhash_file_path(trouble->path, MyDatabaseId, stub->file_id);
	if (stub->flags & PMHASH_STUB_INVALID)
	{
		trouble->marked = true;
		trouble->reason = (PmhashReason) stub->reason;
		return false;
	}
	if (!pmhash_stub_serves(stub->flags, use))
	{
		trouble->reason = (stub->flags & PMHASH_STUB_FILLED) ?
			PMHASH_REASON_FILLED : PMHASH_REASON_FILLING;
		return false;
	}
	return true;
}

/* Read the stub; if it asks for a file, make one.  False: trouble. */
static bool
read_stub_with_file(Relation index, PmhashUse use, PmhashStub *stub,
					Trouble *trouble)
{
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (!read_stub(index, use, stub, trouble))
			return false;
		if ((stub->flags & PMHASH_STUB_NEW_FILE) == 0)
			return true;
		(void) make_missing_file(index);
	}
}

/*
 * The entry of an index, as its stub says now.  With 'map' the file is mapped;
 * without, only if nobody has opened it in this run, since opening it for the
 * first time may show more than looking at it from outside.  NULL: trouble.
 */
static PmhashEntry *
entry_by_stub(Relation index, PmhashUse use, bool map, Trouble *trouble)
{
	uint64		generation = pg_atomic_read_u64(&pmhash_shared->stub_generation);
	PmhashStub	stub;
	const PmhashFile *mapped;
	bool		recovered;

	pg_read_barrier();
	if (!read_stub_with_file(index, use, &stub, trouble))
		return NULL;
	mapped = pmhash_entry_mapped(RelationGetRelid(index), stub.file_id);
	if (mapped != NULL)
	{
		trouble->reason = doubt_about(mapped->table);
		return trouble->reason != PMHASH_REASON_NONE ? NULL :
			pmhash_entry_confirm(index, &stub, generation);
	}
	if (!check_identity(&stub, &recovered, trouble))
		return NULL;
	if (map || !recovered)
		return open_existing(index, &stub, generation, trouble);
	return pmhash_entry_confirm(index, &stub, generation);
}

/*
 * The open file of an index whose file is not mapped, or whose stub has to be
 * read again.
 */
static PmhashFile *
open_by_stub(Relation index, PmhashUse use, Trouble *trouble)
{
	PmhashEntry *entry;

	memset(trouble, 0, sizeof(*trouble));
	entry = entry_by_stub(index, use, true, trouble);
	return entry != NULL ? pmhash_entry_use(entry) : NULL;
}

/* Is pmhash disabled for this run?  Then this is the trouble. */
static bool
is_disabled(Trouble *trouble)
{
	if (likely(pmhash_shared == NULL || pmhash_shared->usable))
		return false;
	memset(trouble, 0, sizeof(*trouble));
	trouble->reason = PMHASH_REASON_DISABLED;
	return true;
}

/* The open file of an index, or NULL and the trouble that is in the way. */
static PmhashFile *
open_file(Relation index, PmhashUse use, Trouble *trouble)
{
	PmhashEntry *entry;

	if (is_disabled(trouble))
		return NULL;
	pmhash_require_service(index);
	entry = pmhash_entry_find(index, use);
	if (likely(entry != NULL && entry->file != NULL))
		return pmhash_entry_use(entry);
	return open_by_stub(index, use, trouble);
}

/* Has the index a usable file?  If not, the trouble.  Maps as little as it can. */
static bool
file_is_usable(Relation index, Trouble *trouble)
{
	if (is_disabled(trouble))
		return false;
	pmhash_require_service(index);
	if (likely(pmhash_entry_find(index, PMHASH_READ) != NULL))
		return true;
	memset(trouble, 0, sizeof(*trouble));
	return entry_by_stub(index, PMHASH_READ, false, trouble) != NULL;
}

/*
 * Plans that use an index of the table are to be made anew, in all sessions and
 * at once, as stub_generation works at once: what CacheInvalidateRelcache does
 * comes at the end of the transaction, and not at all if that aborts.
 */
static void
forget_plans(Oid table)
{
	SharedInvalidationMessage message;

	memset(&message, 0, sizeof(message));
	message.rc.id = SHAREDINVALRELCACHE_ID;
	message.rc.dbId = MyDatabaseId;
	message.rc.relId = table;
	SendSharedInvalidMessages(&message, 1);
}

/* Mark the stub, tell everybody, have the index rebuilt. */
static void
invalidate_index(Relation index, uint64 file_id, PmhashReason reason)
{
	if (pmhash_stub_invalidate(index, file_id, reason))
	{
		/*
		 * The reason may be gone after a crash (a bad page of the page cache
		 * is read from disk again, as it once was), so the mark has to stay
		 * even if this transaction does not.
		 */
		XLogFlush(pmhash_insert_end());
		pmhash_stub_changed();
		forget_plans(index->rd_index->indrelid);

		/* What has been read through it is now guarded by locks on the table. */
		TransferPredicateLocksToHeapRelation(index);
	}
	pmhash_rebuild_wanted(RelationGetRelid(index));
}

/*
 * Somebody who does not leave anything out has found an index to be invalid.
 * Mark it, so that all others learn of it as well, unless the reason may go
 * away again: then the file is still good.
 */
static void
notice_invalid(Relation index, const Trouble *trouble)
{
	if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		trouble->reason == PMHASH_REASON_DISABLED)
		return;
	if (trouble->reason == PMHASH_REASON_FILLING ||
		trouble->reason == PMHASH_REASON_FILLED)
		pmhash_rebuild_wanted(RelationGetRelid(index));
	else if (!trouble->marked && trouble->file_id != 0 && pmhash_pool_in_place())
		invalidate_index(index, trouble->file_id, trouble->reason);
	else
		pmhash_rebuild_wanted(RelationGetRelid(index));
}

PmhashFile *
pmhash_file_open_for_scan(Relation index)
{
	Trouble		trouble;
	PmhashFile *file = open_file(index, PMHASH_READ, &trouble);

	if (likely(file != NULL))
		return file;
	if (trouble.reason == PMHASH_REASON_NONE)
		raise_trouble(index, &trouble);
	notice_invalid(index, &trouble);
	return NULL;
}

void
pmhash_invalid_error(Relation index)
{
	Trouble		trouble;

	if (open_file(index, PMHASH_READ, &trouble) == NULL)
	{
		if (trouble.reason == PMHASH_REASON_DISABLED)
			pmhash_require_service(index);
		raise_trouble(index, &trouble);
	}
	/* It has just been rebuilt. */
	memset(&trouble, 0, sizeof(trouble));
	trouble.reason = PMHASH_REASON_MISSING;
	raise_trouble(index, &trouble);
}

PmhashFile *
pmhash_file_open(Relation index)
{
	PmhashFile *file = pmhash_file_open_for_scan(index);

	if (unlikely(file == NULL))
		pmhash_invalid_error(index);
	return file;
}

void
pmhash_index_invalidate(Relation index, const PmhashFile *file,
						PmhashReason reason)
{
	if (index->rd_rel->relpersistence != RELPERSISTENCE_TEMP)
		invalidate_index(index, file->file_id, reason);
}

/*
 * For the sweeper, which comes by all the time: mark an index if its file is
 * not to be used any more, though nobody has tried, and have it rebuilt.
 * Nothing is mapped.  The caller holds a lock on the index and has just read
 * its stub.
 */
void
pmhash_index_examine(Relation index, const PmhashStub *stub)
{
	Trouble		trouble;

	if ((stub->flags & PMHASH_STUB_NEW_FILE) != 0 ||
		!index->rd_index->indisready || !index->rd_index->indislive)
		return;
	if (!pmhash_stub_serves(stub->flags, PMHASH_READ))
	{
		/* Whoever has marked it may have asked while rebuilds were off. */
		pmhash_rebuild_wanted(RelationGetRelid(index));
		return;
	}
	memset(&trouble, 0, sizeof(trouble));
	pmhash_file_path(trouble.path, MyDatabaseId, stub->file_id);
	if (!check_identity(stub, NULL, &trouble) &&
		trouble.reason != PMHASH_REASON_NONE && pmhash_pool_in_place())
		invalidate_index(index, stub->file_id, trouble.reason);
}

PmhashFile *
pmhash_file_open_or_skip(Relation index, bool inserting)
{
	Trouble		trouble;
	PmhashUse	use = !inserting ? PMHASH_REMOVE :
		enforces_constraint(index) ? PMHASH_READ : PMHASH_INSERT;
	PmhashFile *file = open_file(index, use, &trouble);

	if (likely(file != NULL))
		return file;
	if (trouble.reason == PMHASH_REASON_NONE)
		raise_trouble(index, &trouble);
	if (inserting && (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
					  enforces_constraint(index)))
	{
		pmhash_rebuild_wanted(RelationGetRelid(index));
		if (trouble.reason == PMHASH_REASON_DISABLED)
			pmhash_require_service(index);
		raise_trouble(index, &trouble);
	}

	/*
	 * Of the stub that we have read: if it names another file by now, that is
	 * one that is being filled, and its rebuild waits for our lock on the table.
	 */
	if (trouble.marked)
		pmhash_rebuild_wanted(RelationGetRelid(index));
	else
		invalidate_index(index, trouble.file_id, trouble.reason);
	return NULL;
}

/*
 * The file that the builder is to fill: the one that the stub names, unless the
 * stub has been marked since.  ERROR if it can't be had.
 */
PmhashFile *
pmhash_file_open_filling(Relation index, uint64 file_id)
{
	Trouble		trouble;
	PmhashFile *file = open_file(index, PMHASH_INSERT, &trouble);

	if (file == NULL)
		raise_trouble(index, &trouble);
	if (file->file_id != file_id)
		elog(ERROR, "index \"%s\" has another file than the one to be filled",
			 RelationGetRelationName(index));
	return file;
}

void
pmhash_insert_failed(Relation index, PmhashFile *file, PmhResult result)
{
	bool		passes = result == PMH_CANCELLED ||
		(result != PMH_ERR_NO_FILE && !file->filling);

	if (passes || enforces_constraint(index) ||
		index->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		pmhash_engine_error(index, file, result);
	invalidate_index(index, file->file_id,
					 file->filling ? PMHASH_REASON_FILLING : PMHASH_REASON_MISSING);
}

/*
 * Why an index is invalid, or NONE.  ERROR for what may pass.  For the worker
 * and for those who want to know; the caller holds a lock on the index.  An
 * unlogged index that has no file yet is not invalid.
 */
PmhashReason
pmhash_index_doubt(Relation index)
{
	Trouble		trouble;
	PmhashStub	stub;

	if (pmhash_stub_read(index, true, &stub) &&
		(stub.flags & PMHASH_STUB_NEW_FILE) != 0)
		return PMHASH_REASON_NONE;
	if (file_is_usable(index, &trouble))
		return PMHASH_REASON_NONE;
	if (trouble.reason == PMHASH_REASON_NONE)
		raise_trouble(index, &trouble);
	return trouble.reason;
}

/*
 * Is the file of a valid index persistent memory?  It has to be mapped for that,
 * but not to stay so.  ERROR if it can't be.
 */
bool
pmhash_index_is_pmem(Relation index)
{
	Trouble		trouble;
	PmhashEntry *entry = pmhash_entry_find(index, PMHASH_READ);

	memset(&trouble, 0, sizeof(trouble));
	if (entry == NULL || entry->file == NULL)
		entry = entry_by_stub(index, PMHASH_READ, true, &trouble);
	if (entry == NULL)
		raise_trouble(index, &trouble);
	return pmh_is_pmem(entry->file->table);
}

/*
 * May plans use this index?  Raises no error for what it finds.  Trouble that may
 * pass, as want of descriptors or memory, is no reason to take another plan in
 * silence: who runs the plan will be told if it is still there.  A file that an
 * unlogged index does not have yet is left to who uses it.
 */
bool
pmhash_index_plannable(Relation index)
{
	Trouble		trouble;
	PmhashStub	stub;

	if (!pmhash_service_available() ||
		pg_atomic_read_u32(&pmhash_shared->not_ready) != 0)
		return false;
	pmhash_pool_ready();
	if (likely(pmhash_entry_find(index, PMHASH_READ) != NULL))
		return true;
	memset(&trouble, 0, sizeof(trouble));
	if (read_stub(index, PMHASH_READ, &stub, &trouble) &&
		((stub.flags & PMHASH_STUB_NEW_FILE) != 0 ||
		 entry_by_stub(index, PMHASH_READ, false, &trouble) != NULL))
		return true;
	if (trouble.reason == PMHASH_REASON_NONE)
		return true;
	pmhash_rebuild_wanted(RelationGetRelid(index));
	return false;
}

/*
 * The file that an index's stub names: its id, if wanted, and its path into
 * path[MAXPGPATH]; whether it is there or usable is not looked at.  False if there
 * is no such stub.
 */
bool
pmhash_index_path(Relation index, bool zero_on_error, uint64 *file_id, char *path)
{
	PmhashStub	stub;

	if (pmhash_shared == NULL || !pmhash_shared->usable ||
		!pmhash_stub_read(index, zero_on_error, &stub) || stub.file_id == 0)
		return false;
	if (file_id != NULL)
		*file_id = stub.file_id;
	pmhash_file_path(path, MyDatabaseId, stub.file_id);
	return true;
}

bool
pmhash_may_have_file(Relation index, const PmhashFile *file)
{
	char		path[MAXPGPATH];

	return !pmhash_index_path(index, false, NULL, path) || strcmp(path, file->path) == 0;
}

/*
 * Bytes that a file occupies.  One that has shrunk keeps its length until the
 * next start of the server, with nothing behind its end in use.
 */
int64
pmhash_stat_size(const struct stat *st)
{
	return Min((int64) st->st_size, (int64) st->st_blocks * 512);
}

int64
pmhash_file_size(Relation index)
{
	char		path[MAXPGPATH];
	struct stat st;

	if (!pmhash_index_path(index, false, NULL, path) || stat(path, &st) != 0)
		return 0;
	return pmhash_stat_size(&st);
}
