/*-------------------------------------------------------------------------
 *
 * server_stand_ins.c
 *	  What stands in for the PostgreSQL server, the same under the undo journal
 *	  (server_shim.c) and under starts (starts.c).
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

/* The WAL writer never comes to it. */
void
XLogSetAsyncXactLSN(XLogRecPtr lsn)
{
}

void *
palloc_extended(Size size, int flags)
{
	return malloc(size);
}

void
pfree(void *pointer)
{
	free(pointer);
}

/* The postmaster's encoding, and no message of it is too long. */
int
GetDatabaseEncoding(void)
{
	return PG_SQL_ASCII;
}

int
pg_encoding_mbcliplen(int encoding, const char *string, int length, int limit)
{
	return Min(length, limit);
}

/* ---- messages, but for errmsg and errfinish ---- */

bool
errstart(int elevel, const char *domain)
{
	server_error_level = elevel;
	return elevel >= server_report_from;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

int
errcode(int sqlerrcode)
{
	return 0;
}

int
errcode_for_file_access(void)
{
	return 0;
}

int
errdetail(const char *fmt,...)
{
	return 0;
}

int
errdetail_log(const char *fmt,...)
{
	return 0;
}

int
errhint(const char *fmt,...)
{
	return 0;
}
