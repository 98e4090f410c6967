/*-------------------------------------------------------------------------
 *
 * pm.c
 *	  The production implementation of pm.h, on libpmem; where files are mapped
 *	  is map.c's business.
 *
 * The only file that calls pmem_*, which do with our mappings what they do with those of
 * libpmem.  Whether a file is persistent memory is what the kernel says (MAP_SYNC), as it is
 * for libpmem.  Where the processor keeps its caches powered (eADR, pmem_has_auto_flush)
 * nothing is flushed: neither by pmem_flush nor, with no way to write lines back, by pm_flush.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <libpmem.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "handle.h"

/*
 * After a fence all that was flushed before has to be durable.  On x86-64 it is sfence
 * after clwb, clflushopt or clflush.  On arm64 it is dmb ishst after dc cvap or dc cvac
 * (there is no dsb in libpmem 1.12): that puts stores in order, but waits for no line
 * to be written back, which takes a dsb.  What it is on other machines we do not know.
 * So no file is persistent memory there, and all are of class "cache", which promises
 * no more than is so.
 */
#ifdef __x86_64__
#include <cpuid.h>
#define FENCE_WAITS		true

/* Asked once in a process.  Every processor has clflush, some what waits for less. */
static PmWriteBack
choose_write_back(void)
{
	static int	said = -1;
	unsigned	eax, ebx = 0, ecx, edx;
	int			way = __atomic_load_n(&said, __ATOMIC_RELAXED);

	if (way < 0)
	{
		(void) __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
		way = (ebx & bit_CLWB) != 0 ? PM_CLWB :
			(ebx & bit_CLFLUSHOPT) != 0 ? PM_CLFLUSHOPT : PM_CLFLUSH;
		if (pmem_has_auto_flush() == 1)
			way = PM_NO_WRITE_BACK;
		__atomic_store_n(&said, way, __ATOMIC_RELAXED);
	}
	return (PmWriteBack) way;
}
#else
#define FENCE_WAITS		false
#define choose_write_back()	PM_NO_WRITE_BACK
#endif

/* ---- which file it is, and a descriptor for it ---- */

#define NANOSECONDS		UINT64_C(1000000000)

static void
birth_of(const struct statx *st, PmBirth *birth)
{
	birth->device = (uint64_t) st->stx_dev_major << 32 | st->stx_dev_minor;
	birth->inode = st->stx_ino;
	birth->born = (st->stx_mask & STATX_BTIME) == 0 ? 0 :
		(uint64_t) st->stx_btime.tv_sec * NANOSECONDS + st->stx_btime.tv_nsec;
}

static PmhResult
look_at(int fd, struct statx *st, PmhError *error)
{
	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_SIZE | STATX_BTIME,
			  st) != 0)
		return pmh_fill_call_error(error, errno, "asking for the size of the file");
	return PMH_OK;
}

static void
close_again(const PmFile *f, int fd)
{
	if (fd != f->fd)
		(void) close(fd);
}

/* A descriptor of the mapped file, to be given back with close_again. */
static PmhResult
open_again(const PmFile *f, int *fd, struct statx *st, PmhError *error)
{
	PmBirth		birth;
	PmhResult	result;

	*fd = f->fd >= 0 ? f->fd : open(f->path, O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return pmh_fill_call_error(error, errno, "opening the file again");
	result = look_at(*fd, st, error);
	if (result == PMH_OK)
	{
		birth_of(st, &birth);
		if (memcmp(&birth, &f->birth, sizeof(birth)) != 0)
			result = pmh_fill_error(error, PMH_ERR_NO_FILE, 0, 0,
									"Another file has taken the place of the one that is in "
									"use.");
	}
	if (result != PMH_OK)
		close_again(f, *fd);
	return result;
}

void
pm_hold(PmFile *f)
{
	struct statx st;
	PmhError	error;
	int			fd;

	if (f->fd < 0 && !f->persist && open_again(f, &fd, &st, &error) == PMH_OK)
		f->fd = fd;
}

void
pm_let_go(PmFile *f)
{
	if (f->fd >= 0)
		(void) close(f->fd);
	f->fd = -1;
}

/* ---- life of a mapping ---- */

/* posix_fallocate, begun again when a signal interrupts it; 0 or an errno. */
static int
pm_allocate(int fd, size_t from, size_t to)
{
	int			err;

	PMH_ASSERT(from < to);
	do
		err = posix_fallocate(fd, (off_t) from, (off_t) (to - from));
	while (err == EINTR);
	return err;
}

/*
 * Open a file, or (size > 0) make it, and map all of it as it is now.  On failure nothing is
 * left.
 */
static PmhResult
open_and_map(PmFile *f, const char *path, size_t size, bool force_pmem, PmhError *error)
{
	bool		make = size > 0;
	bool		synchronous = false;
	struct statx st;
	PmhResult	result;
	int			err;
	int			fd;

	memset(f, 0, sizeof(*f));
	f->fd = -1;
	f->path = strdup(path);
	if (f->path == NULL)
		return pmh_fill_call_error(error, ENOMEM, "copying the name of the file");
	fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT | O_EXCL : 0), 0600);
	if (fd < 0)
	{
		result = pmh_fill_call_error(error, errno,
									 make ? "creating the file" : "opening the file");
		pm_close(f);
		return result;
	}
	if (make && (err = pm_allocate(fd, 0, pmh_whole_pages(size))) != 0)
		result = pmh_fill_call_error(error, err, "allocating space for a new file");
	else
		result = look_at(fd, &st, error);
	if (result == PMH_OK && (!S_ISREG(st.stx_mode) || st.stx_size < PMH_HEADER_SIZE))
		result = pmh_fill_error(error, PMH_ERR_FORMAT, 0, 0,
								"The file is too short to have a header.");
	if (result == PMH_OK)
	{
		birth_of(&st, &f->birth);
		err = pmh_map(f, fd, st.stx_size, &synchronous);
		if (err != 0)
			result = pmh_fill_call_error(error, err, "mapping the file");
	}
	(void) close(fd);
	if (result != PMH_OK)
	{
		if (make)
			(void) unlink(path);
		pm_close(f);
		return result;
	}
	f->is_pmem = synchronous && FENCE_WAITS;
	f->persist = f->is_pmem || force_pmem;
	f->write_back = f->persist ? choose_write_back() : PM_NO_WRITE_BACK;
	return PMH_OK;
}

PmhResult
pm_create(PmFile *f, const char *path, size_t size, bool force_pmem, PmhError *error)
{
	PMH_ASSERT(size > 0);
	return open_and_map(f, path, size, force_pmem, error);
}

PmhResult
pm_open(PmFile *f, const char *path, bool force_pmem, PmhError *error)
{
	return open_and_map(f, path, 0, force_pmem, error);
}

void
pm_close(PmFile *f)
{
	if (f->base != NULL)
		pmh_unmap(f);
	pm_let_go(f);
	free(f->path);
	memset(f, 0, sizeof(*f));
	f->fd = -1;
}

/* Where the page of an offset begins. */
static size_t
page_start(size_t offset)
{
	return pmh_whole_pages(offset + 1) - pmh_whole_pages(1);
}

/* Where the page of an address in the mapping begins. */
static char *
page_of(const PmFile *f, const void *address)
{
	return f->base + page_start((size_t) ((const char *) address - f->base));
}

void
pm_read_ahead(const PmFile *f, const void *address, size_t size)
{
	char	   *page = page_of(f, address);

	if (!f->is_pmem)
		(void) madvise(page, (const char *) address + size - page, MADV_WILLNEED);
}

/* What the kernel does not tell, it will read when it is asked for. */
bool
pm_is_resident(const PmFile *f, const void *address)
{
	unsigned char resident;

	return f->is_pmem || mincore(page_of(f, address), 1, &resident) != 0 ||
		(resident & 1) != 0;
}

PmhResult
pm_sync(const PmFile *f, PmhError *error)
{
	if (f->is_pmem && msync(f->base, f->bound, MS_SYNC) != 0)
		return pmh_fill_call_error(error, errno, "msync");
	return PMH_OK;
}

/* ---- its length ---- */

/*
 * A page that anything in use is in lies within the file as a whole and has all its
 * space: only whole pages are allocated, and only such are punched.
 * Where a page is larger than a block of the file system it would else come to harm:
 *	- The kernel sees to the first store to a page, for as much of it as the file has.
 *	  Later stores are no faults.  If the file has become longer within that page since
 *	  then, such a store may not be written back (ext4's fallocate did not write-protect
 *	  the page that the file ended in, pagecache_isize_extended(), until late in 2024).
 *	- The first store to a page takes space for all of it.  If part of it is a hole and
 *	  the file system is full, that is SIGBUS: a sound file is posted as lost.
 * With pages of 4 KiB all that the engine asks for is whole pages.  A file that was used with
 * smaller ones is not recovered.
 */

PmhResult
pm_extend(PmFile *f, size_t from, size_t to, PmhError *error)
{
	struct statx st;
	int			fd;
	int			err;
	PmhResult	result;

	PMH_ASSERT(from < to);
	result = open_again(f, &fd, &st, error);
	if (result != PMH_OK)
		return result;
	/* What is missing of a truncated file would come back as zeroes, unnoticed. */
	if (st.stx_size < from)
		pmh_map_note_lost(f, st.stx_size);
	if (pm_is_lost(f))
		result = pmh_fill_lost(error, f);
	else if ((err = pm_allocate(fd, page_start(from), pmh_whole_pages(to))) != 0)
		result = pmh_fill_call_error(error, err, "allocating more space for the file");
	/*
	 * The caller is going to store the new size in the file, which may be durable before
	 * the file system's own idea of it is.
	 */
	else if (f->is_pmem && fsync(fd) != 0)
		result = pmh_fill_call_error(error, errno, "fsync");
	close_again(f, fd);
	return result;
}

/* fallocate in this mode, begun again when a signal interrupts it; 0 or an errno. */
static int
change_range(int fd, int mode, size_t from, size_t to)
{
	int			rc;

	PMH_ASSERT(from < to);
	do
		rc = fallocate(fd, mode | FALLOC_FL_KEEP_SIZE, (off_t) from, (off_t) (to - from));
	while (rc != 0 && errno == EINTR);
	return rc == 0 ? 0 : errno;
}

/*
 * Would a load from a hole take space?  Where the page cache is all the store there is
 * it does: tmpfs gives each page that is read its memory, and if there is none it is
 * SIGBUS (shmem_fault() in mm/shmem.c).  Others show zeroes that take none.  overlayfs
 * does not say what its files are on; what can put zeroes over a range is no tmpfs
 * (shmem_fallocate()).
 */
static bool
holes_take_space(int fd, size_t from, size_t to)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) != 0 || fs.f_type == TMPFS_MAGIC)
		return true;
	return fs.f_type == OVERLAYFS_SUPER_MAGIC &&
		change_range(fd, FALLOC_FL_ZERO_RANGE, from, to) != 0;
}

PmhResult
pm_punch(PmFile *f, size_t from, size_t to, PmhError *error)
{
	struct statx st;
	int			fd;
	int			err = 0;
	PmhResult	result;

	PMH_ASSERT(from <= to);
	from = pmh_whole_pages(from);
	to = page_start(to);
	if (from >= to)
		return PMH_OK;
	result = open_again(f, &fd, &st, error);
	if (result != PMH_OK)
		return result;
	if (!holes_take_space(fd, from, to))
		err = change_range(fd, FALLOC_FL_PUNCH_HOLE, from, to);
	if (err != 0 && err != EOPNOTSUPP && err != ENOSYS)
		result = pmh_fill_call_error(error, err, "giving space back to the file system");
	close_again(f, fd);
	return result;
}

PmhResult
pm_raise_bound(PmFile *f, size_t size, PmhError *error)
{
	int			err;

	if (pm_is_lost(f))
		return pmh_fill_lost(error, f);
	if (size > f->addresses && (err = pmh_map_further(f, size)) != 0)
		return pmh_fill_call_error(error, err, "mapping more of the file");
	PMH_ASSERT(f->bound <= f->addresses);
	if (size > f->bound)
		f->bound = size;
	PMH_ASSERT(size <= f->bound && f->bound <= f->addresses);
	return PMH_OK;
}

void
pm_copy(const PmFile *f, void *dst, const void *src, size_t len)
{
	if (!f->persist)
	{
		memcpy(dst, src, len);
		return;
	}

	/*
	 * Whether a non-temporal store takes a line that is in the cache out of it is up
	 * to the processor: on some AMD ones it stays, and is as little in memory as
	 * after an ordinary store (src/README, "Commit stores").  So lines are flushed all the
	 * same, which is cheap where they have gone past the cache.
	 */
	pmem_memcpy(dst, src, len, PMEM_F_MEM_NODRAIN | PMEM_F_MEM_NONTEMPORAL);
	pmem_flush(dst, len);
}

/*
 * Write with a system call: a page that is written as a whole is not zeroed
 * first, and not mapped either until it is read.  Not past the end of
 * the file: if it has been cut off, that must be noticed, and not be filled with
 * zeroes that look like data (as in pm_extend).  Returns how much has been
 * written.
 */
static size_t
write_through(const PmFile *f, size_t at, const char *src, size_t len)
{
	struct statx st;
	PmhError	error;
	size_t		done = 0;

	PMH_ASSERT(f->fd >= 0 && !f->persist);
	if (look_at(f->fd, &st, &error) != PMH_OK || st.stx_size < at + len)
		return 0;
	while (done < len)
	{
		ssize_t		n = pwrite(f->fd, src + done, len - done, (off_t) (at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t) n / sizeof(uint64_t) * sizeof(uint64_t);
	}
	return done;
}

/* What cannot be written faults in the mapping, and the handler sees to it. */
void
pm_copy_to_space(const PmFile *f, void *dst, const void *src, size_t len, bool fresh)
{
	size_t		done = 0;

	if (fresh && f->fd >= 0 && !f->persist && !pm_is_lost(f))
		done = write_through(f, (size_t) ((char *) dst - f->base), src, len);
	if (done < len)
		pm_copy(f, (char *) dst + done, (const char *) src + done, len - done);
}
