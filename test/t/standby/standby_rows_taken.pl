# A standby has files of 4,096 logged indexes, of all databases together.  An index that
# finds no place says so, as does the log, once; it does without, and gets one when there is.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $places = 4096;
my $primary = new_primary('primary', "max_locks_per_transaction = 512\nfsync = off\n");

# One with all places but one is an enemy's, so to speak: it builds nothing, which would
# take long, but WAL has announced them.
my $standby = new_standby($primary, 'standby', "pmhash.rebuild = off\npmhash.cleaner_naptime = 5\n");
$primary->safe_psql('postgres', 'CREATE TABLE many (k int) PARTITION BY LIST (k); CREATE INDEX ON many USING pmhash (k) WITH (wal = on)');
$primary->safe_psql('postgres', join(";\n", map { "CREATE TABLE many_$_ PARTITION OF many FOR VALUES IN ($_); INSERT INTO many_$_ VALUES ($_)" } 1 .. $places));
my $position = log_position($standby);
$primary->safe_psql('postgres', 'CREATE DATABASE db1');
install_extension($primary, 'db1');
$primary->safe_psql('db1', "CREATE TABLE x$_ (k int); INSERT INTO x$_ VALUES (1); CREATE INDEX x${_}_k ON x$_ USING pmhash (k) WITH (wal = on)") foreach 1 .. 2;
caught_up($primary, $standby);
like($standby->safe_psql('db1', "SELECT state FROM pmhash_indexes WHERE index = 'x${_}_k'"),
	qr/^no place: this standby has files of $places logged indexes/, "no place for x${_}_k") foreach 1 .. 2;
my @said = logged_since($standby, 0) =~ /(no more than $places logged indexes can have files)/g;
is(scalar(@said), 1, 'the log says so, once');
is($standby->safe_psql('db1', 'SET enable_seqscan = off; SELECT count(*) FROM x1 WHERE k = 1'), '1', 'queries do without');

$primary->safe_psql('postgres', join(";\n", map { "DROP TABLE many_$_" } 1 .. $places));
caught_up($primary, $standby);
$standby->append_conf('postgresql.conf', "pmhash.rebuild = on\n");
$standby->reload;
ok($standby->poll_query_until('db1', "SELECT count(*) = 2 FROM pmhash_indexes WHERE state = 'valid'"), 'there is a place again')
  || diag($standby->safe_psql('db1', 'SELECT index, state FROM pmhash_indexes'));
$_->stop foreach $standby, $primary;
done_testing();
