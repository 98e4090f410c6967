# A rebuild waits for snapshots that are older than its own scan.  One of those may be
# handed on while it waits (pg_export_snapshot): the session that has it then is no
# less to be waited for.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('imported');

$node->start;
install_extension($node);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i % 100, i FROM generate_series(0, 999) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL

my @sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 0 .. 2;

# Session $to takes the snapshot over from session $from.
sub hand_on
{
	my ($from, $to) = @_;
	my $name = $sessions[$from]->query_safe('SELECT pg_export_snapshot()');

	$sessions[$to]->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$name'");
	return;
}

# Until the rebuilder waits for a session; or it is over, having passed that by.
sub waits_for
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($session, $name) = @_;
	my $pid = $sessions[$session]->query_safe('SELECT pg_backend_pid()');

	$node->poll_query_until('postgres', <<SQL) or die 'no rebuild';
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder'
		AND wait_event = 'virtualxid' AND $pid = ANY (pg_blocking_pids(pid)))
	OR EXISTS (SELECT FROM pmhash_indexes WHERE state = 'valid')
SQL
	is(index_state($node, 't_k'), 'rebuilding', "$name is waited for");
	return;
}

# The session still has the rows that have been deleted since.
sub sees_all
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($session, $name) = @_;

	is($sessions[$session]->query_safe('SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 5'),
		10, "$name sees all its rows");
	return;
}

# Handed on twice, and rows that it sees are deleted before the rebuild has scanned the table.
$sessions[0]->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 5');
unlink(index_file($node, 't_k')) or die;
waits_for(0, 'the first one');
hand_on(0, 1);
$sessions[0]->query_safe('COMMIT');
waits_for(1, 'the second one');
sees_all(1, 'the second one');
hand_on(1, 2);
$sessions[1]->query_safe('COMMIT');
waits_for(2, 'the third one');
sees_all(2, 'the third one');
$sessions[2]->query_safe('COMMIT');
comes_back($node, 'afterwards');
$_->quit for @sessions;
$node->stop;
done_testing();
