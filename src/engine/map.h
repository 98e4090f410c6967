/*-------------------------------------------------------------------------
 *
 * map.h
 *	  Where files are mapped, for pm.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_MAP_H
#define PMH_MAP_H

#include "pm.h"

/*
 * Map the file that fd has open, which is 'size' bytes long and may become longer; fd may
 * be closed then: a mapping holds the file by itself.  *synchronous: with MAP_SYNC, which
 * the kernel grants where a store is durable once its line is flushed.  Sets
 * base, mapped and bound of *f and enters it into the list of the SIGBUS
 * handler.  0, or an errno: nothing is mapped then.
 */
extern int	pmh_map(PmFile *f, int fd, size_t size, bool *synchronous);

/*
 * The file is 'size' bytes long, which is more than is mapped: map it anew.  Takes no
 * descriptor, and works for a file that has no name any more.  f->base is another one
 * afterwards, and the old mapping stays as it is until pmh_unmap_outgrown.  0, or an
 * errno: nothing has changed then.
 */
extern int	pmh_map_further(PmFile *f, size_t size);

/* No pointer into what has been outgrown is in use any more. */
extern void pmh_unmap_outgrown(PmFile *f);

/*
 * So many bytes, rounded up to whole pages.  Only once a file has been mapped: before
 * that this process has not asked for the size of a page.
 */
extern size_t pmh_whole_pages(size_t size);

/* Unmap everything, and take *f off the list. */
extern void pmh_unmap(PmFile *f);

/* Note that the page at 'offset' of a file is lost, and tell all others. */
extern void pmh_map_note_lost(PmFile *f, size_t offset);

#endif							/* PMH_MAP_H */
