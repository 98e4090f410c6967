/*-------------------------------------------------------------------------
 *
 * fail.c
 *	  How functions of the engine report what went wrong.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "handle.h"

PmhResult
pmh_fill_error(PmhError *error, PmhResult code, int sys_errno,
			   uint64_t offset, const char *detail, ...)
{
	va_list		args;

	error->code = code;
	error->sys_errno = sys_errno;
	error->offset = offset;
	va_start(args, detail);
	vsnprintf(error->detail, sizeof(error->detail), detail, args);
	va_end(args);
	return code;
}

/* The result for a system call that has failed with this errno. */
static PmhResult
result_of_errno(int err)
{
	switch (err)
	{
		case ENOSPC:
		case EDQUOT:
		case EFBIG:
			return PMH_ERR_NO_SPACE;
		case ENOMEM:
			return PMH_ERR_NO_MEMORY;
		case EMFILE:
		case ENFILE:
			return PMH_ERR_NO_DESCRIPTOR;
		case ENOENT:
			return PMH_ERR_NO_FILE;
		case EEXIST:
			return PMH_ERR_EXISTS;
		default:
			return PMH_ERR_IO;
	}
}

PmhResult
pmh_fill_call_error(PmhError *error, int err, const char *what)
{
	return pmh_fill_error(error, result_of_errno(err), err, 0,
						  "The operation that failed was %s.", what);
}

/* Say that a file is lost, and where this process has noticed it, if it has. */
PmhResult
pmh_fill_lost(PmhError *error, const PmFile *f)
{
	return pmh_fill_error(error, PMH_ERR_LOST, 0, f->lost == 0 ? 0 : f->lost - 1,
						  "A part of the file could not be read or written (bus "
						  "error): the file was truncated, or its medium is damaged.");
}

PmhResult
pmh_fail_lost(PmhTable *t)
{
	return pmh_fill_lost(&t->error, &t->file);
}

PmhResult
pmh_fail_cancelled(PmhTable *t)
{
	return pmh_fail(t, PMH_CANCELLED, 0, 0, "A wait was given up.");
}

const PmhError *
pmh_error(const PmhTable *table)
{
	return &table->error;
}
