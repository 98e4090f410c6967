/*-------------------------------------------------------------------------
 *
 * session_files.h
 *	  The files of this session's temporary indexes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_SESSION_FILES_H
#define PMHASH_SESSION_FILES_H

#include "cluster/cluster.h"

extern void pmhash_session_file_made(const PmhashFile *file, Relation index);
extern bool pmhash_session_file_of(Relation index, char *path);
extern void pmhash_unlink(const char *path);
extern void pmhash_session_file_replaced(Oid heap);
extern void pmhash_session_files_look(void (*look) (const char *path, Oid heap,
													uint64 file_id));

#endif							/* PMHASH_SESSION_FILES_H */
