#!/usr/bin/perl
#
# mutants.pl - the tests are tested: faults are put into a copy of the sources,
# one at a time, and the test ladder has to catch each.
#
#   perl test/mutants/mutants.pl [OPTION]...
#     --mutant=NAME     only this one (may be repeated)
#     --set=SET         table, generated, all (default), or smoke; engine: all
#                       that need no server, server: the others
#     --jobs=N          at a time (default 2)
#     --work=DIR        scratch directory (default: a new one in TMPDIR)
#     --no-baseline     do not run the stages without a mutant first
#     --list            name them and what should catch them
#
# Not as root: PostgreSQL refuses it (mutants.sh sees to that).
#
# Two kinds of mutants:
#   table       test/mutants/table: seeded by hand; the format is said there
#   generated   each pm_flush, pm_fence and pm_copy in src/engine and src/cluster,
#               and the flush of each pm_commit, is left out in turn, at run time, by
#               the recorder of test/crash.
#               test/mutants/needless names those that may be left out, and why.
#
# A mutant runs against its stages in their order, until one of them fails:
#   engine:NAME  asan:NAME  tsan:NAME  stop:NAME  loads:NAME  short:NAME  pages:NAME
#                                                  test/engine/NAME.c
#   unit:NAME                                      test/unit/NAME.c
#   crash  crash:WORKLOAD[,WORKLOAD]  random       test/crash, the engine
#   journal                                        test/crash, the undo journal
#   starts                                         test/crash, what is trusted
#   fuzz                                           test/fuzz
#   tap:FILE  regress:TEST  isolation:TEST         against a server
# Each stage that is used must pass without a mutant first.
#
# Prints a line for each mutant, and in the end
#   mutants: N passed, N failed
# A mutant passes if it is caught, or survives and is known to (is equivalent).

use strict;
use warnings;

use Cwd qw(abs_path);
use Fcntl qw(:flock);
use File::Basename;
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Getopt::Long;
use POSIX ':sys_wait_h';

my $top = abs_path(dirname(__FILE__) . '/../..');
my $here = "$top/test/mutants";

# Seconds of processor time of a stage that runs alone; one that needs more hangs.
# Those against a server get real time.  All get REAL_SECONDS at the most.
my %cpu_seconds = (
	engine => 120, asan => 240, tsan => 240, stop => 120, loads => 120, short => 120, pages => 120,
	unit => 60,
	crash => 240, random => 240, journal => 120, starts => 120, fuzz => 120);
my $real_seconds = 2400;
my $fuzz_cases = 1500;
my $random_images = 3_000_000;
my $journal_images = 20_000;
my $start_histories = 1500;
my $source_pg_config = $ENV{SOURCE_PG_CONFIG} // 'pg_config';

# the mutants of --set=smoke: does the tool itself work?
my @smoke = qw(put_state_before_slot list_copied_with_new_class
  compaction_clears_first commit_commit_word_1 equivalent_larger_values_array);

my (@only, $set, $jobs, $work, $list);
my $baseline = 1;
$set = 'all';
$jobs = 2;
GetOptions(
	'mutant=s' => \@only,
	'set=s' => \$set,
	'jobs=i' => \$jobs,
	'work=s' => \$work,
	'baseline!' => \$baseline,
	'list' => \$list) or exit 2;

# ---- the table ----

sub slurp
{
	my ($path) = @_;
	open(my $in, '<', $path) or die "$path: $!\n";
	local $/ = undef;
	return scalar <$in>;
}

sub spew
{
	my ($path, $text) = @_;
	open(my $out, '>', $path) or die "$path: $!\n";
	print $out $text;
	close($out) or die "$path: $!\n";
	return;
}

# Blank lines and lines with # are nothing between mutants; see the table.
sub read_table
{
	my ($path) = @_;
	my (@mutants, $mutant, @where, $piece);

	foreach my $line (split /^/, slurp($path))
	{
		if ($line =~ /^mutant (\w+) ([^:\s]+)(?::(\w+))? (.+)$/)
		{
			$mutant = { name => $1, kind => 'table', changes => [], stages => [ split ' ', $4 ] };
			push @mutants, $mutant;
			@where = (file => $2, function => $3);
			$piece = undef;
		}
		elsif ($line =~ /^(?:file (\S+)|@@)$/)
		{
			@where = (file => $1, function => undef) if defined $1;
			$piece = undef;
		}
		elsif ($line =~ /^swap (.+) => (.+)$/ || $line =~ /^drop (.+)$/)
		{
			push @{ $mutant->{changes} }, { @where, old => $1, new => $2 // '' };
		}
		elsif ($line =~ /^from (\d+)$/) { $mutant->{from} = $1; }
		elsif ($line =~ /^(why|equivalent) (.+)$/) { $mutant->{$1} .= "$2 "; }
		elsif ($line =~ /^([-+ ])(.*\n)/)
		{
			push @{ $mutant->{changes} }, $piece = { @where, old => '', new => '', lines => 1 } if !$piece;
			$piece->{old} .= $2 if $1 ne '+';
			$piece->{new} .= $2 if $1 ne '-';
		}
		elsif ($line !~ /^(#.*)?$/) { die "$path: cannot read: $line"; }
	}
	return @mutants;
}

# A source with a change made; how often its old text stands there, which has to be once.
sub changed
{
	my ($text, $change) = @_;
	my $old = $change->{lines} ? qr/^\Q$change->{old}\E/m
	  : qr/@{[ join '\s+', map { quotemeta } split ' ', $change->{old} ]}/;
	my ($from, $to) = (0, length $text);

	if (defined $change->{function})
	{
		return ($text, 0) if $text !~ /^$change->{function}\(.*?^}/ms;
		($from, $to) = ($-[0], $+[0]);
	}
	my $place = substr($text, $from, $to - $from);
	my $n = () = $place =~ /$old/g;
	substr($text, $from, $to - $from) = $place =~ s/$old/$change->{new}/r;
	return ($text, $n);
}

# Does the table follow the sources?
sub check_table
{
	my @stale;

	foreach my $mutant (@_)
	{
		foreach my $change (@{ $mutant->{changes} })
		{
			my (undef, $n) = changed(slurp("$top/$change->{file}"), $change);
			push @stale, "$mutant->{name} ($change->{file}: $n times)" if $n != 1;
		}
	}
	die "old text that does not stand once in its file: @stale\n" if @stale;
	return;
}

# ---- generated mutants ----

# Workloads that are likely to catch what is left out in a file, tried first.
my %likely = (
	'bulkload.c' => 'bulk',
	'directory.c' => 'merge',
	'file_life.c' => 'create',
	'file_size.c' => 'punch,value_blocks',
	'group.c' => 'list_drain,chain_delete',
	'list_write.c' => 'list_growth,list_loaded,list_drain,list_shrink',
	'recover.c' => 'recovery,redo',
	'segment.c' => 'merge,reduce',
	'segment_build.c' => 'merge,reduce',
	'segment_resize.c' => 'merge,reduce',
	'shrink.c' => 'list_shrink',
	'space.c' => 'value_blocks',
	'value_space.c' => 'value_blocks,list_shrink');

# "KIND FUNCTION NUMBER  reason" by "KIND_FUNCTION_NUMBER"
sub read_needless
{
	my %needless;

	foreach my $line (split /^/, slurp("$here/needless"))
	{
		next if $line =~ /^(#.*)?$/;
		$line =~ /^(\w+) (\w+) (\d+)\s+(\S.*)$/ or die "needless: cannot read: $line";
		$needless{"$1_$2_$3"} = $4;
	}
	return %needless;
}

# Number the sites of a function by kind, in the order of lines.
sub name_site
{
	my ($numbers, $kind, $function) = @_;
	my $number = ++$numbers->{"$kind $function"};
	return "${kind}_${function}_$number";
}

# How many calls of a function stand in the files of a directory?
sub count_calls
{
	my ($directory, $function) = @_;
	my $n = 0;

	foreach my $path (glob "$top/src/$directory/*.[ch] $top/src/$directory/*/*.[ch]")
	{
		next if $path =~ m{/engine/pm\.[ch]$};
		$n += () = slurp($path) =~ /^\s+(?:if \(.*\) )?$function\(/mg;
	}
	return $n;
}

# The sites of one directory that a program of test/crash knows.
sub sites
{
	my ($tree, $directory, $program, @stages) = @_;
	my (@mutants, %numbers, %count);
	my %there = map { s{.*/}{}r => 1 } glob "$top/src/$directory/*.[ch] $top/src/$directory/*/*.[ch]";

	foreach my $line (`$tree/test/build/crash/$program --list-sites`)
	{
		my ($kind, $where, $function) = split ' ', $line;
		my ($file) = split /:/, $where;

		# of two files with the same name only the engine's is recorded
		next if $kind eq 'store' || !$there{$file}
		  || ($directory ne 'engine' && -e "$top/src/engine/$file");
		$count{$kind}++;
		push @mutants,
		  { name => name_site(\%numbers, $kind, $function), kind => 'generated',
			changes => [], suppress => "--suppress-$kind=$where",
			stages => [ ($program eq 'crash' && $likely{$file} ? "crash:$likely{$file}" : ()), @stages ] };
	}
	foreach my $kind ('flush', 'fence', 'copy', 'commit')
	{
		my $calls = count_calls($directory, $kind eq 'commit' ? 'pm_commit(?:16|32|64)' : "pm_$kind");
		$calls += count_calls($directory, 'pm_copy_to_space') if $kind eq 'copy';
		die "src/$directory has $calls calls of pm_$kind, the recorder knows " . ($count{$kind} // 0) . "\n"
		  if $calls != ($count{$kind} // 0);
	}
	return @mutants;
}

# ---- scratch trees ----

# Run a command in a directory, all output to a log.  Returns whether it has
# succeeded, and how it has ended.
sub run
{
	my ($dir, $log, $seconds, @command) = @_;
	my $pid = fork() // die "fork: $!\n";

	if ($pid == 0)
	{
		setpgrp(0, 0);
		chdir($dir) or die "$dir: $!\n";
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>>', $log) or die "$log: $!\n";
		open(STDERR, '>&', \*STDOUT);
		exec @command or POSIX::_exit(127);
	}
	my $timed_out = 0;
	eval {
		local $SIG{ALRM} = sub { die "timeout\n" };
		alarm $seconds;
		waitpid($pid, 0);
		alarm 0;
	};
	if ($@)
	{
		die $@ if $@ ne "timeout\n";
		kill('KILL', -$pid);
		waitpid($pid, 0);
		return (0, 'timeout');
	}
	return ($? == 0, $? & 127 ? 'signal ' . ($? & 127) : 'status ' . ($? >> 8));
}

sub must_run
{
	my ($dir, $log, @command) = @_;
	my ($ok, $what) = run($dir, $log, $real_seconds, @command);
	die "@command: $what, see $log\n" if !$ok;
	return;
}

# The first tree, which the others are copies of.
sub first_tree
{
	my $dir = "$work/0";
	my $tree = "$dir/build";

	make_path($tree);
	must_run($top, "$dir/log", 'sh', '-c',
		"tar -C '$top' -cf - --exclude=.git --exclude=./build --exclude='*.o' --exclude='*.bc' --exclude='*.so' "
		  . "--exclude=./test/build . | tar -C '$tree' -xf -");
	return { dir => $dir, tree => $tree, log => "$dir/log" };
}

# Build there all that the stages need.
sub build_stages
{
	my ($tree, @stages) = @_;

	must_run($top, $tree->{log}, 'env', "SOURCE_PG_CONFIG=$source_pg_config", 'bash',
		"$top/test/lib/private_install.sh", $tree->{dir}, 'with_llvm=no')
	  if grep { needs_server($_) } @stages;
	foreach my $stage (@stages)
	{
		my ($dir, $build) = stage_commands($tree, $stage, undef);
		must_run($dir, $tree->{log}, @$build);
	}
	return;
}

# A tree of its own for a worker, as built as the first.
sub worker_tree
{
	my ($first, $number) = @_;
	my $dir = "$work/$number";

	must_run($work, "$work/0/log", 'cp', '-a', $first->{dir}, $dir);
	return { dir => $dir, tree => "$dir/build", log => "$dir/log" };
}

sub apply
{
	my ($tree, $mutant) = @_;

	foreach my $change (@{ $mutant->{changes} })
	{
		my $path = "$tree->{tree}/$change->{file}";
		my $text = slurp($path);
		my ($mutated, $n) = changed($text, $change);
		die "mutant $mutant->{name}: its old text is in $change->{file} $n times\n" if $n != 1;
		$tree->{saved}{$path} //= $text;
		spew($path, $mutated);
	}
	return;
}

# The source as it was when the tree was made.
sub revert
{
	my ($tree) = @_;

	spew($_, $tree->{saved}{$_}) foreach keys %{ $tree->{saved} };
	$tree->{saved} = {};
	return;
}

# ---- stages ----

sub needs_server
{
	my ($stage) = @_;
	return $stage =~ /^(tap|regress|isolation):/;
}

sub wants_server
{
	my ($mutant) = @_;
	return scalar grep { needs_server($_) } @{ $mutant->{stages} };
}

# Those against a server are tried last: they take longest, and wait most; and of these
# the ones that a TAP test catches, which starts servers of its own.
sub cost
{
	my ($mutant) = @_;
	return 0 if !wants_server($mutant);
	return $mutant->{stages}[0] =~ /^tap:/ ? 2 : 1;
}

# What builds and what runs a stage in a tree: two commands with directories.
sub stage_commands
{
	my ($tree, $stage, $suppress) = @_;
	my ($kind, $what) = split /:/, $stage;
	my $root = $tree->{tree};
	my @make = ('make', '-s', '--no-print-directory');

	if ($kind =~ /^(engine|asan|tsan|stop|loads|short|pages)$/)
	{
		my $built = '../build/engine/' . ($kind eq 'engine' ? 'plain' : $kind) . "/$what";
		return ("$root/test/engine", [ @make, $built ], [$built]);
	}
	if ($kind eq 'unit')
	{
		return ("$root/test/unit", [ @make, $what ], ["./$what"]);
	}
	if ($kind eq 'crash' || $kind eq 'random')
	{
		my @command = ('../build/crash/crash', '--workers=1', '--first-failure',
			$kind eq 'random' ? ('--workload=random', "--images=$random_images") : '--no-random');
		push @command, map { "--workload=$_" } split /,/, $what if defined $what;
		push @command, $suppress if defined $suppress;
		return ("$root/test/crash", [ @make, '../build/crash/crash' ], \@command);
	}
	if ($kind eq 'journal')
	{
		my @command = ('../build/crash/journal', '--workers=1', '--first-failure', "--images=$journal_images");
		push @command, $suppress if defined $suppress;
		return ("$root/test/crash",
			[ @make, "PG_CONFIG=$source_pg_config", '../build/crash/journal' ], \@command);
	}
	if ($kind eq 'starts')
	{
		return ("$root/test/crash",
			[ @make, "PG_CONFIG=$source_pg_config", '../build/crash/starts' ],
			[ '../build/crash/starts', $start_histories ]);
	}
	if ($kind eq 'fuzz')
	{
		return ("$root/test/fuzz", [ @make, 'all' ],
			[ '../build/fuzz/plain/fuzz', $fuzz_cases ]);
	}
	if (needs_server($stage))
	{
		my ($pg_config) = glob "$tree->{dir}/lib/postgresql/*/bin/pg_config";
		# a mutant that calls what is not declared would fail for that, some of the time
		my @pgxs = (@make, "PG_CONFIG=$pg_config", 'with_llvm=no', 'COPT=-Werror=implicit-function-declaration');
		my @check = ('env', 'PMHASH_CASES=all', @pgxs, 'installcheck');
		my $regress = "--temp-instance=$tree->{dir}/instance --temp-config=test/regress.conf";

		return ($root, [ @pgxs, 'install' ],
			$kind eq 'tap' ? [ @check, 'REGRESS=', 'ISOLATION=', "PROVE_TESTS=test/t/$what" ]
			: $kind eq 'regress' ? [ @check, 'ISOLATION=', 'TAP_TESTS=', "REGRESS=setup $what",
				"REGRESS_OPTS=$regress" ]
			: [ @check, 'REGRESS=', 'TAP_TESTS=', "ISOLATION=$what",
				"ISOLATION_OPTS=$regress --outputdir=output_iso" ]);
	}
	die "there is no stage of the kind $stage\n";
}

# There is one small file system (PMHASH_SMALL_FS), for one test at a time: the lock for
# a stage that fills it, or undef.
sub lock_small_fs
{
	my ($tree, $stage) = @_;
	my ($test) = $stage =~ /^tap:(.*)/;

	return if !defined $test || slurp("$tree->{tree}/test/t/$test") !~ /PMHASH_SMALL_FS/;
	open(my $lock, '>>', "$work/small_fs.lock") or die "$work/small_fs.lock: $!\n";
	flock($lock, LOCK_EX) or die "$work/small_fs.lock: $!\n";
	return $lock;
}

# A test that was not run tells no mutant.
sub must_not_be_skipped
{
	my ($tree, $stage, $from) = @_;

	open(my $log, '<', $tree->{log}) or die "$tree->{log}: $!\n";
	seek($log, $from, 0);
	while (my $line = <$log>)
	{
		die "$stage was not run: $1\n" if $line =~ /^\S*\s*test\/t\/\S+ \.+ (skipped.*)/;
	}
	close($log);
	return;
}

# Does a stage fail?  A mutant that does not compile is a fault of the table.
sub stage_fails
{
	my ($tree, $stage, $suppress) = @_;
	my ($kind) = split /:/, $stage;
	my ($dir, $build, $command) = stage_commands($tree, $stage, $suppress);
	my $lock = lock_small_fs($tree, $stage);
	my ($ok, $what) = run($dir, $tree->{log}, $real_seconds, @$build);
	my $from = -s $tree->{log};

	die "$stage does not build, see $tree->{log}\n" if !$ok;
	my @limited = defined $cpu_seconds{$kind}
	  ? ('sh', '-c', "ulimit -t $cpu_seconds{$kind}; exec \"\$@\"", 'sh') : ();
	($ok, $what) = run($dir, $tree->{log}, $real_seconds, @limited, @$command);
	must_not_be_skipped($tree, $stage, $from) if $ok;
	return $ok ? undef : "$stage ($what)";
}

# ---- workers ----

# Hand numbers out to workers, one by one.
sub next_task
{
	my ($path) = @_;
	open(my $file, '+<', $path) or die "$path: $!\n";
	flock($file, LOCK_EX);
	my $n = <$file>;
	seek($file, 0, 0);
	print $file $n + 1, "\n";
	close($file);
	return $n;
}

sub report
{
	my ($line) = @_;
	open(my $file, '>>', "$work/results") or die "$work/results: $!\n";
	flock($file, LOCK_EX);
	print $file "$line\n";
	close($file);
	print "$line\n";
	return;
}

sub run_mutant
{
	my ($tree, $mutant) = @_;
	my $start = time;
	my $caught;

	open(my $log, '>>', $tree->{log});
	print $log "\n======== $mutant->{name}\n";
	close($log);
	apply($tree, $mutant);
	foreach my $stage (@{ $mutant->{stages} })
	{
		$caught = stage_fails($tree, $stage, $mutant->{suppress});
		last if defined $caught;
	}
	revert($tree);
	my $seconds = time - $start;
	if (defined $caught)
	{
		report(($mutant->{equivalent} ? 'WRONG    ' : 'caught   ')
			. "$mutant->{name} by $caught, $seconds s");
	}
	elsif ($mutant->{equivalent})
	{
		report("needless $mutant->{name}, $seconds s: $mutant->{equivalent}");
	}
	else
	{
		report("SURVIVED $mutant->{name}, $seconds s: @{$mutant->{stages}}");
	}
	return;
}

# Each worker takes tasks from a list until it is empty.
sub in_parallel
{
	my ($trees, $tasks, $do) = @_;
	my @pids;

	spew("$work/next", "0\n");
	$| = 1;
	foreach my $tree (@$trees)
	{
		my $pid = fork() // die "fork: $!\n";

		if ($pid == 0)
		{
			while ((my $n = next_task("$work/next")) < @$tasks)
			{
				next if eval { $do->($tree, $tasks->[$n]); 1 };
				report("BROKEN   " . (ref $tasks->[$n] ? $tasks->[$n]{name} : $tasks->[$n]) . ": $@");
				revert($tree);
			}
			POSIX::_exit(0);
		}
		push @pids, $pid;
	}
	waitpid($_, 0) foreach @pids;
	return;
}

# ---- main ----

sub choose
{
	my @mutants = @_;
	my %wanted = map { $_ => 1 } $set eq 'smoke' ? @smoke : @only;
	my %known = map { $_->{name} => 1 } @mutants;

	foreach my $name (keys %wanted)
	{
		die "there is no mutant \"$name\"\n" if !$known{$name};
	}
	return grep { $wanted{ $_->{name} } } @mutants if %wanted;
	return @mutants if $set eq 'all';
	return grep { !wants_server($_) } @mutants if $set eq 'engine';
	return grep { wants_server($_) } @mutants if $set eq 'server';
	return grep { $_->{kind} eq $set } @mutants;
}

# Those that this server can tell from no mutant; says which others there are.
sub for_this_server
{
	my ($major) = qx("$source_pg_config" --version) =~ /PostgreSQL (\d+)/
	  or die "$source_pg_config does not tell its version\n";

	foreach my $mutant (grep { ($_->{from} // 0) > $major } @_)
	{
		print "left out $mutant->{name}: from PostgreSQL $mutant->{from} on\n";
	}
	return grep { ($_->{from} // 0) <= $major } @_;
}

if (!defined $work)
{
	$work = tempdir('pmhash-mutants.XXXXXX', TMPDIR => 1, CLEANUP => 1);
}
$work = abs_path($work);

my %needless = read_needless();
my $first = first_tree();
build_stages($first, 'crash', 'journal');
my @mutants = (
	read_table("$here/table"),
	sites($first->{tree}, 'engine', 'crash', 'random', 'crash', 'journal'),
	sites($first->{tree}, 'cluster', 'journal', 'journal'));
check_table(@mutants);
foreach my $mutant (@mutants)
{
	my $reason = delete $needless{ $mutant->{name} } // next;
	$mutant->{equivalent} = $reason;
}
die "needless names what is not there: " . join(', ', sort keys %needless) . "\n" if %needless;
@mutants = for_this_server(choose(@mutants));

if ($list)
{
	foreach my $mutant (@mutants)
	{
		printf "%-44s %s\n", $mutant->{name}, $mutant->{equivalent} // "@{$mutant->{stages}}";
	}
	exit 0;
}

my %stages;
foreach my $mutant (@mutants)
{
	$stages{$_} = 1 foreach @{ $mutant->{stages} };
}
@mutants = sort { cost($a) <=> cost($b) } @mutants;
build_stages($first, sort keys %stages);
my @trees = map { worker_tree($first, $_) } 1 .. $jobs;

spew("$work/results", '');
in_parallel(
	\@trees,
	[ sort keys %stages ],
	sub {
		my ($tree, $stage) = @_;
		my $failed = stage_fails($tree, $stage, undef);
		report("BROKEN   without a mutant: $failed") if defined $failed;
	}) if $baseline;
if (slurp("$work/results") =~ /^BROKEN/m)
{
	print "mutants: 0 passed, 1 failed\n";
	exit 1;
}
in_parallel(\@trees, \@mutants, \&run_mutant);

my $results = slurp("$work/results");
my $caught = () = $results =~ /^caught/mg;
my $equivalent = () = $results =~ /^needless/mg;
print "caught $caught of ", scalar(@mutants) - $equivalent, "; $equivalent more are known to be needless\n";
print "mutants: ", $caught + $equivalent, " passed, ", @mutants - $caught - $equivalent, " failed\n";
exit($caught + $equivalent == @mutants ? 0 : 1);
