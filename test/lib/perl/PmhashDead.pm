# Entries known to be dead that wait for WAL: a server that flushes none of its own
# accord, and a table of which a scan finds rows dead before that is flushed.

package PmhashDead;

use v5.36;

use Exporter 'import';
use PmhashTest;

our @EXPORT = qw(
  quiet_wal
  use_for_dead
  sql
  flush_wal
  delete_and_look_up
  reads
);

my $node;

# Settings: no process flushes WAL of its own accord (with hold_wal_writer, PmhashTest);
# scans use indexes, which are logged only if they say so.
sub quiet_wal
{
	return no_wal_flushes() . <<CONF;
pmhash.wal = off
enable_seqscan = off
enable_bitmapscan = off
CONF
}

# All that follows is about this server, which has the extension.  With $tables it gets
# what they need: make_table() makes a table d of 4,000 rows, 1,000 of each key from 0 to
# 3, with an index d_k; pages are half empty, so that no scan prunes any.
sub use_for_dead ($server, $tables = undef)
{
	$node = $server;
	return if !$tables;
	return sql(<<'SQL');
CREATE TABLE other (v int4);
CREATE FUNCTION tids_read(index regclass) RETURNS int8 LANGUAGE sql AS
	'SELECT pg_stat_get_xact_tuples_returned($1)';
CREATE PROCEDURE make_table(options text DEFAULT '') LANGUAGE plpgsql AS $$ BEGIN
	DROP TABLE IF EXISTS d;
	CREATE TABLE d (k int4, v int4) WITH (fillfactor = 50);
	INSERT INTO d SELECT i % 4, i FROM generate_series(1, 4000) i;
	EXECUTE 'CREATE INDEX d_k ON d USING pmhash (k) ' || options;
END $$;
SQL
}

sub sql ($sql)
{
	return $node->safe_psql('postgres', $sql);
}

sub flush_wal
{
	return sql('SET synchronous_commit = on; INSERT INTO other VALUES (0)');
}

# Rows of a key are deleted, and their pages get a later record each, so that scans may
# call them dead though none of this is flushed; a scan does so, and puts them into the
# list.  (The transaction of the look-up goes on, because the server keeps one LSN for the
# commits of 32.)
sub delete_and_look_up ($k, $then = '')
{
	return sql(<<SQL);
DELETE FROM d WHERE k = $k;
BEGIN;
DO 'BEGIN PERFORM v FROM d WHERE k = 0 FOR UPDATE; END';
DO 'BEGIN PERFORM v FROM d WHERE k = $k; END';
@{[ $then ]}
ROLLBACK;
SQL
}

# The TIDs that a query reads of an index, after what it returns.
sub reads ($query, $index = 'd_k')
{
	return sql(sprintf("BEGIN; %s; SELECT tids_read('%s'); COMMIT", $query, $index));
}

1;
