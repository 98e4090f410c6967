# Making calls of pmhash fail inside a server: the library in test/lib/faults,
# and a loop that has each call of a statement fail in turn.

package PmhashFaults;

use v5.36;

use Exporter 'import';
use IPC::Run;
use PmhashSoak;
use PmhashTest;

our @EXPORT = qw(
  %from_here
  new_faulty_server
  errors_of
  set_faults
  hours_pass
  checkpoint_and_ask
  faults_function
  fail_each
  fault_figures
);

my $end = 2_000_000_000;    # number of a call that never comes

my %figures = (statements => 0, calls => 0, failed => 0);
my %sites;                  # return addresses in pmhash where a call has failed

# Compile the library; returns its path without ".so".
sub build_library ($to)
{
	return server_library("$to/pmhash_faults", 'faults/pmhash_faults.c');
}

# A server with pmhash and the library, started.
sub new_faulty_server ($name, $settings = undef)
{
	my $node = new_server($name, $settings);
	my $library = build_library($node->basedir);

	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pmhash, $library'\nlog_statement = none\n");
	start_with_extension($node);
	$node->safe_psql('postgres', soak_checks() . faults_function($library));
	return $node;
}

# Settings of the library, "fail_at" among them, from now on: a server that runs has them
# on return, one that does not has them from its start on.
sub set_faults
{
	my ($node, %settings) = @_;

	$node->append_conf('postgresql.conf',
		join('', map { "pmhash_faults.$_ = '$settings{$_}'\n" } sort keys %settings));
	return if !$node->{_pid};
	$node->reload;
	wait_until($node, "SELECT current_setting('pmhash_faults.fail_at') = '$settings{fail_at}'", 'no reload');
	return;
}

# To pmhash some hours pass, so that it asks the kernel for failed writes if there has been
# a checkpoint.  A launcher does so at once.
sub hours_pass ($node)
{
	$node->{pmhash_hours} += 2;
	reload_with($node, "pmhash_faults.hours = $node->{pmhash_hours}\n");
	return;
}

sub checkpoint_and_ask ($node)
{
	$node->safe_psql('postgres', 'CHECKPOINT');
	hours_pass($node);
	return;
}

# Settings of a session: the file system is full from here on; has space again; a cancel
# comes when the file grows next.
our %from_here = (
	full => "SET pmhash_faults.calls = 'posix_fallocate'; SET pmhash_faults.fail_for = 2000000000; SET pmhash_faults.fail_at = 1;\n",
	space => "SET pmhash_faults.fail_at = 0;\n",
	cancel => "SET pmhash_faults.action = 'cancel'; SET pmhash_faults.calls = 'posix_fallocate'; SET pmhash_faults.fail_for = 1; SET pmhash_faults.fail_at = 1;\n");

# Run statements in one session, whatever fails; returns the SQLSTATEs of errors.
sub errors_of ($node, $sql)
{
	my $input = "\\set VERBOSITY sqlstate\n$sql";
	my ($stdout, $stderr) = ('', '');

	IPC::Run::run([ $node->installed_command('psql'), '-XAtq', $node->connstr('postgres') ],
		'<', \$input, '>', \$stdout, '2>', \$stderr);
	return join(' ', $stderr =~ /ERROR:  (\w+)/g);
}

# SQL that makes the function that tells what has failed, and more that the
# loop needs.
sub faults_function ($library)
{
	return <<SQL;
CREATE FUNCTION pmhash_faults_report() RETURNS text
LANGUAGE c AS '$library', 'pmhash_faults_report';
CREATE FUNCTION pmhash_faults_sites() RETURNS text
LANGUAGE c AS '$library', 'pmhash_faults_sites';

-- Wait until no index is invalid any more; else tell which.  A rebuild waits for
-- those with older snapshots, so we keep none.
CREATE PROCEDURE wait_until_valid(INOUT states text DEFAULT NULL) LANGUAGE plpgsql AS \$\$
BEGIN
	FOR i IN 1 .. 600 LOOP
		SELECT 'invalid: ' || string_agg(index || ': ' || state, ', ') INTO states
		FROM pmhash.indexes WHERE state <> 'valid';
		EXIT WHEN states IS NULL;
		PERFORM pg_sleep(0.05);
		COMMIT;
	END LOOP;
END \$\$;

-- What is wrong with any index of soak_indexes that there is.
CREATE FUNCTION all_findings() RETURNS SETOF text LANGUAGE sql AS \$\$
SELECT f FROM soak_indexes i, soak_findings(i) f WHERE to_regclass(i.index) IS NOT NULL
\$\$;

-- The same in short: what pmhash.check says of the indexes of some tables.
CREATE FUNCTION check_findings(tables text) RETURNS SETOF text LANGUAGE plpgsql AS \$\$
DECLARE
	name text;
BEGIN
	FOR name IN SELECT index FROM soak_indexes WHERE tab ~ tables AND to_regclass(index) IS NOT NULL LOOP
		BEGIN
			PERFORM pmhash.check(name);
		EXCEPTION WHEN OTHERS THEN
			RETURN NEXT format('%s: pmhash.check: %s', name, SQLERRM);
		END;
	END LOOP;
END \$\$;

-- Files without a name that this backend still has mapped or open.
CREATE FUNCTION held_files() RETURNS int8 LANGUAGE sql AS \$\$
SELECT count(*) FROM regexp_split_to_table(pg_read_file('/proc/self/maps'), '\n') line
WHERE line LIKE '%.pmh (deleted)'
\$\$;
SQL
}

# psql commands for call number n of a case, in a session of its own
sub one_fault ($case, $n)
{
	my $script = "\\c -\nSET client_min_messages = error;\n" . ($case->{before} // '') . "\n";

	$script .= "SET pmhash_faults.calls = '$case->{calls}';\n";
	$script .= "SET pmhash_faults.fail_for = 1;\n";
	$script .= "\\set state 00000\n\\set message\n\\set clean 1\nSET pmhash_faults.fail_at = $n;\n";
	foreach my $statement (@{ $case->{statements} })
	{
		$script .= "$statement;\n\\if :ERROR\n\\if :clean\n\\set state :SQLSTATE\n\\set message :LAST_ERROR_MESSAGE\n\\set clean 0\n\\endif\n\\endif\n";
	}
	$script .= "SET pmhash_faults.fail_at = 0;\nROLLBACK;\n";
	$script .= "SELECT pmhash_faults_report() AS report, pmhash_faults_sites() AS sites \\gset\n";
	$script .= "SELECT 'held: ' || h FROM held_files() h WHERE h > 0;\n";
	$script .= ($case->{after} // '') . "\n";
	$script .= "CALL wait_until_valid();\n" if $case->{waits};
	$script .= "SELECT 'finding: ' || f FROM check_findings('" . ($case->{checks} // '^f') . "') f;\n";
	$script .= "\\echo sites :sites\n" if $n == $end;
	$script .= "\\echo message :message\n\\echo done $n :state :report\n";
	return $script;
}

# Run a case for some n; returns what came of each, and what else was said.
sub run_case ($node, $case, @n)
{
	my $script = join('', map { one_fault($case, $_) } @n) . "SELECT 'finding: ' || f FROM all_findings() f;\n";
	my ($stdout, $stderr) = ('', '');
	my (@done, @first, $other, $message);

	IPC::Run::run(
		[ $node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=0', $node->connstr('postgres') ],
		'<', \$script, '>', \$stdout, '2>', \$stderr);
	foreach my $line (split /\n/, $stdout)
	{
		if ($line =~ /^done (\d+) (\S+) (\d+) (\d+) (\S+) (\d+)$/)
		{
			push @done, { n => $1, state => $2, calls => $3, failed => $4, critical => $6, first => [@first], message => $message };
			$sites{$5}++ if $4 > 0;
		}
		elsif ($line =~ /^message (.*)/)
		{
			$message = $1;
		}
		elsif ($line =~ /^sites (.*)/)
		{
			@first = map { [ split /:/ ] } split / /, $1;
		}
		elsif ($line =~ /^(finding|invalid|held): /)
		{
			$other .= "$line (after n = " . (@done ? $done[-1]{n} : 'none') . ")\n";
		}
	}
	$other .= "only " . @done . ' of ' . @n . " were done\n" . substr($stderr, -2000) if @done != @n;
	return ($other // '', @done);
}

# The numbers to be tried: all, or the first call of each place that has not
# been made to fail so often yet.
sub choose ($count, $often)
{
	return 1 .. $count->{calls} if !defined $often;
	return map { $_->[0] } grep { ($sites{ $_->[1] } // 0) < $often } @{ $count->{first} };
}

# Have each call of a kind that a statement makes fail; if 'often' is given,
# only the first one of each place in pmhash, and not more often than that.
# A case is a hash:
#	name, calls		what it is called; which calls fail
#	statements		what is run while they fail; the last one with an error counts
#	before, after	SQL run before and after it each time
#	waits			the index may be rebuilt before it is looked at
#	checks			pattern of the tables that pmhash.check looks at each time
#	states			pattern of SQLSTATEs that are right
# A test: each ends with success or such an error, the session goes on, and
# all indexes are right.
sub fail_each ($node, $case, $often)
{
	my $log_from = -s $node->logfile;
	my ($wrong, $count) = run_case($node, $case, $end);
	my ($failed, $refused, @n, @done) = (0, 0);
	my $more;

	return fail("$case->{name}: without a fault: $wrong") if $wrong ne '' || $count->{state} ne '00000';
	@n = choose($count, $often);
	($more, @done) = run_case($node, $case, @n);
	$wrong .= $more;
	foreach my $d (@done)
	{
		$failed++ if $d->{failed} > 0;
		$refused++ if $d->{state} ne '00000';
		# dynahash.c, hash_create, says so where others raise 53200
		$d->{state} = '53200' if $d->{state} eq 'XX000' && $d->{message} =~ /^failed to initialize hash table/;
		$wrong .= "n = $d->{n}: SQLSTATE $d->{state}, $d->{message}\n" if $d->{state} !~ /^(00000|$case->{states})$/;
		$wrong .= "n = $d->{n}: SQLSTATE $d->{state} without a fault\n"
		  if $d->{state} ne '00000' && $d->{failed} == 0;
		$wrong .= "n = $d->{n}: $d->{critical} allocations in critical sections\n" if $d->{critical} > 0;
	}
	$wrong .= "nothing has failed\n" if !defined $often && $count->{calls} > 0 && $failed == 0;
	my $log = substr(slurp_file($node->logfile), $log_from);
	$wrong .= "log: $&\n" if $log =~ /.*(PANIC:|was terminated by|stuck|TRAP|errors during).*/;
	$figures{statements}++;
	$figures{calls} += $count->{calls};
	$figures{failed} += $failed;
	return is($wrong, '',
		"$case->{name}, $case->{calls}: $count->{calls} calls, $failed made to fail, $refused times an error");
}

sub fault_figures
{
	return "injected faults: $figures{statements} statements, $figures{calls} calls, $figures{failed} failed, at "
	  . keys(%sites) . ' places';
}

1;
