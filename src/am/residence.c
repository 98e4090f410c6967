/*-------------------------------------------------------------------------
 *
 * residence.c
 *	  How much of a table is in shared buffers, for the planner.
 *
 * A sample of its blocks is looked up in the buffer table: nothing is read or
 * pinned.  That takes some microseconds; since the planner looks at the same table
 * again and again, in one statement, the last answers are kept for a moment.
 *
 * The blocks are evenly spread and always the same, so that the same state of the
 * cache leads to the same plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

#include "am/am.h"

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

/* Of a temporary table, whose buffers are our own, nothing is said to be there. */
static double
sample(Oid relid, BlockNumber pages)
{
	Relation	rel = RelationIdGetRelation(relid);
	int			n = Min(pages, SAMPLE);
	int			found = 0;

	if (!RelationIsValid(rel))
		return 0;
	if (!RelationUsesLocalBuffers(rel))
	{
		for (int i = 0; i < n; i++)
			found += pmhash_buffer_of(pmhash_node(rel),
									  (uint64) pages * i / n) != InvalidBuffer;
	}
	RelationClose(rel);
	return n > 0 ? (double) found / n : 0;
}

/*
 * pmhash_residence
 *		The part of a table's pages, 0 to 1, that is in shared buffers now.
 *
 * The planner holds a lock on the table.
 */
double
pmhash_residence(PlannerInfo *root, const RelOptInfo *rel)
{
	Oid			relid = planner_rt_fetch(rel->relid, root)->relid;
	Kept	   *k = &kept[relid % NKEPT];
	TimestampTz now = GetCurrentTimestamp();

	if (k->relid != relid || now < k->when || now - k->when > GOOD_FOR)
	{
		k->part = sample(relid, rel->pages);
		k->relid = relid;
		k->when = now;
	}
	return k->part;
}
