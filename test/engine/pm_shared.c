/*-------------------------------------------------------------------------
 *
 * pm_shared.c
 *	  pm.h for ThreadSanitizer: handles of one process on one file share one
 *	  mapping, so that threads race (or do not) at the same addresses.
 *
 * There is one file at a time.  It is mapped once for the longest that a test makes, and
 * no call fails but for want of the file or of space.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "handle.h"
#include "pm.h"

#define LONGEST		((size_t) 1 << 30)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *shared;			/* the mapping ... */
static unsigned handles;		/* ... of so many */

static PmhResult
fail(PmhError *error, int err)
{
	return pmh_fill_error(error, err == ENOENT ? PMH_ERR_NO_FILE : PMH_ERR_NO_SPACE, err, 0, "%s.",
						  strerror(err));
}

static PmhResult
open_and_map(PmFile *f, const char *path, int flags, size_t size, bool force_pmem, PmhError *error)
{
	PmhResult	result = PMH_OK;
	struct stat st;

	memset(f, 0, sizeof(*f));
	f->persist = force_pmem;
	f->addresses = LONGEST;
	f->fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
	if (f->fd < 0)
		return fail(error, errno);
	if (size > 0)
		result = pm_extend(f, 0, size, error);
	if (result != PMH_OK)
		return result;
	if (fstat(f->fd, &st) != 0)
		return fail(error, errno);
	f->bound = (size_t) st.st_size;
	pthread_mutex_lock(&mutex);
	if (handles++ == 0)
		shared = mmap(NULL, LONGEST, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	if (shared == MAP_FAILED)
		abort();
	f->base = shared;
	pthread_mutex_unlock(&mutex);
	return result;
}

PmhResult
pm_create(PmFile *f, const char *path, size_t size, bool force_pmem, PmhError *error)
{
	return open_and_map(f, path, O_CREAT | O_EXCL, size, force_pmem, error);
}

PmhResult
pm_open(PmFile *f, const char *path, bool force_pmem, PmhError *error)
{
	return open_and_map(f, path, 0, 0, force_pmem, error);
}

void
pm_close(PmFile *f)
{
	pthread_mutex_lock(&mutex);
	if (--handles == 0)
		munmap(shared, LONGEST);
	pthread_mutex_unlock(&mutex);
	close(f->fd);
}

void
pm_read_ahead(const PmFile *f, const void *address, size_t size)
{
}

/* So that the pages are asked for, in vain. */
bool
pm_is_resident(const PmFile *f, const void *address)
{
	return false;
}

PmhResult
pm_sync(const PmFile *f, PmhError *error)
{
	(void) f;
	(void) error;
	return PMH_OK;
}

PmhResult
pm_extend(PmFile *f, size_t from, size_t to, PmhError *error)
{
	int			err = posix_fallocate(f->fd, (off_t) from, (off_t) (to - from));

	return err == 0 ? PMH_OK : fail(error, err);
}

PmhResult
pm_punch(PmFile *f, size_t from, size_t to, PmhError *error)
{
	if (fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				  (off_t) from, (off_t) (to - from)) != 0)
		return fail(error, errno);
	return PMH_OK;
}

PmhResult
pm_raise_bound(PmFile *f, size_t size, PmhError *error)
{
	if (size > f->addresses)
		return fail(error, ENOMEM);
	if (size > f->bound)
		f->bound = size;
	return PMH_OK;
}

void
pm_hold(PmFile *f)
{
}

void
pm_let_go(PmFile *f)
{
}

/* Readers of space that is used again race with this: word by word. */
void
pm_copy(const PmFile *f, void *dst, const void *src, size_t len)
{
	uint64_t   *to = dst;
	const uint64_t *from = src;

	for (size_t i = 0; i < len / sizeof(uint64_t); i++)
		__atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
}

void
pm_copy_to_space(const PmFile *f, void *dst, const void *src, size_t len, bool fresh)
{
	pm_copy(f, dst, src, len);
}
