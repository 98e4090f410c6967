/*-------------------------------------------------------------------------
 *
 * logged_removal.h
 *	  What bulk delete does to an index whose entries are logged.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_LOGGED_REMOVAL_H
#define PMHASH_LOGGED_REMOVAL_H

#include "utils/relcache.h"

#include "cluster/cluster.h"

typedef struct PmhashLoggedRemoval PmhashLoggedRemoval;

extern PmhashLoggedRemoval *pmhash_logged_removal_make(Relation index,
													   PmhashFile *file);
extern void pmhash_logged_removal_add(PmhashLoggedRemoval *removal,
									  const PmhEntry *entries, const uint8 *dead,
									  size_t n);
extern double pmhash_logged_removal_finish(PmhashLoggedRemoval *removal);

#endif							/* PMHASH_LOGGED_REMOVAL_H */
