# Builds in the background need temporary files, as many bytes as the index has entries, and
# temp_file_limit is not for them, on a primary and on a standby; it is for those that call
# users' functions, and there it is said what to do.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid qw(index_file);
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_primary('primary', "maintenance_work_mem = 1MB\nwork_mem = 64kB\n");

$primary->safe_psql('postgres', <<SQL);
CREATE TABLE b (k int, v int);
INSERT INTO b SELECT i, i FROM generate_series(1, 300000) i;
CREATE INDEX b_k ON b USING pmhash (k);
CREATE INDEX b_e ON b USING pmhash ((k + 1));
SQL
$primary->append_conf('postgresql.conf', 'temp_file_limit = 1MB');
$primary->reload;

my $limit = qr/temporary file size exceeds "?temp_file_limit/;
my $standby = new_standby($primary, 'standby');

wait_for_state($standby, 'b_k', qr/^valid$/, 'standby: built');
wait_for_state($standby, 'b_e', $limit, "standby: not one with a function");

# event: `temp_file_limit` is lower than a background build needs (16 bytes for each entry)
unlink(index_file($primary, $_)) || die foreach qw(b_k b_e);
$primary->safe_psql('postgres', 'INSERT INTO b VALUES (0, 0)');
ok($primary->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'b_k'"), 'primary: rebuilt');
wait_for_state($primary, 'b_e', $limit, 'primary: not one with a function');
like(slurp_file($primary->logfile), qr/could not rebuild index "b_e": $limit.*\n.*\n.*HINT:  ALTER DATABASE \.\.\. SET temp_file_limit/, 'primary: what to do');
$primary->safe_psql('postgres', 'ALTER DATABASE postgres SET temp_file_limit = -1');
wait_for_state($primary, 'b_e', qr/^valid$/, 'primary: that helps');
caught_up($primary, $standby);
wait_for_state($standby, $_, qr/^valid$/, "standby: $_ helps") foreach qw(b_k b_e);
same_answers($_, 'b', 'k', 'b_k', $_->name) foreach $primary, $standby;
$_->stop foreach $standby, $primary;
done_testing();
