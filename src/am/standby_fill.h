/*-------------------------------------------------------------------------
 *
 * standby_fill.h
 *	  Filling the file of an index on a standby.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STANDBY_FILL_H
#define PMHASH_STANDBY_FILL_H

#include "cluster/standby_build.h"

extern const PmhashFiller pmhash_filler;

#endif							/* PMHASH_STANDBY_FILL_H */
