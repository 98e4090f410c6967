/*-------------------------------------------------------------------------
 *
 * compiler.h
 *	  Which way branches mostly go, for the compiler; and what is always so, for people
 *	  and for the builds of the tests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_COMPILER_H
#define PMH_COMPILER_H

#include <stdint.h>
#ifdef PMH_ASSERTIONS
#include <assert.h>
#endif

#define likely(x)			__builtin_expect((x) != 0, 1)
#define unlikely(x)			__builtin_expect((x) != 0, 0)

#ifdef PMH_ASSERTIONS
#define PMH_ASSERT(condition)	assert(condition)
#else
#define PMH_ASSERT(condition)	((void) 0)
#endif

#endif							/* PMH_COMPILER_H */
