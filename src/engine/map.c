/*-------------------------------------------------------------------------
 *
 * map.c
 *	  Where files are mapped, and what happens when a page of one cannot be read.
 *
 * A file is mapped for many times its length at once (src/README, "Mapping"): when a page is
 * touched first the kernel asks how long the file is then (filemap_fault(),
 * dax_iomap_fault()).  What lies past the end takes addresses, no memory and no page tables,
 * and no accounting either, since the mapping is shared.
 *
 * A file that outgrows its mapping is mapped a second time, longer; the first mapping
 * stays until the handle is closed, so that pointers into it stay good: two
 * mappings of the same pages, at whichever of them they are read or changed.
 *
 * Relied upon, of mremap(2): with the old length 0 it maps the pages of a
 * shared mapping once more, at any length, with the same flags (MAP_SYNC among
 * them: VM_SYNC is a flag of the area, which the kernel's copy_vma() copies).  It
 * takes the file from the mapping that is there, so no descriptor is needed.
 *
 * SIGBUS.  A load from or a store to a mapping raises it if the page is past the end of the
 * file by now, cannot be read, or is on damaged memory.  The handler here puts private
 * zeroes instead of the page, notes in the PmFile and on the board of lost files (lock.h)
 * that this has happened, and returns: the operation goes on with zeroes, gives its locks
 * back the ordinary way, and fails at its end.  It does not jump out, since the locks could
 * not be given back then.
 * It knows all mappings of a file, outgrown ones too: each has faults of its own.  See
 * src/README, "Faults of the medium".
 *
 * With PMH_SHORT_MAPPINGS (tests) a mapping is no longer than the file was when it was
 * made, so that each growth is one too many for it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "layout.h"
#include "lock.h"
#include "pm.h"

/*
 * A mapping is so many times as long as the file, or as a small file may become.  So a
 * file is mapped anew five times at most on its way to the largest one.  Addresses of a
 * process: 47 bits.  10,000 small files take 10 GiB of them, and two share the page table
 * of 2 MiB.  Where there are not so many (RLIMIT_AS) it is as long as the file.
 */
#define MAPPED_TIMES	16
#define LEAST_MAPPED	((size_t) 1024 * 1024)
#define MOST_MAPPED		((size_t) 256 << 30)

/*
 * The mapped files of this process, the lock that guards the list and the
 * addresses in it, and what SIGBUS did before we came.  The holder of the lock
 * touches no mapping, so the handler can wait for it.
 */
static PmFile *mapped_files;
static uint64_t mapped_files_lock;
static struct sigaction previous_action;
static uintptr_t page_size;		/* 0: the handler is not installed */

/* ---- faults ---- */

void
pmh_map_note_lost(PmFile *f, size_t offset)
{
	if (f->lost == 0)
		__atomic_store_n(&f->lost, (uint64_t) offset + 1, __ATOMIC_RELAXED);
	if (f->lost_board != NULL)
		pmh_lost_post(f->lost_board, f->file_id);
}

/*
 * If the address is in this mapping, map zeroes of our own in place of its page.  The number
 * of faults that an operation can meet is that of the pages it touches.
 */
static bool
replace_in(PmFile *f, const PmMapping *m, uintptr_t address)
{
	uintptr_t	start = (uintptr_t) m->base;
	uintptr_t	page = address & ~(page_size - 1);

	if (address < start || address - start >= m->addresses)
		return false;
	pmh_map_note_lost(f, page - start);
	return mmap((void *) page, page_size, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static bool
replace_lost(uintptr_t address)
{
	for (PmFile *f = mapped_files; f != NULL; f = f->next)
	{
		PmMapping	now = {f->outgrown, f->base, f->addresses};

		for (const PmMapping *m = &now; m != NULL; m = m->next)
		{
			if (replace_in(f, m, address))
				return true;
		}
	}
	return false;
}

static void
on_bus_error(int number, siginfo_t *info, void *context)
{
	int			save_errno = errno;
	bool		replaced = false;

	(void) context;
	/*
	 * Is it that a page cannot be had?  There are other reasons for SIGBUS: on arm64 an
	 * atomic access that is not aligned (BUS_ADRALN).  Zeroes are no help with that: it would
	 * be repeated for ever, with locks held, and a sound file be posted as lost.  Nor is it
	 * to be expected; so the process ends at the instruction, and tells where.
	 */
	if (info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR ||
		info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO)
	{
		pmh_lock(&mapped_files_lock);
		replaced = replace_lost((uintptr_t) info->si_addr);
		pmh_unlock(&mapped_files_lock);
	}
	if (!replaced)
	{
		/* As without us.  A fault comes again when we return, a signal that was sent not. */
		(void) sigaction(number, &previous_action, NULL);
		if (info->si_code <= 0)
			(void) raise(number);
	}
	errno = save_errno;
}

/*
 * Before anything is mapped: what the unit of mapping is, and the handler.  It is installed
 * once in a process; children inherit it with the list.
 *
 * The unit is 4 KiB on x86-64, and up to 64 KiB on other machines.  A build of the tests
 * takes a larger one than the machine's (test/engine, pages_*.c).  It is a multiple of that,
 * and all that is mapped, replaced or given up is whole pages: so the machine does the same
 * with it as if it were its own.
 */
static void
prepare(void)
{
	struct sigaction action = {.sa_sigaction = on_bus_error,
		.sa_flags = SA_SIGINFO | SA_RESTART};

	pmh_lock(&mapped_files_lock);
	if (page_size == 0)
	{
#ifdef PMH_PAGE_SIZE
		page_size = PMH_PAGE_SIZE;
#else
		page_size = (uintptr_t) sysconf(_SC_PAGESIZE);
#endif
		(void) sigemptyset(&action.sa_mask);
		(void) sigaction(SIGBUS, &action, &previous_action);
	}
	pmh_unlock(&mapped_files_lock);
}

size_t
pmh_whole_pages(size_t size)
{
	if (page_size == 0)
		prepare();
	PMH_ASSERT((page_size & (page_size - 1)) == 0);
	return (size + page_size - 1) & ~(page_size - 1);
}

/* ---- mappings ---- */

/* How many addresses a file of this size should have. */
static size_t
wanted_length(size_t size)
{
#ifdef PMH_SHORT_MAPPINGS
	return pmh_whole_pages(size);
#else
	size_t		wanted = MOST_MAPPED;

	if (size < LEAST_MAPPED / MAPPED_TIMES)
		wanted = LEAST_MAPPED;
	else if (size < MOST_MAPPED / MAPPED_TIMES)
		wanted = size * MAPPED_TIMES;
	return pmh_whole_pages(wanted < size ? size : wanted);
#endif
}

/*
 * Map a file of this size: what fd has open, with 'flags', or (-1) what f has mapped
 * already.  0 or an errno.  (Files on persistent memory begin at a multiple of 2 MiB, so
 * that huge pages are possible: thp_get_unmapped_area() sees to it.)
 */
static int
map_long(PmFile *f, int fd, int flags, size_t size)
{
	for (size_t length = wanted_length(size);;)
	{
		void	   *base = fd < 0 ? mremap(f->base, 0, length, MREMAP_MAYMOVE) :
			mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, 0);

		if (base != MAP_FAILED)
		{
			f->base = base;
			f->addresses = length;
			return 0;
		}
		/* (EAGAIN: a limit of locked memory) */
		if ((errno != ENOMEM && errno != EAGAIN) || length <= pmh_whole_pages(size))
			return errno;
		length = pmh_whole_pages(size);
	}
}

int
pmh_map(PmFile *f, int fd, size_t size, bool *synchronous)
{
	int			err;

	err = map_long(f, fd, MAP_SHARED_VALIDATE | MAP_SYNC, size);
	*synchronous = err == 0;
	if (err != 0)
		err = map_long(f, fd, MAP_SHARED, size);
	if (err != 0)
		return err;
	PMH_ASSERT(size > 0 && size <= f->addresses);
	/*
	 * Hashes have no neighbours: what is around a page that is read from disk is not
	 * needed with it (read_ahead.c).  Another mapping of the file will have this, too.
	 */
	if (!*synchronous)
		(void) madvise(f->base, f->addresses, MADV_RANDOM);
	f->bound = size;
	pmh_lock(&mapped_files_lock);
	f->next = mapped_files;
	f->link = &mapped_files;
	if (f->next != NULL)
		f->next->link = &f->next;
	mapped_files = f;
	pmh_unlock(&mapped_files_lock);
	return 0;
}

int
pmh_map_further(PmFile *f, size_t size)
{
	PmMapping  *old;
	int			err;

	PMH_ASSERT(size > f->addresses);
	PMH_ASSERT(f->base != NULL);
	old = malloc(sizeof(PmMapping));
	if (old == NULL)
		return ENOMEM;
	*old = (PmMapping) {f->outgrown, f->base, f->addresses};
	/* The lock keeps the handler from a mapping that changes. */
	pmh_lock(&mapped_files_lock);
	err = map_long(f, -1, 0, size);
	if (err == 0)
		f->outgrown = old;
	pmh_unlock(&mapped_files_lock);
	if (err != 0)
		free(old);
	return err;
}

void
pmh_unmap(PmFile *f)
{
	/* In a time that does not depend on how many there are: there may be thousands. */
	pmh_lock(&mapped_files_lock);
	PMH_ASSERT(f->link != NULL && *f->link == f);
	*f->link = f->next;
	if (f->next != NULL)
		f->next->link = f->link;
	pmh_unlock(&mapped_files_lock);
	while (f->outgrown != NULL)
	{
		PmMapping  *old = f->outgrown;

		f->outgrown = old->next;
		(void) munmap(old->base, old->addresses);
		free(old);
	}
	(void) munmap(f->base, f->addresses);
}
