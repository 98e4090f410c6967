/*-------------------------------------------------------------------------
 *
 * map.c
 *	  Where files are mapped: reservations, mappings that grow in them, and
 *	  what happens when a page of one cannot be read.
 *
 * A pointer into a mapping must not become void because the mapping grows.  So
 * addresses are reserved for several times the length of a file (PROT_NONE:
 * they cost neither memory nor page tables), and its mapping grows in them.
 * Where a reservation is outgrown, a longer one is made and the file is mapped
 * there as well: two mappings of the same pages, at whichever of them they are
 * read or changed.  The old one is kept until the operation that was under way
 * has come to its end (pmh_map_forget_old, called by pmh_conclude).  See
 * src/README, "Mapping".
 *
 * Relied upon, of mremap(2): with the old length 0 it maps the pages of a
 * shared mapping once more, at any length, with the same flags (MAP_SYNC among
 * them: VM_SYNC is a flag of the area, which the kernel's copy_vma() copies);
 * and it makes a mapping longer where it is if nothing is mapped after it.  Both
 * take the file from the mapping that is there, so neither needs a descriptor,
 * and the two pieces of a mapping that has grown are one area, not two.
 *
 * A reservation that has room takes two of the areas of vm.max_map_count: the
 * file and what is reserved after it.
 *
 * SIGBUS.  A load from or a store to a mapping raises it if the page is past
 * the end of the file by now, cannot be read, or is on damaged memory.  The
 * handler here puts private zeroes instead of the page and of all that follows
 * it in that mapping, notes in the PmFile and on the board of lost files
 * (lock.h) that this has happened, and returns: the operation goes on with
 * zeroes, gives its locks back the ordinary way, and fails at its end.  It does
 * not jump out, since the locks could not be given back then.  It knows all
 * mappings of a file, old ones too: each has faults of its own.  See
 * src/README, "Faults of the medium".
 *
 * With PMH_MOVE_MAPPINGS (test/engine) no reservation has room to spare, so
 * that each growth moves the mapping, and an old mapping is not unmapped but
 * made inaccessible for good: the process that keeps a pointer for longer than
 * its operation takes meets SIGSEGV at once.
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
#include "map.h"
#include "pm.h"

/* Huge page and DAX PMD size: reservations as large begin at a multiple of it. */
#define ALIGNMENT		((size_t) 2 * 1024 * 1024)

/*
 * A file's reservation has room for it four times, a large file's twice.  Small
 * files have small ones, next to each other: 10,000 of them take 2.5 GiB of
 * addresses, and the page table of 2 MiB serves eight.
 */
#define LEAST_RESERVED	((size_t) 256 * 1024)
#define LARGE_FILE		((size_t) 16 * 1024 * 1024 * 1024)

/* A reservation that is outgrown is followed by one at least as large. */
#define GROWTH_SMALL	2		/* log2: four times */
#define GROWTH_LARGE	1

/*
 * So many reservations at most follow each other up to the largest file, but
 * for those that found no addresses to spare.
 */
#define LOG_LEAST		18
#define LOG_LARGE		34
_Static_assert(LEAST_RESERVED == (size_t) 1 << LOG_LEAST, "LOG_LEAST");
_Static_assert(LARGE_FILE == (size_t) 1 << LOG_LARGE, "LOG_LARGE");
_Static_assert((LOG_LARGE - LOG_LEAST) / GROWTH_SMALL +
			   (PMH_MAX_FILE_SHIFT + 1 - LOG_LARGE) / GROWTH_LARGE < PM_OLD_MAPPINGS,
			   "an operation may leave more old mappings than there is room for");

/* Addresses of a process: 47 bits, with page tables of four levels. */
_Static_assert(PMH_MAX_FILE_SHIFT + GROWTH_LARGE < 47,
			   "the largest file has no room in the address space");

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
 * The unit of mapping: 4 KiB on x86-64, and up to 64 KiB on other machines.  A build
 * of the tests takes a larger one than the machine's (test/engine, pages_*.c).  It is
 * a multiple of that, and all that is mapped, replaced or given up is whole pages: so
 * the machine does the same with it as if it were its own.
 */
static uintptr_t
unit_of_mapping(void)
{
#ifdef PMH_PAGE_SIZE
	return PMH_PAGE_SIZE;
#else
	return (uintptr_t) sysconf(_SC_PAGESIZE);
#endif
}

size_t
pmh_whole_pages(size_t size)
{
	return (size + page_size - 1) & ~(page_size - 1);
}

/* Map zeroes of our own, in place of what is at this address, or (NULL) anywhere. */
static void *
map_zeroes(void *at, size_t size)
{
	int			flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

	return mmap(at, size, PROT_READ | PROT_WRITE,
				at != NULL ? flags | MAP_FIXED : flags, -1, 0);
}

/*
 * Put zeroes over [from, to).  False if that fails: then what was mapped there still is.
 * So they are made elsewhere and moved: kernels before 6.12 unmap what is at a fixed
 * address before they see that there is no memory for what is to come there, and with
 * vm.overcommit_memory = 2 there may be none for a large file's.
 */
static bool
replace_range(uintptr_t from, uintptr_t to)
{
	size_t		size = to - from;
	void	   *zeroes = map_zeroes(NULL, size);

	if (zeroes == MAP_FAILED)
		return false;
	if (mremap(zeroes, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *) from) !=
		MAP_FAILED)
		return true;
	(void) munmap(zeroes, size);
	return false;
}

/*
 * If the address is in this mapping, replace what there is from its page on
 * (or, with memory so short, the page alone).  The number of faults an operation
 * can meet is thus no larger than that of the pages it touches, and the mapping
 * falls into two pieces at the most.
 */
static bool
replace_in(PmFile *f, const char *base, size_t mapped, uintptr_t address)
{
	uintptr_t	start = (uintptr_t) base;
	uintptr_t	end = start + pmh_whole_pages(mapped);
	uintptr_t	page = start + ((address - start) & ~(page_size - 1));

	if (address < start || address >= end)
		return false;
	pmh_map_note_lost(f, page - start);
	return replace_range(page, end) ||
		map_zeroes((void *) page, page_size) != MAP_FAILED;
}

static bool
replace_lost(uintptr_t address)
{
	for (PmFile *f = mapped_files; f != NULL; f = f->next)
	{
		if (replace_in(f, f->base, f->mapped, address))
			return true;
		for (unsigned i = 0; i < f->nold; i++)
		{
			if (replace_in(f, f->old[i].base, f->old[i].mapped, address))
				return true;
		}
	}
	return false;
}

/*
 * Is it that a page cannot be had?  There are other reasons for SIGBUS: on arm64 an
 * atomic access that is not aligned (BUS_ADRALN).  Zeroes are no help with that: it would
 * be repeated for ever, with locks held, and a sound file be posted as lost.  Nor is it
 * to be expected; so the process ends at the instruction, and tells where.
 */
static bool
is_lost_page(const siginfo_t *info)
{
	return info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR ||
		info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO;
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

	if (is_lost_page(info))
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

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_bus_error;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	(void) sigemptyset(&action.sa_mask);
	(void) sigaction(SIGBUS, &action, &previous_action);
}

/* Before anything is mapped. */
static void
prepare(void)
{
	pmh_lock(&mapped_files_lock);
	if (page_size == 0)
	{
		page_size = unit_of_mapping();
		install_handler();
	}
	pmh_unlock(&mapped_files_lock);
}

static void
add_file(PmFile *f)
{
	pmh_lock(&mapped_files_lock);
	f->next = mapped_files;
	f->link = &mapped_files;
	if (f->next != NULL)
		f->next->link = &f->next;
	mapped_files = f;
	pmh_unlock(&mapped_files_lock);
}

/* In a time that does not depend on how many there are: there may be thousands. */
static void
remove_file(PmFile *f)
{
	pmh_lock(&mapped_files_lock);
	*f->link = f->next;
	if (f->next != NULL)
		f->next->link = f->link;
	pmh_unlock(&mapped_files_lock);
}

/* ---- reservations ---- */

/* How many addresses a file of this size should have. */
static size_t
wanted_reservation(size_t size)
{
#ifdef PMH_MOVE_MAPPINGS
	return pmh_whole_pages(size);
#else
	size_t		wanted = size << (size < LARGE_FILE ? GROWTH_SMALL : GROWTH_LARGE);

	return pmh_whole_pages(wanted < LEAST_RESERVED ? LEAST_RESERVED : wanted);
#endif
}

/*
 * Reserve 'size' addresses, a multiple of the page size; large reservations
 * begin at a multiple of ALIGNMENT, so that huge pages are possible.  NULL if
 * there are none.
 */
static char *
reserve_exactly(size_t size)
{
	size_t		spare = size < ALIGNMENT ? 0 : ALIGNMENT;
	uintptr_t	area;
	uintptr_t	start;
	void	   *base = mmap(NULL, size + spare, PROT_NONE,
							MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return NULL;
	area = (uintptr_t) base;
	start = spare == 0 ? area : (area + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
	if (start > area)
		(void) munmap(base, start - area);
	if (start - area < spare)
		(void) munmap((void *) (start + size), spare - (start - area));
	return (char *) start;
}

/*
 * Reserve addresses for a file of 'size' bytes: with room for growth, or if
 * there are not so many (RLIMIT_AS), without.  NULL with errno set.
 */
static char *
reserve(size_t size, size_t *reserved)
{
	char	   *base;

	*reserved = wanted_reservation(size);
	base = reserve_exactly(*reserved);
	if (base == NULL && *reserved > pmh_whole_pages(size))
	{
		*reserved = pmh_whole_pages(size);
		base = reserve_exactly(*reserved);
	}
	return base;
}

/* ---- mappings ---- */

/*
 * Does the kernel grant MAP_SYNC for this file?  Tried at another address first:
 * whether mmap leaves the reservation as it was when it refuses is not said.
 */
static bool
grants_sync(int fd)
{
	void	   *base = mmap(NULL, 1, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);

	if (base == MAP_FAILED)
		return false;
	(void) munmap(base, 1);
	return true;
}

int
pmh_map(PmFile *f, int fd, size_t size, bool *synchronous)
{
	size_t		reserved;
	char	   *base;
	int			flags;

	prepare();
	*synchronous = grants_sync(fd);
	flags = MAP_FIXED | (*synchronous ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED);
	base = reserve(size, &reserved);
	if (base == NULL)
		return errno;
	if (mmap(base, pmh_whole_pages(size), PROT_READ | PROT_WRITE, flags, fd, 0) ==
		MAP_FAILED)
	{
		int			err = errno;

		(void) munmap(base, reserved);
		return err;
	}
	f->base = base;
	f->mapped = size;
	f->reserved = reserved;
	add_file(f);
	return 0;
}

/*
 * Grow inside the reservation.  Another thread may take addresses between the
 * two calls; then what is left of the reservation is given up, and false.  The
 * lock keeps the handler from addresses that change.
 */
static bool
grow_in_place(PmFile *f, size_t size)
{
	size_t		old_size = pmh_whole_pages(f->mapped);
	size_t		new_size = pmh_whole_pages(size);
	bool		done;

	if (new_size > f->reserved)
		return false;
	pmh_lock(&mapped_files_lock);
	done = new_size == old_size ||
		(munmap(f->base + old_size, new_size - old_size) == 0 &&
		 mremap(f->base, old_size, new_size, 0) != MAP_FAILED);
	if (done)
		f->mapped = size;
	else
	{
		if (f->reserved > new_size)
			(void) munmap(f->base + new_size, f->reserved - new_size);
		f->reserved = old_size;
	}
	pmh_unlock(&mapped_files_lock);
	return done;
}

/* The current mapping becomes an old one; the lock is held. */
static void
keep_old(PmFile *f)
{
	size_t		size = pmh_whole_pages(f->mapped);

	if (f->reserved > size)
		(void) munmap(f->base + size, f->reserved - size);
	f->old[f->nold++] = (PmMapping) {f->base, f->mapped};
}

/* Map the file a second time, longer, where there is room.  0 or an errno. */
static int
grow_elsewhere(PmFile *f, size_t size)
{
	size_t		reserved;
	char	   *base;
	int			err = 0;

	if (f->nold == PM_OLD_MAPPINGS)
		return ENOMEM;
	if (f->old == NULL && (f->old = calloc(PM_OLD_MAPPINGS, sizeof(PmMapping))) == NULL)
		return ENOMEM;
	base = reserve(size, &reserved);
	if (base == NULL)
		return errno;
	pmh_lock(&mapped_files_lock);
	if (mremap(f->base, 0, pmh_whole_pages(size), MREMAP_MAYMOVE | MREMAP_FIXED, base) ==
		MAP_FAILED)
	{
		err = errno;
		(void) munmap(base, reserved);
	}
	else
	{
		keep_old(f);
		f->base = base;
		f->mapped = size;
		f->reserved = reserved;
	}
	pmh_unlock(&mapped_files_lock);
	return err;
}

int
pmh_map_further(PmFile *f, size_t size)
{
	if (grow_in_place(f, size))
		return 0;
	return grow_elsewhere(f, size);
}

void
pmh_map_less(PmFile *f, size_t size)
{
	size_t		end = pmh_whole_pages(size);
	size_t		old_end = pmh_whole_pages(f->mapped);

	pmh_lock(&mapped_files_lock);
	/*
	 * Where that fails (memory for the kernel's own records), what was mapped may be
	 * gone all the same, before 6.12.  So all that follows is given up.
	 */
	if (end < old_end &&
		mmap(f->base + end, old_end - end, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
		MAP_FAILED && munmap(f->base + end, f->reserved - end) == 0)
		f->reserved = end;
	f->mapped = size;
	pmh_unlock(&mapped_files_lock);
}

static void
drop(const PmMapping *m)
{
#ifdef PMH_MOVE_MAPPINGS
	(void) mmap(m->base, pmh_whole_pages(m->mapped), PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
#else
	(void) munmap(m->base, pmh_whole_pages(m->mapped));
#endif
}

void
pmh_map_forget_old(PmFile *f)
{
	pmh_lock(&mapped_files_lock);
	for (unsigned i = 0; i < f->nold; i++)
		drop(&f->old[i]);
	f->nold = 0;
	pmh_unlock(&mapped_files_lock);
	free(f->old);
	f->old = NULL;
}

void
pmh_unmap(PmFile *f)
{
	pmh_map_forget_old(f);
	remove_file(f);
	(void) munmap(f->base, f->reserved);
}
