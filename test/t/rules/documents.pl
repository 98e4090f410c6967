# What README.md and docs say: examples do what they say, and messages come from what is
# said to be their cause.

use v5.36;

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

# Messages of docs/troubleshooting.md whose causes are the machine's.  Most others are in tests
# where their cause is at hand; rules/tables.pl sees that none is left out.
{
	my $node = new_server('trouble');
	start_with_extension($node, invalid_fixture());

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
		like($session->{stderr}, qr/ERROR:  could not open file ".*" of index "wide_k"/, 'no address space');
		like($session->{stderr}, qr/Cannot allocate memory/, 'no address space: reason');
		$session->{stderr} = '';
		system_or_bail('prlimit', '--pid', $pid, '--as=unlimited:');
		is($session->query_safe('SELECT count(*) FROM wide WHERE k = 1'), '1', 'enough again');
		is(index_state($node, 'wide_k'), 'valid', 'the index is right');
		$session->quit;
	}
	$node->stop;
}

done_testing();
