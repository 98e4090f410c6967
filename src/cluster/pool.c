/*-------------------------------------------------------------------------
 *
 * pool.c
 *	  The pool: the directory that holds the index files, its lock and its
 *	  control file.
 *
 *		<pool>/lock						held by flock() while a server uses it
 *		<pool>/control					PmhashControl
 *		<pool>/journal.<instance>		undo journal of one run
 *		<pool>/<database>/<id>.pmh		index files
 *		<data directory>/pmhash.nonce	ties data directory and pool together
 *
 * The nonce is renewed in both places at each start, at clean shutdown, and now
 * and then in between.  A data directory or a
 * pool that was put back from an older copy has another one, and then no file
 * is trusted.  It stands directly in the data directory: a foreign name in
 * base/ would make pg_basebackup with checksums fail.
 *
 * Most of this runs in the postmaster, where an ERROR would keep the server
 * from starting.  So functions here report with a reason and return false.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"
#include "utils/timestamp.h"

#include "cluster/internal.h"

#define NONCE_FILE		"pmhash.nonce"
#define LOCK_WAIT_MS	5000	/* for the last processes of a dead server */

static char pool_path[MAXPGPATH];
static int	lock_fd = -1;		/* held by the postmaster, inherited */

/* What the data directory says about itself. */
typedef struct ServerState
{
	ControlFileData control;
	bool		from_elsewhere; /* a backup or a standby is being started */
	bool		has_nonce;
	uint8		nonce[PMHASH_NONCE_SIZE];
} ServerState;

/* ---- names ---- */

/* Absolute path of the pool.  Valid after pmhash_pool_start. */
const char *
pmhash_pool_path(void)
{
	return pool_path;
}

/* path must have room for MAXPGPATH bytes, in all of these. */
void
pmhash_database_path(char *path, Oid database)
{
	snprintf(path, MAXPGPATH, "%s/%u", pool_path, database);
}

void
pmhash_file_path(char *path, Oid database, uint64 file_id)
{
	snprintf(path, MAXPGPATH, "%s/%u/" PMHASH_ID_FORMAT ".pmh",
			 pool_path, database, file_id);
}

void
pmhash_journal_path(char *path, uint64 instance)
{
	snprintf(path, MAXPGPATH, "%s/journal." PMHASH_ID_FORMAT,
			 pool_path, instance);
}

/* Is name that of an index file?  Tell its id. */
bool
pmhash_parse_file_name(const char *name, uint64 *file_id)
{
	if (strlen(name) != 20 || strspn(name, "0123456789abcdef") != 16 ||
		strcmp(name + 16, ".pmh") != 0)
		return false;
	*file_id = strtoull(name, NULL, 16);
	return true;
}

/* Is name that of a database's directory?  Tell its OID. */
bool
pmhash_parse_database_name(const char *name, Oid *database)
{
	size_t		len = strlen(name);

	if (len == 0 || len > 10 || strspn(name, "0123456789") != len)
		return false;
	*database = (Oid) strtoul(name, NULL, 10);
	return true;
}

/* ---- files, without ereport ---- */

static bool pg_attribute_printf(2, 3)
fail(char *reason, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(reason, PMHASH_REASON_SIZE, format, args);
	va_end(args);
	return false;
}

/* Read a small file whole; -1 with errno if it can't be opened or read. */
static ssize_t
read_small(const char *path, void *data, size_t size)
{
	int			fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t		n;
	int			save_errno;

	if (fd < 0)
		return -1;
	n = read(fd, data, size);
	save_errno = errno;
	close(fd);
	errno = save_errno;
	return n;
}

static bool
fsync_directory(const char *path)
{
	int			fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool		ok;

	if (fd < 0)
		return false;
	ok = fsync(fd) == 0;
	close(fd);
	return ok;
}

static bool
write_temporary(const char *path, const void *data, size_t size)
{
	int			fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool		ok;
	int			save_errno;

	if (fd < 0)
		return false;
	errno = ENOSPC;				/* what a short write means */
	ok = write(fd, data, size) == (ssize_t) size && fsync(fd) == 0;
	save_errno = errno;
	close(fd);
	errno = save_errno;
	return ok;
}

/*
 * Replace directory/name by data: all or nothing, and durable.  The sequence
 * is that of durable_rename (fd.c), which may ereport.
 */
static bool
replace_durably(const char *directory, const char *name, const void *data,
				size_t size, char *reason)
{
	char		path[MAXPGPATH];
	char		temporary[MAXPGPATH];

	snprintf(path, MAXPGPATH, "%s/%s", directory, name);
	snprintf(temporary, MAXPGPATH, "%s/%s.tmp", directory, name);
	if (!write_temporary(temporary, data, size) ||
		rename(temporary, path) != 0 ||
		!fsync_directory(directory))
		return fail(reason, "could not write file \"%s\": %s", path,
					strerror(errno));
	return true;
}

/* ---- control file ---- */

static pg_crc32c
control_crc(const PmhashControl *control)
{
	PmhashControl copy = *control;
	pg_crc32c	crc;

	copy.crc = 0;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &copy, sizeof(copy));
	FIN_CRC32C(crc);
	return crc;
}

/*
 * Write the control file.  Serialised by the pool lock, or by being alone
 * (postmaster with no children, startup process).  False with a reason if
 * that fails; the old contents are then still valid.
 */
bool
pmhash_pool_write_control(PmhashControl *control, char *reason)
{
	control->crc = control_crc(control);
	return replace_durably(pool_path, "control", control, sizeof(*control),
						   reason);
}

typedef enum ControlRead
{
	CONTROL_VALID,
	CONTROL_ABSENT,
	CONTROL_DAMAGED,
	CONTROL_REFUSED				/* reason is set */
} ControlRead;

static ControlRead
read_control(PmhashControl *control, char *reason)
{
	char		path[MAXPGPATH];
	ssize_t		n;

	snprintf(path, MAXPGPATH, "%s/control", pool_path);
	n = read_small(path, control, sizeof(*control));
	if (n < 0 && errno == ENOENT)
		return CONTROL_ABSENT;
	if (n < 0)
	{
		fail(reason, "could not read file \"%s\": %s", path, strerror(errno));
		return CONTROL_REFUSED;
	}
	if (n >= (ssize_t) offsetof(PmhashControl, crc) &&
		control->magic == PMHASH_CONTROL_MAGIC &&
		control->version != PMHASH_POOL_VERSION)
	{
		fail(reason, "file \"%s\" has format version %u, this pmhash knows version %u",
			 path, control->version, PMHASH_POOL_VERSION);
		return CONTROL_REFUSED;
	}
	if (n != sizeof(*control) || control->magic != PMHASH_CONTROL_MAGIC ||
		control->crc != control_crc(control))
		return CONTROL_DAMAGED;
	return CONTROL_VALID;
}

/* A random number that is not 0. */
static uint64
random_id(void)
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
 * Distrust every file whose class is "cache", with dax every file: see
 * PmhashControl.  Takes effect when the control file is written.
 */
void
pmhash_pool_renew_eras(PmhashControl *control, bool dax)
{
	control->cache_era = random_id();
	if (dax)
		control->dax_era = random_id();
}

/* ---- what the data directory says ---- */

static bool
exists_in_data_directory(const char *name)
{
	char		path[MAXPGPATH];
	struct stat st;

	snprintf(path, MAXPGPATH, "%s/%s", DataDir, name);
	return stat(path, &st) == 0;
}

/*
 * pg_control as it is on disk.  get_controlfile (controldata_utils.c) would
 * raise an ERROR; the server has read the file itself a moment ago, so this
 * can hardly fail.
 */
static bool
read_pg_control(ControlFileData *data, char *reason)
{
	char		path[MAXPGPATH];
	pg_crc32c	crc;

	snprintf(path, MAXPGPATH, "%s/global/pg_control", DataDir);
	if (read_small(path, data, sizeof(*data)) != sizeof(*data))
		return fail(reason, "could not read file \"%s\": %s", path,
					strerror(errno));
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, data, offsetof(ControlFileData, crc));
	FIN_CRC32C(crc);
	if (!EQ_CRC32C(crc, data->crc))
		return fail(reason, "file \"%s\" has a wrong checksum", path);
	return true;
}

static bool
read_server_state(ServerState *server, char *reason)
{
	char		path[MAXPGPATH];

	memset(server, 0, sizeof(*server));
	if (!read_pg_control(&server->control, reason))
		return false;
	server->from_elsewhere = exists_in_data_directory("standby.signal") ||
		exists_in_data_directory("recovery.signal") ||
		exists_in_data_directory("backup_label");
	snprintf(path, MAXPGPATH, "%s/" NONCE_FILE, DataDir);
	server->has_nonce = read_small(path, server->nonce, PMHASH_NONCE_SIZE) ==
		PMHASH_NONCE_SIZE;
	return true;
}

/* Linux tells boots apart by a random id; elsewhere all boots look alike. */
static void
read_boot_id(char *boot_id)
{
	ssize_t		n;

	memset(boot_id, 0, PMHASH_BOOT_ID_SIZE);
	n = read_small("/proc/sys/kernel/random/boot_id", boot_id,
				   PMHASH_BOOT_ID_SIZE - 1);
	if (n <= 0)
		strlcpy(boot_id, "unknown", PMHASH_BOOT_ID_SIZE);
}

/*
 * When the last postmaster start on this data directory was, in ns.  The
 * postmaster rewrites postmaster.opts at each start, behind shared memory set
 * up (postmaster.c, CreateOptsFile), so during our start-up it is still that
 * of the run before.
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

/* ---- the directory ---- */

static void
set_pool_path(void)
{
	if (pmhash_directory != NULL && pmhash_directory[0] != '\0')
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

/* Things that may stand in a pool directory. */
static bool
known_name(const char *name)
{
	Oid			database;

	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
		strcmp(name, "lock") == 0 || strcmp(name, "control") == 0 ||
		strcmp(name, "control.tmp") == 0 || strcmp(name, "lost+found") == 0 ||
		strncmp(name, "journal.", 8) == 0 ||
		pmhash_parse_database_name(name, &database);
}

/*
 * A directory without a control file, but full of other things, was not meant
 * to be a pool.
 */
static bool
looks_like_pool(char *reason)
{
	char		control[MAXPGPATH];
	struct stat st;
	DIR		   *dir;
	struct dirent *de;
	bool		ok = true;

	snprintf(control, MAXPGPATH, "%s/control", pool_path);
	if (stat(control, &st) == 0)
		return true;
	dir = opendir(pool_path);
	if (dir == NULL)
		return fail(reason, "could not open directory \"%s\": %s",
					pool_path, strerror(errno));
	while (ok && (de = readdir(dir)) != NULL)
	{
		if (!known_name(de->d_name))
			ok = fail(reason, "directory \"%s\" is not a pmhash pool: it contains \"%s\"",
					  pool_path, de->d_name);
	}
	closedir(dir);
	return ok;
}

/*
 * Make the directory, or make sure that an existing one is private.  One that
 * was not meant for us is left as it is.
 */
static bool
prepare_directory(char *reason)
{
	struct stat st;

	if (!is_absolute_path(pool_path))
		return fail(reason, "\"pmhash.directory\" is not an absolute path: \"%s\"",
					pool_path);
	if (strlen(pool_path) > MAXPGPATH - 64)
		return fail(reason, "the path in \"pmhash.directory\" is too long");
	if (mkdir(pool_path, 0700) != 0 && errno != EEXIST)
		return fail(reason, "could not create directory \"%s\": %s",
					pool_path, strerror(errno));
	if (stat(pool_path, &st) != 0)
		return fail(reason, "could not stat directory \"%s\": %s",
					pool_path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return fail(reason, "\"%s\" is not a directory", pool_path);
	if (st.st_uid != geteuid())
		return fail(reason, "directory \"%s\" belongs to another user", pool_path);
	if (!looks_like_pool(reason))
		return false;
	if ((st.st_mode & 0077) != 0 && chmod(pool_path, 0700) != 0)
		return fail(reason, "could not make directory \"%s\" private: %s",
					pool_path, strerror(errno));
	if (access(pool_path, R_OK | W_OK | X_OK) != 0)
		return fail(reason, "directory \"%s\" is not writable: %s",
					pool_path, strerror(errno));
	return true;
}

/* Remove journals of runs that need no undo any more. */
static void
remove_old_journals(uint64 keep)
{
	DIR		   *dir = opendir(pool_path);
	struct dirent *de;
	char		kept[MAXPGPATH];
	char		path[MAXPGPATH];

	if (dir == NULL)
		return;
	pmhash_journal_path(kept, keep);
	while ((de = readdir(dir)) != NULL)
	{
		if (strncmp(de->d_name, "journal.", 8) != 0)
			continue;
		snprintf(path, MAXPGPATH, "%s/%s", pool_path, de->d_name);
		if (strcmp(path, kept) != 0 && unlink(path) != 0)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not remove file \"%s\": %m", path)));
	}
	closedir(dir);
}

/* ---- the lock ---- */

/* Is the process that wrote its id into the lock file still there? */
static bool
holder_is_alive(int fd)
{
	char		text[32] = {0};
	pid_t		pid;

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return false;
	pid = (pid_t) atol(text);
	return pid > 1 && pid != getpid() && (kill(pid, 0) == 0 || errno == EPERM);
}

/* A pool that we can't use is its owner's: don't keep him out. */
static void
unlock_pool(void)
{
	flock(lock_fd, LOCK_UN);
	close(lock_fd);
	lock_fd = -1;
}

/*
 * Is the directory still the one that this server has locked?  Not if it has
 * been unmounted, moved, removed or replaced since: then nothing must be made
 * or changed in what stands in its place.  For any process of a server that
 * uses its pool; children have the descriptor from the postmaster.
 */
bool
pmhash_pool_in_place(void)
{
	char		path[MAXPGPATH];
	struct stat there;
	struct stat ours;

	snprintf(path, MAXPGPATH, "%s/lock", pool_path);
	return stat(path, &there) == 0 && fstat(lock_fd, &ours) == 0 &&
		there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
}

/*
 * Lock the pool against other servers.  flock belongs to the open file, so
 * children keep it after the postmaster is killed, as long as one of them
 * writes.  A new postmaster on this data directory may meet the last of them
 * (syslogger); it waits for those, but not for a living other postmaster.
 */
static bool
lock_pool(char *reason)
{
	char		path[MAXPGPATH];
	char		text[32];
	int			fd;

	/* At a restart after a crash we still have it, unless it was replaced. */
	if (lock_fd >= 0 && pmhash_pool_in_place())
		return true;
	if (lock_fd >= 0)
		unlock_pool();
	snprintf(path, MAXPGPATH, "%s/lock", pool_path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(reason, "could not open file \"%s\": %s", path,
					strerror(errno));
	for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited += 50)
	{
		if (errno != EWOULDBLOCK || holder_is_alive(fd) || waited >= LOCK_WAIT_MS)
		{
			fail(reason, "directory \"%s\" is in use by another server",
				 pool_path);
			close(fd);
			return false;
		}
		pg_usleep(50 * 1000L);
	}
	snprintf(text, sizeof(text), "%d\n", (int) getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, text, strlen(text), 0) < 0)
	{
		fail(reason, "could not write file \"%s\": %s", path, strerror(errno));
		close(fd);
		return false;
	}
	lock_fd = fd;
	return true;
}

/*
 * Which file is the lock file?  Its inode, and when that was made, which tell
 * it from a copy that was put in its place.  0 where the file system does not
 * say when.  (dev_t would not do: it may change from boot to boot.)
 */
static void
read_lock_identity(uint64 *inode, uint64 *birth)
{
	struct statx st;

	*inode = *birth = 0;
	if (statx(lock_fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) != 0 ||
		(st.stx_mask & STATX_BTIME) == 0)
		return;
	*inode = st.stx_ino;
	*birth = st.stx_btime.tv_sec * UINT64CONST(1000000000) + st.stx_btime.tv_nsec;
}

/*
 * Has the pool been copied while it was in use?  A copy of a running server's
 * pool, put back after a crash of the same run, has everything that tells
 * runs apart, but not what was inserted since.  After a clean shutdown a copy
 * is as good as the original.
 */
static bool
is_copy_of_running_pool(const PmhashControl *control)
{
	uint64		inode;
	uint64		birth;

	if (control->state != PMHASH_POOL_RUNNING || control->lock_birth == 0)
		return false;
	read_lock_identity(&inode, &birth);
	return inode != control->lock_inode || birth != control->lock_birth;
}

/* ---- start ---- */

/*
 * Why must no file be trusted?  NULL if there is no reason: data directory
 * and pool were last used together.
 */
static const char *
reason_for_doubt(const PmhashControl *control, const ServerState *server)
{
	if (server->from_elsewhere)
		return "the data directory comes from a backup or is that of a standby";
	if (!server->has_nonce)
		return "the data directory was not used with this pool";
	if (memcmp(server->nonce, control->nonce, PMHASH_NONCE_SIZE) != 0 &&
		!(control->nonce_pending &&
		  memcmp(server->nonce, control->old_nonce, PMHASH_NONCE_SIZE) == 0))
		return "data directory and pool were last used at different times";
	if (server->control.checkPoint < control->start_checkpoint ||
		(control->state == PMHASH_POOL_CLEAN &&
		 server->control.checkPoint < control->clean_checkpoint))
		return "the data directory is older than the pool";
	if (control->timeline != 0 &&
		server->control.checkPointCopy.ThisTimeLineID != control->timeline)
		return "the server is on another timeline";
	if (is_copy_of_running_pool(control))
		return "the pool is a copy that was made while the server was running";
	return NULL;
}

/*
 * The last run did not end cleanly, and maybe the whole machine did not.  If
 * its journal was in page cache no file is any good, not even those that turn
 * out to be on persistent memory now: the file system may have been mounted
 * without dax then.
 */
static void
check_boot(PmhashControl *control, const char *boot_id)
{
	if (strcmp(control->boot_id, boot_id) == 0)
		return;
	if (!control->pmem)
	{
		control->power_dax_era = control->dax_era;
		control->journal_instance = 0;
	}
	pmhash_pool_renew_eras(control, !control->pmem);
	ereport(LOG,
			(errmsg("pmhash: the operating system went down without a clean shutdown of the server"),
			 errdetail("Index files in \"%s\" that are not on persistent memory are not trusted any more.",
					   pool_path)));
}

/*
 * There is a journal whose undo has not been completed.  undo_end is saved by
 * the startup process at the end of replay.  If a start after the crash has
 * not managed to, it may still have written WAL behind the end of replay if
 * its end-of-recovery checkpoint is in pg_control, or if it was a start
 * without pmhash (other postmaster.opts): then the end of replay can't be
 * known any more.
 */
static void
inherit_undo(PmhashControl *control, const ServerState *server)
{
	if (control->undo_end == 0)
	{
		if (control->undo_inherited)
		{
			control->undo_doubt |=
				server->control.checkPoint != control->start_checkpoint;
			control->undo_again = 1;
		}
		else
			control->undo_doubt |=
				control->opts_mtime != pmhash_postmaster_opts_mtime();
	}
	control->undo_inherited = 1;
}

/* Bring the control structure from what was found to what holds from now. */
static void
decide(PmhashControl *control, ControlRead found, const ServerState *server)
{
	char		boot_id[PMHASH_BOOT_ID_SIZE];
	const char *doubt = NULL;

	read_boot_id(boot_id);
	if (found != CONTROL_VALID)
	{
		memset(control, 0, sizeof(*control));
		control->magic = PMHASH_CONTROL_MAGIC;
		control->version = PMHASH_POOL_VERSION;
		control->system_identifier = server->control.system_identifier;
		if (found == CONTROL_DAMAGED)
			doubt = "its control file is damaged";
		else if (server->has_nonce)
			doubt = "the data directory was used with another pool";
	}
	else
		doubt = reason_for_doubt(control, server);

	if (doubt != NULL)
		ereport(LOG,
				(errmsg("pmhash: index files in \"%s\" are not trusted: %s",
						pool_path, doubt),
				 errhint("Such indexes are rebuilt in the background if pmhash.rebuild is on; else they need REINDEX.")));
	if (doubt != NULL || found != CONTROL_VALID)
	{
		pmhash_pool_renew_eras(control, true);
		control->journal_instance = 0;
	}
	else if (control->state == PMHASH_POOL_RUNNING)
		check_boot(control, boot_id);

	if (control->journal_instance != 0)
		inherit_undo(control, server);
	else
	{
		control->undo_end = 0;
		control->undo_inherited = 0;
		control->undo_doubt = 0;
		control->undo_again = 0;
	}

	/* Some files may already have the stamp of a shutdown without our mark. */
	control->all_shut = control->state == PMHASH_POOL_CLEAN;
	control->shut_begun = control->all_shut ? 0 : control->next_shut;
	control->next_shut = random_id();
	control->state = PMHASH_POOL_RUNNING;
	control->start_counter++;
	control->start_checkpoint = server->control.checkPoint;
	control->clean_checkpoint = 0;
	control->timeline = 0;
	read_lock_identity(&control->lock_inode, &control->lock_birth);
	strlcpy(control->boot_id, boot_id, PMHASH_BOOT_ID_SIZE);
}

static void
new_nonce(PmhashControl *control)
{
	for (int i = 0; i < PMHASH_NONCE_SIZE; i += sizeof(uint64))
	{
		uint64		id = random_id();

		memcpy(control->nonce + i, &id, sizeof(id));
	}
}

/*
 * Renew the nonce in both places, at start.  While it is pending the old one
 * counts as well, so that a crash between the two writes is no time travel.
 */
static bool
renew_nonce_at_start(PmhashControl *control, const ServerState *server, char *reason)
{
	memcpy(control->old_nonce, server->nonce, PMHASH_NONCE_SIZE);
	new_nonce(control);
	control->nonce_pending = server->has_nonce;
	return pmhash_pool_write_control(control, reason) &&
		replace_durably(DataDir, NONCE_FILE, control->nonce, PMHASH_NONCE_SIZE,
						reason);
}

/*
 * The same in the run: now and then, and at its end.  So a pool or a data
 * directory put back from an earlier moment of the run is noticed, too.  Under
 * the pool lock, or alone.
 */
bool
pmhash_pool_renew_nonce(PmhashControl *control, char *reason)
{
	memcpy(control->old_nonce, control->nonce, PMHASH_NONCE_SIZE);
	new_nonce(control);
	control->nonce_pending = 1;
	if (!pmhash_pool_write_control(control, reason) ||
		!replace_durably(DataDir, NONCE_FILE, control->nonce, PMHASH_NONCE_SIZE,
						 reason))
		return false;
	control->nonce_pending = 0;
	return pmhash_pool_write_control(control, reason);
}

/*
 * Read the control file of the locked pool, decide what may be trusted, mark
 * the pool running.  False with a reason if it can't be used.
 */
static bool
enter_pool(PmhashControl *control, char *reason)
{
	ServerState server;
	ControlRead found = read_control(control, reason);

	if (found == CONTROL_REFUSED || !read_server_state(&server, reason))
		return false;
	if (found == CONTROL_VALID &&
		control->system_identifier != server.control.system_identifier)
		return fail(reason, "directory \"%s\" belongs to another cluster: its system identifier is "
					UINT64_FORMAT ", that of this server is " UINT64_FORMAT,
					pool_path, control->system_identifier,
					server.control.system_identifier);
	decide(control, found, &server);
	if (!renew_nonce_at_start(control, &server, reason))
		return false;
	remove_old_journals(control->journal_instance);
	return true;
}

/*
 * Take the pool into use for a run: find or make the directory, lock it, read
 * the control file, decide what may be trusted, mark it running.  Called by
 * the postmaster at start and after a crash of its children, when nobody else
 * runs.  False with a reason if the pool can't be used.
 */
bool
pmhash_pool_start(PmhashControl *control, uint64 instance, char *reason)
{
	set_pool_path();
	if (!prepare_directory(reason) || !lock_pool(reason))
		return false;
	if (!enter_pool(control, reason))
	{
		unlock_pool();
		return false;
	}
	return true;
}

/* ---- stop ---- */

/* Stamp a file and write it back.  One that has just gone is none. */
static bool
shut_file(const char *path, const PmhEnv *env, uint64 stamp)
{
	PmhError	error;
	PmhResult	result = pmh_shut(path, env, stamp, &error);

	if (result == PMH_OK || result == PMH_ERR_NO_FILE)
		return true;
	errno = error.sys_errno;
	return false;
}

static bool
shut_directory_tree(const char *path, bool top, const PmhEnv *env, uint64 stamp)
{
	DIR		   *dir = opendir(path);
	struct dirent *de;
	char		child[MAXPGPATH];
	bool		ok = dir != NULL;
	uint64		file_id;
	Oid			database;

	while (ok && (de = readdir(dir)) != NULL)
	{
		snprintf(child, MAXPGPATH, "%s/%s", path, de->d_name);
		if (top && pmhash_parse_database_name(de->d_name, &database))
			ok = shut_directory_tree(child, false, env, stamp);
		else if (!top && pmhash_parse_file_name(de->d_name, &file_id))
			ok = shut_file(child, env, stamp);
	}
	if (dir != NULL)
		closedir(dir);
	return ok && fsync_directory(path);
}

/*
 * The postmaster exits, after all its children.  If the server was shut down
 * cleanly (only pg_control tells: a postmaster's exit code does not), write
 * every file back and mark the pool clean.  Without the mark all that happens
 * is that the files are not trusted after a reboot.
 */
void
pmhash_pool_stop(uint64 instance)
{
	char		reason[PMHASH_REASON_SIZE];
	char		path[MAXPGPATH];
	ControlFileData server;
	PmhashControl control;
	PmhEnv		env;

	if (lock_fd < 0 || !pmhash_pool_in_place() ||
		!read_pg_control(&server, reason) ||
		server.state != DB_SHUTDOWNED ||
		read_control(&control, reason) != CONTROL_VALID)
		return;
	memset(&env, 0, sizeof(env));
	env.instance = instance;
	env.shut = control.shut;
	env.shut_begun = control.shut_begun;
	env.all_shut = control.all_shut != 0;
	control.shut = control.next_shut;
	control.all_shut = 1;
	if (!shut_directory_tree(pool_path, true, &env, control.shut))
	{
		ereport(LOG,
				(errmsg("pmhash: could not write the files in \"%s\" back: %m",
						pool_path)));
		return;
	}

	/* Our own journal has served; an older one may still await its undo. */
	if (control.journal_instance == instance)
		control.journal_instance = 0;
	control.state = PMHASH_POOL_CLEAN;
	control.clean_checkpoint = server.checkPoint;
	if (!pmhash_pool_renew_nonce(&control, reason))
	{
		ereport(LOG, (errmsg("pmhash: %s", reason)));
		return;
	}
	pmhash_journal_path(path, instance);
	unlink(path);
}
