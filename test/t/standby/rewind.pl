# pg_rewind: the old primary is taken back to where the promoted standby left
# it, and follows that one.  Its pool has entries of rows that it has lost, so
# none of its files may be believed again; a standby also removes them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $apart = 'server and pool directory have not been together all the time since it was made';

# A primary and its standby, called a pair; wal_log_hints since pg_rewind asks
# for that or for checksums.
my $first = new_server('first', "wal_level = replica\nmax_wal_senders = 4\nwal_log_hints = on\nwal_keep_size = 512MB\npmhash.wal = off\n");
$first->start;
install_extension($first);
$first->safe_psql('postgres', invalid_fixture());
$first->backup('base');
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($first, 'base', has_streaming => 1);
$second->start;

# Promote one server, let both go on apart: rows under the same TIDs.  Only the
# old primary changes o, so that stub stays the same on both sides while the
# new one rebuilds nothing.
sub part
{
	my ($old, $new) = @_;

	$old->wait_for_catchup($new);
	rebuild_off($new);
	$new->promote;
	$old->safe_psql('postgres', <<SQL);
DELETE FROM t WHERE k % 5 = 0;
DELETE FROM o WHERE k % 5 = 0;
VACUUM t, o;
INSERT INTO t SELECT 20000 + i, i FROM generate_series(1, 3000) i;
INSERT INTO o SELECT 20000 + i FROM generate_series(1, 3000) i;
SQL
	$new->safe_psql('postgres', <<SQL);
DELETE FROM t WHERE k % 5 = 0;
VACUUM t;
INSERT INTO t SELECT 30000 + i, i FROM generate_series(1, 3000) i;
CHECKPOINT;
SQL
	return;
}

# Take a server that is down back to the other one's history; it keeps its
# port and name.
sub rewind
{
	my ($old, $new, $name) = @_;
	my $conf = slurp_file($old->data_dir . '/postgresql.conf');

	command_ok([ 'pg_rewind', '--target-pgdata', $old->data_dir, '--no-sync',
			'--source-server', $new->connstr('postgres') ], "$name: pg_rewind");
	unlink($old->data_dir . '/postgresql.conf');
	append_to_file($old->data_dir . '/postgresql.conf', $conf);
	return;
}

# ---- the old primary follows, then takes over ----
part($first, $second);
$first->stop;
rewind($first, $second, 'shut down');
rebuild_on($second);
all_come_back($second, 'the new primary');
$first->enable_streaming($second);
$first->set_standby_mode;
# event: `pg_rewind`, the server then follows as a standby
cmp_ok(scalar(index_files(pool($first))), '>', 3, 'the old primary has files');
my $from = -s $first->logfile;
rebuild_off($first);
$first->start;
$second->wait_for_catchup($first);
is($first->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k > 20000'), '3000', 'it has the rows of the new primary');
is($first->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k BETWEEN 20001 AND 30000'), '0', 'and none of its own');
is($first->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash_indexes'), 'absent: the index is not logged (storage parameter wal)', 'no index while it follows');
like(slurp_file($first->logfile, $from), qr/not trusted: the data directory has been restored from a backup, or rewound/,
	'its pool is not trusted');
wait_for_files(pool($first), 0, 'a standby removes files that are not trusted');

# event: promotion of a standby
$second->stop;
$first->promote;
stays_invalid($first, 'it does not exist', 'the rewound server, promoted');
rebuild_on($first);
all_come_back($first, 'the rewound server, promoted');

# ---- the same after kill -9 of the old primary; on its own timeline at once ----
# The other one comes back as a standby of this first; it needs no pg_rewind.
$second->enable_streaming($first);
$second->set_standby_mode;
rebuild_on($second);
$second->start;
part($first, $second);
$first->safe_psql('postgres', 'INSERT INTO t SELECT 40000 + i, i FROM generate_series(1, 3000) i');
crash($first);
rewind($first, $second, 'killed');
# event: `pg_rewind`, the server then runs alone
rebuild_off($first);
$first->append_conf('postgresql.conf', <<CONF);
restore_command = 'cp @{[ $second->data_dir ]}/pg_wal/%f %p'
recovery_target_timeline = latest
CONF
$from = -s $first->logfile;
$first->start;
$first->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
is($first->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k > 40000'), '0', 'killed: none of the rows that were lost');
like(slurp_file($first->logfile, $from), qr/not trusted: the data directory has been restored from a backup, or rewound/, 'killed, runs alone: its pool is not trusted');
# the cleaner of the other one may have marked its stub, which has come with the blocks
like(index_state($first, 'o_k'), qr/^invalid: (\Q$apart\E|it does not exist)$/, 'killed, runs alone: file of an index that only one side has used');
stays_invalid($first, 'it does not exist', 'killed, runs alone');
rebuild_on($first);
all_come_back($first, 'killed, runs alone');
crash($first);
$first->start;
all_come_back($first, 'killed, runs alone, killed again');
$first->stop;
rebuild_on($second);
all_come_back($second, 'the other one after all');
$second->stop;
done_testing();
