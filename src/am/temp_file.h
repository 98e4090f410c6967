/*-------------------------------------------------------------------------
 *
 * temp_file.h
 *	  Reading temporary files back.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_TEMP_FILE_H
#define PMHASH_TEMP_FILE_H

#include "storage/buffile.h"

/* Go to a position that BufFileTell has given.  ERROR if it is not there. */
static inline void
pmhash_temp_seek(BufFile *file, int fileno, off_t offset)
{
	if (BufFileSeek(file, fileno, offset, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek in temporary file: %m")));
}

/* Read exactly 'bytes' from where the file stands.  ERROR if there are fewer. */
static inline void
pmhash_temp_read(BufFile *file, void *to, size_t bytes)
{
#if PG_VERSION_NUM >= 160000
	BufFileReadExact(file, to, bytes);
#else
	if (BufFileRead(file, to, bytes) != bytes)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from temporary file")));
#endif
}

#endif							/* PMHASH_TEMP_FILE_H */
