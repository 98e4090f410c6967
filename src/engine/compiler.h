/*-------------------------------------------------------------------------
 *
 * compiler.h
 *	  Which way branches mostly go, for the compiler.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_COMPILER_H
#define PMH_COMPILER_H

#include <stdint.h>

#define likely(x)			__builtin_expect((x) != 0, 1)
#define unlikely(x)			__builtin_expect((x) != 0, 0)

#endif							/* PMH_COMPILER_H */
