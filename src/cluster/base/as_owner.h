/*-------------------------------------------------------------------------
 *
 * as_owner.h
 *	  Functions of users, in expressions and predicates of indexes, run as the owner of
 *	  the table, as in core (index.c, index_build).
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_AS_OWNER_H
#define PMHASH_AS_OWNER_H

#include "catalog/index.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/rel.h"

/* As which user, and with which settings, the caller was. */
typedef struct PmhashCaller
{
	Oid			user;
	int			context;
	int			nest_level;
} PmhashCaller;

/* Until pmhash_be_caller, or the end of the (sub)transaction. */
static inline void
pmhash_be_owner(Relation heap, PmhashCaller *caller)
{
	GetUserIdAndSecContext(&caller->user, &caller->context);
	SetUserIdAndSecContext(heap->rd_rel->relowner,
						   caller->context | SECURITY_RESTRICTED_OPERATION);
	caller->nest_level = NewGUCNestLevel();
#if PG_VERSION_NUM >= 170000
	RestrictSearchPath();
#endif
}

static inline void
pmhash_be_caller(const PmhashCaller *caller)
{
	AtEOXact_GUC(false, caller->nest_level);
	SetUserIdAndSecContext(caller->user, caller->context);
}

#endif							/* PMHASH_AS_OWNER_H */
