/*
 * pm_probe.c
 *	  The engine alone on the guest's persistent memory.
 *
 * usage: pm_probe domain DIRECTORY		libpmem's "is_pmem auto_flush", 0 or 1
 *		  pm_probe class DIRECTORY		the engine's word: dax or cache
 *		  pm_probe remap DIRECTORY		many files that grow and move
 *		  pm_probe grow FILE			insert, let the file grow, say so, and
 *										wait for the power cut
 *		  pm_probe grown FILE KEYS		what is left after that
 *		  pm_probe poison FILE			have the kernel take its first page for
 *										damaged memory
 *		  pm_probe read FILE			load from its first page
 */
#include <fcntl.h>
#include <libpmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "error.h"
#include "handle.h"
#include "pm.h"
#include "space.h"
#include "table.h"

#define INITIAL_SIZE	((size_t) 64 * 1024)
#define FINAL_SIZE		((size_t) 3 * 1024 * 1024)
#define FILES			40
#define KEYS			50
#define LOCK_STRIPES	64

static int
failed(const char *what, const PmhError *error)
{
	printf("%s: error %d, %s, %s\n", what, error->code,
		   strerror(error->sys_errno), error->detail);
	return 1;
}

static PmhEnv
environment(void)
{
	PmhEnv		env = {.instance = (uint64_t) getpid()};
	void	   *memory = mmap(NULL, pmh_locks_size(LOCK_STRIPES), PROT_READ | PROT_WRITE,
							  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
	{
		perror("mmap");
		exit(2);
	}
	env.locks = pmh_locks_init(memory, LOCK_STRIPES);
	return env;
}

/* A bijection, so that keys fill segments evenly. */
static uint64_t
hash_of(uint64_t key)
{
	key ^= key >> 31;
	key *= UINT64_C(0x9e3779b97f4a7c15);
	return key ^ key >> 29;
}

static int
domain(const char *directory)
{
	char		path[4096];
	int			is_pmem;
	size_t		mapped;
	void	   *base;

	snprintf(path, sizeof(path), "%s/pm_probe.domain", directory);
	base = pmem_map_file(path, INITIAL_SIZE, PMEM_FILE_CREATE | PMEM_FILE_EXCL, 0600,
						 &mapped, &is_pmem);
	if (base == NULL)
	{
		printf("%s: %s\n", path, pmem_errormsg());
		return 1;
	}
	printf("%d %d\n", is_pmem, pmem_has_auto_flush() == 1);
	pmem_unmap(base, mapped);
	return unlink(path) != 0;
}

static int
class(const char *directory)
{
	PmFile		file;
	PmhError	error;
	char		path[4096];

	snprintf(path, sizeof(path), "%s/pm_probe.class", directory);
	if (pm_create(&file, path, INITIAL_SIZE, false, &error) != PMH_OK)
		return failed(path, &error);
	puts(file.is_pmem ? "dax" : "cache");
	pm_close(&file);
	return unlink(path) != 0;
}

/*
 * Files are created, grown, moved to other addresses by that, and closed in
 * another order; addresses are used again.  What a mapping is must not depend
 * on what was at its address before.
 */
static int
remap(const char *directory)
{
	static PmFile files[FILES];
	PmhError	error;
	char		path[4096];

	for (int i = 0; i < FILES; i++)
	{
		snprintf(path, sizeof(path), "%s/pm_probe.%d", directory, i);
		if (pm_create(&files[i], path, INITIAL_SIZE, false, &error) != PMH_OK)
			return failed(path, &error);
		if (!files[i].is_pmem)
			return printf("%s is not persistent memory\n", path), 1;
		if (i % 3 == 2)
			pm_close(&files[i - 1]);
		if (pm_extend(&files[i], INITIAL_SIZE, FINAL_SIZE, &error) != PMH_OK ||
			pm_raise_bound(&files[i], FINAL_SIZE, &error) != PMH_OK)
			return failed(path, &error);
		if ((uintptr_t) files[i].base % (2 * 1024 * 1024) != 0)
			return printf("%s is mapped at %p\n", path, (void *) files[i].base), 1;
		unlink(path);			/* not before it has grown: it is opened again for that */
	}
	puts("ok");
	return 0;
}

/* The new size is durable, and nothing is stored in the new part yet. */
static int
grow(const char *path)
{
	PmhEnv		env = environment();
	PmhError	error;
	PmhTable   *table;
	uint64_t	blocks;

	unlink(path);
	if (pmh_create(path, NULL, &env, &table, &error) != PMH_OK)
		return failed(path, &error);
	sync();
	for (uint64_t key = 0; key < KEYS; key++)
	{
		if (pmh_insert(table, hash_of(key), key, false) != PMH_OK)
			return failed(path, pmh_error(table));
	}
	blocks = pmh_blocks(table);
	table->need = (PmhNeed) {.blocks = 1, .seen = pmh_blocks_with_space(table)};
	if (pmh_provide(table) != PMH_OK)
		return failed(path, pmh_error(table));
	if (pmh_blocks(table) > blocks)
		printf("@mark grown %d\n", KEYS);
	fflush(stdout);
	for (;;)
		pause();
}

static int
grown(const char *path, uint64_t keys)
{
	PmhEnv		env = environment();
	PmhError	error;
	PmhTable   *table;
	PmhValues	values = {0};

	if (pmh_open(path, &env, &table, &error) != PMH_OK)
		return failed(path, &error);
	for (uint64_t key = 0; key < keys; key++)
	{
		if (pmh_lookup(table, hash_of(key), &values) != PMH_OK || values.n != 1 ||
			values.value[0] != key)
			return printf("key %llu is not there\n", (unsigned long long) key), 1;
	}
	puts("ok");
	pmh_close(table);
	return unlink(path) != 0;
}

static int
poison(const char *path)
{
	size_t		size = (size_t) sysconf(_SC_PAGESIZE);
	int			fd = open(path, O_RDWR);
	void	   *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		return perror(path), 1;
	puts("poison");
	fflush(stdout);
	if (madvise(page, size, MADV_HWPOISON) != 0)
		return perror("madvise"), 1;
	return 0;
}

/* Ends by SIGBUS if the page cannot be read. */
static int
read_page(const char *path)
{
	int			fd = open(path, O_RDONLY);
	volatile const char *page = mmap(NULL, (size_t) sysconf(_SC_PAGESIZE), PROT_READ,
									 MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		return perror(path), 1;
	(void) *page;
	puts("read");
	return 0;
}

int
main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "read") == 0)
		return read_page(argv[2]);
	if (argc == 3 && strcmp(argv[1], "domain") == 0)
		return domain(argv[2]);
	if (argc == 3 && strcmp(argv[1], "class") == 0)
		return class(argv[2]);
	if (argc == 3 && strcmp(argv[1], "poison") == 0)
		return poison(argv[2]);
	if (argc == 3 && strcmp(argv[1], "remap") == 0)
		return remap(argv[2]);
	if (argc == 3 && strcmp(argv[1], "grow") == 0)
		return grow(argv[2]);
	if (argc == 4 && strcmp(argv[1], "grown") == 0)
		return grown(argv[2], strtoull(argv[3], NULL, 10));
	return 2;
}
