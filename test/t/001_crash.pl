# kill -9 of the whole server under load, again and again: after each restart
# the index answers as a sequential scan does, for keys that are there and for
# keys that are not.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $cycles = $ENV{PMHASH_CRASH_CYCLES} // 6;
my $node = new_server('crash', <<CONF);
max_wal_size = 64MB
checkpoint_timeout = 30s
pmhash.journal_size = 64kB
CONF
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE load (k int4, d int4, t text);
INSERT INTO load SELECT i, i % 50, 'text ' || i FROM generate_series(1, 5000) i;
CREATE INDEX load_k ON load USING pmhash (k);
CREATE INDEX load_d ON load USING pmhash (d);
CREATE INDEX load_t ON load USING pmhash (t);
SQL

# inserts, one row and many; updates of the key and not; deletes; aborts
my $script = $node->basedir . "/load.sql";
append_to_file($script, <<'SQL');
\set k random(1, 20000)
\set n random(1, 300)
INSERT INTO load VALUES (:k, :k % 50, 'text ' || :k);
BEGIN;
INSERT INTO load SELECT i, i % 50, 'text ' || i FROM generate_series(:k, :k + :n) i;
UPDATE load SET t = t || '.' WHERE k = :k;
COMMIT;
BEGIN;
INSERT INTO load SELECT i, 51, 'never' FROM generate_series(:k, :k + :n) i;
ROLLBACK;
DELETE FROM load WHERE k BETWEEN :k AND :k + :n;
UPDATE load SET k = k + 1, d = d + 1 WHERE k = :n;
SQL
my $lazy = $node->basedir . "/lazy.sql";
append_to_file($lazy,
	"SET synchronous_commit = off;\n" . slurp_file($script));
my $vacuum = $node->basedir . "/vacuum.sql";
append_to_file($vacuum, "VACUUM load;\n\\sleep 100 ms\n");

# event: `kill -9` of the whole server under load
foreach my $cycle (1 .. $cycles)
{
	my @output = ('', '', '');
	my @load = (
		start_pgbench($node, \$output[0], '-c', '2', '-T', '60', '-f', $script),
		start_pgbench($node, \$output[1], '-c', '2', '-T', '60', '-f', $lazy),
		start_pgbench($node, \$output[2], '-c', '1', '-T', '60', '-f', $vacuum));

	usleep(300_000 + rand(1_200_000));
	crash($node);
	$_->finish foreach @load;
	unlike(join('', @output), qr/ERROR:/, "cycle $cycle: no error before the crash");
	$node->start;
	same_answers($node, 'load', 'k', 'load_k', "cycle $cycle");
	same_answers($node, 'load', 'd', 'load_d', "cycle $cycle");
	same_answers($node, 'load', 't', 'load_t', "cycle $cycle");

	# each row has one entry, each entry a row
	foreach my $index ('load_k', 'load_d', 'load_t')
	{
		my ($status, $stdout, $stderr) =
		  $node->psql('postgres', "SELECT pmhash_check('$index')");
		is($stderr, '', "cycle $cycle: pmhash_check of $index");
	}

	# keys whose rows are gone lead nowhere, least of all beyond the table's end
	is( $node->safe_psql(
			'postgres', <<SQL),
SELECT rows, by_index, by_bitmap FROM answers('SELECT g, l.ctid FROM generate_series(0, 21000) g LEFT JOIN load l ON l.k = g', 'load_k')
EXCEPT SELECT (SELECT count(*) FROM generate_series(0, 21000) g LEFT JOIN load l ON l.k = g), 'same', 'same'
SQL
		'', "cycle $cycle: absent keys");
}

# After power loss the lines of a file that are volatile (src/engine/layout.h:
# the run area, the space map) may be anything, also if the one that names the
# run has survived.  Nothing is believed that another run has left there.
crash($node);
foreach my $file (index_files(pool($node)))
{
	open(my $out, '+<:raw', $file) or die "$file: $!";
	foreach my $span ([ 1024 + 64, 4096 ], [ 16384, 32768 ])
	{
		seek($out, $span->[0], 0) or die;
		print $out "\0" x ($span->[1] - $span->[0]);
	}
	close($out) or die;
}
$node->start;
$node->safe_psql('postgres',
	"INSERT INTO load SELECT i, i % 60, 'more ' || i % 20000 FROM generate_series(20000, 60000) i");
foreach my $column ('k', 'd', 't')
{
	same_answers($node, 'load', $column, "load_$column", 'volatile lines lost');
	my ($status, $stdout, $stderr) =
	  $node->psql('postgres', "SELECT pmhash_check('load_$column')");
	is($stderr, '', "volatile lines lost: pmhash_check of load_$column");
}

# what crashes leave behind is gone after VACUUM: as many entries as rows
$node->safe_psql('postgres', 'VACUUM load');
is( $node->safe_psql(
		'postgres',
		"SELECT entries - (SELECT count(*) FROM load) FROM pmhash_stats('load_k')"),
	'0', 'entries after VACUUM');
$node->stop;
done_testing();
