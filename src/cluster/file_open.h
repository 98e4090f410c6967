/*-------------------------------------------------------------------------
 *
 * file_open.h
 *	  Finding and opening the file that belongs to an index.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FILE_OPEN_H
#define PMHASH_FILE_OPEN_H

#include "cluster/stub.h"

extern PmhashReason pmhash_named_file_doubt(Relation index);
extern PmhashReason pmhash_index_doubt(Relation index);
extern bool pmhash_index_plannable(Relation index);
extern bool pmhash_plannable_later(Relation index);
extern PmhashReason pmhash_index_pmem(Relation index, bool *pmem);
extern void pmhash_index_examine(Relation index, const PmhashStub *stub);
extern PmhashFile *pmhash_file_open_filling(Relation index, uint64 file_id);
extern bool pmhash_index_path(Relation index, bool zero_on_error,
							  uint64 *file_id, char *path);
extern int64 pmhash_inode_bytes(const PmhInode *inode);

#endif							/* PMHASH_FILE_OPEN_H */
