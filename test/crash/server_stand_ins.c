/*-------------------------------------------------------------------------
 *
 * server_stand_ins.c
 *	  What stands in for the PostgreSQL server, the same under the undo journal
 *	  (journal.c) and under starts (starts.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"

#include "cluster/cluster.h"
#include "server_stand_ins.h"

XLogRecPtr	XactLastRecEnd;
Oid			MyDatabaseId = SERVER_DATABASE;
int			wal_segment_size = SERVER_WAL_SEGMENT;
volatile sig_atomic_t ShutdownRequestPending = false;
volatile sig_atomic_t ProcDiePending = false;

int			server_report_from = ERROR;
int			server_error_level;

DOES_NOTHING(XLogSetAsyncXactLSN, (XLogRecPtr lsn))		/* the WAL writer never comes to it */
GIVES(void *, palloc_extended, (Size size, int flags), malloc(size))
DOES(pfree, (void *pointer), free(pointer))

/* The postmaster's encoding, and no message of it is too long. */
GIVES(int, GetDatabaseEncoding, (void), PG_SQL_ASCII)
GIVES(int, pg_encoding_mbcliplen, (int encoding, const char *string, int length, int limit), Min(length, limit))

/* ---- messages, but for errmsg and errfinish ---- */

bool
errstart(int elevel, const char *domain)
{
	server_error_level = elevel;
	return elevel >= server_report_from;
}

GIVES(bool, errstart_cold, (int elevel, const char *domain), errstart(elevel, domain))
GIVES(int, errcode, (int sqlerrcode), 0)
GIVES(int, errcode_for_file_access, (void), 0)
GIVES(int, errdetail, (const char *format,...), 0)
GIVES(int, errdetail_log, (const char *format,...), 0)
GIVES(int, errhint, (const char *format,...), 0)
