/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  What pmhash index scans cost, for the planner.
 *
 * Of the index nothing is read or opened here.  All that the costs depend on is how
 * many rows will match, and the table's statistics know that better than the index,
 * and whether the table is in shared buffers; planning stays cheap, and no state of an
 * index file can make it fail.  (The one-page main fork means nothing to the planner:
 * it takes a partial index for empty.  So IndexOptInfo's tuples and pages are not used
 * either.)
 *
 * The numbers.  PostgreSQL's costs count pages, and a probe reads none: the
 * index is not in shared buffers, nothing is pinned or locked, and what it
 * touches is one or two buckets.  Measured on a small machine a probe takes
 * 0.1 to 0.3 us, cold lines included, where a btree descends for 1.5 us and
 * the hash access method takes 1.2 us.  These charge random_page_cost for the
 * leaf or bucket page, some 4.0, but a nested loop over a cached index brings
 * that down to nearly nothing, and what remains is their charge per tuple,
 * cpu_index_tuple_cost + cpu_operator_cost.  We are the better choice in that
 * case, too, so a probe and a tuple together have to cost less than that:
 *
 *	probe	half a cpu_operator_cost.  Hashing the key and reading a bucket are
 *			less than calling an operator's function twice.
 *	tuple	half a cpu_index_tuple_cost.  No index tuple is deformed and no key
 *			is compared, TIDs come in batches from lines already read.
 *
 *	loop	in nested loops 0.03 for each probe and 0.04 for each row.  Where all is
 *			cached the planner takes a visit to a row for cpu_tuple_cost, which is a
 *			tenth of what it takes, while it is nearly right about hash joins.  With a
 *			btree the error is hidden by the charge for its descent; without this ours
 *			would be taken for better than hash joins that are quicker.  Where there is
 *			a btree on the same column we are charged no more than that; a hash index
 *			is charged nothing of the kind, so beside one we are not either: it would
 *			be chosen, and takes twice the time.
 *
 *	disk	what memory (effective_cache_size) does not hold of the index, beside the
 *			tables of the query, is read a page for a probe, in no order.
 *
 *	cached	pages that are in shared buffers cost nothing, and 0.02 more for each row
 *			instead: cost.c has a look.  A plain scan has the lines of the next
 *			rows prefetched and knows where their pages are (scan.c); a bitmap
 *			heap scan does the same work twice, and with a bitmap beyond work_mem
 *			checks each row of its pages.  The planner takes all pages for unread, and
 *			those of a plain scan for dearer than those of a bitmap.
 *
 * The heap pages that are then visited are added by cost_index and make up
 * most of the total.  The TIDs of a key are returned in batches, each in heap
 * order, so a table that is clustered by the column is read nearly as sequentially
 * as by a btree, and the correlation is reported as btree's estimator does (selfuncs.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_am.h"
#include "catalog/pg_statistic.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"
#include "utils/timestamp.h"

#include "am/am.h"

#define PROBE_COST			(0.5 * cpu_operator_cost)
#define TUPLE_COST			(0.5 * cpu_index_tuple_cost)
#define LOOP_PROBE_COST		(12 * cpu_operator_cost)
#define LOOP_ROW_COST		(4 * cpu_tuple_cost)
#define CACHED_ROW_COST		(2 * cpu_tuple_cost)

#define ENTRY_BYTES			20	/* in the file */

/* So few rows are taken for unread without a look. */
#define FEW_ROWS			8

/*
 * Of a scan that has to walk the whole index: dearer than any plan that is
 * worth running, but less than what is disabled by enable_seqscan = off and
 * the like, so that it can be had for a test.  That is so as well where
 * disabled nodes are counted and compared before costs (PostgreSQL 18;
 * pathnode.c, compare_path_costs_fuzzily).
 *
 * There a cost, however high, says no more than that: a path of any cost is
 * preferred to one that is disabled.  So no scan that would fail is ever
 * offered at a forbidding cost; planner_hook.c takes the index away.
 */
#define FULL_WALK_COST		(0.5 * disable_cost)

/* How many keys are looked up: the product of the lengths of = ANY lists. */
static double
count_probes(List *quals)
{
	double		probes = 1;
	ListCell   *lc;

	foreach(lc, quals)
	{
		Expr	   *clause = lfirst_node(RestrictInfo, lc)->clause;

		if (IsA(clause, ScalarArrayOpExpr))
		{
			Node	   *array = lsecond(((ScalarArrayOpExpr *) clause)->args);
#if PG_VERSION_NUM >= 170000
			double		length = estimate_array_length(NULL, array);
#else
			double		length = estimate_array_length(array);
#endif

			probes *= Max(length, 1);
		}
	}
	return probes;
}

/* The order correlation of an index's first column, as ANALYZE found it, or 0. */
double
pmhash_index_correlation(PlannerInfo *root, IndexOptInfo *index)
{
	TargetEntry *column = linitial_node(TargetEntry, index->indextlist);
	VariableStatData vardata;
	AttStatsSlot slot;
	double		correlation = 0;

	examine_variable(root, (Node *) column->expr, index->rel->relid,
					 &vardata);
	if (HeapTupleIsValid(vardata.statsTuple) &&
		get_attstatsslot(&slot, vardata.statsTuple,
						 STATISTIC_KIND_CORRELATION, InvalidOid,
						 ATTSTATSSLOT_NUMBERS))
	{
		correlation = slot.numbers[0];
		free_attstatsslot(&slot);
	}
	ReleaseVariableStats(vardata);
	return correlation;
}

/* The part of an index's pages, 0 to 1, that memory has no room for. */
double
pmhash_unread_part(PlannerInfo *root, IndexOptInfo *index)
{
	double		pages = index->rel->tuples * ENTRY_BYTES / BLCKSZ +
		Max(root->total_table_pages, index->rel->pages);

	return Max(1 - effective_cache_size / Max(pages, 1), 0);
}

/* Is there an index of that method that begins with the same column? */
static bool
has_rival(const IndexOptInfo *index, Oid method)
{
	ListCell   *lc;

	foreach(lc, index->rel->indexlist)
	{
		const IndexOptInfo *other = lfirst_node(IndexOptInfo, lc);

		if (other->relam == method && other->indexkeys[0] == index->indexkeys[0])
			return true;
	}
	return false;
}

/*
 * Of a scan that is run once: have pages that are in shared buffers left out.
 *
 * cost_index charges max_IO + correlation^2 * (min_IO - max_IO), and where all is
 * there it has to be the least, which is little.  The rows are charged for no more
 * than that saves.  (A bitmap scan is charged for them as well: it gets the same total.)
 */
static void
leave_out_cached(PlannerInfo *root, const IndexOptInfo *index, double tuples,
				 double *correlation, Cost *total)
{
	const RelOptInfo *rel = index->rel;
	double		part = pmhash_residence(root, rel);
	double		before = *correlation * *correlation;
	double		least = ceil(tuples * rel->pages / Max(rel->tuples, 1));
	double		most = index_pages_fetched(tuples, rel->pages, index->pages, root);
	double		random_page;
	double		seq_page;
	Cost		saved;

	get_tablespace_page_costs(rel->reltablespace, &random_page, &seq_page);
	saved = most * random_page - (random_page + (least - 1) * seq_page);
	saved *= part * (1 - before);
	if (saved <= 0)
		return;
	*correlation = sqrt(before + part * (1 - before));
	*total += Min(part * tuples * CACHED_ROW_COST, saved);
}

/*
 * Cost of scanning the index once, for amcostestimate.
 *
 * loop_count hardly matters: nothing costs us the first time what it would not
 * cost the next; but see "loop" above.  Costs are in the planner's units, pages is
 * always 0 since the index's storage is none of the buffer manager's business.
 * Never raises an ERROR of its own.
 */
void
pmhash_costestimate(PlannerInfo *root, IndexPath *path, double loop_count,
					Cost *startup, Cost *total, Selectivity *selectivity,
					double *correlation, double *pages)
{
	IndexOptInfo *index = path->indexinfo;
	List	   *quals = get_quals_from_indexclauses(path->indexclauses);
	double		probes = count_probes(quals);
	Bitmapset  *bound = NULL;
	double		tuples;
	ListCell   *lc;

	Assert(loop_count >= 1 && index->amcostestimate == pmhash_costestimate);
	/* of a partial index only what its predicate lets through can match */
	*selectivity = clauselist_selectivity(root,
										  add_predicate_to_index_quals(index, quals),
										  index->rel->relid, JOIN_INNER, NULL);
	*correlation = pmhash_index_correlation(root, index);
	*pages = 0;

	*startup = index_other_operands_eval_cost(root, quals);
	tuples = *selectivity * index->rel->tuples;
	*total = *startup + probes * PROBE_COST + tuples * TUPLE_COST +
		probes * pmhash_unread_part(root, index) * random_page_cost;
	if (loop_count > 1 && !has_rival(index, HASH_AM_OID))
	{
		/* a btree charges for a descent (btcostestimate), here with pages of 366 entries */
		double		entries = Max(index->rel->tuples, 2);
		double		levels = ceil(log(entries) / log(366));
		Cost		of_btree = (ceil(log(entries) / log(2)) + 50 * levels) *
			cpu_operator_cost +
			tuples * (cpu_index_tuple_cost + cpu_operator_cost - TUPLE_COST);
		Cost		probe = LOOP_PROBE_COST +
			(path->path.pathtype == T_IndexOnlyScan ? 0 : tuples * LOOP_ROW_COST);

		*total += has_rival(index, BTREE_AM_OID) ? Min(probe, of_btree) : probe;
	}
	else if (loop_count <= 1 && tuples > FEW_ROWS && enable_indexscan &&
			 path->path.pathtype == T_IndexScan)
		leave_out_cached(root, index, tuples, correlation, total);

	/* is every key column bound?  All our operators are equality: any clause will do */
	foreach(lc, path->indexclauses)
		bound = bms_add_member(bound, lfirst_node(IndexClause, lc)->indexcol);
	if (bms_num_members(bound) < index->nkeycolumns)
	{
		*startup += FULL_WALK_COST;
		*total += FULL_WALK_COST + index->rel->tuples *
			(TUPLE_COST + cpu_operator_cost * list_length(quals));
	}
	bms_free(bound);
}

/*
 * How much of a table is in shared buffers, for the planner.
 *
 * A sample of its blocks is looked up in the buffer table: nothing is read or
 * pinned.  That takes some microseconds; since the planner looks at the same table
 * again and again, in one statement, the last answers are kept for a moment.
 *
 * The blocks are evenly spread and always the same, so that the same state of the
 * cache leads to the same plan.
 */

/* Blocks looked up, and for how many microseconds the answer is good. */
#define SAMPLE			32
#define GOOD_FOR		(100 * 1000)

/* Tables whose last answer is kept, by OID modulo this. */
#define NKEPT			8

typedef struct Kept
{
	Oid			relid;
	TimestampTz when;
	double		part;
} Kept;

static Kept kept[NKEPT];

/*
 * The part of a table's pages, 0 to 1, that is in shared buffers now.
 *
 * Of a temporary table, whose buffers are our own, nothing is said to be there.
 */
double
pmhash_residence(PlannerInfo *root, const RelOptInfo *rel)
{
	Oid			relid = planner_rt_fetch(rel->relid, root)->relid;
	Kept	   *k = &kept[relid % NKEPT];
	TimestampTz now = GetCurrentTimestamp();
	int			n = Min(rel->pages, SAMPLE);
	int			found = 0;
	Relation	table;

	if (k->relid == relid && now >= k->when && now - k->when <= GOOD_FOR)
		return k->part;
	table = RelationIdGetRelation(relid);
	if (RelationIsValid(table))
	{
		Assert(CheckRelationLockedByMe(table, AccessShareLock, true));
		for (int i = 0; i < n && !RelationUsesLocalBuffers(table); i++)
			found += pmhash_buffer_of(pmhash_node(table),
									  (uint64) rel->pages * i / n) != InvalidBuffer;
		RelationClose(table);
	}
	k->part = n > 0 ? (double) found / n : 0;
	k->relid = relid;
	k->when = now;
	return k->part;
}
