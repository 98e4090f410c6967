/*-------------------------------------------------------------------------
 *
 * control_file.c
 *	  Where the pool is, and what the files in it are called; its control file: what is known of
 *	  all its files together; and what the data directory says about the server.
 *
 * The control file is written by the postmaster, alone, or under the pool lock.  Functions
 * here raise no ERROR: that would keep the server from starting.  They return false with
 * a reason in reason[PMHASH_REASON_SIZE].
 *
 * pg_control is the server's.  The token of trust is ours; it
 * stands directly in the data directory: a foreign name in base/ would make
 * pg_basebackup with checksums fail.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#if PG_VERSION_NUM >= 170000
#include "common/file_utils.h"
#endif

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"

static char pool_path[MAXPGPATH];

/* Absolute path of the pool.  Valid after pmhash_set_pool_path. */
const char *
pmhash_pool_path(void)
{
	return pool_path;
}

/* Paths in the pool: path must have room for MAXPGPATH bytes. */
void
pmhash_database_path(char *path, Oid database)
{
	snprintf(path, MAXPGPATH, "%s/%u", pool_path, database);
}

void
pmhash_file_path(char *path, Oid database, uint64 file_id)
{
	Assert(file_id != 0);
	snprintf(path, MAXPGPATH, "%s/%u/" PMHASH_ID_FORMAT ".pmh",
			 pool_path, database, file_id);
}

void
pmhash_journal_path(char *path)
{
	snprintf(path, MAXPGPATH, "%s/journal", pool_path);
}

const char *
pmhash_shown_path(const char *path)
{
	size_t		length = strlen(pool_path);

	return strncmp(path, pool_path, length) == 0 && path[length] == '/' ? path + length + 1 : path;
}

/* Is name that of an index file? Sets its id. */
bool
pmhash_parse_file_name(const char *name, uint64 *file_id)
{
	if (strlen(name) != 20 || strspn(name, "0123456789abcdef") != 16 ||
		strcmp(name + 16, ".pmh") != 0)
		return false;
	*file_id = strtoull(name, NULL, 16);
	return true;
}

/* Is name that of a database's directory? Sets its OID. */
bool
pmhash_parse_database_name(const char *name, Oid *database)
{
	size_t		len = strlen(name);

	if (len == 0 || len > 10 || strspn(name, "0123456789") != len)
		return false;
	*database = (Oid) strtoul(name, NULL, 10);
	return true;
}

/* Is it where it is if no setting names a directory: beside the data directory? */
bool
pmhash_pool_is_default(void)
{
	return pmhash_directory == NULL || pmhash_directory[0] == '\0';
}

/* Find out where the pool is, by the configuration. */
void
pmhash_set_pool_path(void)
{
	if (!pmhash_pool_is_default())
		strlcpy(pool_path, pmhash_directory, MAXPGPATH);
	else
	{
		char		data[MAXPGPATH];

		strlcpy(data, DataDir, MAXPGPATH);
		canonicalize_path(data);
		snprintf(pool_path, MAXPGPATH, "%s.pmhash", data);
	}
	canonicalize_path(pool_path);
}

/* ==== the control file ==== */

#define CONTROL_FILE	"control"

/* A random number that is not 0. */
uint64
pmhash_random_id(void)
{
	uint64		id = 0;

	while (id == 0)
	{
		if (!pg_strong_random(&id, sizeof(id)))
			id = ((uint64) random() << 32) ^ (uint64) random() ^
				(uint64) GetCurrentTimestamp();
	}
	return id;
}

/*
 * Distrust the files that lived in the page cache, or all files, which is for a reason:
 * see PmhashControl.  Takes effect when the control file is written.
 */
void
pmhash_renew_eras(PmhashControl *control, PmhashFileClass which, PmhashReason reason)
{
	Assert(which != PMHASH_ALL_FILES || reason != PMHASH_REASON_NONE);
	control->cache_era = pmhash_random_id();
	if (which != PMHASH_ALL_FILES)
		return;
	control->ended_reason = reason;
	control->dax_era = pmhash_random_id();
}

/* No file that there is now is trusted, and the log says why. */
void
pmhash_trust_none(PmhashControl *control, PmhashReason reason, const char *why)
{
	pmhash_renew_eras(control, PMHASH_ALL_FILES, reason);
	ereport(LOG,
			(errmsg("pmhash: index files in \"%s\" are not trusted: %s",
					pmhash_pool_path(), why),
			 errhint("Such indexes are rebuilt in the background if pmhash.rebuild is on; else they need REINDEX.")));
}

static uint32
control_crc(const PmhashControl *control)
{
	PmhashControl copy = *control;

	copy.crc = 0;
	return pmhash_crc(&copy, sizeof(copy));
}

/*
 * Write the control file.  Serialised by the pool lock, or by being alone
 * (postmaster with no children, startup process).  False with a reason if
 * that fails; the old contents are then still valid.
 */
bool
pmhash_pool_write_control(PmhashControl *control, char *reason)
{
	Assert(control->magic == PMHASH_CONTROL_MAGIC);
	Assert(!IsUnderPostmaster ||
		   LWLockHeldByMeInMode(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE));
	control->crc = control_crc(control);
	return pmhash_replace_durably(pmhash_pool_path(), CONTROL_FILE,
								  control, sizeof(*control), reason);
}

/*
 * Read the control file of the pool.  If another version of pmhash has written it, all
 * that is known is whose it was.  REFUSED, with a reason, if it can't be read.
 */
PmhashControlRead
pmhash_control_read(PmhashControl *control, char *reason)
{
	char		path[MAXPGPATH];
	ssize_t		n;

	snprintf(path, MAXPGPATH, "%s/" CONTROL_FILE, pmhash_pool_path());
	n = pmhash_read_small(path, control, sizeof(*control));
	if (n < 0 && errno == ENOENT)
		return PMHASH_CONTROL_ABSENT;
	if (n < 0)
	{
		pmhash_fail(reason, "could not read file \"%s\": %s", path, strerror(errno));
		return PMHASH_CONTROL_REFUSED;
	}
	if (n >= (ssize_t) offsetof(PmhashControl, nonce) &&
		control->magic == PMHASH_CONTROL_MAGIC &&
		control->version != PMHASH_POOL_VERSION)
		return PMHASH_CONTROL_OTHER_VERSION;
	if (n != sizeof(*control) || control->magic != PMHASH_CONTROL_MAGIC ||
		control->crc != control_crc(control))
		return PMHASH_CONTROL_DAMAGED;
	return PMHASH_CONTROL_VALID;
}

StaticAssertDecl(sizeof(PmhashControl) <= PMHASH_SMALL_FILE &&
				 sizeof(PmhashToken) <= PMHASH_SMALL_FILE,
				 "files of durable.c are small");

/* ---- the nonce ---- */

#define TOKEN_FILE		"pmhash.nonce"

/*
 * Write the token of trust, with a nonce of PMHASH_NONCE_SIZE bytes.  False with a reason if
 * that fails; then the old or the new one is there.
 */
static bool
write_token(const uint8 *nonce, char *reason)
{
	PmhashToken token;

	memset(&token, 0, sizeof(token));
	token.magic = PMHASH_TOKEN_MAGIC;
	memcpy(token.nonce, nonce, PMHASH_NONCE_SIZE);
	token.crc = pmhash_crc(&token, offsetof(PmhashToken, crc));
	return pmhash_replace_durably(DataDir, TOKEN_FILE, &token, sizeof(token), reason);
}

static void
new_nonce(PmhashControl *control)
{
	for (int i = 0; i < PMHASH_NONCE_SIZE; i += sizeof(uint64))
	{
		uint64		id = pmhash_random_id();

		memcpy(control->nonce + i, &id, sizeof(id));
	}
}

/*
 * Renew the nonce in pool and data directory, at start.  While it is pending
 * the old one counts as well, so that a crash between the two writes is no time
 * travel.  It is so until the first use; on a standby, to the end of its life.  There a
 * data directory put back from the life before is no harm: what its files have is
 * compared with where replay begins (trust.c, standby_doubt), they are not used before
 * that has come as far, and it was not promoted (promotion_doubt).
 */
bool
pmhash_control_first_nonce(PmhashControl *control, const PmhashServerState *server,
					 char *reason)
{
	Assert(!IsUnderPostmaster);
	memcpy(control->old_nonce, server->token.nonce, PMHASH_NONCE_SIZE);
	new_nonce(control);
	control->nonce_pending = server->has_token;
	return pmhash_pool_write_control(control, reason) &&
		write_token(control->nonce, reason);
}

/*
 * Has the last renewal come no further than the control file?  Then the token has
 * the old nonce still, which another renewal would let count no more.
 */
static bool
token_lags(const PmhashControl *control)
{
	PmhashToken token;

	return control->nonce_pending &&
		!(pmhash_read_token(&token) &&
		  memcmp(token.nonce, control->nonce, PMHASH_NONCE_SIZE) == 0);
}

/*
 * The same later in the server life: now and then, and at its end.  So a pool
 * or a data directory put back from an earlier moment of it is noticed, too.
 * Under the pool lock, or alone.
 */
bool
pmhash_pool_renew_nonce(PmhashControl *control, char *reason)
{
	if (!token_lags(control))
	{
		memcpy(control->old_nonce, control->nonce, PMHASH_NONCE_SIZE);
		new_nonce(control);
	}
	control->nonce_pending = 1;
	if (!pmhash_pool_write_control(control, reason) ||
		!write_token(control->nonce, reason))
		return false;
	control->nonce_pending = 0;
	return pmhash_pool_write_control(control, reason);
}

/* ==== the data directory ==== */

#if PG_VERSION_NUM >= 170000
#define SYNC_BY_SYNCFS	DATA_DIR_SYNC_METHOD_SYNCFS
#else
#define SYNC_BY_SYNCFS	RECOVERY_INIT_SYNC_METHOD_SYNCFS
#endif

/* pg_control is written while we read it: no more than a few times in a row. */
#define READ_TRIES		20

/* Is a signal file there?  *unknown: that can't be said, and the answer is no. */
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
		if (data->crc == pmhash_crc(data, offsetof(ControlFileData, crc)))
			return true;
		pg_usleep(1000L);
	}
	return pmhash_fail(reason, "file \"%s\" has a wrong checksum", path);
}

/* ---- the mark of a server life ---- */

/*
 * A directory that each start of a server takes away, whatever kind of start it is, before
 * it replays or writes anything: it looks like a slot that a crash has left half made
 * (slot.c, StartupReplicationSlots).  So if that of the last life is there, during our
 * start-up, no other life has come since.  No slot can have this name; backups and
 * pg_rewind leave it out.
 */
#define LIFE_MARK		"pg_replslot/pmhash-life.tmp"

/* When it was made, in ns, which tells it from a copy; 0: it is not there, or not known. */
int64
pmhash_life_mark_time(void)
{
	char		path[MAXPGPATH];
	struct stat st;

	snprintf(path, MAXPGPATH, "%s/" LIFE_MARK, DataDir);
	if (stat(path, &st) != 0)
		return 0;
	return (int64) st.st_mtim.tv_sec * INT64CONST(1000000000) +
		st.st_mtim.tv_nsec;
}

/*
 * Mark the life that begins, durably.  False with a reason if that fails, or if a mark is
 * there that can't be taken away.
 */
bool
pmhash_make_life_mark(char *reason)
{
	char		path[MAXPGPATH];
	char		slots[MAXPGPATH];

	snprintf(path, MAXPGPATH, "%s/" LIFE_MARK, DataDir);
	snprintf(slots, MAXPGPATH, "%s/pg_replslot", DataDir);
	(void) rmdir(path);			/* of a try that came to nothing after this */
	if (mkdir(path, pg_dir_create_mode) == 0 && pmhash_fsync_directory(path) &&
		pmhash_fsync_directory(slots))
		return true;
	return pmhash_fail(reason, "could not create directory \"%s\": %s", path, strerror(errno));
}

/* ---- the token ---- */

/* Read the token.  False if it is not there, can't be read, or is not whole. */
bool
pmhash_read_token(PmhashToken *token)
{
	char		path[MAXPGPATH];

	snprintf(path, MAXPGPATH, "%s/" TOKEN_FILE, DataDir);
	return pmhash_read_small(path, token, sizeof(*token)) == sizeof(*token) &&
		token->magic == PMHASH_TOKEN_MAGIC &&
		token->crc == pmhash_crc(token, offsetof(PmhashToken, crc));
}

/*
 * Remove the token durably.  False with a reason if it may still be there, or be there
 * again after a crash of the operating system.
 */
bool
pmhash_remove_token(char *reason)
{
	char		path[MAXPGPATH];

	snprintf(path, MAXPGPATH, "%s/" TOKEN_FILE, DataDir);
	return ((unlink(path) == 0 || errno == ENOENT) && pmhash_fsync_directory(DataDir)) ||
		pmhash_fail(reason, "could not remove file \"%s\": %s", path, strerror(errno));
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
