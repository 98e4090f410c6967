/*-------------------------------------------------------------------------
 *
 * new_database.h
 *	  A database is made: nothing in the pool has its OID.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_NEW_DATABASE_H
#define PMHASH_NEW_DATABASE_H

#include "nodes/parsenodes.h"

extern void pmhash_remove_dropped(Oid database);
extern void pmhash_note_statement(const Node *statement);
extern void pmhash_database_is_new(Oid database);

#endif							/* PMHASH_NEW_DATABASE_H */
