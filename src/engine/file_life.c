/*-------------------------------------------------------------------------
 *
 * file_life.c
 *	  Life of a file: create, open, close, stamp, examine without mapping.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "segment.h"

/*
 * A file begins with one block: the header, and the first segment in the last unit.  So
 * the next one has room in between, be it a larger one or that of a bulk load.
 */
#define INITIAL_BLOCKS			1
#define FIRST_SEGMENT_UNIT		(PMH_UNITS_PER_BLOCK - 1)

/* ---- handles ---- */

/* Take over what the format header says. */
static void
take_format(PmhTable *t, const PmhFormat *format)
{
	memcpy(t->identity, format->identity, PMH_IDENTITY_SIZE);
	t->file_id = format->file_id;
	t->file_lock = &t->locks->file[t->file_id % PMH_FILE_LOCKS];
	t->stripe_mask = t->locks->nstripes - 1;
}

/* From now on a fault in the mapping is posted to all handles on the file. */
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

/* CRC-32C (Castagnoli), by halves of a byte: it guards a few dozen bytes. */
uint32_t
pmh_crc32c(const void *data, size_t len)
{
	static const uint32_t of_half[16] = {
		0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
		0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
		0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75
	};
	const uint8_t *byte = data;
	uint32_t	crc = UINT32_MAX;

	for (size_t i = 0; i < 2 * len; i++)
		crc = crc >> 4 ^ of_half[(crc ^ byte[i / 2] >> i % 2 * 4) & 15];
	return ~crc;
}

static uint32_t
format_crc(const PmhFormat *format)
{
	PmhFormat	copy = *format;

	copy.crc = 0;
	copy.magic = PMH_MAGIC;
	return pmh_crc32c(&copy, sizeof(copy));
}

PmhResult
pmh_check_format(const PmhFormat *format, PmhError *error)
{
	if (format->magic != PMH_MAGIC)
		return pmh_fill_error(error, PMH_ERR_FORMAT, 0, 0,
							  "The file does not begin with the magic number of pmhash.");
	if (format->version != PMH_FORMAT_VERSION)
		return pmh_fill_error(error, PMH_ERR_VERSION, 0, 0,
							  "The file has format version %u, this is version %u.",
							  format->version, PMH_FORMAT_VERSION);
	if (format->crc != format_crc(format))
		return pmh_fill_error(error, PMH_ERR_CORRUPT, 0, 0,
							  "The checksum of the format header does not match.");
	return PMH_OK;
}

/* Read len bytes of the header of the file at fd; PMH_OK if it has them. */
static PmhResult
read_at(int fd, uint64_t offset, void *data, size_t len, PmhError *error)
{
	ssize_t		got = pread(fd, data, len, (off_t) offset);

	if (got < 0)
		return pmh_fill_call_error(error, errno, "reading the header");
	if (got != (ssize_t) len)
		return pmh_fill_error(error, PMH_ERR_FORMAT, 0, 0,
							  "The file is too short to have a header.");
	return PMH_OK;
}

/* What the inode of an open file tells (path ""), or of a path (fd AT_FDCWD). */
static bool
look_at_inode(int fd, const char *path, PmhInode *inode)
{
	struct statx st;

	if (statx(fd, path, AT_EMPTY_PATH, STATX_SIZE | STATX_BLOCKS, &st) != 0)
		return false;
	inode->size = st.stx_size;
	inode->allocated = st.stx_blocks * 512;
	inode->never_pmem = (st.stx_attributes_mask & STATX_ATTR_DAX) != 0 &&
		(st.stx_attributes & STATX_ATTR_DAX) == 0;
	return true;
}

bool
pmh_look(const char *path, PmhInode *inode)
{
	return look_at_inode(AT_FDCWD, path, inode);
}

bool
pmh_write_note(const char *path, int first, const uint64_t *words, int n)
{
	size_t		size = (size_t) n * sizeof(uint64_t);
	int			fd = open(path, O_WRONLY | O_CLOEXEC);
	bool		ok;

	PMH_ASSERT(first >= 0 && n > 0 && first + n <= PMH_NOTE_WORDS);
	if (fd < 0)
		return false;
	errno = ENOSPC;				/* what a short write means */
	ok = pwrite(fd, words, size, PMH_NOTE_OFFSET + first * (off_t) sizeof(uint64_t)) ==
		(ssize_t) size;
	(void) close(fd);
	return ok;
}

PmhResult
pmh_store_note(PmhTable *table, int word, uint64_t value)
{
	PMH_ASSERT(word >= 0 && word < PMH_NOTE_WORDS);
	pm_store64((uint64_t *) (void *) (table->file.base + PMH_NOTE_OFFSET) + word, value);
	return pmh_conclude(table, PMH_OK);
}

PmhResult
pmh_check_live_words(const PmhLive *live, uint64_t size, PmhError *error)
{
	uint64_t	blocks = pmh_live_number(live->blocks);
	uint64_t	directory_end = pmh_dirword_offset(live->dirword) +
		pmh_directory_size(pmh_dirword_depth(live->dirword));

	if (live->blocks != pmh_seal(live->blocks, PMH_LIVE_CRC_SHIFT))
		return pmh_fill_error(error, PMH_ERR_CORRUPT, 0,
							  PMH_LIVE_OFFSET + offsetof(PmhLive, blocks),
							  "What the header says of blocks in use is damaged.");
	if (blocks == 0 || blocks > PMH_MAX_BLOCKS || size < blocks << PMH_BLOCK_SHIFT)
		return pmh_fill_error(error, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
							  "The file has %llu bytes, its header says %llu blocks of "
							  "%llu.",
							  (unsigned long long) size, (unsigned long long) blocks,
							  1ULL << PMH_BLOCK_SHIFT);
	if (live->dirword != pmh_seal(live->dirword, PMH_DIRWORD_BITS) ||
		directory_end > blocks << PMH_BLOCK_SHIFT)
		return pmh_fill_error(error, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
							  "What the header says of the directory is damaged.");
	return PMH_OK;
}

/*
 * Others may be at work: what one read takes over comes in any order.  The file gets its
 * size, then its length in blocks, then a directory that lies there, and none of these ever
 * falls: so they are read in the other order.
 */
PmhResult
pmh_examine(const char *path, PmhHead *head, PmhError *error)
{
	_Alignas(PmhLive) char bytes[PMH_HEADER_SIZE];
	PmhFormat	format;
	PmhLive		live;
	PmhResult	result;
	int			fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return pmh_fill_call_error(error, errno, "opening the file");
	result = read_at(fd, 0, bytes, PMH_HEADER_SIZE, error);
	if (result == PMH_OK)
	{
		memcpy(&live, bytes + PMH_LIVE_OFFSET, sizeof(live));
		result = read_at(fd, PMH_LIVE_OFFSET + offsetof(PmhLive, blocks), &live.blocks,
						 sizeof(live.blocks), error);
	}
	if (result == PMH_OK && !look_at_inode(fd, "", &head->inode))
		result = pmh_fill_call_error(error, errno, "asking for the size of the file");
	(void) close(fd);
	if (result != PMH_OK)
		return result;
	memcpy(&format, bytes + PMH_FORMAT_OFFSET, sizeof(format));
	result = pmh_check_format(&format, error);
	if (result != PMH_OK)
		return result;
	memcpy(head->identity, format.identity, PMH_IDENTITY_SIZE);
	memcpy(head->note, bytes + PMH_NOTE_OFFSET, sizeof(head->note));
	head->instance = ((const PmhRun *) (const void *) (bytes + PMH_RUN_OFFSET))->instance;
	return pmh_check_live_words(&live, head->inode.size, error);
}

const void *
pmh_identity(const PmhTable *table)
{
	return table->identity;
}

const char *
pmh_path(const PmhTable *table)
{
	return table->file.path;
}

/* ---- create ---- */

static PmhResult
make_format(PmhFormat *format, const void *identity, PmhError *error)
{
	memset(format, 0, sizeof(*format));
	format->magic = PMH_MAGIC;
	format->version = PMH_FORMAT_VERSION;
	if (identity != NULL)
		memcpy(format->identity, identity, PMH_IDENTITY_SIZE);
	if (getrandom(&format->file_id, sizeof(format->file_id), 0) !=
		sizeof(format->file_id))
		return pmh_fill_call_error(error, errno, "getrandom");
	format->crc = format_crc(format);
	return pmh_check_format(format, error);
}

/* Write an empty table; the magic number makes it valid, last. */
static PmhResult
write_empty(PmhTable *t, const PmhFormat *format)
{
	PmhFormat  *to = pmh_format(t);
	PmhLive    *live = pmh_live(t);
	PmhResult	result;

	PMH_ASSERT(format->magic == PMH_MAGIC);
	/* The file is new and all zeroes: so are the buckets. */
	pm_copy(&t->file, (char *) to + sizeof(uint64_t),
			(const char *) format + sizeof(uint64_t), sizeof(*format) - sizeof(uint64_t));
	pm_store64(pmh_at(t, PMH_SMALL_DIR_OFFSET(0)),
			   pmh_make_elem(0, FIRST_SEGMENT_UNIT, 1, 0, PMH_SINGLE));
	pm_store64(&live->dirword, pmh_seal_dirword(PMH_SMALL_DIR_OFFSET(0), 0));
	pm_store64(&live->blocks, pmh_seal_blocks(INITIAL_BLOCKS));
	result = pmh_recover(t);	/* makes all of it durable, in any case */
	if (result != PMH_OK)
		return result;
	pm_store64(&to->magic, format->magic);
	pm_flush(&t->file, &to->magic, sizeof(to->magic));
	pm_fence(&t->file);
	t->file.bound = INITIAL_BLOCKS << PMH_BLOCK_SHIFT;	/* a page may be larger */
	return PMH_OK;
}

/* What a handle is made for has ended so: it is the caller's, or goes. */
static PmhResult
hand_out(PmhTable *t, PmhResult result, PmhTable **table, PmhError *error)
{
	*table = result == PMH_OK ? t : NULL;
	if (result == PMH_OK)
		return PMH_OK;
	*error = t->error;
	pmh_close(t);
	return result;
}

PmhResult
pmh_create(const char *path, const void *identity, const PmhEnv *env,
		   PmhTable **table, PmhError *error)
{
	PmhFormat	format;
	PmhTable   *t;
	PmhResult	result;

	*table = NULL;
	result = make_format(&format, identity, error);
	if (result != PMH_OK)
		return result;
	t = new_handle(env, error);
	if (t == NULL)
		return error->code;
	take_format(t, &format);
	result = pm_create(&t->file, path, (size_t) INITIAL_BLOCKS << PMH_BLOCK_SHIFT,
					   env->force_pmem, &t->error);
	if (result == PMH_OK)
	{
		watch_for_faults(t);
		result = pmh_conclude(t, write_empty(t, &format));
		if (result != PMH_OK)
			(void) unlink(path);
	}
	return hand_out(t, result, table, error);
}

/* ---- open ---- */

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
recover_once(PmhTable *t, const PmhEnv *env)
{
	PmhResult	result = PMH_OK;

	if (pm_load_acquire(&pmh_run(t)->instance) == t->instance)
		return PMH_OK;
	PMH_STOP_POINT("open_before_recovery");
	if (!pmh_lock_or_cancel(&t->file_lock->grow))
		return pmh_fail_cancelled(t);
	if (pm_load_acquire(&pmh_run(t)->instance) != t->instance)
	{
		result = is_outdated(env, pm_load(&pmh_run(t)->shut)) ?
			pmh_fail(t, PMH_ERR_OUTDATED, 0, 0,
					 "The file is not the one that was there when the server was shut "
					 "down.") :
			pmh_recover(t);
	}
	pmh_unlock(&t->file_lock->grow);
	return result;
}

/*
 * The file has a sound header: are the live words possible?  What they name is checked later.
 * It may have grown since it was mapped: its size is read last then, as by pmh_examine.
 */
static PmhResult
open_formatted(PmhTable *t, const PmhEnv *env)
{
	PmhLive		live = {0};
	PmhInode	inode;
	uint64_t	size = t->file.bound;
	uint64_t	end;
	PmhResult	result;

	watch_for_faults(t);
	live.dirword = pm_load_acquire(&pmh_live(t)->dirword);
	live.blocks = pm_load_acquire(&pmh_live(t)->blocks);
	if (size < pmh_live_number(live.blocks) << PMH_BLOCK_SHIFT)
		size = pmh_look(t->file.path, &inode) ? inode.size : UINT64_MAX;
	result = pmh_check_live_words(&live, size, &t->error);
	if (result == PMH_OK)
		result = recover_once(t, env);
	if (result == PMH_OK)
		result = pmh_map_all(t);
	if (result == PMH_OK)
	{
		/*
		 * Our bound is at the end of the file as it was when we mapped it: others may have
		 * been letting it grow, or have been killed then.  What counts is its length in
		 * blocks.  (0: it has been lost since it was looked at.)
		 */
		end = pmh_file_end(t);
		if (end != 0 && end < t->file.bound)
			t->file.bound = end;
		PMH_ASSERT(t->file.bound >= PMH_HEADER_SIZE && t->file.bound <= t->file.addresses);
	}
	return pmh_conclude(t, result);
}

PmhResult
pmh_open(const char *path, const PmhEnv *env, PmhTable **table, PmhError *error)
{
	PmhTable   *t;
	PmhFormat	format;
	PmhResult	result;

	*table = NULL;
	t = new_handle(env, error);
	if (t == NULL)
		return error->code;
	result = pm_open(&t->file, path, env->force_pmem, &t->error);
	if (result == PMH_OK)
	{
		memcpy(&format, pmh_format(t), sizeof(format));
		result = pm_is_lost(&t->file) ? pmh_fail_lost(t) :
			pmh_check_format(&format, &t->error);
	}
	if (result == PMH_OK)
	{
		take_format(t, &format);
		result = open_formatted(t, env);
	}
	return hand_out(t, result, table, error);
}

/* Stamp an open file, and write it back unless it is on the device 'synced'. */
static PmhResult
shut_file(int fd, const PmhEnv *env, uint64_t stamp, uint64_t synced, PmhError *error)
{
	const off_t where = PMH_RUN_OFFSET + offsetof(PmhRun, shut);
	struct stat st;
	PmhRun		run;

	PMH_ASSERT(fd >= 0);
	if (fstat(fd, &st) != 0)
		return pmh_fill_call_error(error, errno, "asking for the size of the file");
	if (st.st_size < PMH_HEADER_SIZE)
		return PMH_OK;
	if (pread(fd, &run, sizeof(run), PMH_RUN_OFFSET) != (ssize_t) sizeof(run))
		return pmh_fill_call_error(error, errno, "reading the header");
	if ((run.instance == env->instance || !is_outdated(env, run.shut)) &&
		pwrite(fd, &stamp, sizeof(stamp), where) != (ssize_t) sizeof(stamp))
		return pmh_fill_call_error(error, errno, "writing the header");
	if ((synced == 0 || st.st_dev != synced) && fsync(fd) != 0)
		return pmh_fill_call_error(error, errno, "fsync");
	return PMH_OK;
}

PmhResult
pmh_shut(const char *path, const PmhEnv *env, uint64_t stamp, uint64_t synced,
		 PmhError *error)
{
	int			fd = open(path, O_RDWR | O_CLOEXEC);
	PmhResult	result;

	if (fd < 0)
		return pmh_fill_call_error(error, errno, "opening the file");
	result = shut_file(fd, env, stamp, synced, error);
	(void) close(fd);
	/* Whatever fails then: pages of it may be lost. */
	return result == PMH_OK ? PMH_OK : (error->code = PMH_ERR_LOST);
}

void
pmh_close(PmhTable *table)
{
	pm_close(&table->file);
	free(table);
}

bool
pmh_is_pmem(const PmhTable *table)
{
	return table->file.is_pmem;
}
