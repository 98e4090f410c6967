# The files in monitoring/ fit each other and the views: the exporter's queries give the
# columns that are declared, and the dashboard and the alert rules use metrics that there
# are, as what they are; and the rules' conditions arise when they should.

use strict;
use warnings;

use CPAN::Meta::YAML;
use FindBin;
use JSON::PP;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

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
foreach my $view ([ 'pmhash_stat', 'pmhash_server' ], [ 'pmhash_stat_indexes', 'pmhash_index' ])
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

$node->poll_query_until('postgres', 'SELECT launcher FROM pmhash_stat');
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
done_testing();
