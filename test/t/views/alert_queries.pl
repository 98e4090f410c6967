# The queries that docs/monitoring.md gives as alerts: nothing comes back from them on
# healthy indexes of all shapes, on a primary and on a standby; and each gives what it is
# there for.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $text = slurp_file("$FindBin::RealBin/../../../docs/monitoring.md");
my ($block) = $text =~ /^## Alerts\n.*?^```sql\n(.*?)^```$/ms or die "docs/monitoring.md has no alerts";
my %alert;

foreach my $query (split /;\n\s*/, $block)
{
	my $name = $query =~ /^-- indexes that queries do without/ ? 'without'
	  : $query =~ /^-- less than a tenth of the index/ ? 'sparse'
	  : $query =~ /^-- the server does without/ ? 'server'
	  : $query =~ /^-- rebuilds fail/ ? 'failing'
	  : die "an alert without a test: $query";

	# As for large indexes, but of this test's size.
	$query =~ s/p\.bytes > 100 \* 1024 \* 1024/p.bytes > 512 * 1024/ or die if $name eq 'sparse';
	$alert{$name} = $query;
}
is_deeply([ sort keys %alert ], [qw(failing server sparse without)], 'the alerts');

sub fired
{
	my ($node, $name) = @_;
	return $node->safe_psql('postgres', $alert{$name});
}

sub all_is_well
{
	my ($node, $where) = @_;

	is(fired($node, $_), '', "$where: $_") foreach sort keys %alert;
	return;
}

my $primary = new_primary('primary');

$primary->safe_psql('postgres', <<SQL);
CREATE TABLE shapes (u int4, two bool, ten int4, n int4, s text);
CREATE INDEX grown_u ON shapes USING pmhash (u) WITH (wal = on);
CREATE INDEX grown_two ON shapes USING pmhash (two) WITH (wal = on);
CREATE INDEX grown_ten ON shapes USING pmhash (ten);
CREATE INDEX nobody ON shapes USING pmhash (u) WHERE u < 0;
CREATE INDEX nulls ON shapes USING pmhash (n);
INSERT INTO shapes SELECT i, i % 2 = 0, i / 10, NULL, 'row ' || i FROM generate_series(1, 200000) i;
CREATE INDEX built_u ON shapes USING pmhash (u) WITH (wal = on);
CREATE INDEX built_two ON shapes USING pmhash (two) WITH (wal = off);
CREATE INDEX built_ten ON shapes USING pmhash (ten);
CREATE INDEX built_s ON shapes USING pmhash (s) WITH (wal = on);
CREATE TABLE empty (k int4);
CREATE INDEX empty_k ON empty USING pmhash (k) WITH (wal = on);
CREATE UNLOGGED TABLE unlogged (k int4);
CREATE INDEX unlogged_k ON unlogged USING pmhash (k);
INSERT INTO unlogged SELECT generate_series(1, 50000);
CREATE TABLE parts (k int4, p int4) PARTITION BY LIST (p);
CREATE TABLE part1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE part2 PARTITION OF parts FOR VALUES IN (2);
CREATE INDEX parts_k ON parts USING pmhash (k);
INSERT INTO parts SELECT i, 1 FROM generate_series(1, 400) i;
CREATE TABLE excluded (k int4, CONSTRAINT excluded_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO excluded SELECT generate_series(1, 50000);
CREATE TABLE churned (k int4) WITH (autovacuum_enabled = off);
CREATE INDEX churned_k ON churned USING pmhash (k) WITH (wal = on);
SQL
foreach my $round (1 .. 4)
{
	$primary->safe_psql('postgres', $_) foreach (
		"INSERT INTO churned SELECT generate_series(${round}00001, ${round}50000)",
		"DELETE FROM churned WHERE k <= ${round}00000", 'VACUUM churned');
}
my $session = $primary->background_psql('postgres');
$session->query_safe('CREATE TEMPORARY TABLE passing AS SELECT generate_series(1, 1000) AS k');
$session->query_safe('CREATE INDEX passing_k ON passing USING pmhash (k)');
$primary->poll_query_until('postgres', 'SELECT launcher FROM pmhash_stat');
all_is_well($primary, 'primary');

# ---- a standby, where an index with "wal = off" is absent as it is meant to be ----
my $standby = new_standby($primary, 'standby');

wait_for_state($standby, $_, qr/^valid$/, "standby: $_ is built") foreach qw(grown_u grown_two built_u built_s empty_k churned_k);
both_valid($standby, 'standby');
like(standby_state($standby, 'built_two'), qr/^absent: /, 'standby: an index without WAL is absent');
all_is_well($standby, 'standby');
$standby->stop;

# ---- after a crash: the unlogged index is empty ----
$session->quit;
$primary->stop('immediate');
$primary->start;
$primary->poll_query_until('postgres', 'SELECT launcher FROM pmhash_stat');
all_is_well($primary, 'after a crash');

# ---- and now what they are for ----
$primary->safe_psql('postgres', 'ALTER TABLE shapes SET (autovacuum_enabled = off)');
$primary->safe_psql('postgres', $_) foreach (
	'DELETE FROM shapes WHERE u % 20 <> 1', 'SET pmhash.vacuum_shrink = off; VACUUM shapes');
like(fired($primary, 'sparse'), qr/^\Q$_\E\|/m, "a sparse index: $_") foreach qw(grown_u built_u grown_two built_s);

$primary->psql('postgres', 'CREATE UNIQUE INDEX CONCURRENTLY not_valid ON shapes USING pmhash (ten)');
$primary->psql('postgres', <<SQL);
CREATE FUNCTION fails(int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF \$1 > 200000 THEN RAISE EXCEPTION ''no''; END IF; RETURN \$1; END';
SQL
$primary->psql('postgres', 'INSERT INTO shapes VALUES (300000)');
$primary->psql('postgres', 'CREATE INDEX CONCURRENTLY not_valid_f ON shapes USING pmhash (fails(u))');
like(fired($primary, 'without'), qr/\|not_valid_f\|not valid: /, 'an index that is not valid');

rebuild_off($primary);
unlink(index_file($primary, 'grown_ten')) or die $!;
$primary->restart;
$primary->safe_psql('postgres', 'SET enable_seqscan = off; SELECT FROM shapes WHERE ten = 7');
like(fired($primary, 'without'), qr/\|grown_ten\|invalid: /, 'an index that has lost its file');

$primary->stop;
rename(pool($primary), pool($primary) . '.away') or die $!;
append_to_file(pool($primary), 'in the way');
$primary->start;
like(fired($primary, 'server'), qr/^disabled\|/, 'the server does without pmhash');
$primary->stop;
unlink(pool($primary));
rename(pool($primary) . '.away', pool($primary)) or die $!;
done_testing();
