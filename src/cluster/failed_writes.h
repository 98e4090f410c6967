/*-------------------------------------------------------------------------
 *
 * failed_writes.h
 *	  When the kernel is asked for failed writes, and by which process.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FAILED_WRITES_H
#define PMHASH_FAILED_WRITES_H

#include "cluster/pool_files.h"

extern void pmhash_notice_failed_writes(PmhashGoOn go_on);
extern void pmhash_notice_for_launcher(void);

#endif							/* PMHASH_FAILED_WRITES_H */
