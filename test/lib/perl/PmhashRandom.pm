# Random choices of the tests that search at random, by perl's generator (srand).

package PmhashRandom;

use v5.36;

use Exporter 'import';

our @EXPORT = qw(
  one_of
  between
);

# One of the list; undef of none.
sub one_of
{
	return $_[ int(rand(@_)) ];
}

# A whole number, both ends included.
sub between ($from, $to)
{
	return $from + int(rand($to - $from + 1));
}

1;
