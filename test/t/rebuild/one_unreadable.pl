# One index that a standby's builder cannot look at, or cannot begin with, keeps no other
# one of its database from being built: its main fork cannot be read, said once; an error
# before the build has begun.  It is built when that is over.  Nor does an error in the last
# step of a build leave a lock held.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use File::Path qw(rmtree);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $install = install_with_stop_points();
my $primary = new_primary('primary', undef, install_path => $install);
my @others = map { "o_$_" } 1 .. 4;
$primary->safe_psql('postgres', 'CREATE TABLE o (k int); INSERT INTO o SELECT i FROM generate_series(1, 100) i');
$primary->safe_psql('postgres', "CREATE INDEX $_ ON o USING pmhash (k) WITH (wal = on)") foreach @others;
my $standby = new_standby($primary, 'standby', "pmhash.cleaner_naptime = 1\n", install_path => $install);
use_stop_points($standby);

# Tests: all of them come to be valid.
sub all_valid
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name, @indexes) = @_;

	wait_for_state($standby, $_, qr/^valid$/, "$name: $_") foreach @indexes;
	return;
}

# Have all of them built anew; in between something is done.  Returns where the log was.
sub build_anew
{
	my ($change) = @_;

	$standby->stop;
	rmtree(pool($standby));
	$change->();
	my $position = log_position($standby);
	$standby->start;
	return $position;
}

sub count_of
{
	my ($pattern, $text) = @_;
	return scalar(() = $text =~ /$pattern/g);
}

# ---- a main fork that cannot be read ----

all_valid('at first', qw(t_k t_s), @others);
my $fork = $standby->data_dir . '/' . $standby->safe_psql('postgres', q(SELECT pg_relation_filepath('t_k')));
my $position = build_anew(sub { chmod(0, $fork) or die "$fork: $!" });
all_valid('beside one that is unreadable', 't_s', @others);
is(standby_state($standby, 't_k'), 'unreadable', 'which is shown');
sleep 3;    # some more visits
my $log = logged_since($standby, $position);
is(count_of(qr/LOG: .*could not look at index "t_k" on this standby: could not open file .*: Permission denied/, $log), 1, 'said once');
unlike($log, qr/ERROR/, 'no builder fails of it');
chmod(0600, $fork) or die "$fork: $!";
all_valid('readable again', 't_k');
compare_in_snapshot($standby, 'answers');

# ---- an error before a build has begun ----

$position = build_anew(sub { fail_at('standby_begins') });
all_valid('after an error', qw(t_k t_s), @others);
$log = logged_since($standby, $position);
like($log, qr/\[(\d+)\] .*could not look at index "\w+" on this standby: error of the test.*\[\1\] .*has been built/s,
	'the same builder goes on with the next index');
is(count_of(qr/error of the test/, $log), 1, 'said once');
unlike($log, qr/ERROR/, 'no builder fails of it');

# ---- an error while a build is published, with the lock that replay needs ----

$position = build_anew(sub { fail_at('standby_publishing') });
ok($standby->wait_for_log(qr/could not build index "\w+" on this standby: error of the test/, $position),
	'an error in the last step: the build is given up');
all_valid('and is tried again', qw(t_k t_s), @others);
compare_in_snapshot($standby, 'answers after that');
$_->stop foreach $standby, $primary;
done_testing();
