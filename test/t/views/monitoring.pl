# Views for monitoring, the queries for alerts of docs and monitoring/, and counters: what they
# count, where there is no room for them, and who may read what.

use v5.36;

use CPAN::Meta::YAML;
use FindBin;
use JSON::PP;
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

# The queries that docs/monitoring.md gives as alerts.
my $text = slurp_file("$FindBin::RealBin/../../../docs/monitoring.md");
my ($block) = $text =~ /^## Alerts\n.*?^```sql\n(.*?)^```$/ms or die "docs/monitoring.md has no alerts";
my %alert;

foreach my $query (split /;\n\s*/, $block)
{
	my $name = $query =~ /^-- indexes that queries do without/ ? 'without'
	  : $query =~ /^-- less than a tenth of the index/ ? 'sparse'
	  : $query =~ /^-- the server does without/ ? 'server'
	  : $query =~ /^-- rebuilds fail/ ? 'failing'
	  : die "an alert without a test: $query";

	# As for large indexes, but of this test's size.
	$query =~ s/p\.bytes > 100 \* 1024 \* 1024/p.bytes > 128 * 1024/ or die if $name eq 'sparse';
	$alert{$name} = $query;
}

# ======== monitoring ========

# The files in monitoring/ fit each other and the views: the exporter's queries give the
# columns that are declared, and the dashboard and the alert rules use metrics that there
# are, as what they are; and the rules' conditions arise when they should.
{
	my $top = "$FindBin::RealBin/../../..";
	my $queries = CPAN::Meta::YAML->read("$top/monitoring/pmhash_queries.yaml")->[0];
	my $rules = CPAN::Meta::YAML->read("$top/monitoring/pmhash_alerts.yaml")->[0];
	my $dashboard = decode_json(slurp_file("$top/monitoring/pmhash_dashboard.json"));
	my $node = new_server('monitoring');
	my (%usage, %labels);

	start_with_extension($node, invalid_fixture());
	$node->safe_psql('postgres', 'CREATE ROLE watcher LOGIN IN ROLE pg_monitor');

	# ---- the exporter's queries ----

	# Rows of a query as hashes, for the role that an exporter would have.
	sub rows ($namespace, $role = 'watcher')
	{
		my $sql = $queries->{$namespace}{query};

		chomp $sql;
		return @{ decode_json($node->safe_psql('postgres',
			"SET ROLE " . ($role) . "; SELECT coalesce(json_agg(q), '[]') FROM ($sql) q")) };
	}

	is_deeply([ sort keys %$queries ], [ 'pmhash_index', 'pmhash_server' ], 'the queries');
	foreach my $namespace (sort keys %$queries)
	{
		my @declared;

		foreach my $metric (@{ $queries->{$namespace}{metrics} })
		{
			my ($column) = keys %$metric;

			push @declared, $column;
			if ($metric->{$column}{usage} eq 'LABEL')
			{
				$labels{$column} = 1;
				next;
			}
			like($metric->{$column}{usage}, qr/^(?:COUNTER|GAUGE)$/, "$namespace: $column");
			$usage{"${namespace}_$column"} = $metric->{$column}{usage};
		}
		my @rows = rows($namespace);
		cmp_ok(scalar(@rows), '>', 0, "$namespace: has rows");
		foreach my $row (@rows)
		{
			is_deeply([ sort keys %$row ], [ sort @declared ], "$namespace: columns");
			foreach my $column (grep { exists $usage{"${namespace}_$_"} } keys %$row)
			{
				like($row->{$column}, qr/^\d+$/, "$namespace: $column is a number");
			}
		}
		cmp_ok(scalar(rows($namespace, 'pg_read_all_stats')), '>', 0, "$namespace: without the rights");
	}

	# a counter that is added to a view is to be exported
	foreach my $view ([ 'pmhash.stat', 'pmhash_server' ], [ 'pmhash.indexes', 'pmhash_index' ])
	{
		my ($name, $namespace) = @$view;

		foreach my $column (split /\n/, $node->safe_psql('postgres',
			"SELECT attname FROM pg_attribute WHERE attrelid = '$name'::regclass AND atttypid = 'int8'::regtype"))
		{
			ok($usage{"${namespace}_$column"}, "$name.$column is exported");
		}
	}

	# ---- what uses them ----
	my %used;

	sub check_expression ($expression, $name)
	{
		while ($expression =~ /\b((?:rate|increase)\()?(pmhash_\w+)/g)
		{
			my ($function, $metric) = ($1, $2);

			$used{$metric} = 1;
			is($usage{$metric} // 'missing', defined $function ? 'COUNTER' : 'GAUGE', "$name: $metric");
		}
		ok($labels{$1} || $1 eq 'instance', "$name: label $1") while $expression =~ /[{,] ?(\w+)=~/g;
		ok($labels{$1}, "$name: by $1") while $expression =~ /by \((\w+)\)/g;
		return;
	}

	my %id;
	foreach my $panel (@{ $dashboard->{panels} })
	{
		ok(!$id{ $panel->{id} }++, "$panel->{title}: its number is its own");
		foreach my $target (@{ $panel->{targets} })
		{
			check_expression($target->{expr}, $panel->{title});
			my $legend = $target->{legendFormat};
			ok($labels{$1} && $target->{expr} !~ /pmhash_server/, "$panel->{title}: label $1 of the legend")
			  while $legend =~ /\{\{(\w+)\}\}/g;
		}
	}
	foreach my $variable (grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} })
	{
		my ($metric, $label) = $variable->{query} =~ /^label_values\((\w+), (\w+)\)$/;
		ok($usage{$metric}, "variable $variable->{name}: $metric");
		ok($labels{$label} || $label eq 'instance', "variable $variable->{name}: $label");
	}
	my %rule = map { $_->{alert} => $_ } map { @{ $_->{rules} } } @{ $rules->{groups} };
	cmp_ok(scalar(keys %rule), '>=', 7, 'alert rules');
	check_expression($rule{$_}{expr}, $_) foreach sort keys %rule;
	ok($used{$_}, "$_ is used") foreach grep { /^pmhash_server/ } sort keys %usage;

	# ---- the conditions ----

	# A gauge's rule as the condition says; the value that gives the alert.
	sub fires ($alert)
	{
		my ($namespace, $column, $comparison, $value) = $rule{$alert}{expr} =~ /^(pmhash_(?:server|index))_(\w+) (==|<) (\d+)$/
		  or die "$alert: not a gauge";

		return scalar(grep { $comparison eq '==' ? $_->{$column} == $value : $_->{$column} < $value } rows($namespace));
	}

	# Counters of a rule with increase or rate, summed up.
	sub counter_of ($alert)
	{
		my ($namespace, $column) = $rule{$alert}{expr} =~ /^(?:increase|rate)\((pmhash_(?:server|index))_(\w+)\[/
		  or die "$alert: not a counter";
		my $sum = 0;

		$sum += $_->{$column} foreach rows($namespace);
		return $sum;
	}

	$node->poll_query_until('postgres', 'SELECT launcher FROM pmhash.stat');
	is(fires($_), 0, "$_: not while all is well") foreach ('PmhashDisabled', 'PmhashNoLauncher', 'PmhashIndexUnusable');
	is(counter_of($_), 0, "$_: nor that") foreach ('PmhashRebuildsFail', 'PmhashIndexInvalidated');

	rebuild_off($node);
	unlink(index_file($node, 't_k'));
	$node->restart;
	$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT FROM t WHERE k = 7');
	is(fires('PmhashIndexUnusable'), 1, 'an index that cannot be used');
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (7, 7)');
	# (the cleaner may have marked it, and count that when WAL is flushed)
	wait_while(sub { counter_of('PmhashIndexInvalidated') == 0 }, 10);
	cmp_ok(counter_of('PmhashIndexInvalidated'), '>', 0, 'which was marked as invalid');
	rebuild_on($node);
	comes_back($node, 'rebuilt');
	is(fires('PmhashIndexUnusable'), 0, 'an index that can be used again');

	$node->stop;
	start_with($node, 'max_worker_processes = 0');
	is(fires('PmhashNoLauncher'), 1, 'no launcher');
	$node->stop;

	# ---- what it says if pmhash cannot be used ----
	my $sizes = q(SELECT pmhash.size('t_k') IS NULL, pmhash.total_relation_size('t') IS NULL, pmhash.total_relation_size('pg_class') > 0);
	rename(pool($node), pool($node) . '.away') or die $!;
	append_to_file(pool($node), 'in the way');
	$node->start;
	cmp_ok(fires('PmhashDisabled'), '==', 1, 'disabled');
	like($node->safe_psql('postgres', $alert{server}), qr/^disabled\|/, 'disabled: the query of docs/monitoring.md');
	like($node->safe_psql('postgres', 'SELECT state, disabled_reason FROM pmhash.stat'), qr/^disabled\|./, 'disabled: pmhash.stat');
	is($node->safe_psql('postgres', $sizes), 't|t|t', 'disabled: sizes are not known');
	$node->stop;
	unlink(pool($node));
	rename(pool($node) . '.away', pool($node)) or die $!;
	start_with($node, "shared_preload_libraries = ''");
	is($node->safe_psql('postgres', 'SELECT state, directory, launcher, lookups FROM pmhash.stat'), 'not preloaded|||', 'not preloaded');
	is($node->safe_psql('postgres', $sizes), 't|t|t', 'not preloaded: sizes are not known');
	$node->stop;
}

# ======== alert queries ========

# The queries that docs/monitoring.md gives as alerts: nothing comes back from them on
# healthy indexes of all shapes, on a primary and on a standby; and each gives what it is
# there for.
{
	is_deeply([ sort keys %alert ], [qw(failing server sparse without)], 'the alerts');

	sub fired ($node, $name)
	{
		return $node->safe_psql('postgres', $alert{$name});
	}

	sub all_is_well ($node, $where)
	{
		is(fired($node, $_), '', "$where: $_") foreach sort keys %alert;
		return;
	}

	my $primary = new_primary('primary');

	$primary->safe_psql('postgres', <<SQL);
CREATE TABLE shapes (u int4, two bool, ten int4, n int4, s text);
CREATE INDEX grown_u ON shapes USING pmhash (u) WITH (wal = on);
CREATE INDEX grown_two ON shapes USING pmhash (two) WITH (wal = on);
CREATE INDEX grown_ten ON shapes USING pmhash (ten);
CREATE INDEX nobody ON shapes USING pmhash (u) WHERE u < 0;
CREATE INDEX nulls ON shapes USING pmhash (n);
INSERT INTO shapes SELECT i, i % 2 = 0, i / 10, NULL, 'row ' || i FROM generate_series(1, 60000) i;
CREATE INDEX built_u ON shapes USING pmhash (u) WITH (wal = on);
CREATE INDEX built_two ON shapes USING pmhash (two) WITH (wal = off);
CREATE INDEX built_ten ON shapes USING pmhash (ten);
CREATE INDEX built_s ON shapes USING pmhash (s) WITH (wal = on);
CREATE TABLE empty (k int4);
CREATE INDEX empty_k ON empty USING pmhash (k) WITH (wal = on);
CREATE UNLOGGED TABLE unlogged (k int4);
CREATE INDEX unlogged_k ON unlogged USING pmhash (k);
INSERT INTO unlogged SELECT generate_series(1, 50000);
CREATE TABLE parts (k int4, p int4) PARTITION BY LIST (p);
CREATE TABLE part1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE part2 PARTITION OF parts FOR VALUES IN (2);
CREATE INDEX parts_k ON parts USING pmhash (k);
INSERT INTO parts SELECT i, 1 FROM generate_series(1, 400) i;
CREATE TABLE excluded (k int4, CONSTRAINT excluded_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO excluded SELECT generate_series(1, 50000);
CREATE TABLE churned (k int4) WITH (autovacuum_enabled = off);
CREATE INDEX churned_k ON churned USING pmhash (k) WITH (wal = on);
SQL
	foreach my $round (1 .. 4)
	{
		$primary->safe_psql('postgres', $_) foreach (
			"INSERT INTO churned SELECT generate_series(${round}00001, ${round}50000)",
			"DELETE FROM churned WHERE k <= ${round}00000", 'VACUUM churned');
	}
	my $session = session_with($primary, 'CREATE TEMPORARY TABLE passing AS SELECT generate_series(1, 1000) AS k');
	$session->query_safe('CREATE INDEX passing_k ON passing USING pmhash (k)');
	$primary->poll_query_until('postgres', 'SELECT launcher FROM pmhash.stat');
	all_is_well($primary, 'primary');

	# ---- a standby, where an index with "wal = off" is absent as it is meant to be ----
	my $standby = new_standby($primary, 'standby');

	wait_for_state($standby, $_, qr/^valid$/, "standby: $_ is built") foreach qw(grown_u grown_two built_u built_s empty_k churned_k);
	both_valid($standby, 'standby');
	like(standby_state($standby, 'built_two'), qr/^absent: /, 'standby: an index without WAL is absent');
	all_is_well($standby, 'standby');
	$standby->stop;

	# ---- after a crash: the unlogged index is built again, empty ----
	$session->quit;
	$primary->stop('immediate');
	$primary->start;
	$primary->poll_query_until('postgres', "SELECT launcher AND NOT EXISTS (SELECT FROM pmhash.indexes WHERE state <> 'valid') FROM pmhash.stat");
	all_is_well($primary, 'after a crash');

	# ---- and now what they are for ----
	$primary->safe_psql('postgres', 'ALTER TABLE shapes SET (autovacuum_enabled = off)');
	$primary->safe_psql('postgres', $_) foreach (
		'DELETE FROM shapes WHERE u % 20 <> 1', 'SET pmhash.vacuum_shrink = off; VACUUM shapes');
	like(fired($primary, 'sparse'), qr/^\Q$_\E\|/m, "a sparse index: $_") foreach qw(grown_u built_u grown_two built_s);

	$primary->psql('postgres', 'CREATE UNIQUE INDEX CONCURRENTLY not_valid ON shapes USING pmhash (ten)');
	$primary->psql('postgres', <<SQL);
CREATE FUNCTION fails(int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF \$1 > 200000 THEN RAISE EXCEPTION ''no''; END IF; RETURN \$1; END';
SQL
	$primary->psql('postgres', 'INSERT INTO shapes VALUES (300000)');
	$primary->psql('postgres', 'CREATE INDEX CONCURRENTLY not_valid_f ON shapes USING pmhash (fails(u))');
	like(fired($primary, 'without'), qr/\|not_valid_f\|not valid: /, 'an index that is not valid');

	rebuild_off($primary);
	unlink(index_file($primary, 'grown_ten')) or die $!;
	$primary->restart;
	$primary->safe_psql('postgres', 'SET enable_seqscan = off; SELECT FROM shapes WHERE ten = 7');
	like(fired($primary, 'without'), qr/\|grown_ten\|invalid: /, 'an index that has lost its file');

	$primary->stop;
}

# ======== counters ========

# Cumulative counters: that they begin anew with the server; a server without the library,
# standbys, sessions that are killed.  What is counted at all is in sql/counters.sql.
{
	my $node = new_server('counters', <<CONF);
pmhash.journal_size = 64kB
synchronous_commit = off
CONF

	sub sql ($sql, $database = 'postgres')
	{
		return $node->safe_psql($database, $sql);
	}

	sub counted ($what)
	{
		return sql("SELECT $what FROM pmhash.stat");
	}

	# Have a key looked up n times, each in a transaction of its own.
	sub look_up ($n, $table, $database = undef)
	{
		my $query = 'SET enable_seqscan = off; SET enable_bitmapscan = off;' . " SELECT FROM $table WHERE k = 7;" x $n;

		sql($query =~ s/; /;\n/gr, $database);
		return;
	}

	start_with_extension($node);
	sql('CREATE TABLE a (k int4); INSERT INTO a SELECT generate_series(1, 1000); CREATE INDEX a_k ON a USING pmhash (k)');
	look_up(30, 'a');
	is(counted('lookups'), '30', 'counted');

	# ---- restarts ----
	$node->restart;
	is(counted('lookups'), '0', 'a restart: counters begin anew');

	# a session that is killed takes all with it, and the server goes on
	look_up(5, 'a');
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_safe('BEGIN; INSERT INTO a SELECT generate_series(1, 100)');
	kill('KILL', $pid);
	eval { $session->quit };
	ok(wait_until_up($node), 'a killed session: the server is up');
	is(counted('lookups'), '0', 'a killed session: begun anew');
	look_up(2, 'a');
	is(counted('lookups'), '2', 'a killed session: counts again');

	# one that is terminated in a transaction, and one that ends in one
	$session = session_with($node, 'SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN; SELECT FROM a WHERE k = 7', on_error_stop => 0);
	sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%k = 7%' AND pid <> pg_backend_pid()");
	ok($node->poll_query_until('postgres', 'SELECT lookups = 3 FROM pmhash.stat'),
		'a terminated session is counted');
	eval { $session->quit };

	# ---- journal waits; invalid indexes and rebuilds ----
	sql('INSERT INTO a SELECT generate_series(1001, 60000)');
	cmp_ok(counted('journal_waits'), '>', 0, 'waits for room in the journal');
	sql('CREATE TABLE b (k int4); INSERT INTO b SELECT generate_series(1, 1000); CREATE INDEX b_k ON b USING pmhash (k)');
	# without rebuilds at first: the launcher may come before the INSERT, and a rebuild marks nothing
	rebuild_off($node);
	unlink(index_file($node, 'b_k'));
	$node->restart;
	sql('INSERT INTO b VALUES (1001)');
	is(counted('invalidations'), '1', 'an index that has become invalid');
	rebuild_on($node);
	ok($node->poll_query_until('postgres', 'SELECT rebuilds = 1 FROM pmhash.stat'), 'a rebuild is counted') or diag(counted('rebuilds'));

	# a plan that was made with the index
	rebuild_off($node);
	$session = session_with($node, 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan; BEGIN; DECLARE c CURSOR FOR SELECT k, ctid < ctid FROM b WHERE k = 7', on_error_stop => 0);
	patch_file(index_file($node, 'b_k'), 0, "\0" x 4096);
	# (that session has mapped the file)
	sql('INSERT INTO b VALUES (1002)');
	is($session->query_safe('FETCH ALL FROM c'), '7|f', 'the table instead of an index');
	$session->query_safe('COMMIT');
	$session->quit;
	is(counted('table_scans'), '1', 'is counted');
	rebuild_on($node);
	ok($node->poll_query_until('postgres', 'SELECT rebuilds = 2 FROM pmhash.stat'), 'the next rebuild');
	sql('CREATE TABLE flag (f int4)');
	sql(q(CREATE FUNCTION bad(int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF EXISTS (SELECT FROM public.flag) THEN RAISE ''no''; END IF; RETURN $1; END'));
	sql('CREATE TABLE c (k int4); INSERT INTO c VALUES (1); CREATE INDEX c_k ON c USING pmhash (bad(k)); INSERT INTO flag VALUES (1)');
	unlink(index_file($node, 'c_k'));
	$node->restart;
	ok($node->poll_query_until('postgres', 'SELECT rebuild_failures > 0 FROM pmhash.stat'), 'a rebuild that fails');
	sql('DROP TABLE c');
	sql('CREATE DATABASE other');
	is($node->psql('other', 'SELECT * FROM pmhash.stat'), 3, 'no views without the extension');

	my $sizes = q(SELECT pmhash.size('a_k') IS NULL, pmhash.total_relation_size('a') IS NULL, pmhash.total_relation_size('pg_class') > 0);
	my $database = pool($node) . '/' . sql('SELECT oid FROM pg_database WHERE datname = current_database()');
	chmod(0, $database) or die $!;
	is(sql($sizes), 't|t|t', 'a file that cannot be looked at: its size is not known');
	chmod(0700, $database) or die $!;
	is(sql($sizes), 'f|f|t', 'a file that can be');
	$node->stop;

	# ---- standbys count for themselves ----
	my $primary = new_primary('primary');
	my $standby = new_standby($primary, 'standby');
	my $counter = 'SELECT lookups + group_keys FROM pmhash.stat';
	wait_for_state($standby, 't_k', qr/^valid$/, 'standby');
	my $on_primary = $primary->safe_psql('postgres', $counter);
	$standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 7');
	cmp_ok($standby->safe_psql('postgres', $counter), '>', 0, 'a standby counts');
	is($primary->safe_psql('postgres', $counter), $on_primary, 'for itself');
	is($standby->safe_psql('postgres', 'SELECT state FROM pmhash.stat'), 'standby', 'and says what it is');
	$standby->stop;
	$primary->stop;
}

# ======== rights ========

# Whose code runs, and who sees what: an operator that lies in wait for the views; paths of
# files in errors of pmhash.check and in pmhash.stats.  And errors of functions that read
# what others write: WAL that cannot be read, a file that is being cut off.
{
	my $node = new_server('rights', <<CONF, install_path => install_with_stop_points());
pmhash.rebuild = off
CONF
	use_stop_points($node);
	$node->start;

	# ---- a schema of somebody else's ----

	$node->safe_psql('postgres', <<SQL);
CREATE ROLE mallory;
CREATE SCHEMA pmhash AUTHORIZATION mallory;
SQL
	fails_like($node, 'CREATE EXTENSION pmhash', qr/schema "pmhash" already exists/, 'no schema of somebody else is taken');
	fails_like($node, 'CREATE EXTENSION pmhash SCHEMA public', qr/must be installed in schema "pg_catalog"/, '... nor another one');
	$node->safe_psql('postgres', <<SQL);
DROP SCHEMA pmhash;
CREATE EXTENSION pmhash;
CREATE TABLE t (k int4);
INSERT INTO t SELECT generate_series(1, 1000);
CREATE INDEX t_k ON t USING pmhash (k);
SQL

	# ---- where the files are ----

	my $pool = pool($node);
	my $file = index_file($node, 't_k');
	$node->safe_psql('postgres', <<SQL);
CREATE ROLE reader;
GRANT SELECT ON t TO reader;
GRANT EXECUTE ON FUNCTION pmhash.check TO reader;
SQL
	my $shown = $node->safe_psql('postgres', q(SELECT file FROM pmhash.stats('t_k')));
	is("$pool/$shown", $file, 'a path is shown from the pool on');

	# ---- a file that is being cut off ----

	my $prewarm = start_and_hold('prewarm_before_hole', q(SELECT pmhash.prewarm('t_k')), 'prewarm');
	truncate($file, 0) or die "$file: $!";
	release('prewarm_before_hole');
	is(finish($prewarm), '0', 'prewarm: what is not there any more is not read');

	my (undef, undef, $stderr) = $node->psql('postgres', q(SET ROLE reader; SELECT pmhash.check('t_k')));
	like($stderr, qr/[Ff]ile "\Q$shown\E"/, 'pmhash.check: from the pool on');
	unlike($stderr, qr/\Q$pool\E/, '... and no more');
	fails_like($node, q(SELECT pmhash.stats('t_k')), qr/DETAIL:  File "\Q$shown\E" cannot be used/, 'no usable file: from the pool on');

	# ---- DROP DATABASE ... WITH (FORCE) by a plain owner, while a worker is there ----

	$node->safe_psql('postgres', 'DROP TABLE t');
	$node->safe_psql('postgres', 'CREATE DATABASE hers OWNER mallory');
	$node->safe_psql('hers', 'SET ROLE mallory; CREATE EXTENSION pmhash; RESET ROLE; CREATE TABLE t (k int4); CREATE INDEX t_k ON t USING pmhash (k)');
	unlink("$pool/" . $node->safe_psql('hers', q(SELECT file FROM pmhash.stats('t_k')))) or die;
	hold('rebuild_before_build');
	reload_with($node, 'pmhash.rebuild = on');
	$node->safe_psql('hers', 'INSERT INTO t VALUES (1)');
	is_held('rebuild_before_build', 'a rebuilder is there');
	my $drop = "SET ROLE mallory;\nDROP DATABASE hers WITH (FORCE)";
	(undef, undef, $stderr) = $node->psql('postgres', $drop);
	like($stderr, qr/permission denied to terminate process|must be a member of the role whose process is being terminated/,
		'FORCE of a plain owner fails at once');
	release('rebuild_before_build');
	$node->safe_psql('postgres', 'GRANT pg_signal_backend TO mallory');
	$node->safe_psql('postgres', $drop);
	is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_database WHERE datname = 'hers')), '0',
		'FORCE of an owner that may signal processes');
}

done_testing();
