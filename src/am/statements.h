/*-------------------------------------------------------------------------
 *
 * statements.h
 *	  The statements that are being executed.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STATEMENTS_H
#define PMHASH_STATEMENTS_H

#include "utils/palloc.h"

struct Node;
struct PlannedStmt;
struct PlanState;
struct QueryDesc;

typedef struct PmhashStatement
{
	struct PmhashStatement *next;
	MemoryContext context;		/* its indexes are opened, its scans are made in it;
								 * NULL: a utility statement that may build indexes */
	const struct PlannedStmt *planned;	/* NULL: a utility statement */
	struct PlanState *plan;		/* the same */
	bool		inserts;		/* it may insert rows */
	bool		skips_locked;	/* it passes over locked ones somewhere */
	bool		builds;			/* it may build indexes in parallel */
	MemoryContextCallback callback;
} PmhashStatement;

extern void pmhash_statement_started(struct QueryDesc *queryDesc);
extern bool pmhash_may_build_indexes(const struct Node *utility);
extern void pmhash_utility_begins(const struct Node *utility, PmhashStatement *statement);
extern void pmhash_utility_ends(PmhashStatement *statement);
extern bool pmhash_index_builder_runs(void);
extern const PmhashStatement *pmhash_statement_in(MemoryContext context);
extern bool pmhash_skips_locked(const struct PlannedStmt *planned, Index rti);

#endif							/* PMHASH_STATEMENTS_H */
