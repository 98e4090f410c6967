/*-------------------------------------------------------------------------
 *
 * pm.c
 *	  The production implementation of pm.h, on libpmem.
 *
 * The only file that calls pmem_*.  Where the processor keeps its caches
 * powered (eADR, pmem_has_auto_flush) pmem_flush does nothing by itself, and
 * so pm_flush asks no such question.
 *
 * SIGBUS.  A load from or a store to a mapping raises it if the page is behind
 * the end of the file by now, cannot be read, or is on damaged memory.  The
 * handler here puts private zeroes in place of the page and all behind it,
 * notes in the PmFile and on the board of lost files (lock.h) that this has
 * happened, and returns: the operation goes on with zeroes, gives its locks
 * back the ordinary way, and fails at its end.  It does not jump out, since
 * nobody could give the locks back then.  See src/README, "Faults of the
 * medium".
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <libpmem.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* Huge page and DAX PMD size: larger mappings start at a multiple of it. */
#define PM_ALIGNMENT	((size_t) 2 * 1024 * 1024)

/*
 * The mapped files of this process, the lock that guards the list and the
 * addresses in it, and what SIGBUS did before we came.  Whoever holds the lock
 * touches no mapping, so the handler can wait for it.
 */
static PmFile *mapped_files;
static uint64_t mapped_files_lock;
static struct sigaction previous_action;
static uintptr_t page_size;		/* 0: the handler is not installed */

/* ---- faults ---- */

/* The page at 'offset' of a file is lost: note it, and tell all others. */
static void
note_lost(PmFile *f, size_t offset)
{
	if (f->lost == 0)
		__atomic_store_n(&f->lost, (uint64_t) offset + 1, __ATOMIC_RELAXED);
	if (f->lost_board != NULL)
		pmh_lost_post(f->lost_board, f->file_id);
}

/* Put zeroes of our own in place of [from, to).  False if that fails. */
static bool
map_zeroes(uintptr_t from, uintptr_t to)
{
	return mmap((void *) from, to - from, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
				-1, 0) != MAP_FAILED;
}

/*
 * If the address is in one of our mappings, replace what there is from its
 * page on (or, with memory so short, the page alone).  The number of faults an
 * operation can meet is thus no larger than that of the pages it touches, and
 * the mapping falls into two pieces at the most.
 */
static bool
replace_lost(uintptr_t address)
{
	uintptr_t	page = address & ~(page_size - 1);

	for (PmFile *f = mapped_files; f != NULL; f = f->next)
	{
		uintptr_t	base = (uintptr_t) f->base;
		uintptr_t	end = (base + f->mapped + page_size - 1) & ~(page_size - 1);

		if (address < base || address >= end)
			continue;
		note_lost(f, page - base);
		return map_zeroes(page, end) || map_zeroes(page, page + page_size);
	}
	return false;
}

/* Do what would have been done without us. */
static void
pass_on(int number, siginfo_t *info, void *context)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	bool		fault = info->si_code > 0;

	if ((previous_action.sa_flags & SA_SIGINFO) != 0)
		previous_action.sa_sigaction(number, info, context);
	else if (previous_action.sa_handler == SIG_DFL ||
			 (previous_action.sa_handler == SIG_IGN && fault))
	{
		/* A fault comes again when we return; a signal that was sent does not. */
		(void) sigaction(number, &action, NULL);
		if (!fault)
			(void) raise(number);
	}
	else if (previous_action.sa_handler != SIG_IGN)
		previous_action.sa_handler(number);
}

static void
on_bus_error(int number, siginfo_t *info, void *context)
{
	int			save_errno = errno;
	bool		replaced = false;

	if (info->si_code > 0)
	{
		pmh_lock(&mapped_files_lock);
		replaced = replace_lost((uintptr_t) info->si_addr);
		pmh_unlock(&mapped_files_lock);
	}
	if (!replaced)
		pass_on(number, info, context);
	errno = save_errno;
}

/* Install the handler once in a process; children inherit it with the list. */
static void
install_handler(void)
{
	struct sigaction action;

	if (page_size != 0)
		return;
	page_size = (uintptr_t) sysconf(_SC_PAGESIZE);
	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_bus_error;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	(void) sigemptyset(&action.sa_mask);
	(void) sigaction(SIGBUS, &action, &previous_action);
}

static void
add_file(PmFile *f)
{
	pmh_lock(&mapped_files_lock);
	install_handler();
	f->next = mapped_files;
	mapped_files = f;
	pmh_unlock(&mapped_files_lock);
}

static void
remove_file(PmFile *f)
{
	PmFile	  **p = &mapped_files;

	pmh_lock(&mapped_files_lock);
	while (*p != NULL && *p != f)
		p = &(*p)->next;
	if (*p != NULL)
		*p = f->next;
	pmh_unlock(&mapped_files_lock);
}

/* ---- mapping ---- */

/* The result code for a failed system call. */
static PmhResult
pm_result(int err)
{
	switch (err)
	{
		case ENOSPC:
		case EDQUOT:
		case EFBIG:
			return PMH_ERR_NO_SPACE;
		case ENOMEM:
			return PMH_ERR_NO_MEMORY;
		case ENOENT:
			return PMH_ERR_NO_FILE;
		case EEXIST:
			return PMH_ERR_EXISTS;
		default:
			return PMH_ERR_IO;
	}
}

static PmhResult
pm_error(PmhError *error, int err, const char *what)
{
	return pmh_fill_error(error, pm_result(err), err, 0,
						  "The operation that failed was %s.", what);
}

/* posix_fallocate, begun again when a signal interrupts it; 0 or an errno. */
static int
pm_allocate(int fd, size_t from, size_t to)
{
	int			err;

	do
		err = posix_fallocate(fd, (off_t) from, (off_t) (to - from));
	while (err == EINTR);
	return err;
}

/*
 * Can the file be mapped so that a store is durable once its line is flushed,
 * with nothing left for the file system to do?  PMEM_IS_PMEM_FORCE=1 makes
 * libpmem claim that of every file; the kernel does not lie.
 */
static bool
pm_maps_synchronously(int fd)
{
	void	   *base = mmap(NULL, 1, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);

	if (base == MAP_FAILED)
		return false;
	(void) munmap(base, 1);
	return true;
}

/* Map the file that f->fd has open, all of it as it is now. */
static PmhResult
pm_map(PmFile *f, const char *path, bool force_pmem, PmhError *error)
{
	int			is_pmem = 0;

	f->base = pmem_map_file(path, 0, 0, 0, &f->mapped, &is_pmem);
	if (f->base == NULL)
		return pm_error(error, errno, "mapping the file");
	f->is_pmem = is_pmem != 0 && pm_maps_synchronously(f->fd);
	f->persist = is_pmem != 0 || force_pmem;
	add_file(f);
	return PMH_OK;
}

/*
 * Create path exclusively with 'size' bytes allocated, and map it.  (Not with
 * pmem_map_file's PMEM_FILE_CREATE, which would truncate a file that exists.)
 */
PmhResult
pm_create(PmFile *f, const char *path, size_t size, bool force_pmem,
		  PmhError *error)
{
	PmhResult	result;
	int			err;

	memset(f, 0, sizeof(*f));
	f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (f->fd < 0)
		return pm_error(error, errno, "creating the file");

	err = pm_allocate(f->fd, 0, size);
	if (err != 0)
		result = pm_error(error, err, "allocating space for a new file");
	else
		result = pm_map(f, path, force_pmem, error);
	if (result != PMH_OK)
	{
		close(f->fd);
		unlink(path);
	}
	return result;
}

/* Open and map an existing file that is at least a header long. */
PmhResult
pm_open(PmFile *f, const char *path, bool force_pmem, PmhError *error)
{
	PmhResult	result;
	struct stat st;

	memset(f, 0, sizeof(*f));
	f->fd = open(path, O_RDWR | O_CLOEXEC);
	if (f->fd < 0)
		return pm_error(error, errno, "opening the file");

	if (fstat(f->fd, &st) != 0)
		result = pm_error(error, errno, "asking for the size of the file");
	else if (!S_ISREG(st.st_mode) || st.st_size < PMH_HEADER_SIZE)
		result = pmh_fill_error(error, PMH_ERR_FORMAT, 0, 0,
								"The file is too short to have a header.");
	else
		result = pm_map(f, path, force_pmem, error);
	if (result != PMH_OK)
		close(f->fd);
	return result;
}

void
pm_close(PmFile *f)
{
	if (f->base != NULL)
	{
		remove_file(f);
		(void) pmem_unmap(f->base, f->mapped);
	}
	(void) close(f->fd);
	memset(f, 0, sizeof(*f));
	f->fd = -1;
}

PmhResult
pm_extend(PmFile *f, size_t from, size_t to, PmhError *error)
{
	struct stat st;
	int			err;

	/*
	 * What is missing of a truncated file would come back as zeroes, and no
	 * one would notice.
	 */
	if (fstat(f->fd, &st) != 0)
		return pm_error(error, errno, "asking for the size of the file");
	if ((uint64_t) st.st_size < from)
		note_lost(f, (size_t) st.st_size);
	if (pm_is_lost(f))
		return pmh_fill_lost(error, f);

	err = pm_allocate(f->fd, from, to);
	if (err != 0)
		return pm_error(error, err, "allocating more space for the file");

	/*
	 * The caller is going to store the new size in the file, which may be
	 * durable before the file system's own idea of it is.
	 */
	if (f->is_pmem && fsync(f->fd) != 0)
		return pm_error(error, errno, "fsync");
	return PMH_OK;
}

PmhResult
pm_punch(PmFile *f, size_t from, size_t to, PmhError *error)
{
	int			rc;

	do
		rc = fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   (off_t) from, (off_t) (to - from));
	while (rc != 0 && errno == EINTR);
	if (rc != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
		return pm_error(error, errno, "giving space back to the file system");
	return PMH_OK;
}

PmhResult
pm_truncate(PmFile *f, size_t size, PmhError *error)
{
	struct stat st;

	if (fstat(f->fd, &st) != 0)
		return pm_error(error, errno, "asking for the size of the file");
	if ((size_t) st.st_size > size && ftruncate(f->fd, (off_t) size) != 0)
		return pm_error(error, errno, "cutting the file");
	return PMH_OK;
}

/* mremap in place.  The lock keeps the handler from old addresses. */
static bool
grow_in_place(PmFile *f, size_t size)
{
	bool		done;

	pmh_lock(&mapped_files_lock);
	done = mremap(f->base, f->mapped, size, 0) != MAP_FAILED;
	if (done)
		f->mapped = size;
	pmh_unlock(&mapped_files_lock);
	return done;
}

/*
 * Move the mapping to 'start', where there is room, and make it longer.
 * libpmem keeps a list of the addresses of persistent memory, and refuses to
 * map anything where it thinks that something is; so there we map anew and let
 * it unmap the old place.
 */
static bool
pm_move(const PmFile *f, size_t size, void *start)
{
	if (!f->is_pmem)
		return mremap(f->base, f->mapped, size, MREMAP_MAYMOVE | MREMAP_FIXED,
					  start) != MAP_FAILED;
	if (mmap(start, size, PROT_READ | PROT_WRITE,
			 MAP_SHARED_VALIDATE | MAP_SYNC | MAP_FIXED, f->fd, 0) == MAP_FAILED)
		return false;
	(void) pmem_unmap(f->base, f->mapped);
	return true;
}

/* The same with a move to 'start'. */
static bool
grow_and_move(PmFile *f, size_t size, uintptr_t start)
{
	bool		done;

	pmh_lock(&mapped_files_lock);
	done = pm_move(f, size, (void *) start);
	if (done)
	{
		f->base = (char *) start;
		f->mapped = size;
	}
	pmh_unlock(&mapped_files_lock);
	return done;
}

/*
 * Map up to 'size' bytes.  Mappings of PM_ALIGNMENT and more go to an aligned
 * address, so that huge pages stay possible.
 */
PmhResult
pm_remap(PmFile *f, size_t size, PmhError *error)
{
	size_t		room = size + PM_ALIGNMENT;
	uintptr_t	area;
	uintptr_t	start;
	void	   *base;
	struct stat st;

	if (pm_is_lost(f))
		return pmh_fill_lost(error, f);
	if (size <= f->mapped)
		return PMH_OK;

	/* What is mapped behind the end of the file would be SIGBUS. */
	if (fstat(f->fd, &st) != 0)
		return pm_error(error, errno, "asking for the size of the file");
	if ((uint64_t) st.st_size < size)
		return pmh_fill_error(error, PMH_ERR_CORRUPT, 0, 0,
							  "The file has %llu bytes, its header tells of %llu.",
							  (unsigned long long) st.st_size, (unsigned long long) size);

	if (((uintptr_t) f->base % PM_ALIGNMENT == 0 || size < PM_ALIGNMENT) &&
		grow_in_place(f, size))
		return PMH_OK;

	base = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return pm_error(error, errno, "finding addresses for a longer mapping");
	area = (uintptr_t) base;
	start = (area + PM_ALIGNMENT - 1) & ~(PM_ALIGNMENT - 1);

	if (!grow_and_move(f, size, start))
	{
		int			err = errno;

		(void) munmap((void *) area, room);
		return pm_error(error, err, "mapping more of the file");
	}
	if (start > area)
		(void) munmap((void *) area, start - area);
	if (area + room > start + size)
		(void) munmap((void *) (start + size), area + room - (start + size));
	return PMH_OK;
}

PmhResult
pm_sync(PmFile *f, PmhError *error)
{
	if (pm_is_lost(f))
		return pmh_fill_lost(error, f);
	if (f->persist)
		pmem_drain();
	if (f->is_pmem)
		return PMH_OK;
	if (pmem_msync(f->base, f->mapped) != 0)
		return pm_error(error, errno, "msync");
	if (fsync(f->fd) != 0)
		return pm_error(error, errno, "fsync");
	return PMH_OK;
}

void
pm_flush(const PmFile *f, const void *addr, size_t len)
{
	if (f->persist)
		pmem_flush(addr, len);
}

void
pm_fence(const PmFile *f)
{
	if (f->persist)
		pmem_drain();
}

void
pm_copy(const PmFile *f, void *dst, const void *src, size_t len)
{
	if (f->persist)
		pmem_memcpy(dst, src, len, PMEM_F_MEM_NODRAIN | PMEM_F_MEM_NONTEMPORAL);
	else
		memcpy(dst, src, len);
}

/*
 * Write with a system call: a page that is written as a whole is not zeroed
 * first, and not mapped either until somebody reads it.  Not behind the end of
 * the file: who has cut it off must be noticed, and not be given zeroes that
 * look like data (as in pm_extend).  Returns how much has been written.
 */
static size_t
write_through(const PmFile *f, size_t at, const char *src, size_t len)
{
	struct stat st;
	size_t		done = 0;

	if (fstat(f->fd, &st) != 0 || (size_t) st.st_size < at + len)
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
pm_copy_fresh(const PmFile *f, void *dst, const void *src, size_t len)
{
	size_t		done = 0;

	if (!f->persist && !pm_is_lost(f))
		done = write_through(f, (size_t) ((char *) dst - f->base), src, len);
	if (done < len)
		pm_copy(f, (char *) dst + done, (const char *) src + done, len - done);
}
