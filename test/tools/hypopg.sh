# Debian: postgresql-@MAJOR@-hypopg
# hypopg knows core's access methods (and bloom) by name: it cannot make a
# hypothetical index of another one.  Beside real pmhash indexes it works.

try_hypopg()
{
	local plan

	make_server hypo "" && make_database hypo && make_items || return 1
	installed hypopg && sql -c "CREATE EXTENSION hypopg" || return 1
	like "a hypothetical pmhash index is refused in words" 'access method "pmhash" is not supported' \
		"$(value "SELECT hypopg_create_index('CREATE INDEX ON item USING pmhash (note)')")"
	plan=$(value "SELECT hypopg_create_index('CREATE INDEX ON item USING btree (note)');
		EXPLAIN (COSTS off) SELECT * FROM item WHERE note = 'x'")
	like "a hypothetical btree is planned" 'btree_item_note' "$plan"
	plan=$(value "SELECT hypopg_create_index('CREATE INDEX ON item USING btree (sku)');
		EXPLAIN (COSTS off) SELECT * FROM item WHERE sku = 'x'")
	like "a real pmhash index is preferred to a hypothetical btree" 'item_sku' "$plan"
	if [ "$(value "SELECT count(*) FROM pg_proc WHERE proname = 'hypopg_hide_index'")" = 1 ]; then
		plan=$(value "SELECT hypopg_hide_index('item_sku'::regclass);
			EXPLAIN (COSTS off) SELECT * FROM item WHERE sku = 'x'")
		is "a hidden pmhash index is not planned" "" "$(grep item_sku <<<"$plan")"
	fi
	same_answers "beside it"
	stop_server hypo
}
