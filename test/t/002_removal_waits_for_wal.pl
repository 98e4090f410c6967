# WAL that never reaches the disk.  Deleted rows come back with a crash: VACUUM
# must not have taken their entries.  Inserted rows are gone, and their TIDs
# are used again: their entries must go too.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# nobody but us flushes WAL
my $node = new_server('removal', <<CONF);
synchronous_commit = off
wal_writer_delay = 10s
wal_writer_flush_after = 100MB
wal_buffers = 64MB
shared_buffers = 128MB
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
pmhash.journal_size = 16MB
CONF
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE r (k int4, d int4);
INSERT INTO r SELECT i, i % 10 FROM generate_series(1, 20000) i;
CREATE INDEX r_k ON r USING pmhash (k);
CREATE INDEX r_d ON r USING pmhash (d);
CHECKPOINT;
SQL

foreach my $round (1 .. 4)
{
	# in one session, so that little time passes
	$node->safe_psql('postgres', <<SQL);
DELETE FROM r WHERE k % 4 = $round - 1;
VACUUM (TRUNCATE OFF) r;
SQL
	crash($node);
	$node->start;
	same_answers($node, 'r', 'k', 'r_k', "VACUUM, round $round");
	same_answers($node, 'r', 'd', 'r_d', "VACUUM, round $round");
}

# Rows of a transaction in progress: entries in the index, and in the journal,
# but nothing in WAL.  Commits would wake the WAL writer.
$node->safe_psql('postgres', 'TRUNCATE r; INSERT INTO r SELECT i, i % 10 FROM generate_series(1, 20000) i; CHECKPOINT');
foreach my $round (1 .. 3)
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query_safe('BEGIN');
	$session->query_safe('INSERT INTO r SELECT -i, i % 10 FROM generate_series(1, 5000) i');
	$session->query_safe('UPDATE r SET k = k + 100000 WHERE k BETWEEN 1 AND 3000');
	my $from = -s $node->logfile;
	crash($node);
	eval { $session->quit };
	$node->start;
	same_answers($node, 'r', 'k', 'r_k', "rows lost, round $round");
	same_answers($node, 'r', 'd', 'r_d', "rows lost, round $round");
	$node->wait_for_log(qr/[1-9][0-9]* entries taken out/, $from);

	# their TIDs are used again, for other keys and for the same
	$node->safe_psql('postgres', <<SQL);
INSERT INTO r SELECT 200000 + $round * 10000 + i, i % 10 FROM generate_series(1, 7000) i;
INSERT INTO r SELECT -i, i % 10 FROM generate_series(1, 1000) i;
SQL
	same_answers($node, 'r', 'k', 'r_k', "TIDs used again, round $round");
	same_answers($node, 'r', 'd', 'r_d', "TIDs used again, round $round");
	is( $node->safe_psql(
			'postgres', <<SQL),
SELECT by_index, by_bitmap
FROM answers('SELECT g, r.ctid FROM generate_series(-6000, 104000) g LEFT JOIN r ON r.k = g', 'r_k')
SQL
		'same|same', "lost keys, round $round");
	is( $node->safe_psql('postgres', <<SQL),
VACUUM r;
SELECT entries - (SELECT count(*) FROM r) FROM pmhash_stats('r_k');
DELETE FROM r WHERE k < 0;
SQL
		'0', "entries, round $round");
}
$node->stop;
done_testing();
