# Whose code runs, and who sees what: an operator that lies in wait for the views; paths of
# files in errors of pmhash_check and in pmhash_stats.  And errors of functions that read
# what others write: WAL that cannot be read, a file that is being cut off.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('rights', <<CONF, install_path => install_with_stop_points());
pmhash.rebuild = off
CONF
use_stop_points($node);
$node->start;

# ---- a schema of somebody else's ----

$node->safe_psql('postgres', <<SQL);
CREATE ROLE mallory;
CREATE SCHEMA hers AUTHORIZATION mallory;
SET ROLE mallory;
CREATE FUNCTION hers.lies_in_wait(regclass, oid) RETURNS boolean LANGUAGE plpgsql AS
	\$\$ BEGIN RAISE EXCEPTION 'as %', current_user; END \$\$;
CREATE OPERATOR hers.= (FUNCTION = hers.lies_in_wait, LEFTARG = regclass, RIGHTARG = oid);
RESET ROLE;
CREATE EXTENSION pmhash SCHEMA hers;
CREATE TABLE t (k int4);
INSERT INTO t SELECT generate_series(1, 1000);
CREATE INDEX t_k ON t USING pmhash (k);
SQL
is($node->safe_psql('postgres', "SELECT index, state FROM hers.$_->[0]"), $_->[1], "$_->[0]: no code of hers")
  foreach ([ 'pmhash_indexes', 't_k|valid' ]);
is($node->safe_psql('postgres', 'SELECT index, lookups FROM hers.pmhash_stat_indexes'), 't_k|0',
	'pmhash_stat_indexes: no code of hers');

# ---- where the files are ----

my $pool = pool($node);
my $file = $node->safe_psql('postgres', q(SELECT file FROM hers.pmhash_stats('t_k')));
$node->safe_psql('postgres', <<SQL);
CREATE ROLE reader;
GRANT USAGE ON SCHEMA hers TO reader;
GRANT SELECT ON t TO reader;
GRANT EXECUTE ON FUNCTION hers.pmhash_check TO reader;
SQL
like($file, qr/^\Q$pool\E\//, 'a superuser sees the whole path');
my $shown = $node->safe_psql('postgres', q(SET ROLE reader; SELECT file FROM hers.pmhash_stats('t_k')));
is("$pool/$shown", $file, 'a reader sees it from the pool on');

# ---- a file that is being cut off ----

my $prewarm = start_and_hold('prewarm_before_hole', q(SELECT hers.pmhash_prewarm('t_k')), 'prewarm');
truncate($file, 0) or die "$file: $!";
release('prewarm_before_hole');
is(finish($prewarm), '0', 'prewarm: what is not there any more is not read');

my (undef, undef, $stderr) = $node->psql('postgres', q(SET ROLE reader; SELECT hers.pmhash_check('t_k')));
like($stderr, qr/[Ff]ile "\Q$shown\E"/, 'pmhash_check: from the pool on');
unlike($stderr, qr/\Q$pool\E/, '... and no more');

# ---- DROP DATABASE ... WITH (FORCE) by a plain owner, while a worker is there ----

$node->safe_psql('postgres', 'DROP TABLE t');
$node->safe_psql('postgres', 'CREATE DATABASE hers OWNER mallory');
$node->safe_psql('hers', 'CREATE EXTENSION pmhash; CREATE TABLE t (k int4); CREATE INDEX t_k ON t USING pmhash (k)');
unlink($node->safe_psql('hers', q(SELECT file FROM pmhash_stats('t_k')))) or die;
hold('rebuild_before_build');
$node->append_conf('postgresql.conf', 'pmhash.rebuild = on');
$node->reload;
$node->safe_psql('hers', 'INSERT INTO t VALUES (1)');
is_held('rebuild_before_build', 'a rebuilder is there');
my $drop = "SET ROLE mallory;\nDROP DATABASE hers WITH (FORCE)";
(undef, undef, $stderr) = $node->psql('postgres', $drop);
like($stderr, qr/permission denied to terminate process|must be a member of the role whose process is being terminated/,
	'FORCE of a plain owner fails at once');
release('rebuild_before_build');
$node->safe_psql('postgres', 'GRANT pg_signal_backend TO mallory');
$node->safe_psql('postgres', $drop);
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_database WHERE datname = 'hers')), '0',
	'FORCE of an owner that may signal processes');

done_testing();
