/*-------------------------------------------------------------------------
 *
 * standby_handles.c
 *	  The files that the startup process of a standby has open.
 *
 * It has what it replays records into, which are files that are LIVE, mapped, and deltas
 * of files that are built.  How many stay mapped is bounded as in a backend (mappings.c),
 * and nothing is unmapped before the end of a record.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "storage/fd.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/open/open.h"
#include "cluster/replay/standby_redo.h"
#include "cluster/standby/standby_state.h"

/* Our handle on the file in a row, as long as that has the same life. */
typedef struct Handle
{
	uint64		life;			/* 0: none */
	PmhashMapping mapping;		/* its table is NULL if it is not mapped */
	int			delta;			/* descriptor of <id>.delta, or -1 */
} Handle;

static Handle *handles = NULL;	/* one for each row */

static bool is_idle(const PmhashMapping *mapping);
static void unmap(PmhashMapping *mapping);

static PmhashMappings mappings = PMHASH_MAPPINGS_INIT(mappings, is_idle, unmap);

/* They are trimmed when none is in use: between records, or before one is mapped. */
static bool
is_idle(const PmhashMapping *mapping)
{
	return true;
}

static void
drop_table(Handle *handle)
{
	PmhTable   *table = handle->mapping.table;

	if (table == NULL)
		return;
	pmhash_mapping_remove(&mappings, &handle->mapping);
	pmh_close(table);
}

static void
unmap(PmhashMapping *mapping)
{
	drop_table((Handle *) ((char *) mapping - offsetof(Handle, mapping)));
}

static void
drop_handle(Handle *handle)
{
	drop_table(handle);
	if (handle->delta >= 0)
	{
		close(handle->delta);
		ReleaseExternalFD();
	}
	handle->life = 0;
	handle->delta = -1;
}

/*
 * Close what is of an earlier life of its row.  A file that has been removed takes
 * its space for as long as it is mapped or open, and the one that is built in its
 * row may need that.  Cheap if no status has changed.
 */
static void
drop_ended_handles(void)
{
	static uint64 seen = 0;
	PmhashStandby *standby = pmhash_shared->standby;
	uint64		changes = pg_atomic_read_u64(&standby->changes);

	if (handles == NULL || changes == seen)
		return;
	seen = changes;
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		if (handles[i].life != 0 && handles[i].life != standby->row[i].life)
			drop_handle(&handles[i]);
	}
	LWLockRelease(pmhash_standby_lock);
}

/* Close what is not to be kept.  The lock is not held. */
void
pmhash_standby_handles_at_end_of_record(void)
{
	drop_ended_handles();
	pmhash_mappings_trim(&mappings);
}

/* Our handle for a row; what it was for an earlier life of it is closed.  NULL with a reason. */
static Handle *
handle_of(const PmhashStandbyRow *row, char *reason)
{
	Handle	   *handle;

	if (handles == NULL)
	{
		handles = calloc(PMHASH_STANDBY_FILES, sizeof(Handle));
		if (handles == NULL)
		{
			pmhash_fail(reason, "out of memory");
			return NULL;
		}
		for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
			handles[i].delta = -1;
	}
	handle = &handles[row - pmhash_shared->standby->row];
	if (handle->life != row->life)
	{
		drop_handle(handle);
		handle->life = row->life;
	}
	return handle;
}

/* Is this the file of that row, and one to be believed?  NULL, or why not. */
static const char *
doubt_about(const PmhTable *table, const PmhashStandbyRow *row)
{
	PmhashIdentity id;
	PmhashReason reason;

	memcpy(&id, pmh_identity(table), sizeof(id));
	reason = pmhash_identity_doubt(&id, pmh_is_pmem(table));
	if (reason == PMHASH_REASON_NONE &&
		(id.file_id != row->file_id || id.database != row->database))
		reason = PMHASH_REASON_OTHER_INDEX;
	return reason == PMHASH_REASON_NONE ? NULL : pmhash_reason_text(reason);
}

/* Map the file of a row, which has a handle without one.  False with a reason. */
static bool
map_table(Handle *handle, const PmhashStandbyRow *row, char *reason)
{
	PmhEnv		env = pmhash_engine_env();
	char		path[MAXPGPATH];
	PmhError	error;
	PmhTable   *table;
	const char *doubt;
	PmhResult	result;

	pmhash_file_path(path, row->database, row->file_id);
	do
		result = pmh_open(path, &env, &table, NULL, &error);
	while (result == PMH_ERR_NO_MEMORY && pmhash_mappings_make_room(&mappings));
	if (result != PMH_OK)
		return pmhash_fail(reason, "could not open file \"%s\": %s", path,
						   error.sys_errno != 0 ? strerror(error.sys_errno) :
						   error.detail);
	pmhash_mapping_add(&mappings, &handle->mapping, table);
	doubt = doubt_about(table, row);
	if (doubt == NULL)
		return true;
	drop_handle(handle);
	return pmhash_fail(reason, "file \"%s\" can't be used: %s", path, doubt);
}

/*
 * The table in the file of a LIVE row, mapped until the end of the record.  NULL with a
 * reason.  The lock is held.
 */
PmhTable *
pmhash_standby_open_table(const PmhashStandbyRow *row, char *reason)
{
	Handle	   *handle = handle_of(row, reason);

	if (handle == NULL ||
		(unlikely(handle->mapping.table == NULL) && !map_table(handle, row, reason)))
		return NULL;
	pmhash_mapping_use(&mappings, &handle->mapping);
	return handle->mapping.table;
}

/* The delta of a row, open for writing; -1 with a reason.  The lock is held. */
int
pmhash_standby_open_delta(const PmhashStandbyRow *row, char *reason)
{
	Handle	   *handle = handle_of(row, reason);
	char		path[MAXPGPATH];
	char		new_path[MAXPGPATH];
	char		delta_path[MAXPGPATH];

	if (handle == NULL || handle->delta >= 0)
		return handle == NULL ? -1 : handle->delta;
	pmhash_standby_paths(row->database, row->file_id, path, new_path, delta_path);
	ReserveExternalFD();
	handle->delta = open(delta_path, O_WRONLY | O_CLOEXEC);
	if (handle->delta < 0)
	{
		pmhash_fail(reason, "could not open file \"%s\": %s", delta_path,
					strerror(errno));
		ReleaseExternalFD();
	}
	return handle->delta;
}
