# The row of an index in pg_index is missing: the server itself cannot open that index.  It
# keeps nobody from seeing to the others: the cleaner says so once, removes what no index
# owns and keeps what may be this one's; others are rebuilt, and shown.  To the rebuilder it
# is a rebuild that has failed.  When the row is there again, so is the index, and what was
# invalid meanwhile is rebuilt without anybody's meeting it.

use strict;
use warnings;

use File::Copy qw(copy);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid qw(index_file);
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('catalog', "pmhash.cleaner_naptime = 1\n");
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE a (k int, v int);
INSERT INTO a SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX a_k ON a USING pmhash (k);
CREATE TABLE b (k int);
INSERT INTO b SELECT i FROM generate_series(1, 100) i;
CREATE INDEX b_k ON b USING pmhash (k);
CREATE INDEX b_old ON b USING pmhash (k);
CREATE TABLE saved AS SELECT * FROM pg_index WHERE indexrelid = 'a_k'::regclass;
SQL
my $kept = index_file($node, 'a_k');
my $lost = index_file($node, 'b_k');
my $old = index_file($node, 'b_old');
copy($old, "$old.copy") or die "$old: $!";
$node->safe_psql('postgres', 'REINDEX INDEX b_old');
my $states = "SELECT string_agg(index || ' ' || state, ', ' ORDER BY index::text) FROM pmhash_indexes";

# ---- the row is missing; of another index the file, and a file is left over ----

$node->safe_psql('postgres', "DELETE FROM pg_index WHERE indexrelid = 'a_k'::regclass");
$node->stop;
rename("$old.copy", $old) or die "$old: $!";
unlink($lost) or die "$lost: $!";
my $from = -s $node->logfile;
$node->start;
$node->poll_query_until('postgres', "SELECT pg_stat_file('$old', true) IS NULL")
  or fail('a file that belongs to another index is removed');
ok($node->wait_for_log(qr/index "b_k" of table "b" has been rebuilt/, $from), 'another index is rebuilt');
sleep(3);    # naptimes
is($node->safe_psql('postgres', $states), 'b_k valid, b_old valid', 'the others are shown');
ok(-e $kept, 'the file that may be its own is kept');
my $log = slurp_file($node->logfile, $from);
my $said = () = $log =~ /LOG: .*could not determine which file index "a_k" has: its row in pg_index is missing/g;
is($said, 1, 'the cleaner says so, once');
unlike($log, qr/ERROR/, 'and no worker ends of it');
my $tries = () = $log =~ /could not rebuild index with OID \d+: cache lookup failed for index/g;
ok($tries >= 1 && $tries <= 4, "it is tried with pauses ($tries tries)");
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM b WHERE k = 7'), '1', 'the other index answers');

# ---- the row is there again ----

$node->safe_psql('postgres', 'INSERT INTO pg_index SELECT * FROM saved');
is($node->safe_psql('postgres', $states), 'a_k valid, b_k valid, b_old valid', 'all are valid');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT v FROM a WHERE k = 7'), '7', 'the row is found');
$node->safe_psql('postgres', "SELECT pmhash_check('a_k')");

# ---- missing while the index's stub is in shared buffers, and its file is good ----

is($node->safe_psql('postgres', "BEGIN; DELETE FROM pg_index WHERE indexrelid = 'a_k'::regclass; SELECT count(*) FROM pmhash_files() WHERE index = 'a_k'::regclass; ROLLBACK"),
	'0', 'not shown as valid');

# ---- missing when the rebuilder comes, and nobody else looks ----

$node->safe_psql('postgres', "DELETE FROM pg_index WHERE indexrelid = 'a_k'::regclass");
$node->stop;
$node->append_conf('postgresql.conf', 'pmhash.cleaner_naptime = 86400');
unlink($kept) or die "$kept: $!";
$from = -s $node->logfile;
$node->start;
ok($node->wait_for_log(qr/could not rebuild index with OID \d+: cache lookup failed for index/, $from), 'a rebuild that has failed');
$node->safe_psql('postgres', 'INSERT INTO pg_index SELECT * FROM saved');
ok($node->wait_for_log(qr/index "a_k" of table "a" has been rebuilt/, $from), 'it is tried again');
$node->stop;
done_testing();
