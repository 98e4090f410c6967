# What the TAP tests of pmhash share: servers that preload it, their pools,
# crashes, and the comparison of index answers with sequential scans.  Whoever uses it has
# the functions of Test::More and PostgreSQL::Test::Utils as well, and usleep.

package PmhashTest;

use v5.36;

use Exporter ();
use File::Basename qw(dirname);
use Fcntl qw(:flock);
use File::Find;
use File::Path qw(rmtree);
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test2::API qw(test2_stack);
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(
  new_server
  unused_name
  install_with_stop_points
  install_changed
  install_extension
  start_with_extension
  server_library
  install_wal_records
  preloadable
  start_with_small_files
  limit_file_size
  small_file_system
  pool
  index_files
  database_files
  wait_for_files
  no_wal_flushes
  hold_wal_writer
  release_wal_writer
  witness
  set_witness
  session_with
  wait_until
  wait_until_up
  wait_while
  restart_in_place
  crash
  crash_and_start
  reload_with
  restart_with
  start_with
  log_of_start
  children
  wait_until_dead
  die_in_start
  start_pgbench
  load_time
  some_of
  same_answers
  fails_like
  usleep
);

# Of a test that fails in a function of its file it is told where that was called as well.
sub tell_callers
{
	my (undef, $event) = @_;
	my @lines;

	return if !$event->isa('Test2::Event::Ok') || $event->effective_pass;
	for (my $i = 0; my (undef, $file, $line) = caller($i); $i++)
	{
		push @lines, $line if $file eq $0;
	}
	print { Test::More->builder->failure_output } "#   Lines of the calls: @lines\n" if @lines > 1;
	return;
}

test2_stack()->top->listen(\&tell_callers);

sub import
{
	foreach my $module (qw(PmhashTest PostgreSQL::Test::Utils Test::More))
	{
		no strict 'refs';
		Exporter::export($module, scalar(caller), @{"${module}::EXPORT"});
	}
	return;
}

# Make something once for all tests of a run, by the first that comes; those beside it wait.
# Returns what the function returned then, a string.
sub once ($what, $make)
{
	my $mark = "$PostgreSQL::Test::Utils::tmp_check/$what";

	open(my $lock, '>', "$mark.lock") or die "$mark.lock: $!";
	flock($lock, LOCK_EX) or die "$mark.lock: $!";
	append_to_file("$mark.done", $make->($mark)) if !-e "$mark.done";
	close($lock);
	return slurp_file("$mark.done");
}

# Copies of data directories are made by tar: cp and RecursiveCopy take four times as much
# processor time for as many small files.
my $copypath = \&PostgreSQL::Test::RecursiveCopy::copypath;

sub copy_directory
{
	my ($from, $to, %filter) = @_;

	return $copypath->(@_) if %filter;
	mkdir($to) or die "$to: $!";
	PostgreSQL::Test::Utils::system_or_bail("tar -C '$from' -cf - . | tar -C '$to' -xf -");
	return 1;
}

{
	no warnings 'redefine';
	*PostgreSQL::Test::RecursiveCopy::copypath = \&copy_directory;
}

# Make a server's data directory: a copy of one that the first test of a run has made.  All
# of a run have the same system identifier therefore, unless a test sets $own_initdb.
our $own_initdb = 0;

sub init_server
{
	my ($node) = @_;
	my $data = $node->data_dir;
	my $system_or_bail = \&PostgreSQL::Test::Utils::system_or_bail;

	no warnings 'redefine';
	local *PostgreSQL::Test::Utils::system_or_bail = sub {
		my @command = @_;

		return $system_or_bail->(@command) if $own_initdb || $command[0] ne 'initdb';
		my $template = once('initdb', sub {
			my ($directory) = @_;

			$system_or_bail->(map { $_ eq $data ? $directory : $_ } @command);
			$system_or_bail->('tar', '-C', $directory, '-cf', "$directory.tar", '.');
			return "$directory.tar";
		});
		mkdir($data) or die "$data: $!";
		return $system_or_bail->('tar', '-C', $data, '-xf', $template);
	};
	# (a segment of WAL is written, copied and filled with zeroes as a whole)
	$node->init(extra => ['--wal-segsize=1']);
	$node->append_conf('postgresql.conf', "max_wal_size = 1GB\nmin_wal_size = 80MB\n");
	return;
}

# A name for a server: that one, or with a number if a server of this file has it.  (Sections
# of a file call theirs "second"; two of one name end the whole run.)
my %names;
sub unused_name ($name)
{
	my $n = ++$names{$name};

	return $n == 1 ? $name : "${name}_$n";
}

# A server that preloads pmhash, not started.  Further settings as a string,
# parameters for PostgreSQL::Test::Cluster after them.
sub new_server ($name, $settings = undef, %parameters)
{
	my $node = PostgreSQL::Test::Cluster->new(unused_name($name), %parameters);

	init_server($node);
	$node->append_conf('postgresql.conf', <<CONF);
shared_preload_libraries = 'pmhash'
pmhash.cleaner_naptime = 1
max_prepared_transactions = 10
autovacuum = off
jit = off
restart_after_crash = on
CONF
	$node->append_conf('postgresql.conf', $settings) if defined $settings;
	return $node;
}

# Build the library with stop points and these options, and install it into a server of
# its own in that directory.  Returns its path, for install_path.
sub private_install ($directory, @options)
{
	my ($stdout, $stderr);
	my $done = IPC::Run::run(
		[
			'bash', "$FindBin::RealBin/../../lib/private_install.sh", $directory,
			'-j4', 'PMH_STOP_POINTS=1', 'with_llvm=no', @options
		],
		'>', \$stdout, '2>', \$stderr);

	BAIL_OUT("the library with stop points does not build: $stderr") if !$done;
	chomp $stdout;
	$stdout =~ s,/bin/pg_config$,,;
	return $stdout;
}

# With stop points, and with room for few rebuilds that have failed (shared.h) and for few
# files of a standby (standby_state.h).
our $places_of_rebuilds = 64;
our $places_of_files = 256;
my $stop_options = "-O1 -DPMHASH_MAX_REBUILDS=$places_of_rebuilds -DPMHASH_STANDBY_FILES=$places_of_files";

# The directory with the library that has stop points, and the path in it.
sub stop_directory
{
	my $directory = $ENV{PMHASH_STOP_INSTALL} // "$PostgreSQL::Test::Utils::tmp_check/stop_install";

	return ($directory, once('stop_install', sub { private_install($directory, "COPT=$stop_options") }));
}

# An installation whose library has stop points: its path, for install_path.
sub install_with_stop_points
{
	my (undef, $path) = stop_directory();
	return $path;
}

# The same with one more option of the compiler, on which these objects depend.
sub install_changed ($option, @objects)
{
	my ($from) = stop_directory();
	my $directory = PostgreSQL::Test::Utils::tempdir_short();

	PostgreSQL::Test::Utils::system_or_bail('cp', '-a', "$from/.", $directory);
	foreach my $object (@objects, 'pmhash.so')
	{
		unlink("$directory/build/$object") or die "$directory/build/$object: $!";
	}
	return private_install($directory, "COPT=$stop_options $option");
}

# The extension and the functions that compare answers, in a database, and what else the
# test wants there.
sub install_extension ($node, $database = 'postgres', $sql = '')
{
	$node->safe_psql($database, slurp_file(dirname(__FILE__) . "/../../../sql/setup.sql") . $sql);
	return;
}

# Start a server, which has them in the database postgres then.
sub start_with_extension ($node, $sql = '')
{
	$node->start;
	install_extension($node, 'postgres', $sql);
	return;
}

# Compile a library for the server of these files, which may be some of test/lib or src; its
# path without ".so".
sub server_library ($path, @files)
{
	my $lib = dirname(__FILE__) . '/..';
	chomp(my $headers = `pg_config --includedir-server`);

	system_or_bail('gcc', '-Wall', '-O2', '-g', '-fPIC', '-shared', '-D_GNU_SOURCE', '-I', "$lib/../../src", '-isystem', $headers,
		'-o', "$path.so", map { $_ =~ m{^src/} ? "$lib/../../$_" : "$lib/$_" } @files);
	return $path;
}

# Compile the function pmhash_wal_records (test/lib/wal_records) against this server, and
# have it there.
sub install_wal_records ($node)
{
	my $path = server_library($node->basedir . '/wal_records', 'wal_records/wal_records.c', 'src/cluster/wal/wal_record.c');

	$node->safe_psql('postgres', slurp_file(dirname(__FILE__) . '/../wal_records/wal_records.sql') =~ s/'LIBRARY'/'$path'/r);
	return;
}

# Compile a library of test/lib that is preloaded into a server; returns its path.
sub preloadable ($name)
{
	my $path = "$PostgreSQL::Test::Utils::tmp_check/$name.so";

	system_or_bail('gcc', '-Wall', '-O2', '-fPIC', '-shared', '-o', $path, dirname(__FILE__) . "/../$name.c");
	return $path;
}

# From now on files of the process can be so large, in bytes, and those of what it starts.
sub limit_file_size ($pid, $bytes)
{
	system_or_bail('prlimit', '--pid', $pid, "--fsize=$bytes:");
	return;
}

# Start a server with a limit of 48 MB, which takes the place of a full file system for
# what is larger.
sub start_with_small_files ($node)
{
	limit_file_size($$, 48 * 1024 * 1024);
	$node->start;
	limit_file_size($$, 'unlimited');
	return;
}

# The small file system of the environment, for this test alone until it ends; what others
# have left there is removed.  Undefined if there is none: making one needs root.
my $small_lock;

sub small_file_system
{
	my $small = $ENV{PMHASH_SMALL_FS} // '';

	return undef if $small eq '';
	open($small_lock, '>', "$small/lock") or die "$small/lock: $!";
	flock($small_lock, LOCK_EX) or die "$small/lock: $!";
	rmtree([ grep { $_ ne "$small/lock" } glob "$small/*" ]);
	return $small;
}

# The pool directory of a server, by default.
sub pool ($node)
{
	return $node->data_dir . '.pmhash';
}

# All index files in a pool directory, sorted.
sub index_files ($directory)
{
	my @files;

	# a file may vanish between being listed and being looked at
	find(
		{
			wanted => sub { push @files, $File::Find::name if /\.pmh$/ },
			no_chdir => 1
		},
		$directory) if -d $directory;
	@files = sort @files;
	return @files;
}

# Those of one database of a server.
sub database_files ($node, $database)
{
	my $oid = $node->safe_psql('postgres',
		"SELECT oid FROM pg_database WHERE datname = '$database'");
	return index_files(pool($node) . "/$oid");
}

# Wait until a directory holds that many index files: the cleaner works in
# the background.  A test.
sub wait_for_files ($directory, $wanted, $name)
{
	my $deadline = time + 60;
	my @files = index_files($directory);

	while (@files != $wanted && time < $deadline)
	{
		usleep(50_000);
		@files = index_files($directory);
	}
	return is(scalar(@files), $wanted, $name) || diag("@files");
}

# Process ids of the children of a process.
sub children ($parent)
{
	my @pids;

	foreach my $path (glob '/proc/[0-9]*/stat')
	{
		open(my $stat, '<', $path) or next;    # gone meanwhile
		my $line = <$stat>;
		close($stat);
		push @pids, $1 if defined $line && $line =~ /^(\d+) \(.*\) \S $parent /;
	}
	return @pids;
}

sub is_zombie ($pid)
{
	open(my $stat, '<', "/proc/$pid/stat") or return 1;    # gone meanwhile
	my $line = <$stat> // '';
	close($stat);
	return $line =~ /\) Z /;
}

# The processes that flush WAL though no commit waits for it.
my $wal_flushers = "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'pmhash launcher')";

# Settings: few flushes of WAL but those that a test asks for, whatever it writes.
sub no_wal_flushes
{
	return <<CONF;
synchronous_commit = off
wal_writer_delay = 10s
wal_writer_flush_after = 100MB
wal_buffers = 64MB
shared_buffers = 128MB
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
CONF
}

# Until the next crash no process writes WAL of its own accord, however long that
# takes.
sub hold_wal_writer ($node)
{
	# not in the middle of a transaction: everything would be visible to it
	my $session = $node->background_psql('postgres');
	foreach (1 .. 1000)
	{
		my @pids = split(/\n/, $session->query_safe($wal_flushers));

		kill('STOP', @pids);
		last if $session->query_safe(
			"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'pmhash%' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR backend_type <> 'pmhash launcher'))") eq 't';
		kill('CONT', @pids);
		usleep(20_000);
	}
	$session->quit;
	return;
}

# They go on.
sub release_wal_writer ($node)
{
	return kill('CONT', split(/\n/, $node->safe_psql('postgres', $wal_flushers)));
}

# The hint in the inode of a pool's lock file (trust.c): 5 is the witness, 4 stands there
# while the kernel is asked for failed writes.  By F_GET_RW_HINT, or F_SET_RW_HINT.
sub lock_hint ($pool, $command, $hint = 0)
{
	my $bytes = pack('Q', $hint);

	open(my $lock, '<', "$pool/lock") or die "$pool/lock: $!";
	fcntl($lock, $command, $bytes) or die "fcntl: $!";
	close($lock);
	return unpack('Q', $bytes);
}

sub witness ($node)
{
	return lock_hint(pool($node), 1035);
}

sub set_witness ($node, $value)
{
	return lock_hint(pool($node), 1036, $value);
}

# A session of the database postgres that stays, and has done this.
sub session_with ($node, $sql, %options)
{
	my $session = $node->background_psql('postgres', %options);

	$session->query_safe($sql);
	return $session;
}

# Wait until a query is true, in the database postgres; what is wrong if it does not come to be.
sub wait_until ($node, $query, $wrong)
{
	$node->poll_query_until('postgres', $query) or die $wrong;
	return;
}

# Wait while that is true, so many seconds at most.
sub wait_while ($condition, $seconds)
{
	my $deadline = time + $seconds;

	usleep(20_000) while $condition->() && time < $deadline;
	return;
}

# Wait until the server takes connections again; false if it does not.
sub wait_until_up ($node)
{
	return $node->poll_query_until('postgres', 'SELECT true');
}

# A child is killed, the postmaster restarts the others in place.  Returns what it says.
sub restart_in_place ($node)
{
	my $from = -s $node->logfile;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	kill('KILL', $session->query_safe('SELECT pg_backend_pid()'));
	eval { $session->quit };
	$node->wait_for_log(qr/database system is ready/, $from);
	wait_until_up($node);
	return slurp_file($node->logfile, $from);
}

# Processes of a server that have been killed, the postmaster first, are dead when this
# returns, and it can be started: a zombie has neither files nor memory.  Where orphans are
# not reaped they stay zombies, which a new postmaster would take for a running one.
sub wait_until_dead ($node, $postmaster, @pids)
{
	foreach my $pid ($postmaster, @pids)
	{
		usleep(5_000) while kill(0, $pid) && !is_zombie($pid);
	}
	unlink($node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock')
	  if kill(0, $postmaster);
	return;
}

# kill -9 the whole server.  The postmaster is stopped first, so that it
# neither notices nor starts anything.
sub crash ($node)
{
	my $postmaster = $node->{_pid};
	my @pids;

	kill('STOP', $postmaster);
	@pids = children($postmaster);
	kill('KILL', @pids);
	$node->kill9;
	wait_until_dead($node, $postmaster, @pids);
	return;
}

sub crash_and_start ($node)
{
	crash($node);
	$node->start;
	return;
}

# With these settings from now on.
sub reload_with ($node, $settings)
{
	$node->append_conf('postgresql.conf', $settings);
	$node->reload;
	return;
}

sub restart_with ($node, $settings)
{
	$node->append_conf('postgresql.conf', $settings);
	$node->restart;
	return;
}

sub start_with ($node, $settings)
{
	$node->append_conf('postgresql.conf', $settings);
	$node->start;
	return;
}

# Start it; returns what it says.
sub log_of_start ($node)
{
	my $from = -s $node->logfile;

	$node->start;
	return slurp_file($node->logfile, $from);
}

# Start a server that has crashed, without a launcher, so that no process needs the
# pool, and kill it after the end of replay, and after a statement if there is one.
# Returns what it has said.
sub die_in_start ($node, $statement = undef)
{
	my $input = '';
	my $output = '';
	my $timer = IPC::Run::timer(60);
	my $start = IPC::Run::start([ 'postgres', '--single', '-D', $node->data_dir, 'postgres' ],
		'<', \$input, '>&', \$output, $timer);

	unlink($node->data_dir . '/postmaster.pid');
	$start->pump until $output =~ /backend>/ || $timer->is_expired;
	if (defined $statement)
	{
		$input .= "$statement\n";
		$start->pump until $output =~ /backend>.*backend>/s || $timer->is_expired;
	}
	$start->signal('KILL');
	eval { $start->finish };
	unlink($node->data_dir . '/postmaster.pid');
	return $output;
}

# How many seconds a load lasts, or how many rounds of it there are, that finds what nobody
# has thought of: so many, and in make test-all PMHASH_LOADS times as many.
sub load_time ($time)
{
	return $time * ($ENV{PMHASH_LOADS} // 1);
}

# Of the cases of a matrix each n-th; all of them where PMHASH_CASES is "all", as in
# make test-all and for mutants.
sub some_of ($n, @cases)
{
	return @cases if ($ENV{PMHASH_CASES} // '') eq 'all';
	return @cases[ grep { $_ % $n == 0 } 0 .. $#cases ];
}

# pgbench in the background: a handle for IPC::Run.  Options are added to the
# connection's.  Finish it, it will fail when the server is killed under it.
sub start_pgbench ($node, $output, @options)
{
	return IPC::Run::start(
		[
			$node->installed_command('pgbench'), '-n',
			'-h', $node->host, '-p', $node->port, @options, 'postgres'
		],
		'>', $output, '2>&1');
}

# A test: looking every key of a table up through an index, by index and by
# bitmap scans, gives what a sequential scan gives.
sub same_answers ($node, $table, $key, $index, $name, $database = 'postgres')
{
	my ($status, $stdout, $stderr) = $node->psql(
		$database,
		"SELECT by_index, by_bitmap FROM every_key('$table', '$key', '$index')");

	return is("$status $stdout$stderr", '0 same|same', "$name: $index");
}

# A test: a statement fails with a message (which is another one if the server has gone).
sub fails_like ($node, $sql, $message, $name, $database = 'postgres')
{
	my ($status, $stdout, $stderr) = $node->psql($database, $sql);

	isnt($status, 0, "$name: refused");
	return like($stderr, $message, "$name: message");
}

1;
