-- Is every index right?  A line "name|answer" each; "ok" or "same" is right.
SELECT 'pmhash.check ' || index, CASE WHEN pmhash.check(index::text::regclass)::text = '' THEN 'ok' END
	FROM pmhash.indexes ORDER BY index;
SELECT 'index = table, t_id', by_index FROM every_key('t', 'id', 't_id');
SELECT 'index = table, t_d', by_index FROM every_key('t', 'd', 't_d');
SELECT 'index = table, t_s', by_index FROM every_key('t', 's', 't_s');
SELECT 'index = table, e_id', by_index FROM every_key('e', 'id', 'e_id');
SELECT 'index = table, done_n', by_index FROM every_key('done', 'n', 'done_n');
SELECT 'index = table, kept_id', by_index FROM every_key('kept', 'id', 'kept_id');
