# A standby is promoted, and a directory of its pool cannot be read to the end: what
# has not been seen there may be files that have missed records, so none is trusted.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_primary('primary', "autovacuum = off\n");
my $library = PmhashFaults::build_library($primary->basedir);

# Calls 1 and 2 list the pool, in whatever order its names come.
foreach my $call (1, 2)
{
	my $node = new_standby($primary, "standby$call", <<CONF);
shared_preload_libraries = 'pmhash, $library'
CONF
	my $from;

	both_valid($node, "call $call");
	$node->append_conf('postgresql.conf', <<CONF);
pmhash.rebuild = off
pmhash_faults.calls = 'readdir'
pmhash_faults.process = 'pmhash launcher'
pmhash_faults.error = 5
pmhash_faults.fail_at = $call
CONF
	$node->reload;
	$from = -s $node->logfile;
	$node->promote;
	$node->wait_for_log(qr/pmhash_faults: call $call of readdir/, $from);
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	like(slurp_file($node->logfile, $from), qr/could not remove a file in .*: Input\/output error/, "call $call: log");
	like(standby_state($node, 't_k'), qr/^invalid: /, "call $call: not trusted");
	$node->append_conf('postgresql.conf', "pmhash_faults.fail_at = 0\npmhash.rebuild = on\n");
	$node->reload;
	wait_for_state($node, $_, qr/^valid$/, "call $call: $_ is rebuilt") foreach qw(t_k t_s);
	same_answers($node, 't', 'k', 't_k', "call $call");
	$node->stop;
}
$primary->stop;
done_testing();
