# The layers of src/README: SQL -> am -> cluster -> engine -> pm, with join on top of
# am.  A file includes headers of its own layer and of those below, of the engine only
# the few that are its interface; headers go round in no circle, nor do two files.  The
# rooms of the cluster layer are layers, too.
# And what keeps files readable: their sizes, a budget of lines for each layer, and one
# name for one file.

use v5.36;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../../..";

# What each layer may include of others: of all of them, or only these headers.
my %may = (
	engine => {},
	cluster => { engine => [ 'table.h', 'stop_point.h', 'pm.h' ] },
	am => { cluster => 'all', engine => [ 'table.h', 'sort.h', 'stop_point.h' ] },
	join => { am => 'all', cluster => 'all' });

# pm.h is for what writes persistent memory itself, which is the undo journal; more files
# must not come to it unseen.
my %users_of_pm = map { $_ => 1 } ('undo_journal.c');

# Text without comments.
sub code_of
{
	my $text = slurp_file($_[0]);

	$text =~ s{/\*.*?\*/}{}gs;
	return $text;
}

# ---- read ----

my (%includes, %code, %lines, %room);
foreach my $layer (sort keys %may)
{
	# a layer may have rooms, which are folders; names are unique all the same
	foreach my $path (glob "$top/src/$layer/*.[ch] $top/src/$layer/*/*.[ch]")
	{
		my ($file) = $path =~ m{([^/]*)$};
		my $text = code_of($path);

		$room{$file} = $path =~ m{/src/cluster/(\w+)/} ? $1 : 'base' if $layer eq 'cluster';
		$lines{"$layer/$file"} = [ split /\n/, slurp_file($path) ];

		$code{"$layer/$file"} = $text;
		foreach my $name ($text =~ /^\s*#\s*include\s+"([^"]+)"/mg)
		{
			my ($found) = grep { -e "$top/src/$_" } ("$layer/$name", $name);
			push @{ $includes{"$layer/$file"} },
			  defined $found ? $found =~ s{/.*/}{/}r : "server:$name";
		}
	}
}
cmp_ok(scalar(keys %code), '>', 120, 'the sources are there');

# ---- layers ----

my @wrong;
foreach my $from (sort keys %includes)
{
	my ($layer, $file) = split /\//, $from;

	foreach my $to (@{ $includes{$from} })
	{
		if ($to =~ /^server:/)
		{
			# (what tests record, in place of stores: of test/crash)
			push @wrong, "$from: $to" if $layer eq 'engine' && $to ne 'server:pm_record.h';
			next;
		}
		my ($other, $header) = split /\//, $to;
		next if $other eq $layer;
		my $allowed = $may{$layer}{$other};
		push @wrong, "$from: $to"
		  if !defined $allowed
		  || (ref $allowed && !grep { $_ eq $header } @$allowed)
		  || ($layer eq 'cluster' && $header eq 'pm.h' && !$users_of_pm{$file});
	}
}
is(join("\n", @wrong), '', 'every file includes what its layer may');
is(join(' ', grep { m{^engine/} && $code{$_} =~ /\bpostgres\.h\b|\bPG_VERSION_NUM\b|\bpalloc\b|\bereport\b/ } sort keys %code),
	'', 'the engine knows nothing of PostgreSQL');
is(join(' ', grep { $code{$_} =~ /\bpmem_\w+\s*\(|libpmem\.h/ } sort keys %code),
	'engine/pm.c', 'libpmem is called in pm.c alone');
is(join(' ', grep { $_ =~ /\.h$/ && $code{$_} =~ /"(?:postgres|c)\.h"/ } sort keys %code),
	'', 'no header includes postgres.h');
is(join(' ', grep { $_ =~ m{^(?:am|cluster|join)/.*\.c$} && $_ ne 'am/keyhash.c' && $code{$_} !~ /^\s*(?:#(?:ifndef|define) _GNU_SOURCE\s+)*(?:#endif\s+)?#include "postgres.h"/ } sort keys %code),
	'', 'the others include postgres.h first (keyhash.c needs no server)');

# ---- rooms ----

# Chapter 13 of src/README has the rooms of src/cluster, the lowest first, and their files.
my ($map) = slurp_file("$top/src/README") =~ /^13 Files\n=+\n(.*)/ms;
my ($rooms) = $map =~ /^src\/cluster, (.*?)^src\/am/ms;
my (%height, %room_in_map);
while ($rooms =~ /^(\w+): .*\n((?:  .*\n)+)/mg)
{
	my ($name, $files) = ($1, $2);

	$height{$name} = keys %height;
	$room_in_map{$_} = $name foreach $files =~ /\b(\w+\.[ch])\b/g;
}
cmp_ok(scalar(keys %height), '>=', 5, 'there are rooms');
cmp_ok(scalar(keys %height), '<=', 12, '... twelve at most');
is(join(' ', grep { ($room_in_map{$_} // $room_in_map{s/\.h$/.c/r} // '') ne $room{$_} } sort keys %room),
	'', 'each file lies in the room that it is said to be in');

# Which .c has a function or variable, and which others use it?
my (%home, %uses);
foreach my $file (grep { /\.c$/ } sort keys %room)
{
	my $code = $code{"cluster/$file"};

	$home{$1} = $file while $code =~ /^(pmhash_\w+)\(/mg;
	$home{$1} = $file while $code =~ /^(?!extern|static|typedef)\w[\w *]*?\b(pmhash_\w+)(?: = [^;]*)?;/mg;
}
foreach my $file (grep { /\.c$/ } sort keys %room)
{
	my $code = $code{"cluster/$file"} =~ s/"(?:[^"\\]|\\.)*"//gr;

	$uses{$file}{ $home{$_} } = $_ foreach grep { ($home{$_} // $file) ne $file } $code =~ /\bpmhash_\w+/g;
}
cmp_ok(scalar(keys %home), '>', 250, 'there are functions');

my @upwards;
foreach my $file (sort keys %room)
{
	my %of = map { $_ => $_ } map { m{^cluster/(.*)} ? $1 : () } @{ $includes{"cluster/$file"} // [] };

	%of = (%of, %{ $uses{$file} // {} });
	push @upwards, map { "$room{$file}/$file: $of{$_} of $room{$_}" }
	  grep { $height{ $room{$_} } > $height{ $room{$file} } } sort keys %of;
}
is(join("\n", @upwards), '', 'no room uses what is in one above it');

# Files that call each other, by whatever way round.
my %reached;
foreach my $from (keys %uses)
{
	my @next = ($from);

	while (defined(my $file = pop @next))
	{
		push @next, grep { !$reached{$from}{$_}++ } keys %{ $uses{$file} // {} };
	}
}
my %circle;
foreach my $file (sort keys %reached)
{
	my @with = grep { $reached{$file}{$_} && $reached{$_}{$file} } sort keys %reached;

	$circle{"@with"} = @with if @with > 3;
}
is(join("\n", sort keys %circle), '', 'no more than three files of a room call each other round');

# ---- macros that evaluate an argument twice ----

# Min(n, room()) is "n < room() ? n : room()": what the second call returns may be more
# than n.  Of c.h, and of our own.
my $twice = qr/\b(?:Min|Max|Abs|TYPEALIGN\w*|MemSet\w*|MAXALIGN64|FLOAT[48]_FITS_IN_INT\w+|BoolIsValid|INVERT_COMPARE_RESULT|ST_COMPARE|pmh_hash_prefix|pm_raise64)\b/;

# What looks like a call in there and is none: operators, constants, and these macros
# themselves.
my $harmless = qr/\b(?:sizeof|offsetof|lengthof|U?INT64CONST|U?INT(?:64|32)_C|$twice)$/;
my $parenthesis = qr/(\((?:[^()]++|(?-1))*+\))/;

# What must not be in the arguments of such a macro.
sub evaluated_twice ($code)
{
	my @found;

	$code =~ s/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/0/g;
	$code =~ s/^\s*#\s*define\s+$twice(?:.*\\\n)*.*$//mg;
	while ($code =~ /$twice\s*(?=$parenthesis)/g)
	{
		my ($call, $arguments) = ($&, $1);

		push @found, "$call$arguments"
		  if $arguments =~ /\+\+|--|[^=!<>]=[^=]/
		  || grep { !/$harmless/ } $arguments =~ /(\w+)\s*(?=\()/g;
	}
	return @found;
}
is(join('|', evaluated_twice('a = Min(n, room(x)); b = Max(i++, 2); c = Min(Max(n, 1), (int) sizeof(x)); d = Abs(-x); e = f(Min(a, b)); g = Max(1, Min(next - now(), 5)); h = Min(a == b, c)')),
	'Min(n, room(x))|Max(i++, 2)|Max(1, Min(next - now(), 5))|Min(next - now(), 5)', 'what is looked for is found');
is(join("\n", map { my $path = $_; map { "$path: $_" } evaluated_twice($code{$path}) } sort keys %code),
	'', 'no macro evaluates a call or an assignment twice');

# ---- circles ----

# Headers: is there a way from a header back to itself?
sub circle_of_headers
{
	my ($from, @way) = @_;

	return join(' -> ', @way, $from) if @way && $from eq $way[0];
	return undef if grep { $_ eq $from } @way;
	foreach my $to (grep { /\.h$/ } @{ $includes{$from} // [] })
	{
		my $found = circle_of_headers($to, @way, $from);
		return $found if defined $found;
	}
	return undef;
}
is(join("\n", grep { defined } map { circle_of_headers($_) } grep { /\.h$/ } sort keys %code),
	'', 'no header includes itself');

# Two .c files of which each includes the other's header.
my @pairs;
foreach my $from (grep { /\.c$/ } sort keys %code)
{
	foreach my $to (@{ $includes{$from} // [] })
	{
		my $other = $to =~ s/\.h$/.c/r;
		my $own = $from =~ s/\.c$/.h/r;

		push @pairs, "$from $other"
		  if $from lt $other && exists $code{$other} && grep { $_ eq $own } @{ $includes{$other} // [] };
	}
}
is(join("\n", @pairs), '', 'no two files include each other');

# ---- sizes ----

# Columns of a line, with tabs of four.
sub width ($line)
{
	1 while $line =~ s/^([^\t]*)\t/$1 . ' ' x (4 - length($1) % 4)/e;
	return length($line);
}

# A function begins by a "{" in the first column, after the ")" of its parameters; so
# does a struct, after its name.
my (@long_functions, @long_lines, %files_named);
foreach my $path (sort keys %lines)
{
	my ($n, $begin) = (0, 0);

	foreach my $line (@{ $lines{$path} })
	{
		$n++;
		# a message is not cut into pieces: it is to be found by grep
		push @long_lines, "$path:$n" if $line !~ /"/ && width($line) > 100;
		$begin = $n if $line eq '{' && $lines{$path}[ $n - 2 ] =~ /\)$/;
		next if $line ne '}' || !$begin;
		push @long_functions, "$path:$begin" if $n - $begin - 1 > 120;
		$begin = 0;
	}
	push @{ $files_named{ $path =~ s{.*/}{}r } }, $path;
}
is(join(' ', @long_functions), '', 'no function is longer than two pages');
is(join(' ', @long_lines), '', 'no line has more than 100 columns, but for messages');
is(join(' ', grep { @{ $lines{$_} } > 1500 } sort keys %lines), '', 'no file has more than 1,500 lines');
is(join(' ', map { @{ $files_named{$_} } > 1 ? @{ $files_named{$_} } : () } sort keys %files_named),
	'', 'no two files have one name');

# ... nor two structs, unions or enums
my %types_named;
foreach my $path (sort keys %code)
{
	push @{ $types_named{$1} }, "$path: $1" while $code{$path} =~ /^\}\s*(\w+);/mg;
	push @{ $types_named{$2} }, "$path: $2" while $code{$path} =~ /^(struct|union|enum) (\w+)\n\{/mg;
}
cmp_ok(scalar(keys %types_named), '>', 150, 'there are types');
is(join(' ', map { @{ $types_named{$_} } > 1 ? @{ $types_named{$_} } : () } sort keys %types_named),
	'', 'no two types have one name');

# ---- messages for the log ----

# A DBA finds them all by one word (docs/monitoring.md).
my (@unfound, $messages);
foreach my $path (sort keys %code)
{
	while ($code{$path} =~ /\bereport\((?:LOG|WARNING),(.*?)\berrmsg\w*\("((?:[^"\\]|\\.)*)"/gs)
	{
		$messages++;
		push @unfound, "$path: $2" if $2 !~ /pmhash/;
	}
	push @unfound, "$path: elog" if $code{$path} =~ /\belog\((?:LOG|WARNING)/;
}
cmp_ok($messages, '>', 20, 'there are messages for the log');
is(join("\n", @unfound), '', 'each of them says "pmhash"');

# ---- the map of files ----

# The last chapter of src/README has each file once (with a .c its header).
my %listed;
foreach my $line ($map =~ /^  (?=\S+\.[ch]\b)(.*)/mg)
{
	$listed{$_}++ foreach $line =~ /(\w+\.[ch])\b/g;
}
my @not_once;
foreach my $path (sort keys %code)
{
	my ($layer, $file) = split /\//, $path;
	my $source = $file =~ s/\.h$/.c/r;

	next if $source ne $file && exists $code{"$layer/$source"};
	push @not_once, $path if (delete $listed{$file} // 0) != 1;
}
is(join("\n", @not_once), '', 'src/README has every file once in its map');
is(join(' ', sort keys %listed), '', '... and no other');

# A manual is read from end to end.
cmp_ok(scalar(split ' ', slurp_file("$top/src/README")), '<=', 12_000, 'src/README has 12,000 words at most');

# ---- how large it is ----

# Lines that each layer may have.  A budget follows the code down and is never raised:
# what has to come in finds what can go.
my %budget = (engine => 12_881, cluster => 14_474, am => 11_464, join => 2_222);
my %size;
$size{ $_ =~ s{/.*}{}r } += @{ $lines{$_} } foreach keys %lines;
foreach my $layer (sort keys %budget)
{
	cmp_ok($size{$layer}, '<=', $budget{$layer}, "src/$layer is within its budget of lines");
}
done_testing();
