# A standby builds the files of logged indexes itself, from its own copy of the
# tables, while replay goes on: what it has then is what it would have had from the
# beginning.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($primary, $standby) = primary_and_standby('build');

# ---- what is there before, and what comes ----
$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE t (k int8, v int4, d text) WITH (fillfactor = 60);
INSERT INTO t SELECT i % 2000, i, 'row ' || i FROM generate_series(0, 39999) i;
DELETE FROM t WHERE v % 13 = 0;
UPDATE t SET v = v WHERE v % 7 = 0;
BEGIN; INSERT INTO t SELECT i % 2000, i FROM generate_series(0, 999) i; ROLLBACK;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_d ON t USING pmhash (d) WHERE v >= 0;
CREATE INDEX t_e ON t USING pmhash ((k % 100));
SQL
built($primary, $standby, 'CREATE INDEX');
same_as_heap($standby, 't', 'k', 't_k', 'CREATE INDEX');
uses_index($standby, 'SELECT count(*) FROM t WHERE k = 77', 't_k');
is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k % 100 = 7'),
	$standby->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE k % 100 = 7'),
	'expression');
$standby->stop;
$primary->stop;
done_testing();
