/*-------------------------------------------------------------------------
 *
 * kept_message.h
 *	  The message of a failure as it is kept, for views and other messages.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_KEPT_MESSAGE_H
#define PMHASH_KEPT_MESSAGE_H

#define PMHASH_KEPT_MESSAGE		160 /* bytes, with the zero at the end */

extern void pmhash_keep_message(char *to, size_t size, const char *message);

#endif							/* PMHASH_KEPT_MESSAGE_H */
