/*-------------------------------------------------------------------------
 *
 * holes.h
 *	  Which parts of a file have no space, and are these all marked as punched?
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_HOLES_H
#define PMH_HOLES_H

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "fixture.h"

/* The first extent of the file at fd that ends past 'at'; false if there is none. */
static inline bool
extent_past(int fd, uint64_t at, struct fiemap_extent *extent)
{
	struct
	{
		struct fiemap head;
		struct fiemap_extent extent[1];
	}			map = {.head = {.fm_start = at, .fm_length = FIEMAP_MAX_OFFSET - at,
						.fm_extent_count = 1}};

	REQUIRE(ioctl(fd, FS_IOC_FIEMAP, &map) == 0);
	*extent = map.extent[0];
	return map.head.fm_mapped_extents == 1;
}

/* Does the file system tell which parts of a file have space?  (tmpfs does not.) */
static inline bool
extents_are_known(const char *path)
{
	struct fiemap none = {.fm_length = FIEMAP_MAX_OFFSET};
	int			fd = open(path, O_RDWR | O_CREAT, 0600);
	bool		known;

	REQUIRE(fd >= 0);
	known = ioctl(fd, FS_IOC_FIEMAP, &none) == 0;
	close(fd);
	return known;
}

/*
 * Where the first hole from 'at' on begins, in a file of 'length' bytes; else that.  *end:
 * where it ends.  (Not by SEEK_HOLE: for that, what has been allocated and not written yet
 * is a hole.)
 */
static inline uint64_t
next_hole(int fd, uint64_t at, uint64_t length, uint64_t *end)
{
	struct fiemap_extent extent;
	bool		more;

	while ((more = extent_past(fd, at, &extent)) && extent.fe_logical <= at)
		at = extent.fe_logical + extent.fe_length;
	*end = more && extent.fe_logical < length ? extent.fe_logical : length;
	return at < length ? at : length;
}

/* Each hole among the blocks of a file is of blocks that are marked.  *holes: how many. */
static inline void
check_holes(const char *path, PmhTable *t, unsigned *holes)
{
	uint64_t	length = pmh_blocks(t) << PMH_BLOCK_SHIFT;
	uint64_t	end = 0;
	int			fd = open(path, O_RDONLY);

	REQUIRE(fd >= 0);
	*holes = 0;
	while (end < length && extents_are_known(path))
	{
		uint64_t	at = next_hole(fd, end, length, &end);

		if (at == length)
			break;
		(*holes)++;
		for (uint64_t block = at >> PMH_BLOCK_SHIFT; block << PMH_BLOCK_SHIFT < end; block++)
		{
			if (!CHECK(pm_load(pmh_space_kind(t, block)) == PMH_KIND_PUNCHED))
				fprintf(stderr, "block %llu has no space\n", (unsigned long long) block);
		}
	}
	close(fd);
}

#endif							/* PMH_HOLES_H */
