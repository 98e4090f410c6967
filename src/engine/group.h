/*-------------------------------------------------------------------------
 *
 * group.h
 *	  Entries written in groups (group.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_GROUP_H
#define PMH_GROUP_H

#include "error.h"
#include "table.h"

/* As pmh_delete_group, inside of another public function.  (group.c) */
extern PmhResult pmh_delete_many(PmhTable *t, const PmhEntry *entries, size_t n,
								 size_t *removed);

#endif							/* PMH_GROUP_H */
