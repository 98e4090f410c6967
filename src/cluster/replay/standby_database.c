/*-------------------------------------------------------------------------
 *
 * standby_database.c
 *	  Databases that are made, on a standby: nothing here has their OID.
 *
 * As new_database.c, by WAL: no standby can see the files of the primary's pool, nor
 * whether that one has them.  Replay of DROP DATABASE would be too early: what moves a
 * database to another tablespace writes such a record, too (dbcommands.c, movedb).
 * What is left of a dropped database goes some time (launch_workers.c, remove_dropped),
 * and at the latest here, when the first record of one comes that is made with its OID.
 * No session is connected to either then.
 *
 * The redo function of RM_DBASE_ID is wrapped as that of RM_XLOG_ID is (standby_redo.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "commands/dbcommands_xlog.h"

#include "cluster/base/shared.h"
#include "cluster/replay/standby_redo.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/standby_lose.h"

static void (*core_redo) (XLogReaderState *record) = NULL;

/* The database that this record makes, or InvalidOid. */
static Oid
database_made(const XLogReaderState *record)
{
	const void *data = XLogRecGetData(record);

	switch (XLogRecGetInfo(record) & ~XLR_INFO_MASK)
	{
		case XLOG_DBASE_CREATE_FILE_COPY:
			{
				const xl_dbase_create_file_copy_rec *copy = data;

				/* else it is moved */
				return copy->db_id != copy->src_db_id ? copy->db_id : InvalidOid;
			}
		case XLOG_DBASE_CREATE_WAL_LOG:
			return ((const xl_dbase_create_wal_log_rec *) data)->db_id;
		default:
			return InvalidOid;
	}
}

/* What replay had come past before the last restart has been done (S2). */
static void
deal_with(XLogReaderState *record)
{
	Oid			database = database_made(record);

	if (OidIsValid(database) && record->EndRecPtr > pmhash_shared->standby->skip_to)
		pmhash_standby_database_dropped(database);
}

static void
redo(XLogReaderState *record)
{
	pmhash_standby_deal_safely(deal_with, record);
	core_redo(record);
}

/* Wrap the redo function of RM_DBASE_ID.  Only while preloading. */
void
pmhash_standby_database_init(void)
{
	core_redo = RmgrTable[RM_DBASE_ID].rm_redo;
	RmgrTable[RM_DBASE_ID].rm_redo = redo;
}
