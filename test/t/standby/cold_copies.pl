# Copies of a server that was shut down, with its pool, that follow it and take over.
# They have files of indexes that are not logged, too, which no record keeps up to date.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $primary = new_primary('primary', "pmhash.wal = on\n");

# o_k is not logged; nothing happens to u_k, which is.
$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE o (k integer, n integer) WITH (autovacuum_enabled = off);
INSERT INTO o SELECT i % 500, i FROM generate_series(1, 5000) i;
CREATE INDEX o_k ON o USING pmhash (k) WITH (wal = off);
CREATE TABLE u (k integer);
INSERT INTO u SELECT i % 50 FROM generate_series(1, 500) i;
CREATE INDEX u_k ON u USING pmhash (k);
SQL
$primary->stop;

# A copy of data directory and pool: a standby, not started.
sub cold_copy
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	my $backup = $primary->backup_dir . "/$name";

	mkdir $primary->backup_dir;
	PostgreSQL::Test::RecursiveCopy::copypath($primary->data_dir, $backup);
	unlink "$backup/postmaster.pid";
	$node->init_from_backup($primary, $name, has_streaming => 1);
	PostgreSQL::Test::RecursiveCopy::copypath(pool($primary), pool($node));
	return $node;
}

# Tests: both indexes come to be valid, and are right.
sub all_valid
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $name) = @_;

	$node->poll_query_until('postgres', "SELECT bool_and(state = 'valid') FROM pmhash_indexes WHERE index IN ('o_k', 'u_k')")
	  or diag("$name: not all valid");
	foreach (['o', 'k', 'o_k'], ['u', 'k', 'u_k'])
	{
		same_answers($node, @$_, $name);
		is($node->safe_psql('postgres', "SELECT pmhash_check('$_->[2]')"), '', "$name: pmhash_check of $_->[2]");
	}
	return;
}

# Has it been built, or rebuilt, since then?
sub is_made_anew
{
	my ($node, $position, $index) = @_;

	return logged_since($node, $position) =~ /index "$index"(?: of table "\w+")? has been (?:re)?built/;
}

my @copies = map { cold_copy($_) } qw(at_once restarted killed);

# ---- one that is promoted before anyone has written ----

my $alone = cold_copy('alone');
$alone->append_conf('postgresql.conf', "primary_conninfo = ''\n");
$alone->start;
$alone->poll_query_until('postgres', 'SELECT pg_is_in_recovery()') or die;
$alone->promote;
all_valid($alone, 'alone');
# event: both put back, copied from a server that was shut down
ok(!is_made_anew($alone, 0, 'u_k'), 'alone: u_k is what it was');
# (whether others have written to what is not logged is not known)
ok(is_made_anew($alone, 0, 'o_k'), 'alone: o_k is rebuilt');
$alone->stop;

# ---- others follow it while it goes on ----

$primary->start;
$_->start foreach @copies;
$primary->safe_psql('postgres', $_)
  foreach 'DELETE FROM o WHERE k < 100', 'VACUUM o', 'INSERT INTO o SELECT 1000 + i % 100, i FROM generate_series(1, 3000) i';
foreach my $node (@copies)
{
	caught_up($primary, $node);
	wait_for_state($node, 'u_k', qr/^valid$/, $node->name . ': u_k');
	like(standby_state($node, 'o_k'), qr/^absent/, $node->name . ': o_k is not used');
	# builders have looked at the stubs
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'pmhash standby builder'") or die;
}
$primary->stop;
my ($at_once, $restarted, $killed) = @copies;
# none looks again before the promotion
$restarted->append_conf('postgresql.conf', "pmhash.rebuild = off\n");
$restarted->restart;
crash($killed);
$killed->start;
foreach my $node (@copies)
{
	my $name = $node->name;

	wait_for_state($node, 'u_k', qr/^valid$/, "$name: u_k, alone");
	$node->promote;
	$node->append_conf('postgresql.conf', "pmhash.rebuild = on\n");
	$node->reload;
	all_valid($node, $name);
	ok(is_made_anew($node, 0, 'o_k'), "$name: what was not logged is rebuilt");
	ok(!is_made_anew($node, 0, 'u_k'), "$name: what was logged is not");
	$node->restart;
	all_valid($node, "$name, restarted");
	$node->stop;
}
done_testing();
