# An index is rebuilt without rows that an older snapshot sees.  That may be handed on
# (pg_export_snapshot), before and afterwards, or come from a logical slot that was being
# made: whoever has it does without the index, and misses nothing.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('imported', "wal_level = logical\nmax_wal_senders = 4\nmax_replication_slots = 4");

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
hand_on(0, 1);
unlink(index_file($node, 't_k')) or die;
comes_back($node, 'beside two of them');
sees_all($_, "session $_") foreach 0, 1;
hand_on(1, 2);
$sessions[$_]->query_safe('COMMIT') foreach 0, 1;
sees_all(2, 'the third one');
$sessions[2]->query_safe('COMMIT');
comes_back($node, 'afterwards');

# A process that makes a logical slot is stopped when its snapshot is that of a place in
# WAL already, but it has not got there: no transaction has it.
my ($in, $out, $error) = ('', '', '');
my $writer = $sessions[1];
my ($walsender, $psql);

$writer->query_safe('BEGIN; INSERT INTO t VALUES (-1)');
$psql = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') . ' replication=database', '-f', '-' ],
	'<', \$in, '>', \$out, '2>', \$error);
$in = "CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL pgoutput;\n";
$psql->pump while length $in;
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event = 'transactionid')})
	or die 'no slot is being made';
$walsender = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender'});
kill('STOP', $walsender) or die $!;
$writer->query_safe('COMMIT');
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 6');
unlink(index_file($node, 't_k')) or die;
comes_back($node, 'while a slot is being made');
kill('CONT', $walsender) or die $!;
$psql->pump until $out =~ /\S+\|(\S+)\|pgoutput/ || $error ne "";
my ($name) = $out =~ /\|([^|]+)\|pgoutput/;
is($error, '', 'the slot is made');
$sessions[2]->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$name'");
is($sessions[2]->query_safe('SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 6'),
	10, 'its snapshot sees all its rows');
$in .= "IDENTIFY_SYSTEM;\n\\q\n";
$psql->finish;
is($sessions[2]->query_safe('SELECT count(*) FROM t WHERE k = 6'), 10, 'a second time');
$sessions[2]->query_safe('COMMIT');
comes_back($node, 'after the slot');
$_->quit for @sessions;
$node->stop;
done_testing();
