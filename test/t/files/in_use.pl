# Damage while the server runs: to files that are not in use just now, which the
# cleaner finds; and to a bucket, which pmhash_check finds.

use strict;
use warnings;

use File::Path qw(rmtree);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_server('in_use');
my $pool = pool($node);
$node->start;
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

# Wait for a line of the log; no session looks at an index meanwhile.
sub wait_for_rebuild
{
	my ($index, $from, $name) = @_;
	my $deadline = time + 60;

	sleep 1 while time < $deadline &&
	  slurp_file($node->logfile, $from) !~ /index "$index" of table "\w+" has been rebuilt/;
	return like(slurp_file($node->logfile, $from), qr/index "$index" of table "\w+" has been rebuilt/,
		"$name: rebuilt though it is not in use");
}

# event: removed, damaged or cut off while not in use
# ---- files that are not in use ----
foreach my $case (file_damage())
{
	my ($name, $reason, $damage) = @$case;
	my @files = (index_file($node, 't_k'), index_file($node, 'o_k'));
	my $log = -s $node->logfile;

	$damage->(@files);
	wait_for_rebuild('t_k', $log, $name);
	# one that is being overwritten may be met half-way
	$reason = qr/\Q$reason\E/;
	$reason = qr/$reason|it is damaged/ if $name eq 'file of another index';
	like(slurp_file($node->logfile, $log), qr/The file it had before could not be used: $reason/,
		"$name: reason");
	comes_back($node, $name);
}

# a session that has the file mapped learns of it
{
	my $session = $node->background_psql('postgres');

	$session->query_safe('SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1');
	rebuild_off($node);
	truncate(index_file($node, 't_k'), 20000) or die;
	# others see at once that it is too short; this session learns it by the cleaner
	foreach (1 .. 600)
	{
		last if $session->query_safe("SELECT state FROM pmhash_indexes WHERE index = 't_k'") ne 'valid';
		usleep(100_000);
	}
	is($session->query_safe('SELECT count(*) FROM t WHERE k = 1'), '2', 'a session with the file mapped answers without it');
	$session->quit;
	stays_invalid($node, 'it is damaged', 'cut off, rebuilds off');
	rebuild_on($node);
	comes_back($node, 'cut off, rebuilds off');
}

# all files of a database
{
	my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'postgres'");
	my $log = -s $node->logfile;

	rmtree("$pool/$oid");
	wait_for_rebuild($_, $log, "directory of a database, $_") foreach qw(t_k t_v o_k ex_k);
	all_come_back($node, 'directory of a database');
}

# ---- findings of pmhash_check ----
# a file of many full buckets: any byte there matters
$node->safe_psql('postgres', 'CREATE INDEX o_v ON o USING pmhash (k) WITH (fillfactor = 98); DROP INDEX o_k');
{
	my $session = $node->background_psql('postgres');
	my $file = index_file($node, 'o_v');
	my $bytes = slurp_file($file, 0);
	my $fingerprint = first_segment($file) + 4;

	$session->query_safe('SET enable_seqscan = off; SELECT count(*) FROM o WHERE k = 1');
	is($node->psql('postgres', "SELECT pmhash_check('o_v')"), 0, 'sound before');
	rebuild_off($node);
	patch_file($file, $fingerprint + $_, pack('C', ord(substr($bytes, $fingerprint + $_, 1)) ^ 0x5a)) foreach 0 .. 17;
	foreach my $attempt (1 .. 2)
	{
		my ($status, $stdout, $stderr) = $node->psql('postgres', "SELECT pmhash_check('o_v')");

		like($stderr, $attempt == 1 ? qr/ERROR:  (file "\S+" of index "o_v" is damaged|index "o_v" does not agree)/ :
			qr/ERROR:  pmhash index "o_v" has no usable file\n.*it is damaged/, "damaged bucket: check $attempt");
	}
	is(index_state($node, 'o_v'), 'invalid: it is damaged', 'damaged bucket: the index is invalid');
	is($session->query_safe('SELECT count(*) FROM generate_series(1, 5000) i JOIN o ON o.k = i'), '5000',
		'damaged bucket: not in use');
	rebuild_on($node);
	$node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'o_v'") or die;
	same_answers($node, 'o', 'k', 'o_v', 'damaged bucket, rebuilt');
	is($node->psql('postgres', "SELECT pmhash_check('o_v')"), 0, 'damaged bucket: sound after');

	# the mark is not undone with the statement, nor by a crash after it
	rebuild_off($node);
	$file = index_file($node, 'o_v');
	patch_file($file, $fingerprint + $_, "\0") foreach 0 .. 17;
	$node->psql('postgres', "BEGIN; SELECT pmhash_check('o_v'); ROLLBACK");
	$session->quit;
	crash($node);
	$node->start;
	is(index_state($node, 'o_v'), 'invalid: it is damaged', 'damaged bucket: still invalid after a crash');
	rebuild_on($node);
	$node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'o_v'") or die;
	same_answers($node, 'o', 'k', 'o_v', 'damaged bucket, after a crash');
}

$node->stop;
done_testing();
