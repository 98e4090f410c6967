/*-------------------------------------------------------------------------
 *
 * pages.h
 *	  Private to page scans: what planner and executor agree about.
 *
 * Include postgres.h first.  src/README, "Page scans", explains them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_PAGES_H
#define PMHASH_PAGES_H

#include "nodes/extensible.h"

#define PMHASH_PAGES_NAME	"pmhash page scan"

/* custom_exprs: two lists */
typedef enum PmhashPagesExprs
{
	PMHASH_PAGES_KEYS,			/* per index column: what is looked up */
	PMHASH_PAGES_RECHECK,		/* what the keys were made from: the conditions */
	PMHASH_PAGES_NEXPRS
} PmhashPagesExprs;

/* custom_private: a list of OIDs */
typedef enum PmhashPagesOids
{
	PMHASH_PAGES_INDEX,			/* the index */
	PMHASH_PAGES_TYPES			/* from here on: the type of each key */
} PmhashPagesOids;

extern const CustomScanMethods pmhash_pages_scan_methods;

/* ---- pages_path.c; for path.c ---- */
extern void pmhash_pages_init(void);

#endif							/* PMHASH_PAGES_H */
