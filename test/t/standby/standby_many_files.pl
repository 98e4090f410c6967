# The startup process of a standby that replays into more than a thousand files in turns
# keeps them mapped, and no more than a backend would: the last used of them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($tables, $each) = (51, 20);    # more than keep their pages (1,000)
my $primary = new_primary('primary', 'max_locks_per_transaction = 512');

$primary->safe_psql('postgres', <<SQL);
DO \$\$ BEGIN
	FOR t IN 1 .. $tables LOOP
		EXECUTE format('CREATE TABLE many_%s (k int)', t);
		FOR i IN 1 .. $each LOOP
			EXECUTE format('CREATE INDEX many_%s_%s ON many_%s USING pmhash (k) WITH (wal = on)', t, i, t);
		END LOOP;
	END LOOP;
END \$\$;
SQL
my $standby = new_standby($primary, 'standby');
ok($standby->poll_query_until('postgres', "SELECT count(*) = $tables * $each FROM pmhash_indexes WHERE index LIKE 'many%' AND state = 'valid'"),
	'all are built');
my %table_of = map { my ($file, $table) = split /\|/; ($file => $table) } split /\n/,
  $standby->safe_psql('postgres', "SELECT file, split_part(index, '_', 2) FROM pmhash_indexes WHERE index LIKE 'many%'");

# How many files the startup process has mapped, of each table.
sub mapped
{
	my $pid = $standby->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'));
	my %files = map { m{(/\S+\.pmh)$} ? ($1 => 1) : () } split /\n/, slurp_file("/proc/$pid/maps");
	my %mapped;

	$mapped{ $table_of{$_} }++ foreach grep { exists $table_of{$_} } keys %files;
	return \%mapped;
}

sub total
{
	my ($mapped) = @_;
	my $sum = 0;

	$sum += $_ foreach values %$mapped;
	return $sum;
}

sub insert
{
	my (@tables) = @_;

	$primary->safe_psql('postgres', join(' ', map { "INSERT INTO many_$_ VALUES ($_);" } @tables));
	caught_up($primary, $standby);
	return;
}

insert(1 .. $tables);
is(total(mapped()), $tables * $each, 'all that has been written to is mapped');

# as many as a session keeps, and the last used
$standby->append_conf('postgresql.conf', "pmhash.mapped_files = 500\n");
$standby->reload;
ok($standby->poll_query_until('postgres', "SELECT current_setting('pmhash.mapped_files') = '500'"), 'fewer');
insert(1);
my $mapped = mapped();
is(total($mapped), 500, 'as many as are to be');
is(join(' ', map { $mapped->{$_} // 0 } 1, 2, 20, $tables - 23, $tables - 24, $tables), "$each 0 0 $each 0 $each", 'those that were used last');

is($standby->safe_psql('postgres', "SELECT count(*) FROM pmhash_indexes WHERE index LIKE 'many%' AND state <> 'valid'"), '0', 'all are valid');
is($standby->safe_psql('postgres', "SELECT count(pmhash_check(format('many_%s_7', t)::regclass)) FROM generate_series(1, $tables) t"), $tables, 'and sound');
$_->stop foreach $standby, $primary;
done_testing();
