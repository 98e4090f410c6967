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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "engine/stop_point.h"

void
pmh_stop_point(const char *name)
{
	int			save_errno = errno;
	char		wanted[MAXPGPATH];
	char		held[MAXPGPATH];
	char		error[MAXPGPATH];

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
