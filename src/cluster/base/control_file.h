/*-------------------------------------------------------------------------
 *
 * control_file.h
 *	  The control file of the pool, <pool>/control, and what else is in small files; what the
 *	  files of the pool are called.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_CONTROL_FILE_H
#define PMHASH_CONTROL_FILE_H

#include <inttypes.h>

#include "catalog/pg_control.h"

#include "cluster/cluster.h"

/*
 * Guards of what this layer writes to files: every offset and size.  A change of one of them
 * is another format.  The struct says which version it takes then.
 */

#define PMHASH_AT(type, field, offset) \
	StaticAssertDecl(offsetof(type, field) == (offset), #type "." #field " has moved")
#define PMHASH_SIZE(type, size) \
	StaticAssertDecl(sizeof(type) == (size), #type " has another size")

/* ---- durable.c ---- */

/* a reason that a function returning false leaves, for a message: bytes */
#define PMHASH_REASON_SIZE	(4 * MAXPGPATH)

#define PMHASH_SMALL_FILE	512	/* bytes: no file of durable.c is longer */

extern bool pmhash_fail(char *reason, const char *format,...) pg_attribute_printf(2, 3);
extern ssize_t pmhash_read_small(const char *path, void *data, size_t size);
extern bool pmhash_fsync_directory(const char *path);
extern uint32 pmhash_crc(const void *data, size_t size);
extern bool pmhash_replace_durably(const char *directory, const char *name,
								   const void *data, size_t size, char *reason);

#define PMHASH_KEPT_MESSAGE		160 /* bytes of one for a view, with the zero at the end */

extern void pmhash_keep_message(char *to, size_t size, const char *message);

/* ---- where the pool is ---- */

/* how 64-bit ids look in file names and messages */
#define PMHASH_ID_FORMAT	"%016" PRIx64

extern bool pmhash_pool_is_default(void);
extern void pmhash_set_pool_path(void);
extern const char *pmhash_pool_path(void);
extern void pmhash_database_path(char *path, Oid database);
extern void pmhash_file_path(char *path, Oid database, uint64 file_id);
extern void pmhash_journal_path(char *path);
extern bool pmhash_parse_file_name(const char *name, uint64 *file_id);
extern bool pmhash_parse_database_name(const char *name, Oid *database);

/* ---- what the data directory says ---- */

#define PMHASH_NONCE_SIZE		16

/*
 * Token of trust: <data directory>/pmhash.nonce.  It is there only if all that
 * the server has done since it was written was done with the pool whose control
 * file has the same nonce: a start that can't use the pool removes it.
 */
#define PMHASH_TOKEN_MAGIC		UINT64CONST(0x4e454b4f54484d51)

typedef struct PmhashToken
{
	uint64		magic;
	uint8		nonce[PMHASH_NONCE_SIZE];
	uint32		reserved;
	uint32		crc;			/* CRC-32C of all before */
} PmhashToken;

/* Guards: another layout is another PMHASH_TOKEN_MAGIC. */
PMHASH_AT(PmhashToken, magic, 0);
PMHASH_AT(PmhashToken, nonce, 8);
PMHASH_AT(PmhashToken, reserved, 24);
PMHASH_AT(PmhashToken, crc, 28);
PMHASH_SIZE(PmhashToken, 32);

/* What a start finds in the data directory. */
typedef struct PmhashServerState
{
	ControlFileData control;
	bool		restored;		/* a backup is being recovered */
	bool		standby;		/* a standby is being started */
	bool		has_token;
	PmhashToken token;
} PmhashServerState;

extern bool pmhash_read_pg_control(ControlFileData *data, char *reason);
extern int64 pmhash_life_mark_time(void);
extern bool pmhash_make_life_mark(char *reason);
extern bool pmhash_start_calls_syncfs(void);
extern bool pmhash_read_server_state(PmhashServerState *server, char *reason);
extern bool pmhash_read_token(PmhashToken *token);
extern bool pmhash_remove_token(char *reason);

/* ---- the control file ---- */

#define PMHASH_CONTROL_MAGIC	UINT64CONST(0x4c525443484d50ff)
#define PMHASH_POOL_VERSION		7

typedef enum PmhashPoolState
{
	PMHASH_POOL_RUNNING = 1,	/* a server uses it, or died */
	PMHASH_POOL_CLEAN = 2,		/* shut down, everything synced, and not used since */
	PMHASH_POOL_STARTING = 3	/* a start has taken it that was not after a clean end,
								 * and has not used it, or died */
} PmhashPoolState;

/* Files whose trust ends with an era. */
typedef enum PmhashFileClass
{
	PMHASH_CACHE_FILES,			/* those that lived in the page cache */
	PMHASH_ALL_FILES
} PmhashFileClass;

/*
 * Which rules hold for the files: a primary's backends change them and the undo
 * journal is theirs; on a standby the startup process does, as WAL says.
 */
typedef enum PmhashRole
{
	PMHASH_ROLE_PRIMARY = 0,
	PMHASH_ROLE_STANDBY = 1
} PmhashRole;

/* What a standby begins with; a primary's start needs no such answer. */
typedef enum PmhashStandbyStart
{
	PMHASH_STANDBY_FRESH,		/* with nothing */
	PMHASH_STANDBY_RESUME,		/* with what it had itself */
	PMHASH_STANDBY_DEMOTED		/* with what it had as a primary, shut down cleanly */
} PmhashStandbyStart;

/*
 * Eras are the way to distrust files durably and at once: a file carries the
 * eras of its birth, and counts only while the control file still has them.
 * Doubt about everything renews both; an unclean reboot renews that of the
 * files that lived in page cache.
 */
typedef struct PmhashControl
{
	uint64		magic;
	uint32		version;
	uint32		crc;			/* of all else, this field taken as 0 */
	uint64		system_identifier;
	uint8		nonce[PMHASH_NONCE_SIZE];	/* also in the data directory */
	uint8		old_nonce[PMHASH_NONCE_SIZE];	/* valid too while pending */
	uint32		nonce_pending;
	uint32		state;			/* PmhashPoolState */
	uint32		pmem;			/* the journal was on persistent memory */
	uint32		role;			/* PmhashRole of the last life */
	uint64		clean_checkpoint;	/* the shutdown checkpoint, or 0 */
	uint64		dax_era;
	uint64		cache_era;
	uint64		journal_instance;	/* whose journal is to be kept, or 0 */
	int64		life_mark;		/* of the last life: pmhash_life_mark_time */
	uint64		ended_reason;	/* why the last dax_era has ended: PmhashReason */
	uint64		lock_inode;		/* of the lock file in this life, and when it */
	uint64		lock_birth;		/* was made, in ns; 0: not known */
	uint64		shut;			/* stamp of all files at the last clean
								 * shutdown, or 0 */
	uint64		next_shut;		/* stamp of the coming one */
	uint64		shut_begun;		/* of one that was not completed, or 0 */
	uint64		seen_redo;		/* of a standby: that of the last checkpoint replayed */
	uint32		all_shut;		/* a clean shutdown was the end of the last life */
} PmhashControl;

/*
 * Guards: another layout is another PMHASH_POOL_VERSION.  What comes before the nonce
 * stays where it is in all versions: by it each knows whose pool another one has left.
 */
PMHASH_AT(PmhashControl, magic, 0);
PMHASH_AT(PmhashControl, version, 8);
PMHASH_AT(PmhashControl, crc, 12);
PMHASH_AT(PmhashControl, system_identifier, 16);
PMHASH_AT(PmhashControl, nonce, 24);
PMHASH_AT(PmhashControl, old_nonce, 40);
PMHASH_AT(PmhashControl, nonce_pending, 56);
PMHASH_AT(PmhashControl, state, 60);
PMHASH_AT(PmhashControl, pmem, 64);
PMHASH_AT(PmhashControl, role, 68);
PMHASH_AT(PmhashControl, clean_checkpoint, 72);
PMHASH_AT(PmhashControl, dax_era, 80);
PMHASH_AT(PmhashControl, cache_era, 88);
PMHASH_AT(PmhashControl, journal_instance, 96);
PMHASH_AT(PmhashControl, life_mark, 104);
PMHASH_AT(PmhashControl, ended_reason, 112);
PMHASH_AT(PmhashControl, lock_inode, 120);
PMHASH_AT(PmhashControl, lock_birth, 128);
PMHASH_AT(PmhashControl, shut, 136);
PMHASH_AT(PmhashControl, next_shut, 144);
PMHASH_AT(PmhashControl, shut_begun, 152);
PMHASH_AT(PmhashControl, seen_redo, 160);
PMHASH_AT(PmhashControl, all_shut, 168);
PMHASH_SIZE(PmhashControl, 176);

typedef enum PmhashControlRead
{
	PMHASH_CONTROL_VALID,
	PMHASH_CONTROL_ABSENT,
	PMHASH_CONTROL_DAMAGED,
	PMHASH_CONTROL_OTHER_VERSION,	/* of pmhash: nothing but system_identifier is set */
	PMHASH_CONTROL_REFUSED		/* the reason is set */
} PmhashControlRead;

extern PmhashControlRead pmhash_control_read(PmhashControl *control, char *reason);
extern bool pmhash_pool_write_control(PmhashControl *control, char *reason);
extern bool pmhash_control_first_nonce(PmhashControl *control,
									   const PmhashServerState *server,
									   char *reason);
extern bool pmhash_pool_renew_nonce(PmhashControl *control, char *reason);
extern uint64 pmhash_random_id(void);
extern void pmhash_renew_eras(PmhashControl *control, PmhashFileClass which,
							  PmhashReason reason);
extern void pmhash_trust_none(PmhashControl *control, PmhashReason reason, const char *why);

#endif							/* PMHASH_CONTROL_FILE_H */
