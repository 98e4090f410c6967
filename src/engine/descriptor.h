/*-------------------------------------------------------------------------
 *
 * descriptor.h
 *	  File descriptors, announced to the caller of the engine (descriptor.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_DESCRIPTOR_H
#define PMH_DESCRIPTOR_H

#include <stdbool.h>

#include "error.h"

/* The result code for a system call that has failed with this errno. */
extern PmhResult pmh_result_of_errno(int err);

/*
 * Open a file (O_CLOEXEC, mode 0600), and close it, telling the caller of the
 * engine before and after; -1 with errno set.  The two first are for what opens
 * a descriptor of its own and closes it again.  (descriptor.c)
 */
extern bool pmh_descriptor_begin(void);
extern void pmh_descriptor_end(void);
extern int	pmh_descriptor_open(const char *path, int flags);
extern void pmh_descriptor_close(int fd);

#endif							/* PMH_DESCRIPTOR_H */
