/*-------------------------------------------------------------------------
 *
 * reads_catalog.c
 *	  An output plugin of logical decoding that reads a table, for tests.
 *
 * For each change of any other table it says how many rows of "settings", which is a
 * catalog to decoding (user_catalog_table), have the key 5 as of that place in WAL: by
 * its index "settings_k", and without an index.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "fmgr.h"
#include "replication/logical.h"
#include "replication/output_plugin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_output_plugin_init(OutputPluginCallbacks *callbacks);

static void
startup(LogicalDecodingContext *ctx, OutputPluginOptions *options, bool is_init)
{
	options->output_type = OUTPUT_PLUGIN_TEXTUAL_OUTPUT;
}

static void
begin(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
}

static void
commit(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr lsn)
{
}

/* How many rows have the key, by that index, or InvalidOid. */
static int
count_rows(Relation table, Oid index)
{
	SysScanDesc scan;
	ScanKeyData key;
	int			n = 0;

	ScanKeyInit(&key, 1, HTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(5));
	scan = systable_beginscan(table, index, OidIsValid(index), NULL, 1, &key);
	while (HeapTupleIsValid(systable_getnext(scan)))
		n++;
	systable_endscan(scan);
	return n;
}

static void
change(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, Relation relation,
	   ReorderBufferChange *what)
{
	Relation	table;
	Oid			index;

	if (strcmp(RelationGetRelationName(relation), "settings") == 0)
		return;
	table = table_open(get_relname_relid("settings", PG_PUBLIC_NAMESPACE), AccessShareLock);
	index = get_relname_relid("settings_k", PG_PUBLIC_NAMESPACE);
	OutputPluginPrepareWrite(ctx, true);
	if (OidIsValid(index))
		appendStringInfo(ctx->out, "by index %d, ", count_rows(table, index));
	appendStringInfo(ctx->out, "by table %d", count_rows(table, InvalidOid));
	OutputPluginWrite(ctx, true);
	table_close(table, AccessShareLock);
}

void
_PG_output_plugin_init(OutputPluginCallbacks *callbacks)
{
	callbacks->startup_cb = startup;
	callbacks->begin_cb = begin;
	callbacks->change_cb = change;
	callbacks->commit_cb = commit;
}
