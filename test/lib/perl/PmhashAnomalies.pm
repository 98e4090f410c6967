# What a history of transactions has that its isolation level forbids: a checker after
# Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
# Observations" (VLDB 2020).  Lists are appended to, and a read of a list tells the order
# of the appends; sets are added to, and a read tells which elements were there and which
# were not.  Every element is written once, so that a read names the writers of what it sees.
#
# A transaction is a hash:
#	id		of its own
#	server	'primary', or 'standby', where there are only reads
#	status	'ok': committed; 'fail': not committed; 'info': nobody knows
#	begin	when it was begun, at the latest moment before; end: when it was known to be over
#	ops		[ 'append', list, element ], [ 'read', list, [ elements ] ],
#			[ 'add', set, element ], [ 'see', set, [ elements ] ]
#
# Found are, by the names of the paper and of Adya's thesis:
#	garbage, duplicate		an element that nobody wrote; one that comes twice
#	internal				a transaction does not see its own writes, or sees another state later
#	G1a, G1b				a read of what was not committed; of some of a transaction's writes only
#	incompatible order		two reads of a list of which neither is the beginning of the other
#	stale					a read without what had been acknowledged before it was begun
#	G0, G1c					cycles of write dependencies, of these and read dependencies
#	G-single, G-nonadjacent, G2-item	cycles with one anti-dependency, with several of which
#							no two are adjacent, any
# Snapshot isolation forbids all but the last, serializability that, too.  A primary and
# its standbys do not agree on the order in which commits become visible, so that two of
# them together have G-nonadjacent ("long fork"), and SERIALIZABLE says nothing about
# standbys: the last two are looked for among the transactions of the primary.

package PmhashAnomalies;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(
  anomalies
  dependencies
);

my $most_of_a_kind = 5;

my %is_write = (append => 1, add => 1);
my %h;    # the history that is looked at: transactions, writers, findings, edges

sub found
{
	my ($anomaly, $what) = @_;

	$h{count}{$anomaly}++;
	push @{ $h{found}{$anomaly} }, $what if $h{count}{$anomaly} <= $most_of_a_kind;
	return;
}

# A transaction in words.
sub described
{
	my ($t) = @_;
	return "$t->{id} ($t->{status}, $t->{server}, $t->{begin} to $t->{end}): "
	  . join(' ', map { "$_->[0] $_->[1] " . (ref $_->[2] ? '[' . join(' ', @{ $_->[2] }) . ']' : $_->[2]) } @{ $t->{ops} });
}

# ---- what single reads tell ----

# Who wrote each element, and which of them are by transactions that have committed: an
# unknown one has if somebody has seen it.
sub note_writers
{
	foreach my $t (@{ $h{transactions} })
	{
		foreach my $op (grep { $is_write{ $_->[0] } } @{ $t->{ops} })
		{
			die "element $op->[2] is written twice" if exists $h{writer}{ $op->[2] };
			$h{writer}{ $op->[2] } = $t;
			push @{ $t->{wrote}{ $op->[1] } }, $op->[2];
		}
	}
	foreach my $t (grep { $_->{status} eq 'ok' } @{ $h{transactions} })
	{
		foreach my $read (grep { !$is_write{ $_->[0] } } @{ $t->{ops} })
		{
			my @writers = grep { defined } map { $h{writer}{$_} } @{ $read->[2] };

			$_->{committed} = 1 foreach grep { $_->{status} eq 'info' } @writers;
		}
		$t->{committed} = 1;
	}
	return;
}

# Each read of a transaction is its first one of that object and what it has written since.
sub check_internal
{
	my ($t) = @_;
	my %now;      # what it is to see, as far as is known
	my %wrote;    # before its first read

	foreach my $op (@{ $t->{ops} })
	{
		my ($kind, $key, $value) = @$op;

		if ($is_write{$kind})
		{
			push @{ defined $now{$key} ? $now{$key} : $wrote{$key} //= [] }, $value;
			next;
		}
		my @got = @$value;
		my @wanted = @{ $now{$key} // $wrote{$key} // [] };

		# lists end with what it has written, sets have it somewhere
		@got = sort { $a <=> $b } @got if $kind eq 'see';
		@wanted = sort { $a <=> $b } @wanted if $kind eq 'see';
		if (defined $now{$key})
		{
			found('internal', "$key, expected [@wanted]: " . described($t)) if "@got" ne "@wanted";
		}
		elsif ($kind eq 'see')
		{
			my %got = map { $_ => 1 } @got;

			found('internal', "$key, without what it wrote: " . described($t)) if grep { !$got{$_} } @wanted;
		}
		else
		{
			my @end = @wanted > @got ? () : @got[ @got - @wanted .. $#got ];

			found('internal', "$key, does not end with what it wrote: " . described($t)) if "@end" ne "@wanted";
		}
		$now{$key} = [@$value];
	}
	return;
}

# One read: elements that are not there, or not to be seen.  False if it is good for nothing.
sub check_read
{
	my ($t, $kind, $key, $elements) = @_;
	my (%seen, %of);
	my $good = 1;

	foreach my $element (@$elements)
	{
		my $writer = $h{writer}{$element};

		if ($seen{$element}++)
		{
			found('duplicate', "$element of $key: " . described($t));
			$good = 0;
		}
		elsif (!defined $writer || !grep { $_ == $element } @{ $writer->{wrote}{$key} // [] })
		{
			found('garbage', "$element of $key: " . described($t));
			$good = 0;
		}
		elsif (!$writer->{committed})
		{
			found('G1a', "$element of $key by " . described($writer) . "\nwas seen by " . described($t));
			$good = 0;
		}
		elsif ($writer != $t)
		{
			$of{ $writer->{id} } = $writer;
		}
	}
	return 0 if !$good;

	foreach my $writer (values %of)
	{
		found('G1b', "$key by " . described($writer) . "\nwas seen in part by " . described($t))
		  if grep { !$seen{$_} } @{ $writer->{wrote}{$key} };
	}
	return 1;
}

# A read has all that was acknowledged before its transaction began.
sub check_stale
{
	foreach my $key (keys %{ $h{reads} })
	{
		my @written = sort { $a->[0] <=> $b->[0] }
		  map { [ $h{writer}{$_}{end}, $_ ] } @{ $h{elements}{$key} // [] };

		foreach my $read (@{ $h{reads}{$key} })
		{
			my ($t, $elements) = @$read;
			my %seen = map { $_ => 1 } @$elements;

			foreach my $written (@written)
			{
				last if $written->[0] >= $t->{begin};
				next if $seen{ $written->[1] };
				found('stale', "$written->[1] of $key by " . described($h{writer}{ $written->[1] }) . "\nwas not seen by " . described($t));
				last;
			}
		}
	}
	return;
}

# ---- dependencies ----

sub edge
{
	my ($kind, $from, $to) = @_;

	push @{ $h{$kind}[ $from->{n} ] }, $to->{n} if $from != $to;
	return;
}

# The longest read of a list is its order, and all others begin it.
sub edges_of_list
{
	my ($key, @reads) = @_;
	my ($longest) = sort { @{ $b->[1] } <=> @{ $a->[1] } } @reads;
	my @order = @{ $longest->[1] };
	my @writers = map { $h{writer}{$_} } @order;

	edge('ww', $writers[ $_ - 1 ], $writers[$_]) foreach 1 .. $#writers;
	foreach my $read (@reads)
	{
		my ($t, $elements) = @$read;
		my $n = @$elements;

		if ("@$elements" ne "@order[0 .. $n - 1]")
		{
			found('incompatible order', "$key: " . described($t) . "\nand " . described($longest->[0]));
			next;
		}
		edge('wr', $writers[ $n - 1 ], $t) if $n > 0;
		edge('rw', $t, $writers[$n]) if $n < @order;
	}
	return;
}

# A read of a set is after the writers of what it has, and before all others.
sub edges_of_set
{
	my ($key, @reads) = @_;

	foreach my $read (@reads)
	{
		my ($t, $elements) = @$read;
		my %seen = map { $_ => 1 } @$elements;

		foreach my $element (@{ $h{elements}{$key} // [] })
		{
			$seen{$element} ? edge('wr', $h{writer}{$element}, $t) : edge('rw', $t, $h{writer}{$element});
		}
	}
	return;
}

# Look at each read, and note all dependencies.
sub infer_dependencies
{
	my %kind;

	foreach my $t (grep { $_->{committed} } @{ $h{transactions} })
	{
		check_internal($t) if $t->{status} eq 'ok';
		foreach my $op (@{ $t->{ops} })
		{
			my ($kind, $key, $value) = @$op;

			if ($is_write{$kind})
			{
				push @{ $h{elements}{$key} }, $value;
			}
			elsif ($t->{status} eq 'ok' && check_read($t, $kind, $key, $value))
			{
				$kind{$key} = $kind;
				push @{ $h{reads}{$key} }, [ $t, $value ];
			}
		}
	}
	check_stale();
	foreach my $key (sort keys %kind)
	{
		$kind{$key} eq 'read' ? edges_of_list($key, @{ $h{reads}{$key} }) : edges_of_set($key, @{ $h{reads}{$key} });
	}
	return;
}

# ---- cycles ----

# The graph of these kinds of dependencies among the transactions of some servers:
# element n has those that edges lead to from n.
sub graph
{
	my ($servers, @kinds) = @_;
	my @in = map { $_->{committed} && $_->{server} =~ $servers ? 1 : 0 } @{ $h{transactions} };

	return [
		map {
			my $n = $_;
			$in[$n] ? [ grep { $in[$_] } map { @{ $h{$_}[$n] // [] } } @kinds ] : []
		} 0 .. $#in ];
}

# The strongly connected components of more than one node (Tarjan).
sub components
{
	my ($next) = @_;
	my (@index, @low, @on_stack, @stack, @components);
	my $n = 0;

	foreach my $root (0 .. $#$next)
	{
		next if defined $index[$root];
		my @path = ([ $root, 0 ]);

		while (@path)
		{
			my ($v, $i) = @{ $path[-1] };

			if (!defined $index[$v])
			{
				$index[$v] = $low[$v] = $n++;
				push @stack, $v;
				$on_stack[$v] = 1;
			}
			if ($i < @{ $next->[$v] })
			{
				my $w = $next->[$v][$i];

				$path[-1][1]++;
				if (!defined $index[$w]) { push @path, [ $w, 0 ]; }
				elsif ($on_stack[$w] && $index[$w] < $low[$v]) { $low[$v] = $index[$w]; }
				next;
			}
			pop @path;
			$low[ $path[-1][0] ] = $low[$v] if @path && $low[$v] < $low[ $path[-1][0] ];
			next if $low[$v] != $index[$v];
			my @component;

			do
			{
				push @component, pop @stack;
				$on_stack[ $component[-1] ] = 0;
			} while ($component[-1] != $v);
			push @components, \@component if @component > 1;
		}
	}
	return @components;
}

# A shortest way of at least one edge, within some nodes: its nodes, or none.
sub way
{
	my ($next, $from, $to, $within) = @_;
	my %before;
	my @queue = ($from);

	while (@queue)
	{
		my $v = shift @queue;

		foreach my $w (@{ $next->[$v] })
		{
			next if !$within->{$w} || exists $before{$w};
			$before{$w} = $v;
			push @queue, $w if $w != $to;
			next if $w != $to;
			my @way = ($to);

			do { unshift @way, $before{ $way[0] } } while ($way[0] != $from);
			return @way;
		}
	}
	return;
}

# A closed way in words, with what each step depends by.
sub cycle
{
	my (@way) = @_;
	my $said = '';

	foreach my $i (0 .. $#way - 1)
	{
		my ($a, $b) = @way[ $i, $i + 1 ];
		my @by = grep { grep { $_ == $b } @{ $h{$_}[$a] // [] } } qw(ww wr rw);

		$said .= described($h{transactions}[$a]) . "\n  --" . join(',', @by) . "-->\n";
	}
	return $said . "the first: $h{transactions}[$way[0]]{id}";
}

# Cycles of some kinds of dependencies are an anomaly.
sub find_cycles
{
	my ($anomaly, $servers, @kinds) = @_;
	my $next = graph($servers, @kinds);

	foreach my $component (components($next))
	{
		my %within = map { $_ => 1 } @$component;

		found($anomaly, cycle(way($next, $component->[0], $component->[0], \%within)));
	}
	return;
}

# Cycles in which no two anti-dependencies are adjacent.  Each transaction is in the graph
# twice: 2n has been come to by a dependency, 2n + 1 by an anti-dependency, after which
# there is none.  If only one is allowed, it is one of those in a component of that
# graph, with a way back that has none.
sub find_cycles_with_rw
{
	my ($anomaly, $servers) = @_;
	my ($depends, $anti) = (graph($servers, 'ww', 'wr'), graph($servers, 'rw'));
	my @next;

	foreach my $n (0 .. $#$depends)
	{
		my @by_dependency = map { 2 * $_ } @{ $depends->[$n] };

		$next[ 2 * $n ] = [ @by_dependency, map { 2 * $_ + 1 } @{ $anti->[$n] } ];
		$next[ 2 * $n + 1 ] = \@by_dependency;
	}
	foreach my $component (components(\@next))
	{
		my %within = map { $_ => 1 } @$component;
		my %nodes = map { $_ >> 1 => 1 } @$component;

		if ($anomaly eq 'G-nonadjacent')
		{
			found($anomaly, cycle(map { $_ >> 1 } way(\@next, $component->[0], $component->[0], \%within)));
			next;
		}
	  FROM: foreach my $from (sort { $a <=> $b } keys %nodes)
		{
			foreach my $to (grep { $within{ 2 * $_ + 1 } } @{ $anti->[$from] })
			{
				my @way = way($depends, $to, $from, \%nodes) or next;

				found($anomaly, cycle($from, @way));
				last FROM;
			}
		}
	}
	return;
}

# What a history has that its level, 'repeatable read' or 'serializable', forbids:
# anomaly => [ descriptions ].
sub anomalies
{
	my ($transactions, $level) = @_;
	my $n = 0;

	%h = (transactions => $transactions, ww => [], wr => [], rw => []);
	$_->{n} = $n++ foreach @$transactions;
	note_writers();
	infer_dependencies();
	find_cycles('G0', qr/./, 'ww');
	find_cycles('G1c', qr/./, 'ww', 'wr') if !$h{found}{G0};
	if (!$h{found}{G0} && !$h{found}{G1c})
	{
		find_cycles_with_rw('G-single', qr/./);
		find_cycles_with_rw('G-nonadjacent', qr/^primary$/) if !$h{found}{'G-single'};
		find_cycles('G2-item', qr/^primary$/, 'ww', 'wr', 'rw')
		  if $level eq 'serializable' && !$h{found}{'G-single'} && !$h{found}{'G-nonadjacent'};
	}
	return $h{found} // {};
}

# The dependencies in the history that has been looked at, by kind.
sub dependencies
{
	my %n;

	foreach my $kind (qw(ww wr rw))
	{
		$n{$kind} += @{ $_ // [] } foreach @{ $h{$kind} };
	}
	return \%n;
}

1;
