# Asynchronously committed DELETEs whose WAL never reaches the disk: VACUUM
# must not have taken the entries of rows that a crash brings back.

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

# the same with rows that come and go without any WAL on disk
$node->safe_psql('postgres', 'TRUNCATE r; INSERT INTO r SELECT i, i % 10 FROM generate_series(1, 20000) i; CHECKPOINT');
foreach my $round (1 .. 3)
{
	$node->safe_psql('postgres', <<SQL);
INSERT INTO r SELECT -i, i % 10 FROM generate_series(1, 3000) i;
UPDATE r SET k = k + 100000 WHERE k BETWEEN 1 AND 3000;
DELETE FROM r WHERE k < 0;
SELECT count(*) FROM r WHERE k = 5;
SQL
	crash($node);
	$node->start;
	same_answers($node, 'r', 'k', 'r_k', "unflushed changes, round $round");
	same_answers($node, 'r', 'd', 'r_d', "unflushed changes, round $round");
	# TIDs that a crash has freed are used again, for other keys
	$node->safe_psql('postgres',
		"INSERT INTO r SELECT 200000 + $round * 10000 + i, 11 FROM generate_series(1, 5000) i");
	same_answers($node, 'r', 'k', 'r_k', "TIDs used again, round $round");
	same_answers($node, 'r', 'd', 'r_d', "TIDs used again, round $round");
}
$node->stop;
done_testing();
