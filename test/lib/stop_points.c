/*-------------------------------------------------------------------------
 *
 * stop_points.c
 *	  Stop points in a server: part of the library only if it is built with
 *	  PMH_STOP_POINTS=1, for tests.
 *
 * A test that wants to hold the next process that comes by the point NAME
 * makes the file stop_points/NAME in the data directory.  That process renames
 * it to stop_points/NAME.held (only one can) and waits until the test has
 * removed this one.  It does not look at interrupts meanwhile, since it may
 * hold one of the engine's locks.
 *
 * The file stop_points/NAME.error makes it raise an ERROR instead, once: for points of
 * the cluster layer where one may come up.
 *
 * Processes come by points a million times where nothing is wanted: if there is a file
 * stop_points/armed they look for others only while its first byte, which they have mapped,
 * is no '0' (PmhashStops.pm).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/stop_point.h"

static bool
is_any_wanted(void)
{
	static volatile const char *armed;

	if (armed == NULL)
	{
		int			fd = open("stop_points/armed", O_RDONLY);
		void	   *page;

		if (fd < 0)
			return access("stop_points", F_OK) == 0;
		page = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
		if (page == MAP_FAILED)
			return true;
		armed = page;
	}
	return *armed != '0';
}

void
pmh_stop_point(const char *name)
{
	int			save_errno = errno;
	char		wanted[MAXPGPATH];
	char		held[MAXPGPATH];
	char		error[MAXPGPATH];

	if (!is_any_wanted())
	{
		errno = save_errno;
		return;
	}
	snprintf(error, sizeof(error), "stop_points/%s.error", name);
	if (unlink(error) == 0)
		elog(ERROR, "error of the test at %s", name);
	snprintf(wanted, sizeof(wanted), "stop_points/%s", name);
	snprintf(held, sizeof(held), "stop_points/%s.held", name);
	if (rename(wanted, held) == 0)
	{
		while (access(held, F_OK) == 0)
			pg_usleep(1000);
	}
	errno = save_errno;
}
