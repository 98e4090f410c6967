# Views for monitoring, and the queries for alerts of docs and monitoring/.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use CPAN::Meta::YAML;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

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

	$node->start;
	install_extension($node);
	$node->safe_psql('postgres', invalid_fixture());
	$node->safe_psql('postgres', 'CREATE ROLE watcher LOGIN IN ROLE pg_monitor');

	# ---- the exporter's queries ----

	# Rows of a query as hashes, for the role that an exporter would have.
	sub rows
	{
		my ($namespace, $role) = @_;
		my $sql = $queries->{$namespace}{query};

		chomp $sql;
		return @{ decode_json($node->safe_psql('postgres',
			"SET ROLE " . ($role // 'watcher') . "; SELECT coalesce(json_agg(q), '[]') FROM ($sql) q")) };
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
	foreach my $view ([ 'pmhash.stat', 'pmhash_server' ], [ 'pmhash.stat_indexes', 'pmhash_index' ])
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

	sub check_expression
	{
		my ($expression, $name) = @_;

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
	cmp_ok(scalar(keys %rule), '>=', 8, 'alert rules');
	check_expression($rule{$_}{expr}, $_) foreach sort keys %rule;
	ok($used{$_}, "$_ is used") foreach grep { /^pmhash_server/ } sort keys %usage;

	# ---- the conditions ----

	# A gauge's rule as the condition says; the value that gives the alert.
	sub fires
	{
		my ($alert) = @_;
		my ($namespace, $column, $comparison, $value) = $rule{$alert}{expr} =~ /^(pmhash_(?:server|index))_(\w+) (==|<) (\d+)$/
		  or die "$alert: not a gauge";

		return scalar(grep { $comparison eq '==' ? $_->{$column} == $value : $_->{$column} < $value } rows($namespace));
	}

	# Counters of a rule with increase or rate, summed up.
	sub counter_of
	{
		my ($alert) = @_;
		my ($namespace, $column) = $rule{$alert}{expr} =~ /^(?:increase|rate)\((pmhash_(?:server|index))_(\w+)\[/
		  or die "$alert: not a counter";
		my $sum = 0;

		$sum += $_->{$column} foreach rows($namespace);
		return $sum;
	}

	$node->poll_query_until('postgres', 'SELECT launcher FROM pmhash.stat');
	is(fires($_), 0, "$_: not while all is well") foreach ('PmhashDisabled', 'PmhashNoLauncher', 'PmhashIndexUnusable');
	is(counter_of($_), 0, "$_: nor that") foreach ('PmhashRebuildsFail', 'PmhashIndexInvalidated', 'PmhashNotTracked');

	rebuild_off($node);
	unlink(index_file($node, 't_k'));
	$node->restart;
	$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT FROM t WHERE k = 7');
	is(fires('PmhashIndexUnusable'), 1, 'an index that cannot be used');
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (7, 7)');
	cmp_ok(counter_of('PmhashIndexInvalidated'), '>', 0, 'which was marked as invalid');
	rebuild_on($node);
	comes_back($node, 'rebuilt');
	is(fires('PmhashIndexUnusable'), 0, 'an index that can be used again');

	$node->append_conf('postgresql.conf', 'pmhash.tracked_indexes = 1');
	$node->restart;
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (8, 8)');
	cmp_ok(counter_of('PmhashNotTracked'), '>', 0, 'more indexes than counters');

	$node->stop;
	rename(pool($node), pool($node) . '.away') or die $!;
	append_to_file(pool($node), 'in the way');
	$node->start;
	cmp_ok(fires('PmhashDisabled'), '==', 1, 'disabled');
	$node->stop;
	unlink(pool($node));
	rename(pool($node) . '.away', pool($node)) or die $!;
	$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
	$node->start;
	is(fires('PmhashNoLauncher'), 1, 'no launcher');
	$node->stop;
}

# ======== alert queries ========

# The queries that docs/monitoring.md gives as alerts: nothing comes back from them on
# healthy indexes of all shapes, on a primary and on a standby; and each gives what it is
# there for.
{
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
		$query =~ s/p\.bytes > 100 \* 1024 \* 1024/p.bytes > 512 * 1024/ or die if $name eq 'sparse';
		$alert{$name} = $query;
	}
	is_deeply([ sort keys %alert ], [qw(failing server sparse without)], 'the alerts');

	sub fired
	{
		my ($node, $name) = @_;
		return $node->safe_psql('postgres', $alert{$name});
	}

	sub all_is_well
	{
		my ($node, $where) = @_;

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
INSERT INTO shapes SELECT i, i % 2 = 0, i / 10, NULL, 'row ' || i FROM generate_series(1, 200000) i;
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
	my $session = $primary->background_psql('postgres');
	$session->query_safe('CREATE TEMPORARY TABLE passing AS SELECT generate_series(1, 1000) AS k');
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

	# ---- after a crash: the unlogged index is empty ----
	$session->quit;
	$primary->stop('immediate');
	$primary->start;
	$primary->poll_query_until('postgres', 'SELECT launcher FROM pmhash.stat');
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
	rename(pool($primary), pool($primary) . '.away') or die $!;
	append_to_file(pool($primary), 'in the way');
	$primary->start;
	like(fired($primary, 'server'), qr/^disabled\|/, 'the server does without pmhash');
	$primary->stop;
	unlink(pool($primary));
	rename(pool($primary) . '.away', pool($primary)) or die $!;
}

done_testing();
