/*-------------------------------------------------------------------------
 *
 * database_probe.h
 *	  What can be said of a database without connecting to it: may it have pmhash
 *	  indexes, can a worker connect to it, is it there at all.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DATABASE_PROBE_H
#define PMHASH_DATABASE_PROBE_H

extern bool pmhash_database_may_have_indexes(Oid database);
extern bool pmhash_database_is_free(Oid database);
extern bool pmhash_if_database_is_dropped(Oid database, void (*act) (Oid database));

#endif							/* PMHASH_DATABASE_PROBE_H */
