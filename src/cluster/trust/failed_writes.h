/*-------------------------------------------------------------------------
 *
 * failed_writes.h
 *	  When the kernel is asked for failed writes, and by which process.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FAILED_WRITES_H
#define PMHASH_FAILED_WRITES_H

#include "cluster/pool/pool_files.h"

/* ms from the start of a server life to its first question */
#define PMHASH_FIRST_QUESTION	30000

extern void pmhash_notice_failed_writes(PmhashGoOn go_on);
extern void pmhash_ask_soon(void);
extern void pmhash_notice_for_launcher(void);

#endif							/* PMHASH_FAILED_WRITES_H */
