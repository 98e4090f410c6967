/*-------------------------------------------------------------------------
 *
 * unique.h
 *	  Unique indexes (PostgreSQL 18 and later).
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_UNIQUE_H
#define PMHASH_UNIQUE_H

#include "am/am.h"
#include "am/keys.h"

extern bool pmhash_insert_unique(Relation heap, Relation index, PmhashFile *file,
								 const PmhashKeys *keys, const PmhEntry *entry,
								 Datum *values, bool *isnull,
								 IndexUniqueCheck check);

/* ---- unique.c ---- */

/* Finds keys that a build meets twice. */
typedef struct PmhashBuildUnique PmhashBuildUnique;

extern PmhashBuildUnique *pmhash_build_unique_make(MemoryContext context,
												   Relation heap, Relation index);
extern void pmhash_build_unique_check(PmhashBuildUnique *unique,
									  const PmhEntry *entries, size_t n);
extern void pmhash_build_unique_remember(PmhashBuildUnique *unique,
										 const PmhEntry *entries, size_t n);
extern void pmhash_build_unique_check_remembered(PmhashBuildUnique *unique,
												 PmhashFile *file);

#endif							/* PMHASH_UNIQUE_H */
