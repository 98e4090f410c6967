/*-------------------------------------------------------------------------
 *
 * file_error.h
 *	  Messages about index files.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FILE_ERROR_H
#define PMHASH_FILE_ERROR_H

#include "cluster/cluster.h"

pg_noreturn extern void pmhash_file_error(Relation index, const char *path,
										  const char *what,
										  const PmhError *error);
extern int	pmhash_detail_of_file(const char *detail, const char *path,
								  const char *shown);
extern PmhashReason pmhash_reason_of(const PmhError *error);
extern bool pmhash_rebuilds_itself(Relation index);

#endif							/* PMHASH_FILE_ERROR_H */
