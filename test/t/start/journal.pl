# The journal and other files of the pool, damaged or not as they were left.

use v5.36;
use POSIX qw(sysconf _SC_PAGESIZE);
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

# ======== journal ========

# The pool has one file for the undo journals of all server lives, made with the pool: no life
# needs space for its own.  If a larger one is asked for, and there is no room, it stays.
{
	my $node = new_server('journals', "wal_level = replica\nmax_wal_senders = 4\n", install_path => install_with_stop_points(), allows_streaming => 1);
	use_stop_points($node);
	$node->append_conf('pg_hba.conf', "local replication all trust\n");
	start_with_extension($node, <<SQL);
CREATE TABLE t (k int4);
CREATE INDEX t_k ON t USING pmhash (k);
INSERT INTO t SELECT generate_series(1, 1000);
SQL
	my $pool = pool($node);
	my $rows = 1000;

	sub mb ($n)
	{
		return $n * 1024 * 1024 + sysconf(_SC_PAGESIZE);    # whole pages
	}

	sub inode_of ($server)
	{
		return (stat(pool($server) . '/journal'))[1];
	}

	# Rows go in; the journal is that file, of that size.
	sub goes_on ($inode, $bytes, $name)
	{
		my ($status, $stdout, $stderr) = $node->psql('postgres', 'INSERT INTO t VALUES (' . ++$rows . ')');

		is($stderr, '', "$name: a row goes in");
		is(inode_of($node), $inode, '... with the journal that was there');
		is(-s "$pool/journal", $bytes, '... of its size');
		is(join(' ', glob("$pool/journal*")), "$pool/journal", '... which is the only one');
		is(index_state($node, 't_k'), 'valid', '... the index is trusted');
		same_answers($node, 't', 'k', 't_k', '... and right');
		return;
	}

	my $inode = inode_of($node);
	goes_on($inode, mb(2), 'first life');
	$node->restart;
	goes_on($inode, mb(2), 'restarted');
	foreach (1, 2)
	{
		crash_and_start($node);
		goes_on($inode, mb(2), 'killed');
	}

	# ---- a standby has one, so that it needs no space when it is promoted ----
	my $standby = new_standby($node, 'journals_standby', undef, install_path => $node->{_install_path});
	my $its = inode_of($standby);
	ok(defined $its, 'a standby has a journal');
	wait_for_state($standby, 't_k', qr/^valid$/, '... and its index');
	$standby->promote;
	$standby->safe_psql('postgres', 'INSERT INTO t VALUES (0)');
	is(inode_of($standby), $its, 'promoted: it uses it');
	is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 0'), '1', '... and a row goes in');
	$_->stop foreach $standby, $node;

	# ---- other sizes ----
	$node->append_conf('postgresql.conf', 'pmhash.journal_size = 64MB');
	foreach my $how ('fast', 'immediate')
	{
		start_with_small_files($node);
		my ($status, $stdout, $stderr) = $node->psql('postgres', 'INSERT INTO t SELECT generate_series(2001, 60000)');
		is($stderr, '', "no room for a larger journal ($how): many rows go in");
		like(slurp_file($node->logfile), qr/the undo journal has \d+ bytes instead of \d+: The operation that failed was/, '... and the log says so');
		goes_on($inode, mb(2), "no room for a larger journal ($how)");
		$node->stop($how);
	}
	start_with_small_files($node);
	goes_on($inode, mb(2), 'it is read after a crash');
	$node->restart;
	goes_on($inode, 64 * 1024 * 1024 + 4096, 'with room it has the size that was asked for');
	restart_with($node, 'pmhash.journal_size = 1MB');
	goes_on($inode, 64 * 1024 * 1024 + 4096, 'a smaller one is asked for: the file stays');
	crash_and_start($node);
	goes_on($inode, 64 * 1024 * 1024 + 4096, 'a smaller one is asked for, killed');

	# ---- the first use fails at first: the control file can't be written ----
	$node->stop;
	hold('journal_begun');
	$node->start;
	is_held('journal_begun', 'the first process');
	chmod(0400, "$pool/control") or die $!;
	release('journal_begun');
	fails_like($node, 'INSERT INTO t VALUES (0)', qr/could not be made ready: could not write file/, 'the first use fails');
	like(index_state($node, 't_k'), qr/^disabled: pmhash could not be made ready: could not write file/, '... as pmhash.indexes says');
	my $early = session_with($node, 'SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; PREPARE early AS SELECT count(*) FROM t WHERE k = 1', on_error_stop => 0);
	is($early->query_safe('EXECUTE early'), 1, '... a plan does without the index');
	unlike($early->query_safe('EXPLAIN (COSTS OFF) EXECUTE early'), qr/t_k/, '... which it has not');
	chmod(0600, "$pool/control") or die $!;
	goes_on($inode, 64 * 1024 * 1024 + 4096, 'the next use');
	like($early->query_safe('EXPLAIN (COSTS OFF) EXECUTE early'), qr/t_k/, '... and that plan is not kept');
	$early->quit;

	# ---- something else stands in its place ----
	crash($node);
	rename("$pool/journal", "$pool/journal.away") or die $!;
	mkdir("$pool/journal") or die $!;
	$node->start;
	like(index_state($node, 't_k'), qr/^disabled: could not use file "\Q$pool\E\/journal"/, 'no journal: disabled');
	$node->stop;
	rmdir("$pool/journal") or die $!;
	rename("$pool/journal.away", "$pool/journal") or die $!;
	$node->start;
	comes_back($node, 'a journal again');

	# ---- it is removed while the server runs: it is named, and no index file is ----
	unlink("$pool/journal") or die $!;
	fails_like($node, 'INSERT INTO t VALUES (0)', qr/could not use the pmhash undo journal "journal": No such file or directory/, 'no journal any more');
	like(index_state($node, 't_k'), qr/^disabled: undo journal "\Q$pool\E\/journal" was lost/, '... disabled');
	$node->restart;
	comes_back($node, 'another journal');
	$node->stop;
}

# ======== damaged pool files ========

# Control file, journal, nonce and stubs damaged after a crash that has taken
# rows back: the server starts each time, answers right from the first query,
# and in the end every index is as it should be.
{
	# only this test flushes WAL, so that a crash takes rows back
	my $node = new_server('damaged', <<CONF);
synchronous_commit = off
wal_writer_delay = 10s
wal_writer_flush_after = 100MB
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
pmhash.journal_size = 64kB
CONF
	my $pool = pool($node);
	start_with_extension($node, <<SQL);
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT i % 1000, i FROM generate_series(1, 2000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_v ON t USING pmhash (v);
SQL
	my $stub = $node->data_dir . '/'
	  . $node->safe_psql('postgres', "SELECT pg_relation_filepath('t_k')");

	srand(4);

	sub random_bytes ($n)
	{
		return pack('C*', map { int(rand(256)) } 1 .. $n);
	}

	# The journal of the run that has crashed.
	sub journal
	{
		my @journals = glob "$pool/journal*";
		is(scalar(@journals), 1, 'there is one journal');
		return $journals[0];
	}

	sub flip ($file, $at)
	{
		my $byte = ord(substr(slurp_file($file), $at, 1));

		patch_file($file, $at, chr($byte ^ 1 << int(rand(8))));
		return;
	}

	# A bit at this offset of each record of the journal that was ever written.
	sub flip_records ($file, $offset)
	{
		my $bytes = slurp_file($file);

		for (my $at = 64; $at < length($bytes); $at += 64)
		{
			substr($bytes, $at + $offset, 1) = chr(ord(substr($bytes, $at + $offset, 1)) ^ 4)
			  if substr($bytes, $at + 60, 4) ne "\0\0\0\0";
		}
		patch_file($file, 0, $bytes);
		return;
	}

	# File, what is done to it, how.
	my @damages = (
		[ 'control', 'empty', sub { truncate($_[0], 0) } ],
		[ 'control', 'half', sub { truncate($_[0], (-s $_[0]) / 2) } ],
		[ 'control', 'longer', sub { append_to_file($_[0], random_bytes(300)) } ],
		[ 'control', 'zeroes', sub { patch_file($_[0], 0, "\0" x -s $_[0]) } ],
		[ 'control', 'random', sub { patch_file($_[0], 0, random_bytes(-s $_[0])) } ],
		[ 'control', 'bit flipped in the eras', sub { flip($_[0], 144) } ],
		[ 'control', 'bit flipped in the journal\'s instance', sub { flip($_[0], 160) } ],
		[ 'control', 'a directory', sub { unlink($_[0]); mkdir($_[0]) } ],
		[ 'journal', 'missing', sub { unlink($_[0]) } ],
		[ 'journal', 'empty', sub { truncate($_[0], 0) } ],
		[ 'journal', 'only its header', sub { truncate($_[0], 64) } ],
		[ 'journal', 'cut in a record', sub { truncate($_[0], (-s $_[0]) - 100) } ],
		[ 'journal', 'longer', sub { append_to_file($_[0], random_bytes(1000)) } ],
		[ 'journal', 'random header', sub { patch_file($_[0], 0, random_bytes(64)) } ],
		[ 'journal', 'wrong magic number', sub { patch_file($_[0], 0, "\1") } ],
		[ 'journal', 'another instance', sub { patch_file($_[0], 8, random_bytes(8)) } ],
		[ 'journal', 'no records', sub { patch_file($_[0], 16, "\0" x 8) } ],
		[ 'journal', 'too many records', sub { patch_file($_[0], 16, "\xff" x 8) } ],
		[ 'journal', 'bit flipped in a record\'s TID', sub { flip_records($_[0], 16) } ],
		[ 'journal', 'bit flipped in a record\'s instance', sub { flip_records($_[0], 40) } ],
		[ 'nonce', 'empty', sub { truncate($_[0], 0) } ],
		[ 'nonce', 'random', sub { patch_file($_[0], 0, random_bytes(16)) } ],
		[ 'stub', 'zeroes', sub { patch_file($_[0], 0, "\0" x 8192) } ],
		[ 'stub', 'random contents', sub { patch_file($_[0], 24, random_bytes(64)) } ],
		[ 'stub', 'another file\'s id', sub { patch_file($_[0], 32, random_bytes(8)) } ],
		[ 'stub', 'another version', sub { patch_file($_[0], 28, "\x63") } ]);

	# Rows in the table and entries in the indexes, then the former are lost.
	sub lose_rows ($insert = 'INSERT INTO t SELECT -i, -i FROM generate_series(1, 400) i')
	{
		my $session = $node->background_psql('postgres', on_error_stop => 0);

		$node->safe_psql('postgres', 'CHECKPOINT');
		hold_wal_writer($node);
		$session->query_safe('BEGIN');
		$session->query_safe($insert);
		crash($node);
		eval { $session->quit };
		return;
	}

	# trust: control
	foreach my $damage (some_of(5, @damages))
	{
		my ($what, $how, $do) = @$damage;
		my $name = "$what, $how";

		lose_rows();
		my %file = (
			control => "$pool/control",
			nonce => $node->data_dir . '/pmhash.nonce',
			stub => $stub);
		$do->($what eq 'journal' ? journal() : $file{$what});
		ok($node->start(fail_ok => 1), "$name: the server starts") or BAIL_OUT('no server');

		# no entry of a lost row leads anywhere, whether the index is used or not
		# trust: journal
		is( $node->safe_psql('postgres', <<SQL), '0', "$name: lost keys");
SET enable_seqscan = off;
INSERT INTO t SELECT 5000 + i, 5000 + i FROM generate_series(1, 450) i;
SELECT count(*) FROM generate_series(-450, -1) g, LATERAL (SELECT FROM t WHERE k = g OFFSET 0) x;
SQL
		if (-d "$pool/control")
		{
			# not ours to touch: pmhash is disabled until it has been put right
			$node->stop;
			rmdir("$pool/control") or die;
			$node->start;
		}
		# trust: record
		comes_back($node, $name);
		same_answers($node, 't', 'v', 't_v', $name);
		$node->safe_psql('postgres', 'DELETE FROM t WHERE k > 4999');
	}

	# ---- a damaged record is not met again by the lives that come after ----

	# All have one file, and most do not write as far as to its last record.
	sub spoil_last_record ($file)
	{
		patch_file($file, (-s $file) - 64, random_bytes(64));
		return;
	}

	sub restarted ($name, $distrusted)
	{
		my $from = -s $node->logfile;

		$node->start;
		$node->safe_psql('postgres', 'INSERT INTO t VALUES (1, 1)');
		my $log = slurp_file($node->logfile, $from);
		my $said = qr/are not trusted: the undo journal is missing or damaged/;
		is($log =~ $said ? 1 : 0, $distrusted, "$name: " . ($distrusted ? 'not trusted' : 'trusted'));
		comes_back($node, $name);
		return;
	}

	foreach my $way ('met by a crash', 'after an orderly end')
	{
		my $is_met = $way eq 'met by a crash' ? 1 : 0;

		$is_met ? crash($node) : $node->stop;
		spoil_last_record(journal());
		restarted($way, $is_met);
		foreach my $again (some_of(2, 1, 2))
		{
			crash($node);
			restarted("$way, crash $again", 0);
		}
	}

	# ---- thousands of entries in the long list of one key are lost: taken out together ----

	restart_with($node, no_wal_flushes() . 'pmhash.journal_size = 1MB');
	$node->safe_psql('postgres', 'INSERT INTO t SELECT 7, i FROM generate_series(3001, 103000) i');
	lose_rows('INSERT INTO t SELECT 7, -i FROM generate_series(1, 5000) i; SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 7; SELECT count(*) FROM t WHERE v = -1');
	my $from = -s $node->logfile;
	start_without_rebuilds($node);
	is(index_state($node, 't_k'), 'valid', 'a long list: nothing is rebuilt');
	like(slurp_file($node->logfile, $from), qr/undo journal: \d+ records, .* 10000 entries taken out/, 'a long list: all lost entries go');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 7'), '100002', 'a long list: the other rows are found');
	rebuild_on($node);
	comes_back($node, 'a long list');
	$node->stop;
}

done_testing();
