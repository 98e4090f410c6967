# The recipe of docs/operations.md for a server without pmhash, as it stands there: the
# restored database has all rows and constraints, and nothing of pmhash.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use IPC::Run;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($recipe) = slurp_file("$FindBin::RealBin/../../../docs/operations.md") =~
  /^## Restoring without pmhash\n.*?^```bash\n(.*?)^```$/ms or die 'docs/operations.md has no recipe';

my $node = new_server('without');
my $unique = $node->pg_version < 18 ? '' : 'UNIQUE';

$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE origin');
# the rows of "plain" look like what is edited
$node->safe_psql('origin', <<SQL);
CREATE EXTENSION pmhash;
CREATE TABLE plain (line text);
INSERT INTO plain VALUES ('CREATE INDEX i ON t USING pmhash (k) WITH (wal=''on'')'), ('CREATE EXTENSION pmhash');
CREATE TABLE t (k int8, v text, w int, EXCLUDE USING pmhash (v WITH =) WHERE (w > 0) DEFERRABLE);
INSERT INTO t SELECT g, 'v' || g, g FROM generate_series(1, 1000) AS g;
CREATE $unique INDEX t_k ON t USING pmhash (k) WITH (wal = off);
CREATE INDEX t_v ON t USING pmhash (lower(v)) WITH (fillfactor = 50, wal = on) WHERE w > 5;
CREATE INDEX t_w ON t USING pmhash (w, k) WITH (wal = on, fillfactor = 60);
CREATE INDEX t_pattern ON t USING pmhash (v text_pattern_ops);
CREATE OPERATOR CLASS own_ops FOR TYPE int4 USING pmhash AS
	OPERATOR 1 =, FUNCTION 1 hashint4extended(int4, int8);
SQL
my $dump = $node->basedir . '/shop.dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('origin') ], 'a dump');

my $output = '';
{
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PATH} = $node->config_data('--bindir') . ":$ENV{PATH}";

	ok(IPC::Run::run([ 'bash', '-e', '-o', 'pipefail', '-c', "cd '" . $node->basedir . "'\n$recipe" ],
			'<', \undef, '>&', \$output), 'the recipe') or diag($output);
}
unlike($output, qr/ERROR|error:/, 'without an error');

foreach my $query ("SELECT md5(string_agg(t::text, ' ' ORDER BY k)) FROM t",
	"SELECT string_agg(line, ' ' ORDER BY line) FROM plain")
{
	is($node->safe_psql('shop', $query), $node->safe_psql('origin', $query), 'the same rows');
}
my $wanted = $node->safe_psql('origin',
	"SELECT string_agg(indexdef, chr(10) ORDER BY indexname) FROM pg_indexes WHERE schemaname = 'public'");
$wanted =~ s/USING pmhash/USING btree/g;
$wanted =~ s/ WITH \(wal='?off'?\)//g;
$wanted =~ s/, wal='?on'?//g;
$wanted =~ s/wal='?on'?, //g;
is($node->safe_psql('shop',
		"SELECT string_agg(indexdef, chr(10) ORDER BY indexname) FROM pg_indexes WHERE schemaname = 'public'"),
	$wanted, 'the same indexes, of btree');
like($wanted, qr/WITH \(fillfactor='?50'?\).*WITH \(fillfactor='?60'?\)/s, 'and their storage parameters');
is($node->safe_psql('shop', q{SELECT (SELECT count(*) FROM pg_extension WHERE extname = 'pmhash') +
		(SELECT count(*) FROM pg_opclass WHERE opcname = 'own_ops')}), '0', 'nothing of pmhash');
fails_like($node, "INSERT INTO t VALUES (2000, 'v7', 7)", qr/violates exclusion constraint/, 'the constraint', 'shop');

$node->stop;
done_testing();
