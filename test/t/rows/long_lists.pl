# VACUUM of long lists, and whose call backs it takes over.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# ======== long lists ========

# VACUUM of long lists, again and again: where a list needs new space in the middle is
# another place with each index, since each has hashes of its own.  A step that is done
# once more there is no circle (it was taken for one in 5 of 100).  PMHASH_LOADS: how
# many times as often.
#
# And a VACUUM that naps after each step, in a list that others make longer: the list's
# first buffer is soon in a part of the file that was not there when the VACUUM came by (the
# server crashed in 3 of 4 rounds).
{
	my $rounds = load_time(12);
	my $node = new_server('long_lists', "fsync = off\nmax_wal_size = 4GB\n");
	$node->start;
	install_extension($node);

	my @failed;
	foreach my $round (1 .. $rounds)
	{
		my ($status, undef, $error) = $node->psql('postgres', <<'SQL', on_error_stop => 1);
CREATE TABLE d (k int4, v int4);
INSERT INTO d SELECT 1, i FROM generate_series(1, 100000) i;
INSERT INTO d SELECT 2, i FROM generate_series(1, 5000) i;
INSERT INTO d SELECT i / 3, i FROM generate_series(30, 30000) i;
CREATE INDEX d_k ON d USING pmhash (k);
INSERT INTO d SELECT -(i % 10), i FROM generate_series(1, 20000) i;
INSERT INTO d SELECT -11, i FROM generate_series(1, 100000) i;
INSERT INTO d SELECT 2, i FROM generate_series(1, 300) i;
DELETE FROM d WHERE v % 2 = 0;
VACUUM d;
SQL
		push @failed, "$round: $error" if $status != 0;
		$node->safe_psql('postgres', q(SELECT pmhash.check('d_k'))) if $status == 0 && $round % 20 == 0;
		$node->safe_psql('postgres', 'DROP TABLE d');
	}
	is(join("\n", @failed), '', "VACUUM of long lists, $rounds times");

	# ---- a VACUUM that naps ----

	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE slow (k int4) WITH (autovacuum_enabled = off);
CREATE INDEX slow_k ON slow USING pmhash (k);
SQL

	foreach my $round (1 .. 3)
	{
		$node->safe_psql('postgres', <<'SQL');
INSERT INTO slow SELECT 1 FROM generate_series(1, 300000);
DELETE FROM slow WHERE random() < .999;
SQL
		my $vacuum = $node->background_psql('postgres', on_error_stop => 0);
		$vacuum->query_until(qr/begun/, "\\echo begun\n" .
			"SET vacuum_cost_delay = '10ms'; SET vacuum_cost_limit = 100;\n" .
			"VACUUM slow;\n\\echo vacuumed\n");
		$node->safe_psql('postgres',
			'INSERT INTO slow SELECT CASE WHEN g % 3 = 0 THEN 1 ELSE g END FROM generate_series(1, 60000) g')
		  foreach 1 .. 8;
		$vacuum->query_until(qr/vacuumed/, '');
		$vacuum->quit;
		my (undef, undef, $error) = $node->psql('postgres', q(SELECT pmhash.check('slow_k')));
		is($error, '', "round $round of a VACUUM that naps");
	}
}

# ======== vacuum takes over ========

# VACUUM's dead row pointers are taken over whole, in whatever form the server
# keeps them (an array, a TidStore, one shared by parallel workers), and its callback
# is not called for each entry; that of CREATE INDEX CONCURRENTLY is.
{
	my $node = new_server('takeover', <<CONF);
log_min_messages = debug1
min_parallel_index_scan_size = 0
max_parallel_maintenance_workers = 2
CONF
	$node->start;
	install_extension($node);
	# rows of one block are some, of another one all dead; others have one row
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4, d int4, pad text);
INSERT INTO t SELECT i, i % 10, '' FROM generate_series(1, 30000) i;
INSERT INTO t SELECT i, i % 10, repeat('x', 5000) FROM generate_series(30001, 30200) i;
ALTER TABLE t ALTER pad SET STORAGE PLAIN;
INSERT INTO t SELECT i, i % 10, repeat('x', 7000) FROM generate_series(30201, 30400) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_d ON t USING pmhash (d);
SQL

	# What the server says of each index while it does something: the rows taken over
	sub taken_over
	{
		my ($sql) = @_;
		my $from = -s $node->logfile;
		my %said;

		$node->safe_psql('postgres', $sql);
		my $log = slurp_file($node->logfile, $from);
		push @{ $said{$1} }, $2
		  while $log =~ /DEBUG:  index "(\w+)": took over (\d+) dead TIDs from VACUUM/g;
		return \%said;
	}

	foreach my $case (
		[ 'one process', 'PARALLEL 0', 'k % 3 = 1 OR k BETWEEN 5000 AND 9000 OR k IN (30100, 30300)' ],
		[ 'parallel workers', 'PARALLEL 2', 'k % 3 = 2 OR k BETWEEN 12000 AND 16000' ])
	{
		my ($name, $option, $condition) = @$case;
		my $dead = $node->safe_psql('postgres', "SELECT count(*) FROM t WHERE $condition");

		$node->safe_psql('postgres', "DELETE FROM t WHERE $condition");
		is_deeply(taken_over("VACUUM ($option) t"), { t_k => [$dead], t_d => [$dead] }, "$name: taken over");
		is($node->safe_psql('postgres', "SELECT sum(entries) FROM unnest('{t_k,t_d}'::regclass[]) i, pmhash.stats(i)"),
			$node->safe_psql('postgres', 'SELECT 2 * count(*) FROM t'), "$name: entries of both");
		is($node->safe_psql('postgres', "SELECT pmhash.check('t_k'), pmhash.check('t_d')"), '|', "$name: pmhash.check");
		# the rows' places are used again
		$node->safe_psql('postgres', "INSERT INTO t SELECT 100000 + i, i % 10, '' FROM generate_series(1, $dead) i");
		same_answers($node, 't', 'k', 't_k', $name);
		same_answers($node, 't', 'd', 't_d', $name);
	}

	# another caller of bulk delete
	$node->safe_psql('postgres', 'DELETE FROM t WHERE d < 9');
	is_deeply(taken_over('CREATE INDEX CONCURRENTLY t_again ON t USING pmhash (k)'), {}, 'CREATE INDEX CONCURRENTLY');
	$node->safe_psql('postgres', 'VACUUM t');
	same_answers($node, 't', 'k', 't_again', 'CREATE INDEX CONCURRENTLY');
	is($node->safe_psql('postgres', "SELECT pmhash.check('t_again')"), '', 'CREATE INDEX CONCURRENTLY: pmhash.check');
	$node->stop;
}

done_testing();
