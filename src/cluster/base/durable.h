/*-------------------------------------------------------------------------
 *
 * durable.h
 *	  Small files that survive a crash whole: written, replaced, removed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DURABLE_H
#define PMHASH_DURABLE_H

#include <dirent.h>

/* a reason that a function returning false leaves, for a message: bytes */
#define PMHASH_REASON_SIZE	512

#define PMHASH_SMALL_FILE	512	/* bytes: no file of durable.c is longer */

extern bool pmhash_fail(char *reason, const char *format,...) pg_attribute_printf(2, 3);
extern ssize_t pmhash_read_small(const char *path, void *data, size_t size);
extern struct dirent *pmhash_next_name(DIR *dir, bool *ok);
extern bool pmhash_replace_durably(const char *directory, const char *name,
								   const void *data, size_t size, char *reason);
extern bool pmhash_remove_durably(const char *directory, const char *name,
								  size_t size, char *reason);

#endif							/* PMHASH_DURABLE_H */
