/*
 * pm_domain.c
 *	  What libpmem says of a file system: "is_pmem auto_flush", 0 or 1 each.
 *
 * usage: pm_domain DIRECTORY
 */
#include <libpmem.h>
#include <stdio.h>
#include <unistd.h>

int
main(int argc, char **argv)
{
	char		path[4096];
	int			is_pmem;
	size_t		mapped;
	void	   *base;

	if (argc != 2)
		return 2;
	snprintf(path, sizeof(path), "%s/pm_domain.tmp", argv[1]);
	base = pmem_map_file(path, 1 << 16, PMEM_FILE_CREATE | PMEM_FILE_EXCL, 0600,
						 &mapped, &is_pmem);
	if (base == NULL)
	{
		fprintf(stderr, "%s: %s\n", path, pmem_errormsg());
		return 1;
	}
	printf("%d %d\n", is_pmem, pmem_has_auto_flush() == 1);
	pmem_unmap(base, mapped);
	return unlink(path) != 0;
}
