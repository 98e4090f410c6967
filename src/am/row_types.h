/*-------------------------------------------------------------------------
 *
 * row_types.h
 *	  Row types that keys are made of stay as they are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_ROW_TYPES_H
#define PMHASH_ROW_TYPES_H

#include "access/attnum.h"
#include "access/xact.h"

extern void pmhash_row_types_note(Oid relid, AttrNumber attno);
extern void pmhash_row_types_check(void);
extern void pmhash_row_types_forget(void);
extern void pmhash_row_types_level_ends(SubXactEvent event);

#endif							/* PMHASH_ROW_TYPES_H */
