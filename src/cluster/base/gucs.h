/*-------------------------------------------------------------------------
 *
 * gucs.h
 *	  The configuration parameters.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_GUCS_H
#define PMHASH_GUCS_H

extern void pmhash_define_gucs(void);
extern bool pmhash_directory_allowed(char *reason);

#endif							/* PMHASH_GUCS_H */
