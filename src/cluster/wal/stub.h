/*-------------------------------------------------------------------------
 *
 * stub.h
 *	  The stub page of an index: block 0 of its main (or init) fork.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STUB_H
#define PMHASH_STUB_H

#include "cluster/base/control_file.h"
#include "cluster/cluster.h"

#define PMHASH_STUB_MAGIC		0x48534d50
#define PMHASH_STUB_VERSION		4
#define PMHASH_STUB_INVALID		0x0002	/* rows have been left out of the file,
										 * or will be: never use it again */
#define PMHASH_STUB_FILLING		0x0004	/* for inserts only: see rebuild.c */
#define PMHASH_STUB_LOGGED		0x0008	/* all changes of the file are, and standbys
										 * may build one like it; see logged.c */

typedef struct PmhashStub
{
	uint32		magic;
	uint16		version;
	uint16		flags;
	uint64		file_id;
	PmhashSeed	seed;
	uint64		reason;			/* PmhashReason, if invalid */
	uint64		filled_by;		/* by this transaction, beside writers; or 0: no
								 * reads by snapshots that do not see its end */
	Oid			database;		/* whose file it is: CREATE DATABASE copies stubs */
	uint32		reserved;
} PmhashStub;

/* Guards: another layout is another PMHASH_STUB_VERSION. */
PMHASH_AT(PmhashStub, magic, 0);
PMHASH_AT(PmhashStub, version, 4);
PMHASH_AT(PmhashStub, flags, 6);
PMHASH_AT(PmhashStub, file_id, 8);
PMHASH_AT(PmhashStub, seed, 16);
PMHASH_AT(PmhashStub, reason, 40);
PMHASH_AT(PmhashStub, filled_by, 48);
PMHASH_AT(PmhashStub, database, 56);
PMHASH_AT(PmhashStub, reserved, 60);
PMHASH_SIZE(PmhashStub, 64);

/* Is it a stub, of the version that this code knows? */
static inline bool
pmhash_stub_is_known(const PmhashStub *stub)
{
	return stub->magic == PMHASH_STUB_MAGIC && stub->version == PMHASH_STUB_VERSION;
}

extern bool pmhash_flags_logged(uint16 flags);
extern PmhashStub pmhash_stub_make(uint16 flags, uint64 file_id, PmhashSeed seed,
								   PmhashReason reason);
extern void pmhash_stub_write(Relation index, const PmhashStub *stub);
extern void pmhash_stub_create_init(Relation index);
extern bool pmhash_stub_filled(Relation index, uint64 file_id,
							   FullTransactionId by);
extern bool pmhash_stub_invalidate(Relation index, uint64 file_id,
								   PmhashReason reason);

/* What a main fork has where a stub should be. */
typedef enum PmhashLook
{
	PMHASH_LOOK_STUB,			/* a stub of the version that this code knows */
	PMHASH_LOOK_EMPTY,			/* no page */
	PMHASH_LOOK_OTHER,			/* a page that is no such stub, or of zeroes */
	PMHASH_LOOK_UNREADABLE		/* that can't be told */
} PmhashLook;

extern bool pmhash_stub_read(Relation index, PmhashStub *stub);
extern PmhashLook pmhash_stub_look_at(PmhashNode node, PmhashStub *stub);
extern PmhashLook pmhash_stub_look(Relation index, PmhashStub *stub);

#endif							/* PMHASH_STUB_H */
