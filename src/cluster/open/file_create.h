/*-------------------------------------------------------------------------
 *
 * file_create.h
 *	  Making index files.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FILE_CREATE_H
#define PMHASH_FILE_CREATE_H

#include "utils/rel.h"

extern uint64 pmhash_file_begin_filling(Relation index);
extern void pmhash_file_create_missing(Relation index);

#endif							/* PMHASH_FILE_CREATE_H */
