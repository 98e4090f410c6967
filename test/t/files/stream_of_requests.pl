# Each COMMIT PREPARED asks for a cleaning.  A stream of them keeps the launcher neither from
# its other work nor starting cleaners without a pause.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds = 12;
my $node = new_server('stream', "max_prepared_transactions = 10\nlog_min_messages = debug1\nlog_statement = none\n");

$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int);
INSERT INTO t SELECT generate_series(1, 1000);
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE plain (k int);
SQL

my $script = $node->basedir . '/two_phase.sql';
append_to_file($script, <<'SQL');
BEGIN;
INSERT INTO plain VALUES (:client_id);
PREPARE TRANSACTION 'p:client_id';
COMMIT PREPARED 'p:client_id';
SQL
my $load = IPC::Run::start(
	[ 'pgbench', '-n', '-c', 4, '-T', $seconds, '-f', $script, $node->connstr('postgres') ],
	'>', \my $said, '2>', \my $errors);
my $from = -s $node->logfile;
my $began = time;

# two seconds of it first, so that the stream has begun
sleep(2);
my $file = $node->safe_psql('postgres', "SELECT file FROM pmhash_indexes WHERE index = 't_k'");
truncate($file, 0) or die "$file: $!";
$node->psql('postgres', 'SET enable_seqscan = off; SELECT * FROM t WHERE k = 1');
ok($node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 't_k'"), 'valid again');
cmp_ok(time - $began, '<', $seconds, 'beside the stream');
$load->finish;
like($said, qr/number of transactions actually processed: [1-9]\d\d/, 'a stream');
my $cleaners = () = slurp_file($node->logfile, $from) =~ /starting background worker process "pmhash cleaner/g;
cmp_ok($cleaners, '>', 0, 'cleaners');
cmp_ok($cleaners, '<=', 2 * $seconds, 'no more than one a second, and those that the clock calls for');
all_checked($node, 'in the end');
$node->stop;
done_testing();
