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

extern void pmhash_row_types_init(void);
extern void pmhash_row_types_note(Oid relid, AttrNumber attno);
extern void pmhash_row_types_check(void);

#endif							/* PMHASH_ROW_TYPES_H */
