/*-------------------------------------------------------------------------
 *
 * undo.h
 *	  Undo of entries whose rows a crash has lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_UNDO_H
#define PMHASH_UNDO_H

#include "cluster/base/control_file.h"

extern void pmhash_undo(PmhashControl *control);

#endif							/* PMHASH_UNDO_H */
