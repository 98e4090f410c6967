/*-------------------------------------------------------------------------
 *
 * put_off.h
 *	  Databases that the launcher comes back to later, each at its own time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_PUT_OFF_H
#define PMHASH_PUT_OFF_H

#include "nodes/pg_list.h"

extern void pmhash_put_off(List **list, Oid database, int64 pause, int doublings);
extern bool pmhash_is_put_off(const List *list, Oid database);
extern int64 pmhash_put_off_next(const List *list);
extern List *pmhash_put_off_due(List *list);
extern void pmhash_put_off_over(List **list, Oid database);
extern void pmhash_put_off_tried(List **list);

#endif							/* PMHASH_PUT_OFF_H */
