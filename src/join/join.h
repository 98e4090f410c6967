/*-------------------------------------------------------------------------
 *
 * join.h
 *	  Private to the join: what planner and executor agree about, and the
 *	  executor's state.
 *
 * Include postgres.h first.  src/README, "Executor nodes", explains how the parts play
 * together.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_JOIN_H
#define PMHASH_JOIN_H

#include "nodes/execnodes.h"
#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

#include "am/scan.h"

#define PMHASH_JOIN_NAME	"pmhash join"
#define PMHASH_PAGES_NAME	"pmhash page scan"

/* ---- plan: how a CustomScan of ours is laid out ---- */

/* custom_exprs: five lists */
typedef enum PmhashJoinExprs
{
	PMHASH_JOIN_KEYS,			/* per index column: what is looked up */
	PMHASH_JOIN_RECHECK,		/* what the keys were made from: the conditions */
	PMHASH_JOIN_FILTER,			/* other conditions of the join, and the table's */
	PMHASH_JOIN_OTHER,			/* after null extension: WHERE above an outer join */
	PMHASH_JOIN_NEXPRS
} PmhashJoinExprs;

/* custom_private: two lists, of OIDs and of integers */
typedef enum PmhashJoinOids
{
	PMHASH_JOIN_INDEX,			/* the index */
	PMHASH_JOIN_TYPES			/* from here on: the type of each key */
} PmhashJoinOids;

typedef enum PmhashJoinInts
{
	PMHASH_JOIN_TYPE,			/* JoinType: INNER, LEFT, SEMI or ANTI */
	PMHASH_JOIN_SINGLE,			/* is one match per outer row all there is? */
	PMHASH_JOIN_INDEX_ONLY,		/* is the key all that is wanted of the table? */
	PMHASH_JOIN_NOUTER,			/* columns of custom_scan_tlist from the outer plan */
	PMHASH_JOIN_INNER			/* from here on: the table's columns after these */
} PmhashJoinInts;

/*
 * custom_scan_tlist: the columns of the outer plan in its order, the columns
 * of the table that are used, and last a Var of the table by which the executor
 * knows its place in the range table (setrefs.c changes that number).
 *
 * A page scan has neither an outer plan nor a custom_scan_tlist: it is a scan of the
 * table, whose filter is where core has it.
 */

extern const CustomScanMethods pmhash_join_scan_methods;
extern const CustomScanMethods pmhash_pages_scan_methods;

/* ---- executor ---- */

/* Outer rows kept at once, at most, and keys looked up in one call. */
#define PMHASH_JOIN_MAX_ROWS	16384
#define PMHASH_JOIN_GROUP		256

/* Rows of the table found for a group, at most: the rest is another group's. */
#define PMHASH_JOIN_ROOM		4096

/* An outer row: what is looked up, and how many rows that has led to. */
typedef struct PmhashJoinRow
{
	MinimalTuple tuple;
	uint64		hash;
	uint32		matches;
	bool		is_null;		/* of a key, or like it: matches nothing */
} PmhashJoinRow;

typedef struct PmhashJoinState
{
	CustomScanState css;		/* first */
	PlanState  *outer;			/* NULL: a page scan */
	JoinType	type;
	bool		single;
	bool		index_only;
	int			nkeys;
	Oid			key_type[INDEX_MAX_KEYS];

	/* expressions */
	ExprState  *key[INDEX_MAX_KEYS];
	ExprState  *condition;		/* on the keys; NULL: equal hashes are equal keys */
	ExprState  *filter;
	ExprState  *other;			/* for rows with a match, */
	ProjectionInfo *project;
	ExprState  *null_other;		/* and for those without */
	ProjectionInfo *null_project;
	ExprContext *key_context;
	TupleTableSlot *outer_slot;
	TupleTableSlot *inner_slot;
	bool		outer_stored;	/* the current row is in outer_slot */

	Relation	heap;
	Relation	index;			/* NULL if there is only EXPLAIN */
	MemoryContext context;		/* of all that follows */
	PmhashFile *file;			/* NULL until the first key is there */
	PmhashKeys *keys;
	MemoryContextCallback cleanup;

	/* the batch of outer rows */
	MemoryContext batch_context;	/* its tuples, and */
	size_t		largest_block;		/* what that takes at a time, at most */
	PmhashJoinRow *row;
	int			capacity;
	int			nrows;
	int			want;			/* rows in the next batch */
	bool		outer_done;

	/* the group of them that was looked up: [group, looked) */
	int			group;
	int			looked;
	int			current;		/* row being joined */
	uint32		left;			/* its values still to be visited */
	bool		joining;		/* there is a current row */
	bool		matched;		/* and it has had a match */
	uint64		epoch;			/* removal epoch before the look-up */
	uint64	   *value;			/* PMHASH_JOIN_ROOM of them */
	size_t		nvalues;
	PmhashPipe	pipe;
	uint64		hash[PMHASH_JOIN_GROUP];
	int			row_of[PMHASH_JOIN_GROUP];
	int			nhashes;
	int			stopped;		/* position of the first that did not fit */
	int			group_size;		/* rows in the next group */

	/* a key with too many rows for that: by cursor */
	PmhCursor	cursor;
	bool		streaming;
	size_t		want_values;

	PmhashFetch fetch;
	PmhashPageRows rows;		/* of the page that is pinned */
	uint64		visited;		/* values, since the last rescan */
	PmhashScanDead dead;		/* entries whose rows are dead to all */
	bool		note_dead;
	Buffer		visibility_map;

	/* figures for EXPLAIN */
	uint64		nprobes;
	uint64		nbatches;
	uint64		heap_fetches;
	size_t		most_memory;
} PmhashJoinState;

/* ---- plan.c ---- */
extern void pmhash_join_init(void);

#endif							/* PMHASH_JOIN_H */
