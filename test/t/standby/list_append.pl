# Lists and sets of clients, as Elle reads them.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashAnomalies;
use PmhashListAppend;
use PmhashPauses;
use PmhashTest;
use Test::More;

# ======== list append ========

# Histories of clients on a primary and its synchronous standby, which reach their rows by
# pmhash indexes, have no anomaly that their isolation level forbids: PmhashListAppend.pm.
# Meanwhile processes of both servers are stopped at random.
#
# LIST_APPEND_SECONDS says how long (12; "make soak-append" 1,200), SOAK_SEED repeats the
# random choices, though not the timing.
{
	my $seconds = $ENV{LIST_APPEND_SECONDS} || load_time(12);
	my $seed = $ENV{SOAK_SEED} // time;
	my $rounds = 2 * int(($seconds + 59) / 60);
	my %sum;

	local $SIG{INT} = local $SIG{TERM} = sub { exit(1) };
	note("SOAK_SEED=$seed");
	srand($seed);
	my ($primary, $standby) = new_append_pair();

	foreach my $round (1 .. $rounds)
	{
		my $level = $round % 2 ? 'serializable' : 'repeatable read';
		my ($figures, $findings) = append_history($primary, $standby, $level, $seconds / $rounds, $round);

		is($findings, '', "round $round, $level");
		$sum{$_} += $figures->{$_} foreach keys %$figures;
		last if $findings ne '';
	}

	# A history without conflicts has shown nothing, and one without the indexes nothing of them.
	cmp_ok($sum{$_} // 0, '>', 0, $_)
	  foreach 'primary ok', 'primary fail', 'standby ok', 'append', 'read', 'add', 'see', 'ww dependencies', 'wr dependencies', 'rw dependencies', 'vacuum';
	# REINDEX reads a table twice, and the end of a round once; an index that is made anew takes a while
	# on the standby.
	cmp_ok($sum{'primary scans by table'}, '<=', 3 * $rounds + 2 * ($sum{reindex} // 0), 'primary: rows are found by index');
	cmp_ok($sum{'primary scans by index'}, '>=', $sum{'primary ok'}, 'there are as many');
	cmp_ok($sum{'standby scans by index'}, '>', 2 * $sum{'standby scans by table'}, 'standby: by index');
	foreach my $node ($primary, $standby)
	{
		my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);

		is(join("\n", $log =~ /.*(?:PANIC:|TRAP:|terminated by signal|XX00[012]).*/g), '', $node->name . ': log');
		my $ended = () = $log =~ /terminating connection due to conflict with recovery/g;

		is($ended, $node == $standby ? $sum{ended} // 0 : 0, $node->name . ': sessions that were ended');
		is($node->safe_psql('postgres', q(SELECT string_agg(index::text, ' ') FROM pmhash.indexes WHERE state <> 'valid')), '', $node->name . ': all indexes are valid');
		$node->safe_psql('postgres', q(SELECT pmhash.check(index::regclass) FROM pmhash.indexes WHERE state = 'valid'));
	}
	my $pauses = pauses();
	like($pauses, qr/^[1-9]/, $pauses) if ($ENV{PMHASH_PAUSES} // '1') ne '0';
	diag(join(', ', map { "$sum{$_} $_" } sort keys %sum) . "; $pauses");
	$standby->stop;
	$primary->stop;
}

# ======== list append checker ========

# The checker of histories (PmhashAnomalies.pm) finds each anomaly in a history made for it.
{
	# A transaction in a few characters: "a+1" appends 1 to list a, "a:1,2" reads it, "S*1"
	# adds 1 to set S, "S=1,2" sees it.  Options: status, server, begin, end; without times
	# each is over before nobody else begins.
	sub transaction
	{
		my ($id, $ops, %more) = @_;
		my %kind = ('+' => 'append', ':' => 'read', '*' => 'add', '=' => 'see');
		my @ops;

		foreach my $op (split / /, $ops)
		{
			my ($key, $sign, $value) = $op =~ /^(\w+?)([+:*=])(.*)$/ or die $op;

			push @ops, [ $kind{$sign}, $key, $sign =~ /[:=]/ ? [ split /,/, $value ] : $value ];
		}
		return { id => $id, server => 'primary', status => 'ok', begin => 0, end => 1, ops => \@ops, %more };
	}

	sub found_in
	{
		my ($level, @transactions) = @_;
		return join(' ', sort keys %{ anomalies(\@transactions, $level) });
	}

	# A test: what is found in a history, under each level.
	sub has
	{
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my ($name, $snapshot, $serializable, @transactions) = @_;
		my $n = 0;
		my $make = sub { map { transaction('T' . ++$n, ref $_ ? @$_ : $_) } @transactions };

		is(found_in('repeatable read', $make->()), $snapshot, "$name, REPEATABLE READ");
		return is(found_in('serializable', $make->()), $serializable, "$name, SERIALIZABLE");
	}

	# ---- each anomaly ----

	has('nothing', '', '', 'a+1 S*2', 'a:1 a+3 a:1,3 S=2', 'a:1,3 b:', [ 'a+4', status => 'fail' ]);
	has('garbage', 'garbage', 'garbage', 'a+1', 'a:1,2');
	has('garbage: of another list', 'garbage', 'garbage', 'a+1', 'b:1');
	has('duplicate', 'duplicate', 'duplicate', 'a+1 a+2', 'a:1,2,1');
	has('duplicate in a set', 'duplicate', 'duplicate', 'S*1', 'S=1,1');
	has('internal: own write is not seen', 'internal', 'internal', 'a+1 a:');
	has('internal: not in its place', 'G1c internal', 'G1c internal', 'a+1', 'a+2 a:2,1', 'a:2,1');
	has('internal: not in the set', 'internal', 'internal', 'S*1 S=');
	has('internal: two states', 'G-single internal', 'G-single internal', 'a:1 a:1,2', 'a+1', 'a+2');
	has('internal: two states of a set', 'G-single internal', 'G-single internal', 'S= S*1 S=1,2', 'S*2', 'S=1,2');
	has('G1a', 'G1a', 'G1a', [ 'a+1', status => 'fail' ], 'a:1');
	has('G1a of a set', 'G1a', 'G1a', [ 'S*1', status => 'fail' ], 'S=1');
	has('unknown, and seen', '', '', [ 'a+1', status => 'info' ], 'a:1');
	has('unknown, and not seen', '', '', [ 'a+1', status => 'info' ], 'a:');
	has('G1b', 'G-single G1b', 'G-single G1b', 'a+1 a+2', 'a:1', 'a:1,2');
	has('G1b of a set', 'G-single G1b', 'G-single G1b', 'S*1 S*2', 'S=2');
	has('incompatible order', 'incompatible order', 'incompatible order', 'a+1', 'a+2', 'a:1,2', 'a:2');
	has('stale', 'stale', 'stale', [ 'a+1', end => 5 ], [ 'a:', begin => 6, end => 7 ], [ 'a:1', begin => 6, end => 7 ]);
	has('stale, of a set on the standby', 'stale', 'stale', [ 'S*1', end => 5 ], [ 'S=', begin => 6, end => 7, server => 'standby' ]);
	has('stale, a write that nobody sees', 'stale', 'stale', [ 'a+1', end => 5 ], [ 'a:', begin => 6, end => 7 ]);
	has('not stale: begun before the answer', '', '', [ 'a+1', end => 5 ], [ 'a:', begin => 4, end => 7 ]);
	has('G0', 'G0', 'G0', 'a+1 b+4', 'a+2 b+3', 'a:1,2 b:3,4');
	has('G1c', 'G1c', 'G1c', 'a+1 b:2', 'b+2 a:1');
	has('G1c of sets', 'G1c', 'G1c', 'S*1 R=2', 'R*2 S=1');
	has('G1c of three', 'G1c', 'G1c', 'a+1 c:3', 'b+2 a:1', 'c+3 b:2');
	has('G-single: a read of two states', 'G-single', 'G-single', 'a+1 b+2', 'a:1 b:', 'b:2');
	has('G-single: lost update', 'G-single', 'G-single', 'a: a+1', 'a: a+2', 'a:1,2');
	has('G-single of sets', 'G-single', 'G-single', 'S*1 R*2', 'S=1 R=');
	has('G-single over three', 'G-single', 'G-single', 'a+1', 'a:1 b+2', 'a: b:2');
	has('G-single on the standby', 'G-single', 'G-single', 'a+1', 'a:1 b+2', [ 'a: b:2', server => 'standby' ]);
	my @fork = ('a+1', 'b+2', 'a:1 b:', 'a: b:2');

	has('G-nonadjacent: long fork', 'G-nonadjacent', 'G-nonadjacent', @fork);
	has('long fork between two servers', '', '', @fork[ 0 .. 2 ], [ $fork[3], server => 'standby' ]);
	has('G2-item: write skew', '', 'G2-item', 'a: b+1', 'b: a+2', 'a:2 b:1');
	has('G2-item: phantoms', '', 'G2-item', 'S= R*1', 'R= S*2');
	has('G2-item: a reader between', '', 'G2-item', 'a: b: a+1', 'b+2', 'b:2 a:', 'a:1');
	has('G2-item on the standby only', '', '', 'a: b: a+1', 'b+2', [ 'b:2 a:', server => 'standby' ], 'a:1');
}

done_testing();
