/*-------------------------------------------------------------------------
 *
 * pm_shared.c
 *	  pm.h for ThreadSanitizer: handles of one process on one file share one
 *	  mapping, so that threads race (or do not) at the same addresses.
 *
 * The file is mapped once for the longest that a test makes.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "handle.h"
#include "pm.h"

#define LONGEST		((size_t) 1 << 30)
#define FILES		16

typedef struct Shared
{
	dev_t		dev;
	ino_t		ino;
	unsigned	handles;		/* 0: free */
	char	   *base;
} Shared;

static Shared shared[FILES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static PmhResult
fail(PmhError *error, int err)
{
	PmhResult	result = PMH_ERR_IO;

	if (err == ENOSPC || err == EFBIG)
		result = PMH_ERR_NO_SPACE;
	else if (err == ENOENT)
		result = PMH_ERR_NO_FILE;
	else if (err == EEXIST)
		result = PMH_ERR_EXISTS;
	return pmh_fill_error(error, result, err, 0, "%s.", strerror(err));
}

/* The entry of the file of f, a new one if need be; NULL if there are too many. */
static Shared *
find_shared(const PmFile *f)
{
	Shared	   *unused = NULL;
	struct stat st;

	if (fstat(f->fd, &st) != 0)
		return NULL;
	for (int i = 0; i < FILES; i++)
	{
		if (shared[i].handles == 0)
			unused = &shared[i];
		else if (shared[i].dev == st.st_dev && shared[i].ino == st.st_ino)
			return &shared[i];
	}
	if (unused != NULL)
	{
		void	   *base = mmap(NULL, LONGEST, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);

		if (base == MAP_FAILED)
			return NULL;
		unused->dev = st.st_dev;
		unused->ino = st.st_ino;
		unused->base = base;
	}
	return unused;
}

static PmhResult
attach(PmFile *f, bool force_pmem, PmhError *error)
{
	PmhResult	result = PMH_OK;
	struct stat st;
	Shared	   *s;

	f->persist = force_pmem;
	pthread_mutex_lock(&mutex);
	s = find_shared(f);
	if (s == NULL || fstat(f->fd, &st) != 0)
		result = fail(error, ENOMEM);
	else
	{
		f->base = s->base;
		f->addresses = LONGEST;
		f->bound = (size_t) st.st_size;
		s->handles++;
	}
	pthread_mutex_unlock(&mutex);
	if (result != PMH_OK)
		close(f->fd);
	return result;
}

PmhResult
pm_create(PmFile *f, const char *path, size_t size, bool force_pmem,
		  PmhError *error)
{
	PmhResult	result;

	memset(f, 0, sizeof(*f));
	f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (f->fd < 0)
		return fail(error, errno);
	result = pm_extend(f, 0, size, error);
	if (result == PMH_OK)
		result = attach(f, force_pmem, error);
	else
		close(f->fd);
	if (result != PMH_OK)
		unlink(path);
	return result;
}

PmhResult
pm_open(PmFile *f, const char *path, bool force_pmem, PmhError *error)
{
	memset(f, 0, sizeof(*f));
	f->fd = open(path, O_RDWR | O_CLOEXEC);
	if (f->fd < 0)
		return fail(error, errno);
	return attach(f, force_pmem, error);
}

void
pm_close(PmFile *f)
{
	Shared	   *s;

	pthread_mutex_lock(&mutex);
	s = find_shared(f);
	if (s != NULL && --s->handles == 0)
		munmap(s->base, LONGEST);
	pthread_mutex_unlock(&mutex);
	close(f->fd);
}

void
pm_read_ahead(const PmFile *f, const void *address, size_t size)
{
	(void) f;
	(void) address;
	(void) size;
}

/* So that the pages are asked for, in vain. */
bool
pm_is_resident(const PmFile *f, const void *address)
{
	(void) f;
	(void) address;
	return false;
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
	(void) f;
}

void
pm_let_go(PmFile *f)
{
	(void) f;
}

/* Readers of space that is used again race with this: word by word. */
void
pm_copy(const PmFile *f, void *dst, const void *src, size_t len)
{
	uint64_t   *to = dst;
	const uint64_t *from = src;

	(void) f;
	for (size_t i = 0; i < len / sizeof(uint64_t); i++)
		__atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
}

void
pm_copy_to_space(const PmFile *f, void *dst, const void *src, size_t len, bool fresh)
{
	(void) fresh;
	pm_copy(f, dst, src, len);
}
