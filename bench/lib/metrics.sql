--
-- metrics.sql: the figures that are taken, in the order of the table printed
--
-- Variables: rows, keys, text_rows, clients.
-- The last column is design.md section 9; what grows with the table is scaled
-- from the 10 million rows it speaks of.
--
INSERT INTO bench.metric (metric, label, unit, wanted) VALUES
	('build', 'CREATE INDEX', 's', 1.2 * :rows / 1e7),
	('size', 'index size after it, per entry', 'bytes', 16),
	('hit', 'nested-loop probe, hit (with heap fetch)', 'us', 1.6),
	('miss', 'nested-loop probe, miss', 'us', 0.45),
	('any', format('= ANY(sub-query) of %s keys, per key', :keys), 'us', 0.4),
	('any_constant', format('= ANY(constant) of %s keys, per key', :keys), 'us', NULL),
	('select', format('pgbench -S, prepared, %s clients', :clients), 'tps', NULL),
	('insert', 'INSERT ... SELECT, per row', 'us', 1.0),
	('insert_index', 'of it, what the index costs', 'us', NULL),
	('wal', 'INSERT, WAL per row', 'bytes', 72),
	('wal_checkpoint', 'INSERT, WAL per row after a checkpoint', 'bytes', NULL),
	('growing', 'index size while growing from empty, per entry', 'bytes', 20),
	('vacuum', 'VACUUM of half the rows', 's', 1.0 * :rows / 1e7),
	('text_build', format('CREATE INDEX on %s texts of 64 bytes', :text_rows), 's', NULL),
	('text_size', 'index size after it, per entry', 'bytes', NULL),
	('text_hit', 'nested-loop probe of it, hit', 'us', NULL);
