/*-------------------------------------------------------------------------
 *
 * fail.c
 *	  How functions of the engine report what went wrong.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdio.h>

#include "error.h"
#include "handle.h"
#include "pm.h"
#include "table.h"

static PmhResult __attribute__((format(printf, 5, 0)))
set_error(PmhError *error, PmhResult code, int sys_errno, uint64_t offset,
		  const char *detail, va_list args)
{
	error->code = code;
	error->sys_errno = sys_errno;
	error->offset = offset;
	vsnprintf(error->detail, sizeof(error->detail), detail, args);
	return code;
}

PmhResult
pmh_fill_error(PmhError *error, PmhResult code, int sys_errno,
			   uint64_t offset, const char *detail, ...)
{
	va_list		args;

	va_start(args, detail);
	set_error(error, code, sys_errno, offset, detail, args);
	va_end(args);
	return code;
}

PmhResult
pmh_fail(PmhTable *t, PmhResult code, int sys_errno, uint64_t offset,
		 const char *detail, ...)
{
	va_list		args;

	va_start(args, detail);
	set_error(&t->error, code, sys_errno, offset, detail, args);
	va_end(args);
	return code;
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
