/*-------------------------------------------------------------------------
 *
 * any_basic.c
 *	  core_basic.c with the engine compiled for segments of any size.
 *
 *-------------------------------------------------------------------------
 */
#include "core_basic.c"
