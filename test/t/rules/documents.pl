# What README.md and docs say: examples do what they say, and messages come from what is
# said to be their cause.

use v5.36;

use File::Copy;
use File::Path qw(make_path rmtree);
use File::Spec;
use FindBin;
use IPC::Run;
use PmhashInvalid;
use PmhashTest;

# ======== examples ========

# The examples of README.md, from "Installation" on, and of docs/, one after another
# as they stand there: they fail only where it says so, and print what it says.
# Commands for a shell are executed in docs/ only: README's are those of
# test/first_steps.sh.
{
	# Blocks of SQL and of commands, each with its section and the block of output
	# after it, if there is one.
	sub examples ($text, $languages)
	{
		my @examples;
		my $section = '';

		while ($text =~ /^#+ ([^\n]*)\n|^( *)```($languages)\n(.*?)^\2```\n(?:\2```\n(.*?)^\2```\n)?/msg)
		{
			if (defined $1)
			{
				$section = $1;
				next;
			}
			push @examples, { section => $section, language => $3, text => $4, output => $5 };
		}
		return @examples;
	}

	# Lines without what differs from run to run: widths, names of files, numbers.
	sub plain_lines ($text)
	{
		my @lines = split /\n/, $text;

		foreach (@lines)
		{
			s/\S+\.pmh/FILE/g;
			s/^[-+]+$/LINE/;
			s/\b[0-9]+\b/N/g;
			s/\s+/ /g;
			s/^ | $//g;
		}
		return grep { $_ ne '' } @lines;
	}

	my $top = "$FindBin::RealBin/../../..";
	my $node = new_server('readme', slurp_file("$FindBin::RealBin/../../regress.conf"));
	my %output;
	my $n = 0;

	# Run one example; returns what it prints.
	sub run_example ($example)
	{
		my $output;

		if ($example->{language} eq 'sql')
		{
			IPC::Run::run([ $node->installed_command('psql'), '-X', '-d', $node->connstr('postgres') ],
				'<', \$example->{text}, '>&', \$output) or die 'psql failed';
		}
		else
		{
			local $ENV{PGDATA} = $node->data_dir;
			local $ENV{POOL} = $node->data_dir . '.pmhash';
			local $ENV{NEW_POOL} = $node->basedir . '/new_pool';
			local $ENV{SAVED} = $node->basedir . '/saved_pool';

			# the second example begins with what the first has done
			$ENV{POOL} = $ENV{NEW_POOL} if -d $ENV{NEW_POOL};
			ok(IPC::Run::run([ 'sh', '-e', '-c', $example->{text} ], '<', \undef, '>&', \$output),
				"$example->{section}: commands") or diag($output);
			$node->_update_pid(1);
			wait_until($node, "SELECT count(*) > 0 AND bool_and(state = 'valid') FROM pmhash.indexes", 'indexes do not become valid');
		}
		return $output;
	}

	sub execute ($document, $text, $languages)
	{
		foreach my $example (examples($text, $languages))
		{
			my $name = ++$n . ", $document, $example->{section}";
			my $output = run_example($example);
			my (@found, @missing);

			$output{ $example->{section} } .= $output;
			@found = plain_lines($output);
			foreach my $line (plain_lines($example->{output} // ''))
			{
				push @missing, $line if !grep { $_ eq $line } @found;
			}
			is("@missing", '', "$name: output") || diag($output) if defined $example->{output};
			unlike($output, qr/^(?:ERROR|FATAL|WARNING)/m, "$name: no error")
			  if ($example->{output} // '') !~ /^ERROR/;
		}
	}

	$node->start;
	my $readme = slurp_file("$top/README.md");
	$readme =~ s/^.*?(?=^## Installation)//ms or die 'README.md has no section "Installation"';
	execute('README.md', $readme, 'sql');
	# operations.md ends with the removal of the extension
	my @documents = qw(usage types monitoring events standbys shards tools applications troubleshooting operations);
	is_deeply([ sort map { m,([^/]*)\.md$, } glob "$top/docs/*.md" ], [ sort @documents ],
		'all documents are executed');
	execute("$_.md", slurp_file("$top/docs/$_.md"), 'sql|sh') foreach @documents;
	cmp_ok($n, '>=', 20, 'there are examples');

	# what comments say
	like($output{'Lists of keys, index-only scans, dead rows'}, qr/Index Only Scan/, 'index-only scan');
	my ($before, $after) = $output{'After mass deletes'} =~ /\bsize\b.*?(\d+)\n.*\bsize\b.*?(\d+)\n/s;
	cmp_ok($after, '<', $before / 2, 'a shrunk index');
	like($output{'Alerts'}, qr/^\(0 rows\)\n.*^\(0 rows\)/ms, 'no alert');
	like(slurp_file($node->logfile) . slurp_file($node->basedir . '/log'),
		qr/are not trusted/, 'a new pool directory: rebuilt');

	# links between the documents
	foreach my $document ('README.md', map { "docs/$_.md" } @documents)
	{
		my ($folder) = "$top/$document" =~ m,^(.*/),;
		my $text = slurp_file("$top/$document");

		while ($text =~ /\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)
		{
			my ($file, $anchor) = ($1, $2);
			my $target = $file eq '' ? "$top/$document" : "$folder$file";

			ok(-e $target, "$document: $file is there") || next;
			next if !defined $anchor;
			my @anchors = map { my $line = lc; $line =~ s/[^a-z0-9 _-]//g; $line =~ tr/ /-/; $line }
			  slurp_file($target) =~ /^#+ (.*)$/mg;
			ok((grep { $_ eq $anchor } @anchors), "$document: $file#$anchor is there");
		}
	}

	$node->stop;
}

# ======== messages ========

# The messages that docs/troubleshooting.md explains come as it has them, each from
# what it says is their cause.  Some are in other tests, where their cause is at hand
# (files/full.pl, files/sigbus.pl, start/reboot.pl); rules/tables.pl sees that none is left out.
{
	# A row's message as a regular expression: "..." stands for anything.
	sub message ($row)
	{
		my ($level, $text) = $row =~ /^(?:(\w+): )?`(.*)`$/ or die "no message: $row";

		my $pattern = join('.*', map { quotemeta } split(/\.\.\./, $text, -1));

		$level //= 'ERROR';
		return qr/$level:  (?:\w{5}: )?$pattern/;
	}

	# A test: a statement fails as a row says.
	sub says ($node, $sql, $row)
	{
		return fails_like($node, $sql, message($row), $row);
	}

	my $node = new_server('trouble');
	my $pool = pool($node);
	start_with_extension($node, invalid_fixture());

	# ---- what cannot be made ----
	# trouble: `access method "pmhash" does not support unique indexes`
	if ($node->pg_version < 18)
	{
		says($node, 'CREATE UNIQUE INDEX ON t USING pmhash (k)',
			'`access method "pmhash" does not support unique indexes`');
	}
	# trouble: `access method "pmhash" does not support NULLS NOT DISTINCT`
	else
	{
		says($node, 'CREATE UNIQUE INDEX ON t USING pmhash (v) NULLS NOT DISTINCT',
			'`access method "pmhash" does not support NULLS NOT DISTINCT`');
	}
	# trouble: `access method "pmhash" does not support included columns`
	says($node, 'CREATE INDEX ON t USING pmhash (k) INCLUDE (v)',
		'`access method "pmhash" does not support included columns`');
	# trouble: `access method "pmhash" does not support ASC/DESC options`
	says($node, 'CREATE INDEX ON t USING pmhash (k DESC)',
		'`access method "pmhash" does not support ASC/DESC options`');
	# trouble: `data type ... has no default operator class for access method "pmhash"`
	says($node, 'CREATE TABLE j (j json); CREATE INDEX ON j USING pmhash (j)',
		'`data type ... has no default operator class for access method "pmhash"`');
	$node->safe_psql('postgres', 'CREATE INDEX ON j USING pmhash ((j::text))');

	# ---- types and equalities of keys ----
	$node->safe_psql('postgres', q{
		CREATE TYPE pair AS (a int, b int);
		CREATE TABLE pairs (p pair);
		CREATE INDEX pairs_p ON pairs USING pmhash (p);
	});
	# event: `ALTER TYPE ... ADD` or `DROP ATTRIBUTE`, or columns of a table whose rows are keys
	# trouble: `cannot alter attributes of ... because pmhash index ... has it in its keys`
	says($node, 'ALTER TYPE pair ADD ATTRIBUTE c int',
		'`cannot alter attributes of ... because pmhash index ... has it in its keys`');
	$node->safe_psql('postgres', q{
		DROP INDEX pairs_p;
		ALTER TYPE pair ADD ATTRIBUTE c int;
		CREATE INDEX pairs_p ON pairs USING pmhash (p);
		DROP TABLE pairs;
	});
	$node->safe_psql('postgres', q{
		CREATE OPERATOR CLASS no_equality FOR TYPE int USING pmhash
			AS FUNCTION 1 hashint4extended(int, bigint);
	});
	# trouble: `operator class of column ... of index "..." has no equality operator`
	says($node, 'CREATE INDEX ON t USING pmhash (k no_equality)',
		'`operator class of column ... of index "..." has no equality operator`');
	{
		my $row = 'WARNING: `column ... of pmhash index "..." is not indexed by the equality of its type ...`';
		my ($status, undef, $stderr) = $node->psql('postgres', q{
			CREATE TYPE folded;
			CREATE FUNCTION folded_in(cstring) RETURNS folded AS 'textin'
				LANGUAGE internal IMMUTABLE STRICT;
			CREATE FUNCTION folded_out(folded) RETURNS cstring AS 'textout'
				LANGUAGE internal IMMUTABLE STRICT;
			CREATE TYPE folded (input = folded_in, output = folded_out, like = text);
			CREATE CAST (folded AS text) WITHOUT FUNCTION AS IMPLICIT;
			CREATE FUNCTION folded_cmp(folded, folded) RETURNS int LANGUAGE sql IMMUTABLE
				AS 'SELECT bttextcmp(lower($1::text), lower($2::text))';
			CREATE FUNCTION folded_eq(folded, folded) RETURNS bool LANGUAGE sql IMMUTABLE
				AS 'SELECT folded_cmp($1, $2) = 0';
			CREATE OPERATOR = (leftarg = folded, rightarg = folded, function = folded_eq);
			CREATE OPERATOR CLASS folded_ops DEFAULT FOR TYPE folded USING btree
				AS OPERATOR 3 =, FUNCTION 1 folded_cmp(folded, folded);
			CREATE TABLE folds (f folded);
			CREATE INDEX ON folds USING pmhash (f);
		});

		is($status, 0, 'the index is made all the same');
		# trouble: WARNING: `column ... of pmhash index "..." is not indexed by the equality of its type ...`
		like($stderr, message($row), "warned: $row");
		$node->safe_psql('postgres', 'DROP TABLE folds');
	}
	# trouble: `function ... cannot be the hash function of type ... for access method pmhash`
	says($node, 'CREATE OPERATOR CLASS short_hash FOR TYPE int USING pmhash AS OPERATOR 1 =, FUNCTION 1 hashint4(int)',
		'`function ... cannot be the hash function of type ... for access method pmhash`');
	$node->safe_psql('postgres', q{
		CREATE FUNCTION size_cmp(int, int) RETURNS int LANGUAGE sql IMMUTABLE
			AS 'SELECT btint4cmp(abs($1), abs($2))';
		CREATE FUNCTION size_eq(int, int) RETURNS bool LANGUAGE sql IMMUTABLE
			AS 'SELECT abs($1) = abs($2)';
		CREATE OPERATOR |=| (leftarg = int, rightarg = int, function = size_eq);
		CREATE OPERATOR CLASS size_ops FOR TYPE int USING btree
			AS OPERATOR 3 |=|, FUNCTION 1 size_cmp(int, int);
		CREATE TYPE sizes AS RANGE (subtype = int, subtype_opclass = size_ops);
		CREATE TABLE ranges (s sizes);
	});
	# trouble: `column ... of index "..." contains ranges that cannot be hashed`
	says($node, 'CREATE INDEX ON ranges USING pmhash (s)',
		'`column ... of index "..." contains ranges that cannot be hashed`');
	SKIP:
	{
		skip 'needs ICU', 3
		  if $node->safe_psql('postgres',
			q{SELECT count(*) FROM pg_collation WHERE collname LIKE '%-x-icu'}) == 0;
		$node->safe_psql('postgres', q{
			CREATE DATABASE utf8 TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
		});
		$node->safe_psql('utf8', q{
			CREATE EXTENSION pmhash;
			CREATE COLLATION nocase
				(provider = icu, locale = 'und-u-ks-level2', deterministic = false);
			CREATE TABLE names (n name[] COLLATE nocase);
		});
		# trouble: `column ... of index "..." contains strings that cannot be hashed under a nondeterministic collation`
		fails_like($node, 'CREATE INDEX ON names USING pmhash (n)',
			message('`column ... of index "..." contains strings that cannot be hashed under a nondeterministic collation`'),
			'strings that cannot be hashed', 'utf8');
		$node->safe_psql('postgres', 'DROP DATABASE utf8');
	}

	# ---- a library that the system does not have ----
	{
		my $library = $node->config_data('--pkglibdir') . '/pmhash.so';
		# (the modules for tests may give a relative path, and the server's directory is another)
		my $copy = File::Spec->rel2abs($node->basedir . '/pmhash_copy.so');
		my $bytes = slurp_file($library);

		# the name of one that is nowhere
		ok($bytes =~ s/libpmem\.so\.1\0/libpmem.so.0\0/g, 'the library needs libpmem');
		append_to_file($copy, $bytes);
		# trouble: `could not load library ... libpmem.so.1`
		fails_like($node, "LOAD '$copy'", qr/ERROR:  could not load library .*libpmem\.so\.0/, 'no libpmem');
	}

	# ---- limits of the system ----
	{
		$node->safe_psql('postgres', <<SQL);
CREATE TABLE wide AS SELECT generate_series(1, 1000000)::int8 AS k;
CREATE INDEX wide_k ON wide USING pmhash (k);
ANALYZE wide;
SQL
		my $session = $node->background_psql('postgres', on_error_stop => 0);
		my $pid = $session->query_safe('SELECT pg_backend_pid()');
		my ($pages) = slurp_file("/proc/$pid/statm") =~ /^(\d+)/;

		$session->query_safe('SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1');
		system_or_bail('prlimit', '--pid', $pid, '--as=' . ($pages * 4096 + 12 * 1024 * 1024) . ':');
		$session->query('SELECT count(*) FROM wide WHERE k = 1');
		# trouble: `could not open file "..." of index "..."`
		like($session->{stderr}, message('`could not open file "..." of index "..."`'), 'no address space');
		like($session->{stderr}, qr/Cannot allocate memory/, 'no address space: reason');
		$session->{stderr} = '';
		system_or_bail('prlimit', '--pid', $pid, '--as=unlimited:');
		is($session->query_safe('SELECT count(*) FROM wide WHERE k = 1'), '1', 'enough again');
		is(index_state($node, 'wide_k'), 'valid', 'the index is right');
		$session->quit;
	}

	# ---- what pmhash.check finds ----
	rebuild_off($node);
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE lied (k int4);
CREATE FUNCTION wrong(int4) RETURNS int4 IMMUTABLE LANGUAGE sql AS 'SELECT \$1';
CREATE INDEX lied_k ON lied USING pmhash (wrong(k));
INSERT INTO lied SELECT generate_series(1, 100);
CREATE OR REPLACE FUNCTION wrong(int4) RETURNS int4 IMMUTABLE LANGUAGE sql AS 'SELECT -\$1';
SQL
	# trouble: `index "..." does not agree with table "..."`
	says($node, "SELECT pmhash.check('lied_k')", '`index "..." does not agree with table "..."`');
	$node->safe_psql('postgres', 'DROP TABLE lied');
	{
		my $file = index_file($node, 't_v');

		# buckets that no writer leaves so
		patch_file($file, first_segment($file), "\xa5" x 16384);
		# trouble: `file "..." of index "..." is damaged`
		says($node, "SELECT pmhash.check('t_v')", '`file "..." of index "..." is damaged`');
	}

	# trouble: `pmhash index "..." has no usable file`
	says($node, "SELECT pmhash.stats('t_v')", '`pmhash index "..." has no usable file`');

	# ---- rebuilds, as the log tells of them ----
	{
		my $from = -s $node->logfile;

		$node->safe_psql('postgres', <<SQL);
CREATE FUNCTION broken(int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN \$1; END';
CREATE TABLE b (k int4);
CREATE INDEX b_k ON b USING pmhash (broken(k));
INSERT INTO b SELECT generate_series(1, 100);
CREATE OR REPLACE FUNCTION broken(int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1 / 0; END';
SQL
		unlink(index_file($node, 'b_k')) or die;
		rebuild_on($node);
		# trouble: LOG: `pmhash: index "..." of table "..." has been rebuilt`
		ok($node->wait_for_log(message('LOG: `pmhash: index "..." of table "..." has been rebuilt`'), $from),
			'the damaged index has been rebuilt');
		# trouble: LOG: `pmhash: could not rebuild index "..."`
		ok($node->wait_for_log(message('LOG: `pmhash: could not rebuild index "..."`'), $from),
			'one whose function fails has not');
		is($node->safe_psql('postgres', "SELECT state LIKE 'rebuild failed: division by zero%' FROM pmhash.indexes WHERE index = 'b_k'"),
			't', 'and its state says why');
		$node->safe_psql('postgres', 'DROP TABLE b');
	}

	# ---- its stub ----
	{
		my $fork = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('o_k')");

		# else the rebuilder may be there before the query
		rebuild_off($node);
		$node->stop;
		# past the page header, where the magic number is
		patch_file($fork, 24, "\xa5" x 16);
		$node->start;
		is(index_state($node, 'o_k'), 'invalid: it has no stub page', 'a page that is none');
		$node->safe_psql('postgres', 'REINDEX INDEX o_k');
		is(index_state($node, 'o_k'), 'valid', 'REINDEX makes a new one');
		rebuild_on($node);
	}

	# ---- a server started with something wrong ----
	$node->stop;
	rename("$pool", "$pool.away") or die;
	append_to_file($pool, 'not a directory');
	$node->start;
	# trouble: `pmhash index "..." cannot be used: pmhash is disabled`
	says($node, "SELECT pmhash.stats('t_k')", '`pmhash index "..." cannot be used: pmhash is disabled`');
	$node->stop;
	unlink($pool) or die;
	{
		my $from = -s $node->logfile;

		# an older copy of the pool is not the server's: it has been elsewhere
		rename("$pool.away", $pool) or die;
		$node->start;
		$node->stop('immediate');
		rmtree($pool);
		$node->start;
		# trouble: LOG: `pmhash: index files in "..." are not trusted`
		ok($node->wait_for_log(message('LOG: `pmhash: index files in "..." are not trusted`'), $from),
			'a pool directory that is gone');
		all_come_back($node, 'the pool directory was gone');
	}
	restart_with($node, "shared_preload_libraries = ''");
	# trouble: `pmhash index "..." cannot be used: the pmhash library is not preloaded`
	says($node, 'INSERT INTO t VALUES (1, 1)',
		'`pmhash index "..." cannot be used: the pmhash library is not preloaded`');
	restart_with($node, "shared_preload_libraries = 'pmhash'");

	# ---- a standby ----
	restart_with($node, "wal_level = replica\nmax_wal_senders = 4\npmhash.wal = off");
	all_come_back($node, 'the library is back');
	$node->backup('for_standby');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'for_standby', has_streaming => 1);
	$standby->start;
	# trouble: `pmhash index "..." cannot be used during recovery`
	says($standby, "SELECT pmhash.stats('t_k')", '`pmhash index "..." cannot be used during recovery`');

	$standby->stop;
	$node->stop;
}

done_testing();
