-- Is every index right?  A line "name|answer" each; "ok" or "same" is right.
SELECT 'pmhash.check ' || index, CASE WHEN pmhash.check(index::text::regclass)::text = '' THEN 'ok' END
	FROM pmhash.indexes ORDER BY index;
SELECT 'index = table, t_id', compare('t', 't_id', 'id');
SELECT 'index = table, t_d', compare('t', 't_d', 'd');
SELECT 'index = table, t_s', compare('t', 't_s', 's');
SELECT 'index = table, e_id', compare('e', 'e_id', 'id');
SELECT 'index = table, done_n', compare('done', 'done_n', 'n');
SELECT 'index = table, kept_id', compare('kept', 'kept_id', 'id');
