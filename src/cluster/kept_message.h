/*-------------------------------------------------------------------------
 *
 * kept_message.h
 *	  The message of a failure as shared memory keeps it, for views.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_KEPT_MESSAGE_H
#define PMHASH_KEPT_MESSAGE_H

#define PMHASH_KEPT_MESSAGE		160 /* bytes, with the zero at the end */

extern void pmhash_keep_message(char *to, const char *message);

#endif							/* PMHASH_KEPT_MESSAGE_H */
