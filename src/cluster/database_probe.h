/*-------------------------------------------------------------------------
 *
 * database_probe.h
 *	  Whether a database can have pmhash indexes, without connecting to it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DATABASE_PROBE_H
#define PMHASH_DATABASE_PROBE_H

extern bool pmhash_database_may_have_indexes(Oid database);

#endif							/* PMHASH_DATABASE_PROBE_H */
