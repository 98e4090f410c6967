/*-------------------------------------------------------------------------
 *
 * join_cost.c
 *	  What a join by groups of keys costs.
 *
 * The planner weighs it against hash and merge joins, whose costs are right for
 * what is cached within a factor of two: a row of a hash join's inner side is
 * charged 0.03 and takes 60 to 160 ns.  So what we do is charged by the time it takes,
 * at 4 us for a cost of 1:
 *
 *	probe	45 to 75 ns, hit or miss; index-only hits are hardly more
 *	row		70 ns in a table of 10,000 rows to 260 ns in one of 10 million
 *	copy	0.1 ns a byte of an outer row, which waits in the batch
 *
 * A nested loop is charged too little for the same: a visit to a cached row is
 * cpu_tuple_cost to the planner, and takes ten times as long.  pmhash's own is charged
 * for that (src/am/cost.c); if one over another index has won all the same it is taken
 * at its word, and we do the same in less time, for a little less, but for the copies,
 * which a nested loop does not make.  Nor does core charge for such copies: how wide
 * they are is known from the statistics only (a value computed further down is a guess
 * of 32 bytes, one that is stored out of line is a pointer, and copied as such).
 *
 * Pages that have to be read cost what a bitmap scan is charged for them, as they are
 * read ahead; pages that are in shared buffers already cost little: am/residence.c has
 * a look.  The planner itself takes all pages for unread, and so would prefer to read
 * the whole table for a tenth of its rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

#include "join/join.h"
#include "join/path.h"

/* See above; as multiples of what the planner's user may have set. */
#define PROBE_COST			(5 * cpu_operator_cost)
#define ROW_COST			(1.5 * cpu_tuple_cost)
#define KEY_COST			(0.5 * cpu_tuple_cost)
#define COPY_COST			(0.01 * cpu_operator_cost)	/* a byte */

/* Beginning and ending takes a microsecond longer than a nested loop's does. */
#define START_COST			(30 * cpu_tuple_cost)

/* How much less than a nested loop that has won, and for how many rows at least. */
#define LESS_THAN_LOOP		0.95
#define FEW_PROBES			10

/* So few pages are taken for unread without a look. */
#define FEW_PAGES			8

/* What is done for all outer rows of a path, by one process. */
typedef struct JoinWork
{
	double		probes;			/* keys looked up */
	double		loops;			/* the same by all processes together */
	double		found;			/* rows of the table per key */
	double		visited;		/* of these, visited in all */
	Cost		copies;			/* of outer rows */
} JoinWork;

/* Is there a condition that the index does not cover? */
static bool
has_filter(const IndexOptInfo *index, const PmhashJoinClauses *clauses,
		   const JoinPathExtraData *extra)
{
	return list_length(extra->restrictlist) + list_length(index->indrestrictinfo) >
		list_length(clauses->conditions);
}

/* How many rows a key leads to. */
static double
rows_per_key(PlannerInfo *root, IndexOptInfo *index, const PmhashJoinClauses *clauses)
{
	Selectivity selectivity =
		clauselist_selectivity(root,
							   add_predicate_to_index_quals(index, clauses->conditions),
							   index->rel->relid, JOIN_INNER, NULL);

	return selectivity * index->rel->tuples;
}

/*
 * The part of a key's rows that is visited if the first match is all there is; the
 * factor of two is core's (costsize.c, final_cost_nestloop).
 */
static double
visited_part(const IndexOptInfo *index, const PmhashJoinClauses *clauses,
			 const JoinPathExtraData *extra)
{
	const SemiAntiJoinFactors *factors = &extra->semifactors;
	double		matched = factors->outer_match_frac;
	double		until = Min(2.0 / (factors->match_count + 1), 1);

	if (has_filter(index, clauses, extra))
		return matched * until + (1 - matched);
	return matched * until;
}

/* ---- pages ---- */

/*
 * How many pages are read for so many rows, all processes together: between a page
 * for each row and rows of a key that are neighbours, as cost_index has it.
 */
static double
pages_read(PlannerInfo *root, IndexOptInfo *index, bool index_only, const JoinWork *w)
{
	RelOptInfo *rel = index->rel;
	double		correlation = pmhash_index_correlation(root, index);
	double		per_key = w->visited / w->probes;
	double		most;
	double		least;
	double		pages;

	most = index_pages_fetched(per_key * w->loops, rel->pages, 0, root);
	least = ceil(per_key * rel->pages / Max(rel->tuples, 1));
	least = index_pages_fetched(least * w->loops, rel->pages, 0, root);
	pages = most + correlation * correlation * (Min(least, most) - most);
	return index_only ? pages * (1 - rel->allvisfrac) : pages;
}

/*
 * What that costs.  Pages that are read ahead cost the less, each, the more of
 * the table they are, as for bitmap scans (cost_bitmap_heap_scan).  A sequential scan
 * is charged for pages that are cached as well; the more of the table's rows we visit
 * the more we are, or the planner would have us visit all of them in no order.  Of
 * those pages each process is charged for all, as in a parallel sequential scan.
 */
static Cost
cost_of_pages(PlannerInfo *root, IndexOptInfo *index, bool index_only, const JoinWork *w)
{
	RelOptInfo *rel = index->rel;
	double		pages = pages_read(root, index, index_only, w);
	double		part = pages / Max(rel->pages, 1);
	double		rows = w->visited / w->probes * w->loops;
	double		cached = 0;
	double		random_page;
	double		seq_page;

	if (pages <= 0)
		return 0;
	if (pages > FEW_PAGES)
		cached = pages * pmhash_residence(root, rel);
	get_tablespace_page_costs(rel->reltablespace, &random_page, &seq_page);
	if (get_tablespace_io_concurrency(rel->reltablespace) > 0)
		random_page -= (random_page - seq_page) * sqrt(Min(part, 1));
	return (pages - cached) * random_page * w->probes / w->loops +
		cached * seq_page * Min(rows / Max(rel->tuples, 1), 1);
}

/* ---- the whole ---- */

/* The conditions: what keys are computed from, and what rows are held against. */
static Cost
cost_of_conditions(PlannerInfo *root, IndexOptInfo *index, JoinPathExtraData *extra,
				   const JoinWork *w, Cost *startup)
{
	QualCost	join;
	QualCost	table;

	cost_qual_eval(&join, extra->restrictlist, root);
	cost_qual_eval(&table, index->indrestrictinfo, root);
	*startup += join.startup + table.startup;
	return w->visited * (join.per_tuple + table.per_tuple);
}

static void
count_work(PlannerInfo *root, IndexOptInfo *index, const PmhashJoinClauses *clauses,
		   JoinType type, JoinPathExtraData *extra, const Path *outer, JoinWork *w)
{
	w->probes = clamp_row_est(outer->rows);
	w->loops = outer->parallel_workers > 0 ?
		clamp_row_est(outer->parent->rows) : w->probes;
	w->found = rows_per_key(root, index, clauses);
	w->visited = w->probes * w->found;
	if (type == JOIN_SEMI || type == JOIN_ANTI || extra->inner_unique)
		w->visited *= visited_part(index, clauses, extra);
	w->copies = w->probes * outer->pathtarget->width * COPY_COST;
}

/* Rows that a path gives: all, or those of one process. */
static double
rows_of_path(const RelOptInfo *joinrel, const Path *outer)
{
	if (outer->parallel_workers == 0)
		return joinrel->rows;
	/* what one process has of the outer side, it has of the result */
	return clamp_row_est(joinrel->rows * outer->rows / Max(outer->parent->rows, 1));
}

/*
 * Not more than a nested loop over some index of the table that has won so far: we
 * do the same in less time, but for the copies.
 */
static void
undercut_nested_loops(const RelOptInfo *joinrel, const RelOptInfo *inner,
					  const Path *outer, Cost copies, Path *path)
{
	ListCell   *lc;

	if (outer->rows < FEW_PROBES)
		return;
	foreach(lc, outer->parallel_workers > 0 ? joinrel->partial_pathlist
			: joinrel->pathlist)
	{
		Path	   *other = lfirst(lc);
		JoinPath   *loop = (JoinPath *) other;

		if (!IsA(other, NestPath) || other->param_info != NULL ||
			loop->outerjoinpath != outer || !IsA(loop->innerjoinpath, IndexPath) ||
			loop->innerjoinpath->parent != inner)
			continue;
		path->total_cost = Min(path->total_cost,
							   path->startup_cost + copies + LESS_THAN_LOOP *
							   (other->total_cost - other->startup_cost));
	}
}

/* ---- what is disabled ---- */

/*
 * Were index scans of the table disabled when its paths were made?  They say so
 * themselves, also where a hint has disabled them for this table alone and the settings
 * are others by now.  A bitmap scan that has won over an index scan is made of it.
 */
static bool
index_scan_is_disabled(const RelOptInfo *inner)
{
	ListCell   *lc;

	foreach(lc, inner->pathlist)
	{
		const Path *path = lfirst(lc);

		if (IsA(path, BitmapHeapPath))
			path = ((const BitmapHeapPath *) path)->bitmapqual;
		if (!IsA(path, IndexPath))
			continue;
#if PG_VERSION_NUM >= 180000
		return path->disabled_nodes > 0;
#else
		return path->total_cost >= disable_cost;
#endif
	}
	return !enable_indexscan;
}

/*
 * A join of ours is a nested loop over an index scan to its user, and as often disabled
 * as that is (costsize.c, initial_cost_nestloop; cost_index).
 */
static void
charge_for_disabled(const RelOptInfo *inner, const JoinPathExtraData *extra,
					const Path *outer, Path *path)
{
#if PG_VERSION_NUM >= 190000
	bool		no_loop = (extra->pgs_mask & PGS_NESTLOOP_PLAIN) == 0;
#else
	bool		no_loop = !enable_nestloop;
#endif
	bool		no_scan = index_scan_is_disabled(inner);

#if PG_VERSION_NUM >= 180000
	path->disabled_nodes = outer->disabled_nodes + no_loop + no_scan;
#else
	Cost		cost = 0;

	if (no_loop)
		cost += disable_cost;
	/* each rescan is charged for it */
	if (no_scan)
		cost += disable_cost * Max(outer->rows, 1);
	path->startup_cost += no_loop || no_scan ? disable_cost : 0;
	path->total_cost += cost;
#endif
}

/*
 * pmhash_join_cost
 *		Fill in the costs and rows of a path that joins 'outer' by 'index'.
 */
void
pmhash_join_cost(PlannerInfo *root, RelOptInfo *joinrel, IndexOptInfo *index,
				 const PmhashJoinClauses *clauses, JoinType type, bool index_only,
				 JoinPathExtraData *extra, Path *outer, Path *path)
{
	const PathTarget *target = joinrel->reltarget;
	JoinWork	w;
	Cost		run_cost;

	count_work(root, index, clauses, type, extra, outer, &w);
	path->rows = rows_of_path(joinrel, outer);
	path->startup_cost = outer->startup_cost + target->cost.startup + START_COST;
	run_cost = outer->total_cost - outer->startup_cost;
	run_cost += w.probes * PROBE_COST + w.copies;
	run_cost += w.visited * (index_only ? KEY_COST +
						ROW_COST * (1 - index->rel->allvisfrac) : ROW_COST);
	run_cost += cost_of_conditions(root, index, extra, &w, &path->startup_cost);
	run_cost += cost_of_pages(root, index, index_only, &w);
	run_cost += path->rows * (cpu_tuple_cost + target->cost.per_tuple);
	path->total_cost = path->startup_cost + run_cost;
	charge_for_disabled(index->rel, extra, outer, path);
	undercut_nested_loops(joinrel, index->rel, outer, w.copies, path);
}
