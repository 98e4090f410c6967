# What pmhash gets over: a pool that could not be written or read when the server was started,
# and a clock that is set back.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $shim = preloadable('step_clock');
$ENV{STEP_CLOCK} = "$PostgreSQL::Test::Utils::tmp_check/step";
my $node = new_server('itself');
my $pool = pool($node);
my $token = $node->data_dir . '/pmhash.nonce';

$node->start;
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());

# event: not writable, on a read-only file system, or with an unreadable control file (mode, disk error, no descriptor), when the server starts; later it is usable again
foreach my $case ([ 'not writable', $pool, 0500, qr/./ ],
	[ 'control file not readable', "$pool/control", 0, qr{could not read file "\Q$pool\E/control": Permission denied} ])
{
	my ($what, $path, $mode, $why) = @$case;

	foreach my $how ('shut down', 'killed')
	{
		my $name = "$what, $how before";
		my $was = (stat($path))[2] & 0777;

		$how eq 'killed' ? crash($node) : $node->stop;
		chmod($mode, $path) or die $!;
		$node->start;
		like(index_state($node, 't_k'), qr{^disabled: $why}, "$name: disabled");
		is(-e $token ? 1 : 0, $how eq 'killed' ? 0 : 1, "$name: the mark of trust");
		$node->safe_psql('postgres', 'INSERT INTO t SELECT 7, i FROM generate_series(1, 20) i');
		fails_like($node, 'INSERT INTO ex VALUES (2000)', qr/HINT: .*restart the server/, "$name: a constraint");
		chmod($was, $path) or die $!;
		$node->restart;
		all_come_back($node, $name);
		crash($node);
		$node->start;
		is($node->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash_indexes'), 'valid', "$name: killed");
	}
}

# ---- a run that could not use the pool and has ended in order as well ----
my $files = 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash_indexes';
my $before = $node->safe_psql('postgres', $files);
$node->stop;
rename($pool, "$pool.away") or die $!;
append_to_file($pool, 'in the way');
$node->start;
$node->safe_psql('postgres', 'CREATE TABLE meanwhile AS SELECT generate_series(1, 1000) AS i; CHECKPOINT');
$node->restart;
$node->stop;
unlink($pool);
rename("$pool.away", $pool) or die $!;
$node->start;
is($node->safe_psql('postgres', $files), $before, 'disabled for two runs, each shut down: kept');
all_come_back($node, 'disabled for two runs, each shut down');

# and one that has not
$node->stop;
rename($pool, "$pool.away") or die $!;
append_to_file($pool, 'in the way');
rebuild_off($node);
$node->start;
$node->safe_psql('postgres', 'CHECKPOINT');
crash($node);
unlink($pool);
rename("$pool.away", $pool) or die $!;
$node->start;
like($node->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash_indexes'), qr/^invalid/, 'disabled for a run that was killed: not trusted');
rebuild_on($node);
all_come_back($node, 'disabled for a run that was killed');
$node->stop;

# event: the clock is set back
{
	local $ENV{LD_PRELOAD} = $shim;
	$node->start;
}
my $time = $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())::int8');
append_to_file($ENV{STEP_CLOCK}, '');
cmp_ok($node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())::int8'), '<', $time - 3000, 'the clock is set back');
my $nonce = slurp_file($token);
for (my $i = 0; $i < 100 && slurp_file($token) eq $nonce; $i++)
{
	$node->safe_psql('postgres', "INSERT INTO t VALUES (8, $i)");
	usleep(100_000);
}
isnt(slurp_file($token), $nonce, 'the nonce is renewed all the same');
$node->stop;
done_testing();
