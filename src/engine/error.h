/*-------------------------------------------------------------------------
 *
 * error.h
 *	  Results and errors of the engine, for it and for its callers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_ERROR_H
#define PMH_ERROR_H

#include <stdint.h>

typedef enum PmhResult
{
	PMH_OK = 0,
	PMH_NOT_FOUND,				/* delete: no such (hash, value) */
	PMH_DONE,					/* cursor or sweep has reached its end */
	PMH_ERR_EXISTS,				/* create: the file is already there */
	PMH_ERR_NO_FILE,			/* there is no such file; with a handle: it was
								 * removed, or replaced by another */
	PMH_ERR_IO,					/* a system call failed; see sys_errno */
	PMH_ERR_NO_SPACE,			/* file system or quota full; see sys_errno */
	PMH_ERR_NO_MEMORY,			/* malloc failed, or there are no addresses or no
								 * mappings left (vm.max_map_count); see
								 * sys_errno.  Says nothing about the file */
	PMH_ERR_FORMAT,				/* not a pmhash file */
	PMH_ERR_VERSION,			/* a file of another format version */
	PMH_ERR_CORRUPT,			/* a checksum or an invariant does not hold */
	PMH_ERR_TOO_LARGE,			/* a limit of the format has been reached */
	PMH_ERR_LOST,				/* part of the file can't be read or written:
								 * no handle on it will do any more */
	PMH_ERR_OUTDATED,			/* open: an older copy of the file */
	PMH_ERR_NO_DESCRIPTOR,		/* no file descriptor is to be had (EMFILE, ENFILE).
								 * Says nothing about the file: try again */
	PMH_CANCELLED				/* a wait for a lock was given up, or something that
								 * may take long (a walk through all segments, the
								 * reading of a long list), since PmhWaitHooks said
								 * so: nothing, or with several entries not all, was
								 * done */
} PmhResult;

/*
 * What went wrong, for the caller's message.  detail is a complete English
 * sentence fit for an errdetail; offset is where in the file (bytes), or 0.
 */
typedef struct PmhError
{
	PmhResult	code;
	int			sys_errno;
	uint64_t	offset;
	char		detail[160];
} PmhError;

#endif							/* PMH_ERROR_H */
