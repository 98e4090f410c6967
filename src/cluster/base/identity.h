/*-------------------------------------------------------------------------
 *
 * identity.h
 *	  Identity of an index file: the opaque bytes in its header.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_IDENTITY_H
#define PMHASH_IDENTITY_H

#include "cluster/base/format.h"
#include "cluster/cluster.h"

#define PMHASH_IDENTITY_VERSION		3
#define PMHASH_IDENTITY_TEMP		0x0001	/* goes with its backend */
#define PMHASH_IDENTITY_UNLOGGED	0x0002	/* of an unlogged table */
#define PMHASH_IDENTITY_LOGGED		0x0004	/* all changes are in WAL, for standbys */

typedef struct PmhashIdentity
{
	uint32		version;
	uint32		flags;
	uint64		system_identifier;
	uint64		file_id;
	PmhashSeed	seed;
	uint64		dax_era;
	uint64		cache_era;
	uint64		instance;		/* server life of its creation */
	uint64		creator_xid;	/* full transaction id, 0 if not tied to one */
	int64		created_at;		/* TimestampTz */
	uint64		created_lsn;	/* insert position then */
	Oid			database;
	Oid			tablespace;		/* informational from here on: REINDEX, */
	Oid			index_oid;		/* SET TABLESPACE and ALTER TYPE keep the */
	Oid			relfilenode;	/* file and change these */
	uint32		owner_pid;		/* the creating backend */
	uint32		timeline;
	int64		owner_start;	/* TimestampTz */
	uint64		predicate_key[2];	/* secret, and independent of the seed */
} PmhashIdentity;

StaticAssertDecl(sizeof(PmhashIdentity) == PMH_IDENTITY_SIZE,
				 "identity must fill the engine's header field");
/* Guards: another layout is another PMHASH_IDENTITY_VERSION. */
PMHASH_AT(PmhashIdentity, version, 0);
PMHASH_AT(PmhashIdentity, flags, 4);
PMHASH_AT(PmhashIdentity, system_identifier, 8);
PMHASH_AT(PmhashIdentity, file_id, 16);
PMHASH_AT(PmhashIdentity, seed, 24);
PMHASH_AT(PmhashIdentity, dax_era, 48);
PMHASH_AT(PmhashIdentity, cache_era, 56);
PMHASH_AT(PmhashIdentity, instance, 64);
PMHASH_AT(PmhashIdentity, creator_xid, 72);
PMHASH_AT(PmhashIdentity, created_at, 80);
PMHASH_AT(PmhashIdentity, created_lsn, 88);
PMHASH_AT(PmhashIdentity, database, 96);
PMHASH_AT(PmhashIdentity, tablespace, 100);
PMHASH_AT(PmhashIdentity, index_oid, 104);
PMHASH_AT(PmhashIdentity, relfilenode, 108);
PMHASH_AT(PmhashIdentity, owner_pid, 112);
PMHASH_AT(PmhashIdentity, timeline, 116);
PMHASH_AT(PmhashIdentity, owner_start, 120);
PMHASH_AT(PmhashIdentity, predicate_key, 128);

extern PmhEnv pmhash_engine_env(void);
extern PmhashReason pmhash_identity_doubt(const PmhashIdentity *id, bool pmem);
extern PmhashReason pmhash_table_doubt(const PmhTable *table);
extern void pmhash_identity_make(Relation index, uint64 file_id, PmhashSeed seed,
								 bool transactional, PmhashIdentity *id);

#endif							/* PMHASH_IDENTITY_H */
