/*-------------------------------------------------------------------------
 *
 * data_directory.h
 *	  What the data directory says about the server: pg_control, postmaster.opts
 *	  and the token of trust.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DATA_DIRECTORY_H
#define PMHASH_DATA_DIRECTORY_H

#include "catalog/pg_control.h"

#include "cluster/base/format.h"

#define PMHASH_NONCE_SIZE		16

/*
 * Token of trust: <data directory>/pmhash.nonce.  It is there only if all that
 * the server has done since it was written was done with the pool whose control
 * file has the same nonce: a start that can't use the pool removes it, unless
 * the server life before has ended in order and 'checkpoint' is still
 * pg_control's.
 */
#define PMHASH_TOKEN_MAGIC		UINT64CONST(0x4e454b4f54484d50)

typedef struct PmhashToken
{
	uint64		magic;
	uint8		nonce[PMHASH_NONCE_SIZE];
	uint64		checkpoint;		/* at the end in order of the life that wrote it,
								 * if nothing is left to be undone; else 0 */
	uint32		reserved;
	uint32		crc;			/* CRC-32C of all before */
} PmhashToken;

/* Guards: another layout is another PMHASH_TOKEN_MAGIC. */
PMHASH_AT(PmhashToken, magic, 0);
PMHASH_AT(PmhashToken, nonce, 8);
PMHASH_AT(PmhashToken, checkpoint, 24);
PMHASH_AT(PmhashToken, reserved, 32);
PMHASH_AT(PmhashToken, crc, 36);
PMHASH_SIZE(PmhashToken, 40);

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
extern int64 pmhash_postmaster_opts_mtime(void);
extern bool pmhash_start_calls_syncfs(void);
extern bool pmhash_starts_standby(void);
extern bool pmhash_read_server_state(PmhashServerState *server, char *reason);
extern bool pmhash_write_token(const uint8 *nonce, uint64 checkpoint, char *reason);
extern bool pmhash_read_token(PmhashToken *token);
extern bool pmhash_remove_token(char *reason);
extern bool pmhash_has_ended_token(const PmhashServerState *server);

#endif							/* PMHASH_DATA_DIRECTORY_H */
