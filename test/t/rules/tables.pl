# Tables of documents agree with sources and tests: each row of docs/events.md, docs/troubleshooting.md
# and test/TRUST.md has its test, and the states and reasons are those of the sources.

use v5.36;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

# ======== rows and their tests ========

# The tables of what happened and what pmhash does (docs/events.md), and of
# messages and their cure (docs/troubleshooting.md), say what is tested: each row
# has a test that is tagged "# event:" or "# trouble:" ("-- event:" in sql/) with the text of
# its first column, and each tag has a row.  A message that is in what SQL tests are expected to
# say needs no tag.
{
	my $top = "$FindBin::RealBin/../../..";
	my $expected = join('', map { slurp_file($_) } glob "$top/expected/*.out");

	# First columns of the rows, in order, of all tables with this header in a document.
	sub rows_of ($document, $header)
	{
		my $columns = $header =~ tr/|// - 1;
		my $inside = 0;
		my @rows;

		foreach my $line (split(/\n/, slurp_file("$top/docs/$document")))
		{
			if ($line eq $header) { $inside = 1; }
			elsif ($line !~ /^\|/) { $inside = 0; }
			elsif ($line =~ /^\|-/) { next; }
			elsif ($inside)
			{
				my @cells = split(/ \| /, substr($line, 2, -2), -1);

				is(scalar(@cells), $columns, "$document: cells of: $cells[0]")
				  if @cells != $columns;
				push @rows, $cells[0];
			}
		}
		return @rows;
	}

	# Tags of a kind and the files they stand in.  After a tag there has to be a test.
	sub tags_of_tests ($kind)
	{
		my %files;

		foreach my $path (glob "$FindBin::RealBin/../*/*.pl $top/sql/*.sql")
		{
			my ($file) = $path =~ m,([^/]*/[^/]*)$,;
			my (undef, @parts) = split(/^\s*(?:#|--) $kind: /m, slurp_file($path));
			my $next = '';

			foreach my $part (reverse @parts)
			{
				my ($tag, $code) = split(/\n/, $part, 2);

				# several tags may stand on top of each other
				$code =~ s/^\s*# (?:event|trouble): .*\n//mg;
				$next = $code if $code =~ /\S/;
				push @{ $files{$tag} }, $file;
				like($next, $file =~ /\.sql$/ ? qr/;/ : qr/^\s*\w+\(.*['"]/m, "$file: something is tested: $tag");
			}
		}
		return %files;
	}

	# Is a row's message one that SQL tests are expected to say?  "..." stands for anything.
	sub is_expected ($row)
	{
		my ($text) = $row =~ /^(?:\w+: )?`(.*)`$/ or return 0;
		my $pattern = join('.*', map { quotemeta } split(/\.\.\./, $text, -1));

		return $expected =~ /$pattern/;
	}

	# Does each row have its test, and each tag its row?
	sub compare ($kind, $document, $header, $at_least)
	{
		my @rows = rows_of($document, $header);
		my %files = tags_of_tests($kind);
		my %row = map { $_ => 1 } @rows;

		cmp_ok(scalar(@rows), '>=', $at_least, "$document has its tables");
		is(scalar(keys %row), scalar(@rows), "$document: nothing stands there twice");
		ok($files{$_} || ($kind eq 'trouble' && is_expected($_)), "tested: $_") foreach @rows;
		ok($row{$_}, "in $document: $_ (@{ $files{$_} })") foreach sort keys %files;
	}

	compare('event', 'events.md', '| what happened | what pmhash does | what you do |', 75);
	compare('trouble', 'troubleshooting.md', '| message | meaning and cure |', 19);
}

# ======== states and reasons ========

# docs/troubleshooting.md says of every state of pmhash.indexes, and of every reason why a
# file is not used, what it means and what to do: it has those of the sources, and no others.
{
	my $top = "$FindBin::RealBin/../../..";
	my $document = slurp_file("$top/docs/troubleshooting.md");

	# The strings of a source file that are shown: neither those of #include, comments, comparisons
	# and messages, nor what is never a state.
	sub strings_of ($file)
	{
		my $text = slurp_file("$top/src/cluster/$file");
		my %other = map { $_ => 1 } ('', 'cache', 'dax', 'SQLSTATE ...');
		my %strings;

		$text =~ s,/\*.*?\*/,,sg;
		$text =~ s/^#.*$//mg;
		$text =~ s/(?:strn?cmp|strlen|elog)\(.*?[;&|]//sg;
		foreach my $string ($text =~ /"((?:[^"\\]|\\.)*)"/g)
		{
			$string =~ s/(?:%s)+/.../g;
			$string =~ s/%[du]/n/g;
			$string =~ s/%%/%/g;
			$strings{$string} = 1 if !$other{$string};
		}
		return %strings;
	}

	# The first cells of the table with this header.
	sub cells_of ($header)
	{
		my ($table) = $document =~ /^\Q$header\E\n\|[-|]+\n((?:\|.*\n)+)/m or die "no table: $header";
		my %rows;

		foreach my $line (split /\n/, $table)
		{
			my ($first, @others) = split / \| /, substr($line, 2, -2), -1;

			is(scalar(grep { /\S/ } @others), 2, "meaning and action: $first");
			foreach my $name ($first =~ /`([^`]+)`/g)
			{
				ok(!$rows{$name}++, "once: $name");
			}
		}
		return %rows;
	}

	sub same
	{
		my ($rows, $strings, $what) = @_;

		cmp_ok(scalar(keys %$strings), '>=', 15, "$what are found in the sources");
		ok($rows->{$_}, "$what: in the document: $_") foreach sort keys %$strings;
		ok($strings->{$_}, "$what: in the sources: $_") foreach sort keys %$rows;
	}

	my %states = (strings_of('views/files_view.c'));
	same({ cells_of('| state | meaning | action |') }, \%states, 'states');
	my ($reasons) = slurp_file("$top/src/cluster/open/invalid.c") =~ /\breason_texts\[\] = \{(.*?)^\};/ms or die;
	same({ cells_of('| reason | meaning | action |') }, { map { $_ => 1 } $reasons =~ /"([^"]+)"/g }, 'reasons');
}

# ======== trust ========

# test/TRUST.md has a table of all facts that a start relies on, each with the test
# that shows what happens if it is not so.  Each of those is there, tagged
# "# trust:" with its name, and each tag is in the table; after a tag something
# is tested.
{
	my $top = "$FindBin::RealBin/../../..";
	my %table;
	my %tagged;

	foreach my $line (split(/\n/, slurp_file("$top/test/TRUST.md")))
	{
		$table{$1}++ if $line =~ m{\s+([a-z]+/\w+:[\w-]+|crash/\w+)$};
	}
	foreach my $path (glob "$FindBin::RealBin/../*/*.pl")
	{
		my ($file) = $path =~ m,([^/]*/[^/]*)\.pl$,;
		my (undef, @parts) = split(/^\s*# trust: /m, slurp_file($path));

		foreach my $part (@parts)
		{
			my ($tag, $code) = split(/\n/, $part, 2);

			$tagged{"$file:$tag"}++;
			like($code, qr/^[^#]*\b(is|isnt|like|unlike|ok|\w+_ok|cmp_ok|disabled|repaired|not_trusted|stays_invalid|invalid_then_back|invalid_then_rebuilt|comes_back|all_come_back|back_again|right|doubted|nothing_comes_back|fails_at_shutdown|builds_anew)\(/m,
				"$file: something is tested: $tag");
		}
	}
	foreach my $program (grep { m,^crash/, } keys %table)
	{
		ok(-e "$top/test/$program.c", "there is $program.c");
		$tagged{$program} = 1;
	}

	cmp_ok(scalar(keys %table), '>=', 25, 'test/TRUST.md has its table');
	is($table{$_}, 1, "once in test/TRUST.md: $_") foreach sort keys %tagged;
	is($tagged{$_} // 0, 1, "tested once: $_") foreach sort keys %table;
}

done_testing();
