# A server that does I/O past the page cache (debug_io_direct, PostgreSQL 16 and later): it
# requires aligned buffers, so all that writes or reads pages without shared buffers is
# met: init forks, and stubs that are looked at in their files.

use strict;
use warnings;

use Fcntl qw(O_CREAT O_RDWR);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('direct', '');
plan skip_all => 'PostgreSQL 16 or later is needed' if $node->pg_version < 16;
my $direct = eval { Fcntl::O_DIRECT() };
plan skip_all => 'no O_DIRECT here'
  if !defined $direct || !sysopen(my $file, "$PostgreSQL::Test::Utils::tmp_check/direct", O_RDWR | O_CREAT | $direct);

$node->append_conf('postgresql.conf', "debug_io_direct = 'data'\npmhash.rebuild = off");
$node->start;
install_extension($node);
is($node->safe_psql('postgres', 'SHOW debug_io_direct'), 'data', 'direct I/O');

# ---- unlogged tables, of which a page is written past shared buffers ----

foreach my $kind ('', 'UNLOGGED')
{
	my $table = $kind ? 'unlogged' : 'logged';

	$node->safe_psql('postgres', <<SQL);
CREATE $kind TABLE $table (k int4);
INSERT INTO $table SELECT generate_series(1, 100);
CREATE INDEX ${table}_k ON $table USING pmhash (k);
SELECT pmhash_check('${table}_k');
SQL
}
is($node->safe_psql('postgres', "SELECT pg_relation_size('unlogged_k', 'init')"), '8192', 'an init fork');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', 'INSERT INTO unlogged VALUES (7); SET enable_seqscan = off; SELECT count(*) FROM unlogged WHERE k = 7'),
	'1', 'and it serves after a crash');
is($node->safe_psql('postgres', "ALTER TABLE logged SET UNLOGGED; SELECT pg_relation_size('logged_k', 'init')"), '8192', 'SET UNLOGGED');
is($node->safe_psql('postgres', "ALTER TABLE logged SET LOGGED; SET enable_seqscan = off; SELECT count(*) FROM logged WHERE k = 7"), '1', 'SET LOGGED');

# ---- stubs that are in no shared buffer ----

$node->restart;
wait_for_files(pool($node), 2, 'two files, when the one from before the crash is gone');
is($node->safe_psql('postgres', "SELECT string_agg(index || ' ' || state, ', ' ORDER BY index) FROM pmhash_indexes"),
	'logged_k valid, unlogged_k valid', 'are shown');
$node->restart;
$node->safe_psql('postgres', 'TRUNCATE logged; DROP TABLE unlogged');
is(scalar(index_files(pool($node))), 1, 'what is dropped and replaced goes at commit');
unlike(slurp_file($node->logfile), qr/ERROR|PANIC|could not read/, 'nothing fails');
$node->stop;
done_testing();
