/*-------------------------------------------------------------------------
 *
 * data_directory.c
 *	  What the data directory says about the server.
 *
 * pg_control and postmaster.opts are the server's.  The token of trust is ours; it
 * stands directly in the data directory: a foreign name in base/ would make
 * pg_basebackup with checksums fail.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#if PG_VERSION_NUM >= 170000
#include "common/file_utils.h"
#endif
#include "miscadmin.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"

#include "cluster/base/data_directory.h"
#include "cluster/base/durable.h"
#define TOKEN_FILE		"pmhash.nonce"

#if PG_VERSION_NUM >= 170000
#define SYNC_BY_SYNCFS	DATA_DIR_SYNC_METHOD_SYNCFS
#else
#define SYNC_BY_SYNCFS	RECOVERY_INIT_SYNC_METHOD_SYNCFS
#endif

/* pg_control is written while we read it: no more than a few times in a row. */
#define READ_TRIES		20

/*
 * Is a signal file there?  *unknown: that can't be said, and the answer is no.
 */
static bool
exists_in_data_directory(const char *name, bool *unknown)
{
	char		path[MAXPGPATH];
	struct stat st;

	snprintf(path, MAXPGPATH, "%s/%s", DataDir, name);
	if (stat(path, &st) == 0)
		return true;
	*unknown |= errno != ENOENT;
	return false;
}

/*
 * Does a server that has not been shut down in order call syncfs() on its data
 * directory before it recovers (fd.c, SyncDataDirectory)?
 */
bool
pmhash_start_calls_syncfs(void)
{
	return enableFsync && recovery_init_sync_method == SYNC_BY_SYNCFS;
}

static bool
is_sound_pg_control(const ControlFileData *data)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, data, offsetof(ControlFileData, crc));
	FIN_CRC32C(crc);
	return EQ_CRC32C(crc, data->crc);
}

/*
 * pg_control as it is on disk.  get_controlfile (controldata_utils.c) would
 * raise an ERROR.  At start the server has read the file itself a moment ago,
 * so this can hardly fail; later the server may be writing it.
 */
bool
pmhash_read_pg_control(ControlFileData *data, char *reason)
{
	char		path[MAXPGPATH];

	snprintf(path, MAXPGPATH, "%s/global/pg_control", DataDir);
	for (int i = 0; i < READ_TRIES; i++)
	{
		if (pmhash_read_small(path, data, sizeof(*data)) != sizeof(*data))
			return pmhash_fail(reason, "could not read file \"%s\": %s", path,
							   strerror(errno));
		if (is_sound_pg_control(data))
			return true;
		pg_usleep(1000L);
	}
	return pmhash_fail(reason, "file \"%s\" has a wrong checksum", path);
}

/*
 * When the last postmaster start on this data directory was, in ns; 0: not known.  The
 * postmaster rewrites postmaster.opts at each start, after shared memory is set up
 * (postmaster.c, CreateOptsFile), so during our start-up it is still that of the
 * server life before.
 */
int64
pmhash_postmaster_opts_mtime(void)
{
	char		path[MAXPGPATH];
	struct stat st;

	snprintf(path, MAXPGPATH, "%s/postmaster.opts", DataDir);
	if (stat(path, &st) != 0)
		return 0;
	return (int64) st.st_mtim.tv_sec * INT64CONST(1000000000) +
		st.st_mtim.tv_nsec;
}

/* ---- the token ---- */

static uint32
token_crc(const PmhashToken *token)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, token, offsetof(PmhashToken, crc));
	FIN_CRC32C(crc);
	return crc;
}

/* Read the token.  False if it is not there, can't be read, or is not whole. */
bool
pmhash_read_token(PmhashToken *token)
{
	char		path[MAXPGPATH];

	snprintf(path, MAXPGPATH, "%s/" TOKEN_FILE, DataDir);
	return pmhash_read_small(path, token, sizeof(*token)) == sizeof(*token) &&
		token->magic == PMHASH_TOKEN_MAGIC && token->crc == token_crc(token);
}

/*
 * Write the token of trust, with a nonce of PMHASH_NONCE_SIZE bytes.
 * checkpoint: see PmhashToken.  False with a reason if that fails; then the old
 * or the new one is there.
 */
bool
pmhash_write_token(const uint8 *nonce, uint64 checkpoint, char *reason)
{
	PmhashToken token;

	memset(&token, 0, sizeof(token));
	token.magic = PMHASH_TOKEN_MAGIC;
	memcpy(token.nonce, nonce, PMHASH_NONCE_SIZE);
	token.checkpoint = checkpoint;
	token.crc = token_crc(&token);
	return pmhash_replace_durably(DataDir, TOKEN_FILE, &token, sizeof(token), reason);
}

/* Remove the token durably, or spoil it.  False with a reason if it is still good. */
bool
pmhash_remove_token(char *reason)
{
	return pmhash_remove_durably(DataDir, TOKEN_FILE, sizeof(PmhashToken), reason);
}

/* Is a standby being started?  For the postmaster. */
bool
pmhash_starts_standby(void)
{
	bool		unknown = false;

	return exists_in_data_directory("standby.signal", &unknown);
}

/*
 * What the data directory says at a start.  False with a reason if pg_control can't be
 * read.  Signal files and labels that can't be looked at count as those of a recovery.
 */
bool
pmhash_read_server_state(PmhashServerState *server, char *reason)
{
	bool		unknown = false;

	memset(server, 0, sizeof(*server));
	if (!pmhash_read_pg_control(&server->control, reason))
		return false;
	server->standby = exists_in_data_directory("standby.signal", &unknown);
	server->restored = exists_in_data_directory("recovery.signal", &unknown) ||
		exists_in_data_directory("backup_label", &unknown);
	server->restored |= unknown;
	server->has_token = pmhash_read_token(&server->token);
	return true;
}

/* Did the server life that wrote the token end in order, and has none begun since? */
bool
pmhash_has_ended_token(const PmhashServerState *server)
{
	return server->has_token && server->token.checkpoint != 0 &&
		server->token.checkpoint == server->control.checkPoint;
}
