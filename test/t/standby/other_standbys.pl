# After a promotion the other standbys go on with their files until the new primary
# vacuums, and one of them may be promoted before that; not with files that have more
# than the new primary.

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
my $given_up = qr/has been built|given up|not trusted|rebuil/;

# ---- two failovers in a row, without a VACUUM in between ----

# 'early' has entries of dead rows that 'late' lacks.  It follows, is promoted itself,
# and has the TIDs given away.
my $first = new_primary('first');
my ($early, $late) = early_and_late($first);
my $position = log_position($early);
crash($first);
$late->promote;
follow($early, $late);
caught_up($late, $early);
$late->safe_psql('postgres', <<'SQL');
INSERT INTO t SELECT 8000 + i % 9, 'second', i FROM generate_series(1, 90) i;
DELETE FROM t WHERE k = 9;
UPDATE t SET k = 8100 WHERE k = 10;
SQL
caught_up($late, $early);
both_valid($early, 'under the second primary');
nothing_under_old_keys($early, 'under the second primary', 5, 6, 7, 9, 10);
crash($late);
$early->promote;
nothing_under_old_keys($early, 'the third primary', 5, 6, 7, 9, 10);
$early->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) t');
$early->safe_psql('postgres', q(INSERT INTO t SELECT 9000, 'reused', i FROM generate_series(1, 40) i));
nothing_under_old_keys($early, 'the third primary, TIDs used again', 5, 6, 7, 9, 10);
unlike(logged_since($early, $position), $given_up, 'nothing is built all the time');
$early->stop;

# ---- a standby that was ahead of the one that is promoted ----

# What the new primary has never had it had applied; its tables have lost it, since
# it was killed.  Other rows come where the lost ones were.
my $primary = new_primary('primary', "bgwriter_lru_maxpages = 0\n");
my $ahead = new_standby($primary, 'ahead');
my $lagging = new_standby($primary, 'lagging');
both_valid($_, $_->name) foreach $ahead, $lagging;
$primary->safe_psql('postgres', 'CHECKPOINT');
caught_up($primary, $_) foreach $ahead, $lagging;
$ahead->safe_psql('postgres', 'CHECKPOINT');
$lagging->append_conf('postgresql.conf', "primary_conninfo = ''\n");
$lagging->reload;
$lagging->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver') or die;
$primary->safe_psql('postgres', q(INSERT INTO t SELECT 6000 + i % 10, 'never was', i FROM generate_series(1, 200) i));
caught_up($primary, $ahead);
is($ahead->safe_psql('postgres', "$by_index; SELECT count(*) FROM t WHERE k = 6003"), '20', 'ahead: it has applied it');
crash($ahead);
crash($primary);
$lagging->promote;
$lagging->safe_psql('postgres', q(INSERT INTO t SELECT 6500 + i % 10, 'instead', i FROM generate_series(1, 2000) i));

# as from an archive: else it reads its own files first, which have more of the old timeline
copy($_, $ahead->data_dir . '/pg_wal') or die $! foreach glob($lagging->data_dir . '/pg_wal/00000002*');
$ahead->enable_streaming($lagging);
$position = log_position($ahead);
$ahead->start;
caught_up($lagging, $ahead);
both_valid($ahead, 'ahead');
nothing_under_old_keys($ahead, 'ahead, of the new primary', map { 6000 + $_ } 0 .. 9);
like(logged_since($ahead, $position), qr/WAL is of timeline 2 now\n.*DETAIL:  They are built again.*has been built/s,
	'ahead: its files are built anew');
$_->stop foreach $ahead, $lagging;

done_testing();
