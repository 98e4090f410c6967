/*-------------------------------------------------------------------------
 *
 * heap_table.h
 *	  Is a table a heap?  What reads its pages, or goes by how heap gives TIDs away,
 *	  asks first.
 *
 * By its routines, not by the OID of its access method: another one may have the handler
 * of heap (CREATE ACCESS METHOD ... HANDLER heap_tableam_handler).
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_HEAP_TABLE_H
#define PMHASH_HEAP_TABLE_H

#include "access/tableam.h"
#include "utils/rel.h"

static inline bool
pmhash_is_heap_table(Relation table)
{
	return table->rd_tableam == GetHeapamTableAmRoutine();
}

#endif							/* PMHASH_HEAP_TABLE_H */
