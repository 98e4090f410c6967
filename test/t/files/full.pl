# A full file system: INSERT and CREATE INDEX are ERRORs that name index and
# file, nothing is lost, and what fits again goes on.  The file system, of
# some 24 MB, is given by the environment: making one needs root.  All but 8 MB of it are
# filled at first, so that few rows fill the rest.

use v5.36;

use Errno;
use PmhashInvalid;
use PmhashTest;

my $small = small_file_system();
plan(skip_all => 'no small file system in PMHASH_SMALL_FS') if !defined $small;

my $pool = "$small/pool";
my $node = new_server('full', "pmhash.directory = '$pool'\n");
my ($free) = `df --output=avail -k '$small'` =~ /(\d+)\s*\z/;
append_to_file("$small/ballast", "\0" x 1024 x ($free - 8 * 1024));
start_with_extension($node, <<SQL);
CREATE TABLE t (k int8);
INSERT INTO t SELECT generate_series(1, 40000);
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE large (k int8);
INSERT INTO large SELECT generate_series(1, 700000);
SQL
wait_for_files($pool, 1, 'files before');

# event: its file system is full
my $full = qr/ERROR:.*"t_k".*No space left on device/s;
# trouble: `could not use file "..." of index "...": No space left on device`
fails_like($node, 'INSERT INTO t SELECT generate_series(40001, 700000)', $full, 'INSERT');
like($node->safe_psql('postgres', 'SELECT file FROM pmhash.indexes'), qr/\Q$small\E/, 'the file is there');
same_answers($node, 't', 'k', 't_k', 'INSERT that did not fit');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '40000', 'rows');

fails_like($node, 'CREATE INDEX large_k ON large USING pmhash (k)',
	qr/ERROR:.*"large_k".*No space left on device/s, 'CREATE INDEX');
wait_for_files($pool, 1, 'files after CREATE INDEX that did not fit');
fails_like($node, 'CREATE INDEX large_d ON large USING pmhash ((k / 350000))',
	qr/ERROR:.*"large_d".*No space left on device/s, 'CREATE INDEX on duplicates');
wait_for_files($pool, 1, 'files after CREATE INDEX on duplicates');

# a key with many rows needs value buffers
fails_like($node, 'INSERT INTO t SELECT 7 FROM generate_series(1, 2000000)', $full, 'INSERT of one key');
same_answers($node, 't', 'k', 't_k', 'INSERT of one key that did not fit');

# reading and removing go on in a full file system, and make room
$node->psql('postgres', 'INSERT INTO t SELECT 40000 + g FROM generate_series(1, 700000) g');
$node->safe_psql('postgres', 'DELETE FROM t WHERE k % 2 = 0; VACUUM t');
same_answers($node, 't', 'k', 't_k', 'VACUUM');
$node->safe_psql('postgres', 'INSERT INTO t SELECT k + 1 FROM t');
same_answers($node, 't', 'k', 't_k', 'INSERT after VACUUM');

# the same with the server killed while the file system is full
$node->psql('postgres', 'INSERT INTO t SELECT 40000 + g FROM generate_series(1, 700000) g');
crash_and_start($node);
same_answers($node, 't', 'k', 't_k', 'crash');
$node->safe_psql('postgres', 'SET pmhash.vacuum_shrink = off; VACUUM t; INSERT INTO t VALUES (-1)');
same_answers($node, 't', 'k', 't_k', 'INSERT after the crash');

# A new file beside the old one does not fit.  A VACUUM that shrinks the old one
# makes room, in the full file system (a tmpfs: at the first use after the
# next start); so does DROP INDEX.
fails_like($node, 'REINDEX INDEX t_k', $full, 'REINDEX');
same_answers($node, 't', 'k', 't_k', 'REINDEX that did not fit');
$node->safe_psql('postgres', 'VACUUM t');
same_answers($node, 't', 'k', 't_k', 'VACUUM that shrinks');
$node->restart;
same_answers($node, 't', 'k', 't_k', 'after it and a start');
# (a tmpfs gets space back with the file alone)
$node->safe_psql('postgres', 'DROP INDEX t_k; CREATE INDEX t_k ON t USING pmhash (k)');
same_answers($node, 't', 'k', 't_k', 'a new index after them');

# An index without a file is no reason to leave rows out of the one beside it.  (Of an unlogged
# table, after a crash.)
$node->safe_psql('postgres', 'DROP INDEX t_k; CREATE UNLOGGED TABLE u (a int4, b int4);
	CREATE INDEX u_a ON u USING pmhash (a); CREATE INDEX u_b ON u USING pmhash (b)');
$node->append_conf('postgresql.conf', 'pmhash.rebuild = off');
crash_and_start($node);
is(index_state($node, 'u_a'), 'invalid: a crash or a promotion has emptied its unlogged table', 'no file after a crash');
$node->safe_psql('postgres', 'REINDEX INDEX u_b');
fails_like($node, 'INSERT INTO u SELECT i, i FROM generate_series(1, 700000) i',
	qr/ERROR:.*"u_b".*No space left on device/s, 'INSERT beside an index without a file');
same_answers($node, 'u', 'b', 'u_b', 'INSERT beside an index without a file');
$node->safe_psql('postgres', 'DROP TABLE u');
reload_with($node, 'pmhash.rebuild = on');
$node->safe_psql('postgres', 'TRUNCATE t');
wait_for_files($pool, 0, 'DROP INDEX');
$node->safe_psql('postgres', 'INSERT INTO t SELECT generate_series(1, 40000); CREATE INDEX t_k ON t USING pmhash (k)');
same_answers($node, 't', 'k', 't_k', 'a new index');

# A rebuild has the room of the file that it replaces, which its first try has removed.
$node->safe_psql('postgres', 'INSERT INTO t SELECT generate_series(40001, 200000)');
my $file = index_file($node, 't_k');
$node->stop;
patch_file($file, 16, "\xff" x 16);
open(my $filler, '>', "$small/filler") or die "$small: $!";
while (syswrite($filler, "\0" x 4096)) { }
ok($!{ENOSPC}, 'the file system is full');
my $from = -s $node->logfile;
$node->start;
ok($node->wait_for_log(qr/index "t_k" of table "t" has been rebuilt/, $from), 'rebuilt in a full file system');
same_answers($node, 't', 'k', 't_k', 'rebuilt in a full file system');

# nor is there room in the lock file for the server's id
$node->stop;
unlink("$pool/lock") or die $!;
while (syswrite($filler, "\0" x 4096)) { }
$node->start;
is(index_state($node, 't_k'), 'valid', 'a new lock file in a full file system');
same_answers($node, 't', 'k', 't_k', 'a new lock file in a full file system');
close($filler);
$node->stop;
done_testing();
