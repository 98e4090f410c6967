# ALTER EXTENSION pmhash UPDATE: each way from a version to another gives the objects
# that CREATE EXTENSION of the other gives, with the same definitions, rights and
# comments; indexes made before go on.  The comparison itself is tried on versions
# that are made up here: a good update script, and three that forget something.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('versions');
$node->start;
my $directory = $node->config_data('--sharedir') . '/extension';
my $default = $node->safe_psql('postgres', "SELECT default_version FROM pg_available_extensions WHERE name = 'pmhash'");

# All members of the extension in a database, a line each, with everything that an
# update script can forget.
sub inventory
{
	my ($database) = @_;

	return $node->safe_psql($database, <<'SQL');
SET search_path = '';
WITH member AS (SELECT classid, objid FROM pg_depend
	WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pmhash')),
described AS (SELECT *, pg_describe_object(classid, objid, 0) AS name FROM member)
SELECT replace(name || ' comment ' || coalesce(obj_description(objid, (SELECT relname FROM pg_class WHERE oid = classid)), '-')
	|| CASE classid
	WHEN 'pg_proc'::regclass THEN (SELECT pg_get_functiondef(oid) || coalesce(proacl::text, '-') FROM pg_proc WHERE oid = objid)
	WHEN 'pg_class'::regclass THEN (SELECT relkind::text || coalesce(pg_get_viewdef(oid), '') || coalesce(relacl::text, '-')
		|| coalesce((SELECT string_agg(attname || ' ' || atttypid::regtype || coalesce(attacl::text, ''), ', ' ORDER BY attnum)
			FROM pg_attribute WHERE attrelid = objid AND attnum > 0), '') FROM pg_class WHERE oid = objid)
	WHEN 'pg_am'::regclass THEN (SELECT amhandler::text || amtype::text FROM pg_am WHERE oid = objid)
	WHEN 'pg_opclass'::regclass THEN (SELECT opcdefault::text || ' ' || opckeytype::regtype || ' ' || opcintype::regtype || ' '
		|| pg_describe_object('pg_opfamily'::regclass, opcfamily, 0) FROM pg_opclass WHERE oid = objid)
	WHEN 'pg_opfamily'::regclass THEN (SELECT coalesce(string_agg(x, ', ' ORDER BY x), '') FROM
		(SELECT amopopr::regoperator || ' ' || amopstrategy AS x FROM pg_amop WHERE amopfamily = objid
		UNION ALL SELECT amproc::regprocedure || ' ' || amprocnum || amproclefttype::regtype || amprocrighttype::regtype
			FROM pg_amproc WHERE amprocfamily = objid) s)
	WHEN 'pg_type'::regclass THEN (SELECT typtype::text FROM pg_type WHERE oid = objid)
	ELSE '' END, E'\n', ' ')
FROM described ORDER BY 1;
SQL
}

# A database with a version of the extension, and with the functions that compare
# answers; its name.
my $databases = 0;
my $functions = slurp_file("$FindBin::RealBin/../../../sql/setup.sql");
$functions =~ s/^CREATE EXTENSION pmhash;$//m or die;

sub database_with
{
	my ($version) = @_;
	my $database = 'd' . ++$databases;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION pmhash VERSION '$version'; $functions");
	return $database;
}

# Do an update, with an index across it, and creation give the same?  Returns the lines
# that only one of them has.
sub differences
{
	my ($from, $to) = @_;
	my $updated = database_with($from);
	my $created = database_with($to);

	$node->safe_psql($updated, 'CREATE TABLE t (k int8); INSERT INTO t SELECT generate_series(1, 1000);
		CREATE INDEX t_k ON t USING pmhash (k)');
	$node->safe_psql($updated, "ALTER EXTENSION pmhash UPDATE TO '$to'");
	same_answers($node, 't', 'k', 't_k', "$from to $to", $updated);
	my %only;
	$only{$_}++ foreach split(/\n/, inventory($updated));
	$only{$_}-- foreach split(/\n/, inventory($created));
	return join("\n", grep { $only{$_} != 0 } sort keys %only);
}

# ---- what is installed ----

ok(length(inventory(database_with($default))) > 10000, 'the inventory is not empty');
my @paths = split(/\n/, $node->safe_psql('postgres',
		"SELECT source || ' ' || target FROM pg_extension_update_paths('pmhash') WHERE path IS NOT NULL ORDER BY 1"));
my @versions = split(/\n/, $node->safe_psql('postgres', "SELECT version FROM pg_available_extension_versions WHERE name = 'pmhash'"));
note("default version $default, versions @versions, paths: @paths");
is(differences(split(/ /)), '', "update $_: the same objects") foreach grep { !/made_up/ } @paths;
foreach my $version (grep { !/made_up/ && $_ ne $default } @versions)
{
	ok((grep { $_ eq "$version $default" } @paths), "there is a way from $version to $default");
}
$node->safe_psql('postgres', 'CREATE EXTENSION pmhash');
is($node->safe_psql('postgres', 'ALTER EXTENSION pmhash UPDATE; SELECT extversion FROM pg_extension WHERE extname = \'pmhash\''),
	$default, 'without a version it is the default one');

# ---- versions that are made up ----

my @made;

sub make_script
{
	my ($name, $text) = @_;
	my $path = "$directory/pmhash--$name.sql";

	push @made, $path;
	open(my $file, '>', $path) or die "$path: $!";
	print $file $text;
	close($file) or die "$path: $!";
}

END
{
	unlink(@made) if @made;
}

SKIP:
{
	skip 'the scripts of the server cannot be changed', 8 unless -w $directory;
	my $script = slurp_file("$directory/pmhash--$default.sql");
	my $function = "CREATE FUNCTION pmhash_made_up(int) RETURNS int LANGUAGE sql AS 'SELECT \$1';\n";
	my $comment = "COMMENT ON FUNCTION pmhash_made_up(int) IS 'made up';\n";
	my $revoke = "REVOKE ALL ON FUNCTION pmhash_made_up(int) FROM PUBLIC;\n";
	my $member = "ALTER OPERATOR FAMILY numeric_ops USING pmhash ADD OPERATOR 1 =(int8, int8);\n";

	make_script('made_up1', $script);
	make_script('made_up2', $script . $function . $comment . $revoke);
	make_script('made_up1--made_up2', $function . $comment . $revoke);
	is(differences('made_up1', 'made_up2'), '', 'a good script');
	make_script('made_up1--made_up2', $function . $comment);
	like(differences('made_up1', 'made_up2'), qr/pmhash_made_up/, 'one that forgets rights is noticed');
	make_script('made_up1--made_up2', $function . $revoke);
	like(differences('made_up1', 'made_up2'), qr/pmhash_made_up/, 'one that forgets a comment is noticed');
	make_script('made_up2', $script . $member);
	make_script('made_up1--made_up2', "SELECT 1;\n");
	like(differences('made_up1', 'made_up2'), qr/numeric_ops/, 'one that forgets an operator is noticed');
}

$node->stop;
done_testing();
