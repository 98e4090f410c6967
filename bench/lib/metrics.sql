--
-- metrics.sql: the figures that are taken, in the order of the table printed
--
-- Variables: keys, text_rows, clients.
--
INSERT INTO bench.metric (metric, label, unit, charted) VALUES
	('build', 'CREATE INDEX', 's', true),
	('size', 'index size after it, per entry', 'bytes', true),
	('hit', 'nested-loop probe, hit (with heap fetch)', 'us', true),
	('miss', 'nested-loop probe, miss', 'us', true),
	('any', format('= ANY(sub-query) of %s keys, per key', :keys), 'us', false),
	('any_constant', format('= ANY(constant) of %s keys, per key', :keys), 'us', false),
	('select', format('pgbench -S, prepared, %s clients, transactions per second', :clients), 'tps', false),
	('insert', 'INSERT ... SELECT, per row', 'us', true),
	('insert_index', 'of it, what the index costs', 'us', false),
	('wal', 'INSERT, WAL per row', 'bytes', true),
	('wal_checkpoint', 'INSERT, WAL per row after a checkpoint', 'bytes', true),
	('growing', 'index size while growing from empty, per entry', 'bytes', false),
	('vacuum', 'VACUUM of half the rows', 's', true),
	('text_build', format('CREATE INDEX on %s texts of 64 bytes', :text_rows), 's', false),
	('text_size', 'index size after it, per entry', 'bytes', false),
	('text_hit', 'nested-loop probe of it, hit', 'us', false);
