# Other versions of the server: pg_upgrade, and minor releases.

use v5.36;

use Cwd;
use File::Find;
use File::Path qw(rmtree);
use FindBin;
use PmhashInvalid;
use PmhashTest;

# ======== pg_upgrade ========

# pg_upgrade, from 15 to 15 (the same programs, a new cluster): the new cluster
# has another system identifier and takes the stubs of the old one's indexes,
# whose files it has not.  They are rebuilt there; the old cluster, if it is
# started again, has all it had.
{
	# clusters of their own, with identifiers of their own
	local $PmhashTest::own_initdb = 1;

	my $old = new_server('old');
	my $bindir = $old->config_data('--bindir');
	start_with_extension($old, invalid_fixture());
	$old->safe_psql('postgres', <<SQL);
CREATE UNLOGGED TABLE u (k int4);
CREATE INDEX u_k ON u USING pmhash (k);
INSERT INTO u SELECT generate_series(1, 500);
SQL
	$old->safe_psql('postgres', 'CREATE DATABASE second');
	install_extension($old, 'second', invalid_fixture());
	my $old_identifier = $old->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()');
	$old->stop;
	my $old_files = join(' ', index_files(pool($old)));

	# Run pg_upgrade; it leaves scripts where it runs.
	sub upgrade ($new, @options)
	{
		my $directory = "$PostgreSQL::Test::Utils::tmp_check/upgrade_" . $new->name;
		my $back = getcwd();

		mkdir($directory);
		chdir($directory) or die;
		my $ok = run_log([ 'pg_upgrade', '-b', $bindir, '-B', $bindir,
				'-d', $old->data_dir, '-D', $new->data_dir, '-s', $new->host,
				'-p', $old->port, '-P', $new->port, @options ]);
		chdir($back);
		return $ok;
	}

	sub upgrade_log ($new)
	{
		my $text = '';

		find(
			{
				wanted => sub { $text .= slurp_file($File::Find::name) if -f && /\.log$/ },
				no_chdir => 1
			},
			$new->data_dir . '/pg_upgrade_output.d');
		return $text;
	}

	# The new cluster after pg_upgrade, with rebuilds off: nothing is there, and
	# everything comes back.
	sub upgraded ($new, $name, $pool)
	{
		$new->start;
		isnt($new->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()'),
			$old_identifier, "$name: another system identifier");
		invalid_then_back($new, 'it does not exist', $name);
		all_come_back($new, "$name, second database", 'second');
		same_answers($new, 'u', 'k', 'u_k', "$name, unlogged");
		# pg_upgrade has made empty indexes before it put the old stubs in place
		wait_for_files($pool, 9, "$name: files");
		crash_and_start($new);
		all_come_back($new, "$name, killed");
		$new->stop;
		return;
	}

	# ---- copies, pools in their default places ----
	# event: `pg_upgrade`
	my $copy = new_server('copy');
	rebuild_off($copy);
	ok(upgrade($copy), 'pg_upgrade by copying');
	upgraded($copy, 'upgraded by copying', pool($copy));
	is(join(' ', index_files(pool($old))), $old_files, 'the old pool has been left alone');

	# No worker of ours runs in a server of pg_upgrade; the first user of an index does what
	# the launcher does at a start.
	$copy->append_conf('postgresql.conf', 'pmhash.cleaner_naptime = 1');
	system_or_bail('pg_ctl', '-D', $copy->data_dir, '-w', '-l', $copy->logfile, '-o', '-b', 'start');
	is($copy->safe_psql('postgres', "SELECT pg_sleep(1), count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pmhash%'"), '|0',
		'a server of pg_upgrade: no worker');
	same_answers($copy, 't', 'k', 't_k', 'a server of pg_upgrade');
	system_or_bail('pg_ctl', '-D', $copy->data_dir, '-w', 'stop');

	# the old cluster is started again
	start_without_rebuilds($old);
	is($old->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), 'valid', 'the old cluster has its indexes');
	all_rebuilt($old, 'the old cluster');
	$old->stop;

	# ---- without the library, with the pool of the old cluster ----
	# event: `pg_upgrade` to a cluster that does not preload pmhash
	my $without = new_server('without');
	$without->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	ok(!upgrade($without), 'not preloaded: pg_upgrade fails');
	like(upgrade_log($without), qr/"\w+" cannot be used: the pmhash library is not preloaded.*Add pmhash to shared_preload_libraries/s,
		'not preloaded: message');
	# event: `pg_upgrade` to a cluster whose `pmhash.directory` is the old one's
	my $same = new_server('same', "pmhash.directory = '@{[ pool($old) ]}'\n");
	ok(!upgrade($same), 'the same pool: pg_upgrade fails');
	like(upgrade_log($same), qr/"\w+" cannot be used: pmhash is disabled.*directory "[^"]*" (belongs to another cluster|is in use)/s,
		'the same pool: message');
	$old->start;
	all_come_back($old, 'the old cluster after those');
	$old->stop;

	# ---- links; the new cluster takes the place of the old one, its own pool another ----
	my $pool = "$PostgreSQL::Test::Utils::tmp_check/upgraded_pool";
	my $link = new_server('link', "pmhash.directory = '$pool'\n");
	rebuild_off($link);
	ok(upgrade($link, '--link'), 'pg_upgrade by linking');
	rmtree(pool($old));
	upgraded($link, 'upgraded by linking', $pool);
}

# ======== minor releases ========

# pmhash built with the headers of one minor release has to start on each other one of the
# major version: it uses no function or variable that the first one did not have.
# test/lib/server_symbols lists what that had of what pmhash uses.
{
	my ($version) = `pg_config --version` =~ /^PostgreSQL (\d+)/ or die 'no pg_config';
	my $library = (`pg_config --pkglibdir` =~ s,\n,,r) . "/pmhash.so";

	my (%known, %majors);
	my $table = slurp_file("$FindBin::RealBin/../../lib/server_symbols") =~ s/^#.*\n//mgr;
	foreach my $group ($table =~ /^([\d ]+:\n(?:\w.*\n)+)/mg)
	{
		my ($in, $names) = split(/:/, $group);

		foreach my $major (split(' ', $in))
		{
			$known{$_}{$major} = 1 foreach split(' ', $names);
			$majors{$major} = 1;
		}
	}
	SKIP:
	{
		skip "the symbols of $version.0 are not known", 2 if !$majors{$version};

		# The C library's and libpmem's are versioned; those of libm the server brings along.
		my @used = grep { !/@/ && !/^(?:log|sqrt)$/ }
		  map { /^ +U (\S+)$/ ? $1 : () } split(/\n/, `nm -D --undefined-only '$library'`);
		cmp_ok(scalar(@used), '>', 500, "nm: what $library takes from the server");
		is_deeply([ grep { !$known{$_}{$version} } @used ], [], "all of it is in $version.0");
	}
}

done_testing();
