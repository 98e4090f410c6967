/*-------------------------------------------------------------------------
 *
 * file_levels.h
 *	  By which level of this transaction tables have got the files that they have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FILE_LEVELS_H
#define PMHASH_FILE_LEVELS_H

#include "utils/relcache.h"

extern void pmhash_file_levels_init(void);
extern SubTransactionId pmhash_level_of_files(Relation heap);
extern void pmhash_note_level_of(Oid heap);
extern void pmhash_note_table_alter(Oid relid);

#endif							/* PMHASH_FILE_LEVELS_H */
