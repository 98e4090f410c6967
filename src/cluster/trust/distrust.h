/*-------------------------------------------------------------------------
 *
 * distrust.h
 *	  The pool loses its trust in a running server, and gets a new nonce.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DISTRUST_H
#define PMHASH_DISTRUST_H

extern void pmhash_renew_nonce(void);
extern bool pmhash_ask_for_failed_file(int fd, const char *path, char *failed);
extern bool pmhash_ask_for_failed_writes(const char *failed);

#endif							/* PMHASH_DISTRUST_H */
