/*-------------------------------------------------------------------------
 *
 * relations.h
 *	  Indexes of ours and their tables: whose they are.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_RELATIONS_H
#define PMHASH_RELATIONS_H

#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/rel.h"

#include "cluster/cluster.h"

/* ---- relations.c ---- */

/* what distinguishes our indexes from others; set by pmhash_cluster_init */
extern ambuild_function pmhash_am_build;
extern PmhashFillFunction pmhash_am_fill;

extern bool pmhash_is_index(Relation rel);
extern Relation pmhash_open_named(Oid relid);
extern void pmhash_require_ours(Relation rel);
extern void pmhash_forget_plans(Oid database, Oid table);

/*
 * Is a table a heap?  What reads its pages, or goes by how heap gives TIDs away, asks first.
 * By its routines, not by the OID of its access method: another one may have the handler
 * of heap (CREATE ACCESS METHOD ... HANDLER heap_tableam_handler).
 */
static inline bool
pmhash_is_heap_table(Relation table)
{
	return table->rd_tableam == GetHeapamTableAmRoutine();
}

/*
 * Functions of users, in expressions and predicates of indexes, run as the owner of
 * the table, as in core (index.c, index_build).
 */

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

#endif							/* PMHASH_RELATIONS_H */
