/*-------------------------------------------------------------------------
 *
 * database_probe.c
 *	  Whether a database can have pmhash indexes, without connecting to it; whether
 *	  a worker could connect to it, and whether it is there at all.
 *
 * A worker that connects to a database leaves traces there: statistics of the
 * database (pgstat.c, pgstat_shutdown_hook), sessions that are counted.  A
 * database that has nothing of ours is to have none.  So before the launcher, which
 * is connected to no database, has one visited from which no look was requested, it looks
 * at three of its catalogs, as CREATE DATABASE looks at its template's (dbcommands.c,
 * ScanSourceDatabasePgClass):
 *
 *	pg_class	where pg_am is, whose files the map of relations does not list
 *	pg_am		access methods for indexes that initdb has not made
 *	pg_proc		their handlers: is one of them named in C as ours is?
 *
 * It never waits.  What cannot be locked or read, or is not as expected, means
 * "it may have some": then a worker that is connected looks.  Unlike the template of
 * CREATE DATABASE the database may be in use, and its VACUUM does not regard our
 * snapshot, as we are in no database (procarray.c, ComputeXidHorizons).  So a row
 * that is updated just now may be missed.  Where a row is known to be there, this is
 * found out; an access method that is being made has no index yet, and sessions that
 * use one ask for a look themselves.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_proc.h"
#include "common/relpath.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "utils/pgstat_internal.h"
#include "utils/relmapper.h"
#include "utils/snapmgr.h"

#include "cluster/database_probe.h"
#include "cluster/versions.h"

#define OUR_HANDLER		"pmhash_handler"

/* The database that is looked at. */
typedef struct Probe
{
	Oid			database;
	Oid			tablespace;		/* its default one, where its catalogs are */
	char	   *path;			/* of its directory there */
	Snapshot	snapshot;
} Probe;

/* What a visible row of a catalog says.  False: enough has been seen. */
typedef bool (*RowFunction) (HeapTuple tuple, void *arg);

/* ---- reading a catalog of another database ---- */

static bool
lock_catalog(const Probe *probe, Oid catalog)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, probe->database, catalog);
	return LockAcquire(&tag, AccessShareLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* The visible rows of a page, share-locked.  False: enough has been seen. */
static bool
look_at_page(const Probe *probe, Oid catalog, Buffer buffer, RowFunction look,
			 void *arg)
{
	Page		page = BufferGetPage(buffer);
	HeapTupleData tuple;

	if (PageIsNew(page) || PageIsEmpty(page))
		return true;
	for (OffsetNumber at = FirstOffsetNumber; at <= PageGetMaxOffsetNumber(page);
		 at = OffsetNumberNext(at))
	{
		ItemId		item = PageGetItemId(page, at);

		if (!ItemIdIsNormal(item))
			continue;
		ItemPointerSet(&tuple.t_self, BufferGetBlockNumber(buffer), at);
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = catalog;
		if (HeapTupleSatisfiesVisibility(&tuple, probe->snapshot, buffer) &&
			!look(&tuple, arg))
			return false;
	}
	return true;
}

/* All visible rows of a catalog with this file, which the caller has locked. */
static void
look_at_catalog(const Probe *probe, Oid catalog, Oid number, RowFunction look,
				void *arg)
{
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	PmhashNode	node = pmhash_make_node(probe->tablespace, probe->database, number);
	SMgrRelation smgr = pmhash_open_fork(node);
	BlockNumber nblocks = smgrnblocks(smgr, MAIN_FORKNUM);
	bool		more = true;

	smgrclose(smgr);
	for (BlockNumber block = 0; more && block < nblocks; block++)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = ReadBufferWithoutRelcache(node, MAIN_FORKNUM, block, RBM_NORMAL,
										   strategy, true);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		more = look_at_page(probe, catalog, buffer, look, arg);
		UnlockReleaseBuffer(buffer);
	}
	FreeAccessStrategy(strategy);
}

/* ---- what is looked for ---- */

/* pg_class: the number of pg_am's file. */
static bool
find_pg_am(HeapTuple tuple, void *arg)
{
	Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);
	Oid		   *number = arg;

	if (form->oid != AccessMethodRelationId)
		return true;
	*number = form->relfilenode;
	return false;
}

/* pg_am: handlers of access methods for indexes that are not PostgreSQL's own. */
static bool
collect_handlers(HeapTuple tuple, void *arg)
{
	Form_pg_am	form = (Form_pg_am) GETSTRUCT(tuple);
	List	  **handlers = arg;

	if (form->amtype == AMTYPE_INDEX && form->oid >= FirstNormalObjectId)
		*handlers = list_append_unique_oid(*handlers, form->amhandler);
	return true;
}

typedef struct Handlers
{
	List	   *wanted;			/* that have not been seen yet */
	bool		ours;
} Handlers;

/*
 * pg_proc: is a handler ours?  The name in C, prosrc, is past columns that may be
 * NULL; so short a text is stored as it is, and it is enough that the row has it
 * somewhere.
 */
static bool
judge_handler(HeapTuple tuple, void *arg)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(tuple);
	Handlers   *handlers = arg;

	if (!list_member_oid(handlers->wanted, form->oid))
		return true;
	handlers->wanted = list_delete_oid(handlers->wanted, form->oid);
	handlers->ours = memmem(tuple->t_data, tuple->t_len, OUR_HANDLER,
							strlen(OUR_HANDLER)) != NULL;
	return !handlers->ours && handlers->wanted != NIL;
}

/* The steps above, with locks on the catalogs.  True if one cannot be had. */
static bool
has_our_method(const Probe *probe)
{
	Oid			number = InvalidOid;
	Handlers	handlers = {NIL, false};

	if (!lock_catalog(probe, RelationRelationId) ||
		!lock_catalog(probe, AccessMethodRelationId) ||
		!lock_catalog(probe, ProcedureRelationId))
		return true;
	look_at_catalog(probe, RelationRelationId,
					pmhash_mapped_number(probe->path, RelationRelationId),
					find_pg_am, &number);
	if (!OidIsValid(number))
		return true;
	look_at_catalog(probe, AccessMethodRelationId, number, collect_handlers,
					&handlers.wanted);
	if (handlers.wanted == NIL)
		return false;
	look_at_catalog(probe, ProcedureRelationId,
					pmhash_mapped_number(probe->path, ProcedureRelationId),
					judge_handler, &handlers);
	return handlers.ours || handlers.wanted != NIL;
}

/* ---- the database ---- */

/* Lock a database, if that needs no waiting.  In a transaction. */
static bool
lock_database(Oid database, LOCKMODE mode)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	return LockAcquire(&tag, mode, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * The default tablespace of a database, InvalidOid if there is no such one.  (The
 * system caches are not there in a process that is in no database.)
 */
static Oid
database_tablespace(Oid database)
{
	Relation	rel = table_open(DatabaseRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(rel, 0, NULL);
	Oid			tablespace = InvalidOid;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		if (form->oid == database)
			tablespace = form->dattablespace;
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	return tablespace;
}

static bool
has_statistics(Oid database)
{
	return pgstat_have_entry(PGSTAT_KIND_DATABASE, database, 0);
}

/*
 * From PostgreSQL 18 on reading a block makes an entry for its database in the
 * statistics (bufmgr.c, AsyncReadBuffers).  Take it back, unless a session may have
 * counted something there meanwhile: the lock keeps others from connecting until the
 * transaction ends (postinit.c, InitPostgres).
 */
static void
take_statistics_back(Oid database)
{
	if (!has_statistics(database) || !lock_database(database, ShareLock) ||
		CountDBConnections(database) > 0)
		return;
	if (!pmhash_drop_statistics(PGSTAT_KIND_DATABASE, database, 0))
		pgstat_request_entry_refs_gc();
}

/*
 * In a transaction.  The lock keeps the database from being dropped or moved to
 * another tablespace.
 */
static bool
probe_database(Oid database)
{
	Probe		probe = {.database = database};
	bool		had_statistics;
	bool		result;

	if (!lock_database(database, AccessShareLock))
		return true;
	had_statistics = has_statistics(database);
	probe.tablespace = database_tablespace(database);
	if (!OidIsValid(probe.tablespace))
		return false;
	probe.path = GetDatabasePath(database, probe.tablespace);
	probe.snapshot = RegisterSnapshot(GetLatestSnapshot());
	result = has_our_method(&probe);
	UnregisterSnapshot(probe.snapshot);
	if (!had_statistics && !result)
		take_statistics_back(database);
	return result;
}

/*
 * May there be pmhash indexes in this database?  If that cannot be found out, yes.
 * For the launcher: outside transactions, in no database.  Raises no error; waits
 * for no other process; what stands in the current memory context stays.
 */
bool
pmhash_database_may_have_indexes(Oid database)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool result = true;

	StartTransactionCommand();
	PG_TRY();
	{
		result = probe_database(database);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		ereport(LOG,
				(errmsg("pmhash could not determine from outside whether database %u has indexes: %s",
						database, error->message),
				 errdetail("A background worker connects to the database to find out.")));
		FreeErrorData(error);
		result = true;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return result;
}

/*
 * pmhash_database_is_free
 *		Could a worker connect to this database now, as far as the lock on it goes?
 *
 * Not while it is renamed, moved to another tablespace or the template of a new one,
 * nor until the transaction that does so ends (postinit.c, InitPostgres; dbcommands.c).
 * For the launcher, outside transactions.  Waits for no process.
 */
bool
pmhash_database_is_free(Oid database)
{
	MemoryContext context = CurrentMemoryContext;
	bool		free;

	StartTransactionCommand();
	free = lock_database(database, RowExclusiveLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return free;
}

/*
 * pmhash_if_database_is_dropped
 *		Call a function if there is no such database, and none with this OID that a
 *		process could connect to before it returns.
 *
 * What pg_database has said some time ago does not do: CREATE DATABASE may be given the
 * OID of one that has been dropped.  The lock is one that connecting to a database
 * conflicts with, so that none does from before the look at pg_database on.  For the
 * launcher of a primary (a lock of this mode cannot be had in recovery), outside
 * transactions.  Waits for no process.  False: there is one, or that is not known now.
 */
bool
pmhash_if_database_is_dropped(Oid database, void (*act) (Oid database))
{
	MemoryContext context = CurrentMemoryContext;
	bool		dropped;

	StartTransactionCommand();
	dropped = lock_database(database, ShareLock) &&
		!OidIsValid(database_tablespace(database));
	if (dropped)
		act(database);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return dropped;
}
