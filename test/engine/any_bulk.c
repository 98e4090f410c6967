/*-------------------------------------------------------------------------
 *
 * any_bulk.c
 *	  core_bulk.c with the engine compiled for segments of any size.
 *
 *-------------------------------------------------------------------------
 */
#include "core_bulk.c"
