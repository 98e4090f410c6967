/*-------------------------------------------------------------------------
 *
 * stop_point.h
 *	  Named points at which tests can hold a process.
 *
 * Builds with PMH_STOP_POINTS call pmh_stop_point() with the name; the test
 * supplies that function and may stop the process there, also where it holds
 * a lock.  Other builds contain nothing of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_STOP_POINT_H
#define PMH_STOP_POINT_H

#ifdef PMH_STOP_POINTS
extern void pmh_stop_point(const char *name);
#define PMH_STOP_POINT(name)	pmh_stop_point(name)
#else
#define PMH_STOP_POINT(name)	((void) 0)
#endif

/* With PMH_STOP_LOADS each pm_load is such a point; it has no name of its own. */
#ifdef PMH_STOP_LOADS
extern void pmh_stop_load(const char *function, const void *addr);
#endif

#endif							/* PMH_STOP_POINT_H */
