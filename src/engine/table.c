/*-------------------------------------------------------------------------
 *
 * table.c
 *	  The public face: life of a file, and operations on entries.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build.h"
#include "values.h"

#define DEFAULT_SEGMENT_BUCKETS	64
#define MIN_SEGMENT_BUCKETS		64
#define MAX_SEGMENT_BUCKETS		2048

/* Header, map, the first segment, and a block in reserve. */
#define INITIAL_BLOCKS			4
#define FIRST_SEGMENT_BLOCK		2

/* So many keys of a group go through a stage of their look-up together. */
#define BATCH					32

/* So many lines of a list are asked for as soon as it is found. */
#define LIST_AHEAD				8

/* ---- errors ---- */

static PmhResult __attribute__((format(printf, 5, 0)))
set_error(PmhError *error, PmhResult code, int sys_errno, uint64_t offset,
		  const char *detail, va_list args)
{
	error->code = code;
	error->sys_errno = sys_errno;
	error->offset = offset;
	vsnprintf(error->detail, sizeof(error->detail), detail, args);
	return code;
}

PmhResult
pmh_fill_error(PmhError *error, PmhResult code, int sys_errno,
			   uint64_t offset, const char *detail, ...)
{
	va_list		args;

	va_start(args, detail);
	set_error(error, code, sys_errno, offset, detail, args);
	va_end(args);
	return code;
}

PmhResult
pmh_fail(PmhTable *t, PmhResult code, int sys_errno, uint64_t offset,
		 const char *detail, ...)
{
	va_list		args;

	va_start(args, detail);
	set_error(&t->error, code, sys_errno, offset, detail, args);
	va_end(args);
	return code;
}

/* Say that a file is lost, and where this process has noticed it, if it has. */
PmhResult
pmh_fill_lost(PmhError *error, const PmFile *f)
{
	return pmh_fill_error(error, PMH_ERR_LOST, 0, f->lost == 0 ? 0 : f->lost - 1,
						  "A part of the file could not be read or written (bus error): the file was truncated, or its medium is damaged.");
}

PmhResult
pmh_fail_lost(PmhTable *t)
{
	return pmh_fill_lost(&t->error, &t->file);
}

PmhResult
pmh_fail_cancelled(PmhTable *t)
{
	return pmh_fail(t, PMH_CANCELLED, 0, 0, "A wait for a lock was given up.");
}

const PmhError *
pmh_error(const PmhTable *table)
{
	return &table->error;
}

/* ---- handles ---- */

static void
free_handle(PmhTable *t)
{
	for (unsigned i = 0; i < 2; i++)
	{
		pmh_build_free(t->build[i]);
		free(t->overflow[i]);
	}
	free(t->discard);
	free(t);
}

static uint32_t
block_shift(const PmhFormat *format)
{
	return (uint32_t) __builtin_ctzll((uint64_t) format->segment_buckets * PMH_BUCKET_SIZE);
}

/* Take geometry over from the format header, and allocate what depends on it. */
static PmhResult
set_geometry(PmhTable *t, const PmhFormat *format)
{
	memcpy(t->identity, format->identity, PMH_IDENTITY_SIZE);
	t->file_id = format->file_id;
	t->file_lock = pmh_file_lock(t->locks, t->file_id);
	t->segment_buckets = format->segment_buckets;
	t->unit_buckets = format->segment_buckets / PMH_UNITS_PER_BLOCK;
	t->block_shift = block_shift(format);
	t->block_size = UINT64_C(1) << t->block_shift;
	t->unit_size = t->block_size / PMH_UNITS_PER_BLOCK;
	t->in_main = t->segment_buckets - PMH_STASH_BUCKETS;
	t->in_main_size = (uint64_t) t->in_main * PMH_BUCKET_SIZE;
	t->stripe_mask = t->locks->nstripes - 1;
	pmh_permutation_make(&t->permutation, format->overflow_key);
	for (unsigned i = 0; i < 2; i++)
	{
		t->build[i] = pmh_build_alloc(t);
		t->overflow[i] = malloc((size_t) 2 * t->segment_buckets * PMH_SLOTS * sizeof(PmhItem));
		if (t->build[i] == NULL || t->overflow[i] == NULL)
			return pmh_fail(t, PMH_ERR_NO_MEMORY, ENOMEM, 0,
							"There is no memory for a handle.");
	}
	return PMH_OK;
}

/* From now on a fault in the mapping is told to all handles on the file. */
static void
watch_for_faults(PmhTable *t)
{
	t->file.file_id = t->file_id;
	t->file.lost_board = t->file_lock->lost;
}

static PmhTable *
new_handle(const PmhEnv *env, PmhError *error)
{
	PmhTable   *t = calloc(1, sizeof(PmhTable));

	if (t == NULL)
	{
		pmh_fill_error(error, PMH_ERR_NO_MEMORY, ENOMEM, 0,
					   "There is no memory for a handle.");
		return NULL;
	}
	t->locks = env->locks;
	t->instance = env->instance;
	return t;
}

/* ---- format header ---- */

static uint32_t
format_crc(const PmhFormat *format)
{
	PmhFormat	copy = *format;

	copy.crc = 0;
	copy.magic = PMH_MAGIC;
	return pmh_crc32c(&copy, sizeof(copy));
}

static PmhResult
check_format(const PmhFormat *format, PmhError *error)
{
	uint32_t	m = format->segment_buckets;

	if (format->magic != PMH_MAGIC)
		return pmh_fill_error(error, PMH_ERR_FORMAT, 0, 0,
							  "The file does not begin with the magic number of pmhash.");
	if (format->version != PMH_FORMAT_VERSION)
		return pmh_fill_error(error, PMH_ERR_FORMAT, 0, 0,
							  "The file has format version %u, this is version %u.",
							  format->version, PMH_FORMAT_VERSION);
	if (format->crc != format_crc(format))
		return pmh_fill_error(error, PMH_ERR_CORRUPT, 0, 0,
							  "The checksum of the format header does not match.");
	if (m < MIN_SEGMENT_BUCKETS || m > MAX_SEGMENT_BUCKETS || (m & (m - 1)) != 0 ||
		format->bucket_size != PMH_BUCKET_SIZE || format->slots != PMH_SLOTS ||
		format->stash_buckets != PMH_STASH_BUCKETS)
		return pmh_fill_error(error, PMH_ERR_FORMAT, 0, 0,
							  "The file has a geometry unknown to this version.");
	return PMH_OK;
}

/* Read len bytes at the start of the file at fd; PMH_OK if it has them. */
static PmhResult
read_start(int fd, void *data, size_t len, PmhError *error)
{
	ssize_t		got = pread(fd, data, len, 0);

	if (got < 0)
		return pmh_fill_error(error, PMH_ERR_IO, errno, 0,
							  "The operation that failed was reading the header.");
	if (got != (ssize_t) len)
		return pmh_fill_error(error, PMH_ERR_FORMAT, 0, 0,
							  "The file is too short to have a header.");
	return PMH_OK;
}

static int
open_for_reading(const char *path, PmhError *error)
{
	int			fd = pmh_descriptor_open(path, O_RDONLY);

	if (fd < 0)
		(void) pmh_fill_error(error, pmh_result_of_errno(errno), errno, 0,
							  "The operation that failed was opening the file.");
	return fd;
}

PmhResult
pmh_read_identity(const char *path, void *identity, PmhError *error)
{
	PmhFormat	format;
	PmhResult	result;
	int			fd = open_for_reading(path, error);

	if (fd < 0)
		return error->code;
	result = read_start(fd, &format, sizeof(format), error);
	if (result == PMH_OK)
		result = check_format(&format, error);
	pmh_descriptor_close(fd);
	if (result == PMH_OK)
		memcpy(identity, format.identity, PMH_IDENTITY_SIZE);
	return result;
}

/* Are the live words within a file of this size? */
static PmhResult
check_live_words(const PmhLive *live, uint32_t block_shift, uint64_t size,
				 PmhError *error)
{
	uint64_t	blocks = live->blocks;
	uint32_t	depth = pmh_dirword_depth(live->dirword);
	uint64_t	offset = pmh_dirword_offset(live->dirword);

	if (blocks <= FIRST_SEGMENT_BLOCK || blocks > PMH_MAX_BLOCKS ||
		size < blocks << block_shift)
		return pmh_fill_error(error, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
							  "The file has %llu bytes, its header says %llu blocks of %llu.",
							  (unsigned long long) size, (unsigned long long) blocks,
							  1ULL << block_shift);
	if (depth > PMH_MAX_DEPTH || offset < PMH_HEADER_SIZE ||
		offset + pmh_directory_size(depth) > blocks << block_shift)
		return pmh_fill_error(error, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
							  "The place of the directory is not within the file.");
	return PMH_OK;
}

/*
 * Read the header of the file at fd, and ask for its size.  The directory may
 * move while the length in blocks is changed: this one is from between two times
 * that the directory was in the same place.  While anybody has it open the file
 * never becomes shorter, so its size is asked for last.
 */
static PmhResult
read_header(int fd, char *head, struct stat *st, PmhError *error)
{
	PmhLive    *live = (PmhLive *) (void *) (head + PMH_LIVE_OFFSET);
	uint64_t	dirword;
	uint64_t	blocks;
	PmhResult	result = read_start(fd, head, PMH_HEADER_SIZE, error);

	do
	{
		if (result != PMH_OK)
			return result;
		dirword = live->dirword;
		blocks = live->blocks;
		result = read_start(fd, head, PMH_HEADER_SIZE, error);
	} while (live->dirword != dirword);
	live->blocks = blocks;
	if (result == PMH_OK && fstat(fd, st) != 0)
		return pmh_fill_error(error, PMH_ERR_IO, errno, 0,
							  "The operation that failed was asking for the size of the file.");
	return result;
}

PmhResult
pmh_examine(const char *path, void *identity, uint64_t *instance,
			PmhError *error)
{
	_Alignas(PmhLive) char head[PMH_HEADER_SIZE];
	PmhFormat	format;
	PmhLive		live;
	struct stat st;
	PmhResult	result;
	int			fd = open_for_reading(path, error);

	if (fd < 0)
		return error->code;
	result = read_header(fd, head, &st, error);
	pmh_descriptor_close(fd);
	if (result != PMH_OK)
		return result;
	memcpy(&format, head + PMH_FORMAT_OFFSET, sizeof(format));
	memcpy(&live, head + PMH_LIVE_OFFSET, sizeof(live));
	result = check_format(&format, error);
	if (result != PMH_OK)
		return result;
	memcpy(identity, format.identity, PMH_IDENTITY_SIZE);
	*instance = ((const PmhRun *) (const void *) (head + PMH_RUN_OFFSET))->instance;
	return check_live_words(&live, block_shift(&format), (uint64_t) st.st_size, error);
}

const void *
pmh_identity(const PmhTable *table)
{
	return table->identity;
}

/* ---- create ---- */

static PmhResult
make_format(PmhFormat *format, const PmhGeometry *geometry,
			const void *identity, PmhError *error)
{
	memset(format, 0, sizeof(*format));
	format->magic = PMH_MAGIC;
	format->version = PMH_FORMAT_VERSION;
	format->segment_buckets = DEFAULT_SEGMENT_BUCKETS;
	if (geometry != NULL && geometry->segment_buckets != 0)
		format->segment_buckets = geometry->segment_buckets;
	format->bucket_size = PMH_BUCKET_SIZE;
	format->slots = PMH_SLOTS;
	format->stash_buckets = PMH_STASH_BUCKETS;
	if (identity != NULL)
		memcpy(format->identity, identity, PMH_IDENTITY_SIZE);
	if (getrandom(&format->file_id, sizeof(format->file_id), 0) != sizeof(format->file_id) ||
		getrandom(format->overflow_key, sizeof(format->overflow_key), 0) != sizeof(format->overflow_key))
		return pmh_fill_error(error, PMH_ERR_IO, errno, 0,
							  "The operation that failed was getrandom.");
	format->crc = format_crc(format);
	return check_format(format, error);
}

/* Write an empty table; the magic number makes it valid, last. */
static PmhResult
write_empty(PmhTable *t, const PmhFormat *format)
{
	PmhFormat  *to = pmh_format(t);
	PmhLive    *live = pmh_live(t);
	uint64_t   *dir = pmh_at(t, PMH_SMALL_DIR_OFFSET(0));
	PmhResult	result;

	/* The file is new and all zeroes: so are the buckets and the log. */
	pm_copy(&t->file, (char *) to + sizeof(uint64_t),
			(const char *) format + sizeof(uint64_t), sizeof(*format) - sizeof(uint64_t));
	pm_store64(dir, pmh_make_elem(FIRST_SEGMENT_BLOCK, 0, 0, 0, PMH_SINGLE));
	pm_store64(&live->dirword, PMH_SMALL_DIR_OFFSET(0) / 64);
	pm_store64(&live->blocks, INITIAL_BLOCKS);
	pm_flush(&t->file, dir, sizeof(uint64_t));
	pm_flush(&t->file, live, sizeof(*live));
	result = pmh_recover(t);	/* fences in any case */
	if (result != PMH_OK)
		return result;
	pm_store64(&to->magic, format->magic);
	pm_flush(&t->file, &to->magic, sizeof(to->magic));
	pm_fence(&t->file);
	return PMH_OK;
}

PmhResult
pmh_create(const char *path, const PmhGeometry *geometry, const void *identity,
		   const PmhEnv *env, PmhTable **table, PmhError *error)
{
	PmhFormat	format;
	PmhTable   *t;
	PmhResult	result;

	*table = NULL;
	result = make_format(&format, geometry, identity, error);
	if (result != PMH_OK)
		return result;
	t = new_handle(env, error);
	if (t == NULL)
		return error->code;
	result = set_geometry(t, &format);
	if (result == PMH_OK)
		result = pm_create(&t->file, path, (size_t) INITIAL_BLOCKS << t->block_shift,
						   env->force_pmem, &t->error);
	if (result != PMH_OK)
	{
		*error = t->error;
		free_handle(t);
		return result;
	}
	watch_for_faults(t);
	result = pmh_conclude(t, write_empty(t, &format));
	if (result != PMH_OK)
	{
		*error = t->error;
		pmh_close(t);
		(void) unlink(path);
		return result;
	}
	*table = t;
	return PMH_OK;
}

/* ---- open ---- */

/*
 * Are the live words within the file?  Whatever they name is checked later.  The
 * file may be growing or shrinking: its length in blocks is that of a moment
 * when the directory was where it is said to be, and its size is asked for
 * behind that.
 */
static PmhResult
check_live(PmhTable *t)
{
	PmhLive		live;
	uint64_t	size;
	PmhResult	result;

	memset(&live, 0, sizeof(live));
	do
	{
		live.dirword = pm_load_acquire(&pmh_live(t)->dirword);
		live.blocks = pm_load_acquire(&pmh_live(t)->blocks);
	} while (pm_load_acquire(&pmh_live(t)->dirword) != live.dirword);
	result = pm_size(&t->file, &size, &t->error);
	if (result == PMH_OK)
		result = check_live_words(&live, t->block_shift, size, &t->error);
	if (result != PMH_OK)
		return result;
	return pmh_map_all(t);
}

/*
 * Was a file with this stamp, which no one has opened in this run yet, there
 * at the last clean shutdown, or has it been used since?
 */
static bool
is_outdated(const PmhEnv *env, uint64_t shut)
{
	if (env->shut == 0 || shut == env->shut ||
		(shut != 0 && shut == env->shut_begun))
		return false;
	return shut != 0 || env->all_shut;
}

/* Recover if this is the first open of the file in this run of the system. */
static PmhResult
recover_once(PmhTable *t, const PmhEnv *env, bool *recovered)
{
	PmhResult	result = PMH_OK;

	if (pm_load_acquire(&pmh_run(t)->instance) == t->instance)
		return PMH_OK;
	if (!pmh_lock_or_cancel(&t->file_lock->grow))
		return pmh_fail_cancelled(t);
	if (pm_load_acquire(&pmh_run(t)->instance) != t->instance)
	{
		result = is_outdated(env, pm_load(&pmh_run(t)->shut)) ?
			pmh_fail(t, PMH_ERR_OUTDATED, 0, 0,
					 "The file is not the one that was there when the server was shut down.") :
			pmh_recover(t);
		*recovered = result == PMH_OK;
	}
	pmh_unlock(&t->file_lock->grow);
	return result;
}

/* The file has a sound header: is the rest of it, and is it recovered? */
static PmhResult
open_formatted(PmhTable *t, const PmhEnv *env, bool *recovered)
{
	PmhResult	result;

	watch_for_faults(t);
	result = check_live(t);
	if (result == PMH_OK)
		result = recover_once(t, env, recovered);
	return pmh_conclude(t, result);
}

PmhResult
pmh_open(const char *path, const PmhEnv *env, PmhTable **table,
		 bool *recovered, PmhError *error)
{
	PmhTable   *t;
	PmhFormat	format;
	PmhResult	result;
	bool		did_recover = false;

	*table = NULL;
	t = new_handle(env, error);
	if (t == NULL)
		return error->code;
	result = pm_open(&t->file, path, env->force_pmem, &t->error);
	if (result != PMH_OK)
	{
		*error = t->error;
		free_handle(t);
		return result;
	}
	memcpy(&format, pmh_format(t), sizeof(format));
	result = pm_is_lost(&t->file) ? pmh_fail_lost(t) :
		check_format(&format, &t->error);
	if (result == PMH_OK)
		result = set_geometry(t, &format);
	if (result == PMH_OK)
		result = open_formatted(t, env, &did_recover);
	if (result != PMH_OK)
	{
		*error = t->error;
		pmh_close(t);
		return result;
	}
	if (recovered != NULL)
		*recovered = did_recover;
	*table = t;
	return PMH_OK;
}

/* Stamp an open file and write it back. */
static PmhResult
shut_file(int fd, const PmhEnv *env, uint64_t stamp, PmhError *error)
{
	const off_t place = PMH_RUN_OFFSET + offsetof(PmhRun, shut);
	struct stat st;
	PmhRun		run;

	if (fstat(fd, &st) != 0)
		return pmh_fill_error(error, PMH_ERR_IO, errno, 0,
							  "The operation that failed was asking for the size of the file.");
	if (st.st_size < PMH_HEADER_SIZE)
		return PMH_OK;
	if (pread(fd, &run, sizeof(run), PMH_RUN_OFFSET) != (ssize_t) sizeof(run))
		return pmh_fill_error(error, PMH_ERR_IO, errno, 0,
							  "The operation that failed was reading the header.");
	if ((run.instance == env->instance || !is_outdated(env, run.shut)) &&
		pwrite(fd, &stamp, sizeof(stamp), place) != (ssize_t) sizeof(stamp))
		return pmh_fill_error(error, PMH_ERR_IO, errno, 0,
							  "The operation that failed was writing the header.");
	if (fsync(fd) != 0)
		return pmh_fill_error(error, PMH_ERR_IO, errno, 0,
							  "The operation that failed was fsync.");
	return PMH_OK;
}

PmhResult
pmh_shut(const char *path, const PmhEnv *env, uint64_t stamp, PmhError *error)
{
	PmhResult	result;
	int			fd = pmh_descriptor_open(path, O_RDWR);

	if (fd < 0)
		return pmh_fill_error(error, pmh_result_of_errno(errno), errno, 0,
							  "The operation that failed was opening the file.");
	result = shut_file(fd, env, stamp, error);
	pmh_descriptor_close(fd);
	return result;
}

void
pmh_close(PmhTable *table)
{
	pm_close(&table->file);
	free_handle(table);
}

PmhResult
pmh_sync(PmhTable *table)
{
	return pmh_conclude(table, pm_sync(&table->file, &table->error));
}

bool
pmh_is_pmem(const PmhTable *table)
{
	return table->file.is_pmem;
}

/* ---- insert and delete ---- */

PmhResult
pmh_insert_in(PmhTable *t, PmhSide side, uint64_t hash, uint64_t value,
			  bool fence_first)
{
	bool		begun = false;

	for (;;)
	{
		PmhPlace	place;
		PmhResult	result = pmh_segment_lock_in(t, side, hash, &place);

		if (unlikely(result == PMH_NOT_FOUND))
		{
			result = begun ? pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
									  "The overflow table lacks a directory element.") :
				pmh_overflow_begin(t);
			begun = true;
			if (result == PMH_OK)
				continue;
		}
		if (result != PMH_OK)
			return result;
		result = pmh_segment_insert(t, &place, hash, value, fence_first);
		pmh_segment_unlock(&place);
		if (result == PMH_NEED)
			result = pmh_provide(t);
		else if (result != PMH_RETRY)
			return result;
		if (result != PMH_OK && result != PMH_RETRY)
			return result;
	}
}

/* The home has been told. */
static PmhResult __attribute__((noinline))
insert_overflow(PmhTable *t, uint64_t hash, uint64_t value, bool fence_first)
{
	PmhResult	result;

	PMH_STOP_POINT("overflow_before_insert");
	result = pmh_insert_in(t, PMH_OVERFLOW, pmh_side_hash(t, PMH_OVERFLOW, hash),
						   value, fence_first);
	if (result == PMH_OK)
		pmh_count(&pmh_run(t)->overflows, 1);
	return result;
}

PmhResult
pmh_insert_one(PmhTable *t, uint64_t hash, uint64_t value, bool fence_first)
{
	PmhResult	result = pmh_insert_in(t, PMH_PRIMARY, hash, value, fence_first);

	return likely(result != PMH_CROWDED) ? result :
		insert_overflow(t, hash, value, fence_first);
}

/* As pmh_segment_delete, but locks, and maps further, by itself. */
static PmhResult
delete_once(PmhTable *t, PmhSide side, uint64_t hash, uint64_t value, bool wait,
			bool fence)
{
	for (;;)
	{
		PmhPlace	place;
		PmhResult	result = pmh_segment_lock_or_leave(t, side, hash, wait, &place);

		if (result != PMH_OK)
			return result;
		result = pmh_segment_delete(t, &place, hash, value, wait, fence);
		if (!wait)
			pmh_space_release(t);
		pmh_segment_unlock(&place);
		if (result != PMH_NEED)
			return result;
		result = pmh_provide(t);
		if (result != PMH_OK)
			return result;
	}
}

PmhResult
pmh_delete_overflow(PmhTable *t, uint64_t hash, uint64_t value, bool wait)
{
	return delete_once(t, PMH_OVERFLOW, pmh_side_hash(t, PMH_OVERFLOW, hash), value,
					   wait, false);
}

/* An entry never goes from one table to the other, so one after the other. */
PmhResult
pmh_delete_one(PmhTable *t, uint64_t hash, uint64_t value)
{
	PmhSide		side = PMH_PRIMARY;
	PmhResult	result = delete_once(t, side, hash, value, true, true);

	if (unlikely(result == PMH_CROWDED))
	{
		side = PMH_OVERFLOW;
		hash = pmh_side_hash(t, side, hash);
		result = delete_once(t, side, hash, value, true, true);
	}
	return result == PMH_FAR ? pmh_drain_one(t, side, hash, value) : result;
}

PmhResult
pmh_insert(PmhTable *table, uint64_t hash, uint64_t value, bool fence_first)
{
	return pmh_conclude(table, pmh_insert_one(table, hash, value, fence_first));
}

PmhResult
pmh_delete(PmhTable *table, uint64_t hash, uint64_t value)
{
	return pmh_conclude(table, pmh_delete_one(table, hash, value));
}

/* ---- look-up ---- */

/*
 * Nobody has asked for the bucket, and any line of it may be needed: all at
 * once.  (Has to be inline, as everything that only prefetches: a compiler may
 * leave the call of a function out that does nothing else.)
 */
static inline void __attribute__((always_inline))
prefetch_all(const PmhBucket *b)
{
	for (unsigned line = 0; line < PMH_BUCKET_SIZE / PMH_LINE; line++)
		__builtin_prefetch(b->bytes + line * PMH_LINE);
}

/* What one bucket knows of a key goes to the probe. */
static inline void
gather(PmhProbe *probe, const PmhBucket *b, uint64_t hash, uint32_t mask)
{
	uint32_t	first = probe->n;

	for (; mask != 0; mask &= mask - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(mask);
		uint64_t	word = pmh_slot_load_word(b, slot);

		if (!pmh_slot_has_hash(b, slot, word, hash))
			continue;
		if (unlikely(pmh_word_is_pointer(word)))
		{
			/* The plain entries beside it are shadowed. */
			probe->n = first;
			probe->list = pmh_word_payload(word);
			return;
		}
		probe->value[probe->n++] = pmh_word_payload(word);
	}
}

/*
 * The home of a hash was not found, or not any more: there is another directory
 * than the one that was seen last, another segment, or something outside of our
 * mapping.  PMH_RETRY if the next attempt will do, else as pmh_locate.
 */
static PmhResult __attribute__((noinline))
probe_again(PmhTable *t, PmhSide side, uint64_t hash)
{
	PmhPlace	place;
	PmhResult	result = pmh_locate_in(t, side, hash, &place);

	return result == PMH_OK ? PMH_RETRY : result;
}

/*
 * If the buckets so far have a pointer to a list: the version of its first
 * buffer, whose lines, or the first of many, are going to be read.
 */
static inline void
note_list(const PmhTable *t, PmhProbe *probe)
{
	uint64_t	offset = pmh_pointer_offset(probe->list);
	uint32_t	lines = pmh_class_lines(pmh_pointer_class(probe->list));

	if (likely(probe->list == 0))
		return;
	for (uint32_t i = 0; i < lines && i < LIST_AHEAD; i++)
		__builtin_prefetch((const char *) pmh_at(t, offset) + i * PMH_LINE);
	probe->list_version = pmh_buffer_version(t, offset);
}

/* What a reader knows of a home bucket behind a look at its line 0. */
typedef struct Sight
{
	uint64_t	version;		/* from before that look */
	uint32_t	state;
	uint32_t	mask;			/* slots with the right fingerprint */
} Sight;

/* False if the home has been moved meanwhile. */
static inline bool
look_at_home(uint64_t hash, const PmhHome *h, Sight *sight)
{
	sight->version = pmh_version_load(h->version);
	if (unlikely(!pmh_home_current(h)))
		return false;
	PMH_STOP_POINT("probe_before_reading");
	sight->mask = pmh_bucket_match(h->bucket, pmh_hash_fingerprint(hash), &sight->state);
	PMH_STOP_POINT("probe_before_slots");
	return true;
}

/*
 * Does the state of a home tell that the hash may be in another bucket, or in the
 * overflow table?
 */
static inline bool
is_elsewhere(uint64_t hash, uint32_t home_state)
{
	if ((home_state & (PMH_STATE_STASHED | PMH_STATE_OVERFLOWED)) != 0)
		return true;
	return (home_state >> pmh_filter_shift(hash) & 1) != 0;
}

/*
 * What nearly all look-ups come to: the home bucket alone answers, with one
 * plain entry or none.  Returns how many; -1: there is more to it.
 */
static inline int
probe_simple(uint64_t hash, const PmhHome *h, const Sight *sight,
			 uint64_t *value)
{
	uint32_t	mask = sight->mask;
	int			n = 0;

	if (unlikely(is_elsewhere(hash, sight->state)))
		return -1;
	if (mask != 0)
	{
		unsigned	slot = (unsigned) __builtin_ctzll(mask);
		uint64_t	word = pmh_slot_load_word(h->bucket, slot);

		if (unlikely((mask & (mask - 1)) != 0 || pmh_word_is_pointer(word)))
			return -1;
		if (likely(pmh_slot_has_hash(h->bucket, slot, word, hash)))
			n = 1;
		*value = pmh_word_payload(word);
	}
	PMH_STOP_POINT("probe_before_validation");
	return likely(pmh_version_same(h->version, sight->version)) ? n : -1;
}

/* What a look-up reads besides the home, and what must not have changed since. */
typedef struct Others
{
	unsigned	n;
	const PmhBucket *bucket[3];
	const uint64_t *version_at[3];
	uint64_t	version[3];
	uint32_t	state[3];
} Others;

/*
 * The buckets besides the home that its filters tell of.  Their versions are
 * loaded, and the place is seen to be current, before they are read.
 */
static PmhResult __attribute__((noinline))
gather_elsewhere(PmhTable *t, PmhSide side, uint64_t hash, const PmhHome *h,
				 uint32_t home_state, PmhProbe *probe, Others *o)
{
	PmhPlace	place;
	uint32_t	list[3];

	PMH_STOP_POINT("probe_before_elsewhere");
	place.elem = h->elem;
	if (unlikely(!pmh_place_decode(t, &place)))
		return probe_again(t, side, hash);
	if ((home_state & pmh_filter_bit(hash)) != 0)
		list[o->n++] = pmh_alt_bucket(hash, place.hashing,
									  pmh_home_bucket(hash, place.hashing));
	if ((home_state & PMH_STATE_STASHED) != 0)
	{
		list[o->n++] = place.hashing;
		list[o->n++] = place.hashing + 1;
	}
	for (unsigned i = 0; i < o->n; i++)
	{
		o->bucket[i] = pmh_bucket(t, &place, list[i]);
		o->version_at[i] = pmh_bucket_version(&place, list[i]);
		prefetch_all(o->bucket[i]);
	}
	for (unsigned i = 0; i < o->n; i++)
		o->version[i] = pmh_version_load(o->version_at[i]);
	if (!pmh_home_current(h))
		return PMH_RETRY;
	for (unsigned i = 0; i < o->n; i++)
	{
		uint32_t	mask = pmh_bucket_match(o->bucket[i], pmh_hash_fingerprint(hash),
											&o->state[i]);

		gather(probe, o->bucket[i], hash, mask);
		PMH_STOP_POINT("probe_between_buckets");
	}
	note_list(t, probe);
	return PMH_OK;
}

/*
 * Are all buckets that were read as they were?  Their versions tell of operations
 * that have begun since; of one that had begun before and was completed while we
 * went from one bucket to the next, the state tells, which is its commit point.
 * The states first, of all buckets that are to be of one state: so a state that is
 * the same has been the same in between.
 */
static bool
same_states(const PmhHome *h, const Sight *sight, const Others *o)
{
	bool		same = pmh_bucket_state(h->bucket) == sight->state;

	for (unsigned i = 0; i < o->n; i++)
		same = same && pmh_bucket_state(o->bucket[i]) == o->state[i];
	return same;
}

static bool
same_versions(const PmhHome *h, const Sight *sight, const Others *o)
{
	bool		same = true;

	for (unsigned i = 0; i < o->n; i++)
		same = same && pmh_version_same(o->version_at[i], o->version[i]);
	return same && pmh_version_same(h->version, sight->version);
}

/*
 * The rest of an attempt, which the same look at the home has begun.
 *
 * Whether the place is current is asked before the versions are compared.  If it
 * is, and they have not changed after that, the segment has been there all the
 * time, and so has the pointer in it.  The other way round it may be moved
 * away in between, its list rewritten and freed, and itself moved back.
 */
static inline PmhResult __attribute__((always_inline))
probe_slots(PmhTable *t, PmhSide side, uint64_t hash, const PmhHome *h,
			const Sight *sight, Others *others, PmhProbe *probe)
{
	PmhResult	result = PMH_OK;

	others->n = 0;
	probe->n = 0;
	probe->list = 0;
	probe->overflowed = (sight->state & PMH_STATE_OVERFLOWED) != 0;
	gather(probe, h->bucket, hash, sight->mask);
	note_list(t, probe);
	if (unlikely(is_elsewhere(hash, sight->state)))
	{
		result = gather_elsewhere(t, side, hash, h, sight->state, probe, others);
		if (unlikely(result != PMH_OK))
			return result;
	}
	if (unlikely(probe->list != 0))
	{
		result = pmh_buffer_check_span(t, probe->list);
		if (!pmh_home_current(h))
			return PMH_RETRY;
		PMH_STOP_POINT("probe_between_checks");
	}
	PMH_STOP_POINT("probe_before_validation");
	if (unlikely(others->n != 0) && !same_states(h, sight, others))
		return PMH_RETRY;
	return likely(same_versions(h, sight, others)) ? result : PMH_RETRY;
}

/* How an attempt begins.  False: not so; probe_again tells what to do. */
static inline bool __attribute__((always_inline))
find_and_look(const PmhTable *t, PmhSide side, uint64_t hash, PmhHome *h, Sight *sight)
{
	if (unlikely(!pmh_home_find_in(t, side, hash, h)))
		return false;
	prefetch_all(h->bucket);
	return look_at_home(hash, h, sight);
}

/* What a look-up has read of a table, to be compared later. */
typedef struct Reading
{
	PmhHome		home;
	Sight		sight;
	Others		others;
} Reading;

static inline PmhResult __attribute__((always_inline))
probe_side(PmhTable *t, PmhSide side, uint64_t hash, Reading *r, PmhProbe *probe)
{
	for (;;)
	{
		PmhResult	result;

		if (likely(find_and_look(t, side, hash, &r->home, &r->sight)))
			result = probe_slots(t, side, hash, &r->home, &r->sight, &r->others, probe);
		else
			result = probe_again(t, side, hash);
		if (likely(result == PMH_OK))
			return PMH_OK;
		if (result == PMH_NEED)
			result = pmh_provide(t);
		if (result != PMH_OK && result != PMH_RETRY)
			return result;
	}
}

PmhResult
pmh_probe(PmhTable *t, uint64_t hash, PmhProbe *probe)
{
	Reading		r;

	return probe_side(t, PMH_PRIMARY, hash, &r, probe);
}

/* PMH_NOT_FOUND: there is no overflow table, and so nothing in it. */
static PmhResult
probe_overflow(PmhTable *t, uint64_t hash, Reading *r, PmhProbe *probe)
{
	PmhResult	result = probe_side(t, PMH_OVERFLOW, hash, r, probe);

	if (result == PMH_NOT_FOUND)
		memset(probe, 0, offsetof(PmhProbe, value));
	return result;
}

PmhResult
pmh_probe_in(PmhTable *t, PmhSide side, uint64_t hash, PmhProbe *probe)
{
	Reading		r;
	PmhResult	result;

	if (side == PMH_PRIMARY)
		return pmh_probe(t, hash, probe);
	result = probe_overflow(t, hash, &r, probe);
	return result == PMH_NOT_FOUND ? PMH_OK : result;
}

/*
 * Add what a probe has found, plain values and list, to *values.  PMH_RETRY too:
 * nothing was added.
 */
static inline PmhResult __attribute__((always_inline))
add_probed(PmhTable *t, uint64_t hash, const PmhProbe *probe, PmhValues *values)
{
	size_t		before = values->n;
	PmhResult	result;

	if (values->capacity - before < probe->n)
	{
		result = pmh_values_reserve(t, values, probe->n);
		if (result != PMH_OK)
			return result;
	}
	for (uint32_t i = 0; i < probe->n; i++)
		values->value[before + i] = probe->value[i];
	values->n = before + probe->n;
	if (probe->list != 0)
	{
		result = pmh_list_read(t, hash, probe->list, probe->list_version, values);
		if (result == PMH_NEED)
		{
			result = pmh_provide(t);
			if (result == PMH_OK)
				result = PMH_RETRY;
		}
		if (result != PMH_OK)
		{
			values->n = before;
			return result;
		}
	}
	return PMH_OK;
}

/*
 * Is what was read of both tables one state of both?  It is that of the moment
 * between the last look at a bucket of either and the first one here, if all of
 * them are as they were, and the segments are those of the directory still: else
 * more may have been put into a copy of one of them, and then into the other
 * table.  (Without 'other' there was no overflow table.)
 */
static bool
both_same(const Reading *primary, const Reading *other)
{
	const Reading *r[PMH_SIDES] = {primary, other};
	unsigned	n = other != NULL ? 2 : 1;
	bool		same = true;

	for (unsigned i = 0; i < n; i++)
		same = same && same_states(&r[i]->home, &r[i]->sight, &r[i]->others);
	for (unsigned i = 0; i < n; i++)
		same = same && pmh_home_current(&r[i]->home);
	PMH_STOP_POINT("both_between_checks");
	for (unsigned i = 0; i < n; i++)
		same = same && same_versions(&r[i]->home, &r[i]->sight, &r[i]->others);
	return same;
}

/* One attempt at reading both tables.  PMH_RETRY too. */
static PmhResult
try_both(PmhTable *t, uint64_t hash, PmhValues *values)
{
	uint64_t	other_hash = pmh_side_hash(t, PMH_OVERFLOW, hash);
	PmhProbe	probe;
	Reading		primary;
	Reading		other;
	bool		exists;
	PmhResult	result = probe_side(t, PMH_PRIMARY, hash, &primary, &probe);

	values->n = 0;
	if (result == PMH_OK)
		result = add_probed(t, hash, &probe, values);
	if (result != PMH_OK)
		return result;
	PMH_STOP_POINT("probe_before_overflow");
	result = probe_overflow(t, other_hash, &other, &probe);
	exists = result != PMH_NOT_FOUND;
	if (result == PMH_OK)
		result = add_probed(t, other_hash, &probe, values);
	PMH_STOP_POINT("probe_after_overflow");
	if (result != PMH_OK && result != PMH_NOT_FOUND)
		return result;
	return both_same(&primary, exists ? &other : NULL) ? PMH_OK : PMH_RETRY;
}

static PmhResult __attribute__((noinline))
read_both(PmhTable *t, uint64_t hash, PmhValues *values)
{
	PmhResult	result;

	do
		result = try_both(t, hash, values);
	while (result == PMH_RETRY);
	return result;
}

/* Complete a look-up that has found out about the primary table.  PMH_RETRY too. */
static PmhResult
collect(PmhTable *t, uint64_t hash, const PmhProbe *probe, PmhValues *values)
{
	PmhResult	result;

	values->n = 0;
	if (unlikely(probe->overflowed))
		result = read_both(t, hash, values);
	else
		result = add_probed(t, hash, probe, values);
	if (result == PMH_OK && values->n > 1)
		pmh_values_finish(values);
	return result;
}

/* A look-up from the start. */
static PmhResult __attribute__((noinline))
look_up(PmhTable *t, uint64_t hash, PmhValues *values)
{
	PmhProbe	probe;
	PmhResult	result;

	do
	{
		result = pmh_probe(t, hash, &probe);
		if (result == PMH_OK)
			result = collect(t, hash, &probe, values);
	} while (result == PMH_RETRY);
	return pmh_conclude(t, result);
}

/* One that has found its home and looked at it. */
static PmhResult __attribute__((noinline))
look_further(PmhTable *t, uint64_t hash, const PmhHome *h, const Sight *sight,
			 PmhValues *values)
{
	PmhProbe	probe;
	Others		others;
	PmhResult	result = probe_slots(t, PMH_PRIMARY, hash, h, sight, &others, &probe);

	if (likely(result == PMH_OK))
		result = collect(t, hash, &probe, values);
	if (unlikely(result == PMH_RETRY || result == PMH_NEED))
		return look_up(t, hash, values);
	return pmh_conclude(t, result);
}

PmhResult
pmh_lookup(PmhTable *table, uint64_t hash, PmhValues *values)
{
	PmhHome		home;
	Sight		sight;
	uint64_t	value;
	int			n;

	if (unlikely(!find_and_look(table, PMH_PRIMARY, hash, &home, &sight)))
		return look_up(table, hash, values);
	n = probe_simple(hash, &home, &sight, &value);
	if (unlikely(n < 0 || (n > 0 && values->capacity == 0)))
		return look_up(table, hash, values);
	if (n > 0)
		values->value[0] = value;
	values->n = (size_t) n;
	return pmh_conclude_reading(table, PMH_OK);
}

/* ---- groups ---- */

/* A key of a group on its way through the pipeline. */
typedef struct Probing
{
	PmhHome		home;
	Sight		sight;
	bool		seen;			/* both are filled in */
} Probing;

/* Second stage: the lock stripe and line 0 of the home bucket. */
static inline void
begin_probing(const PmhTable *t, uint64_t hash, Probing *p)
{
	p->seen = pmh_home_find(t, hash, &p->home);
	if (unlikely(!p->seen))
		return;
	__builtin_prefetch(p->home.version);
	__builtin_prefetch(p->home.bucket);
}

/*
 * Third stage: the line of a slot with the right fingerprint, and what the home
 * tells of another bucket.
 */
static inline void
continue_probing(const PmhTable *t, uint64_t hash, Probing *p)
{
	if (unlikely(!p->seen || p->home.base != t->file.base))
	{
		p->seen = false;
		return;
	}
	p->seen = look_at_home(hash, &p->home, &p->sight);
	if (unlikely(!p->seen))
		return;
	if (p->sight.mask != 0)
		__builtin_prefetch(p->home.bucket->bytes + PMH_LINE *
						   pmh_slot_line((unsigned) __builtin_ctz(p->sight.mask)));
	if (unlikely((p->sight.state & pmh_filter_bit(hash)) != 0))
		prefetch_all(pmh_home_alternative(t, hash, &p->home));
}

/* PMH_VALUE_MANY alone. */
static PmhResult
say_many(PmhTable *t, PmhValues *values)
{
	PmhResult	result = pmh_values_reserve(t, values, 1);

	if (result == PMH_OK)
		values->value[values->n++] = PMH_VALUE_MANY;
	return result;
}

/* As collect_short, for a key that may have entries in both tables. */
static PmhResult
collect_short_of_both(PmhTable *t, uint64_t hash, const PmhProbe *probe,
					  PmhValues *values)
{
	PmhProbe	other;
	PmhResult	result = pmh_probe_in(t, PMH_OVERFLOW,
									  pmh_side_hash(t, PMH_OVERFLOW, hash), &other);

	if (result != PMH_OK)
		return result;
	if (probe->list == 0 && other.list == 0)
		return collect(t, hash, probe, values);
	values->n = 0;
	return say_many(t, values);
}

/*
 * As collect, if the list is one buffer of less than 4 KiB; else *values is
 * PMH_VALUE_MANY alone.  (The first buffer of a long list may be small: bulk load
 * makes such, and VACUUM.)
 */
static PmhResult
collect_short(PmhTable *t, uint64_t hash, const PmhProbe *probe, PmhValues *values)
{
	PmhListPosition pos = {probe->list, probe->list_version, 0, 0};
	uint32_t	capacity;
	uint32_t	n;
	PmhResult	result;

	if (unlikely(probe->overflowed))
		return collect_short_of_both(t, hash, probe, values);
	if (probe->list == 0)
		return collect(t, hash, probe, values);
	values->n = 0;
	if (pmh_pointer_class(probe->list) >= PMH_CHAIN_CLASS)
		return say_many(t, values);
	capacity = pmh_class_capacity(pmh_pointer_class(probe->list));
	result = pmh_values_reserve(t, values, probe->n + capacity + 1 + PMH_VALUES_PER_LINE);
	if (result != PMH_OK)
		return result;
	memcpy(values->value, probe->value, probe->n * sizeof(uint64_t));
	result = pmh_list_step(t, hash, &pos, capacity + 1, values->value + probe->n, NULL, &n);
	if (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK)
		result = PMH_RETRY;
	if (result != PMH_OK)
		return result;
	if (pos.payload != 0)
		return say_many(t, values);
	values->n = probe->n + n;
	pmh_values_finish(values);
	return PMH_OK;
}

/*
 * A look-up that leaves long lists alone.  Goes on from p, or from the start if p
 * is NULL.
 */
static PmhResult __attribute__((noinline))
look_short(PmhTable *t, uint64_t hash, const Probing *p, PmhValues *values)
{
	PmhProbe	probe;
	Others		others;
	PmhResult	result = PMH_RETRY;

	if (p != NULL)
		result = probe_slots(t, PMH_PRIMARY, hash, &p->home, &p->sight, &others, &probe);
	for (;;)
	{
		if (result == PMH_OK)
			result = collect_short(t, hash, &probe, values);
		if (result != PMH_RETRY && result != PMH_NEED)
			return pmh_conclude(t, result);
		result = pmh_probe(t, hash, &probe);
		if (result != PMH_OK)
			return pmh_conclude(t, result);
	}
}

/* Last stage: hand the values of a key out. */
static inline PmhResult
finish_probing(PmhTable *t, uint64_t hash, const Probing *p, size_t key,
			   bool whole, PmhValues *values, PmhFound found, void *arg)
{
	bool		seen = p->seen && likely(p->home.base == t->file.base);
	uint64_t	value;
	int			n = likely(seen) ? probe_simple(hash, &p->home, &p->sight, &value) : -1;
	PmhResult	result;

	if (likely(n >= 0))
	{
		if (n > 0)
			found(arg, key, value);
		return PMH_OK;
	}
	if (!whole)
		result = look_short(t, hash, seen ? p : NULL, values);
	else if (seen)
		result = look_further(t, hash, &p->home, &p->sight, values);
	else
		result = look_up(t, hash, values);
	for (size_t i = 0; result == PMH_OK && i < values->n; i++)
		found(arg, key, values->value[i]);
	return result;
}

/*
 * In batches, and each stage for a whole batch at once: a prefetch whose address
 * has to be translated first holds back all that comes behind it, so there
 * should be little between it and the next one.  While the lines of a batch are
 * on their way the one before it is finished.
 */
static inline PmhResult __attribute__((always_inline))
lookup_group(PmhTable *table, const uint64_t *hashes, size_t n, bool whole,
			 PmhFound found, void *arg)
{
	PmhValues	values = {0};
	Probing		probing[2 * BATCH];
	PmhResult	result = PMH_OK;

	for (size_t i = 0; i < n && i < BATCH; i++)
		pmh_prefetch_element(table, hashes[i]);
	for (size_t from = 0; from < n + BATCH && result == PMH_OK; from += BATCH)
	{
		size_t		end = from + BATCH < n ? from + BATCH : n;
		size_t		next = end + BATCH < n ? end + BATCH : n;
		size_t		last = from < n ? from : n;

		for (size_t i = from; i < end; i++)
			begin_probing(table, hashes[i], &probing[i % (2 * BATCH)]);
		for (size_t i = end; i < next; i++)
			pmh_prefetch_element(table, hashes[i]);
		for (size_t i = from - BATCH; i < last && result == PMH_OK; i++)
			result = finish_probing(table, hashes[i], &probing[i % (2 * BATCH)], i,
									whole, &values, found, arg);
		for (size_t i = from; i < end; i++)
			continue_probing(table, hashes[i], &probing[i % (2 * BATCH)]);
	}
	pmh_values_free(&values);
	return pmh_conclude(table, result);
}

PmhResult
pmh_lookup_group(PmhTable *table, const uint64_t *hashes, size_t n,
				 PmhFound found, void *arg)
{
	return lookup_group(table, hashes, n, true, found, arg);
}

PmhResult
pmh_lookup_group_short(PmhTable *table, const uint64_t *hashes, size_t n,
					   PmhFound found, void *arg)
{
	return lookup_group(table, hashes, n, false, found, arg);
}
