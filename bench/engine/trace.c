/*-------------------------------------------------------------------------
 *
 * trace.c
 *	  Single operations between marks, for a program that sees every access to
 *	  memory (valgrind --tool=lackey --trace-mem=yes) and tells which lines an
 *	  operation touches: trace_lines.py.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>

#include "bench.h"
#include "error.h"
#include "handle.h"
#include "table.h"

#define TRACED		UINT64_C(2000)	/* of each operation */

/* A store to one of these tells what begins; to the last, that it has ended. */
static const char *const traced_name[] = {"hit", "miss", "insert", "delete"};
static volatile uint64_t mark[5];

static void
traced_op(PmhTable *t, int kind, uint64_t i, PmhValues *values)
{
	/* the keys that an insert has put in are those that are deleted */
	uint64_t	fresh = opt.keys + i;
	uint64_t	old = i * UINT64_C(2654435761) % opt.keys;
	uint64_t	key = kind == 0 ? old : fresh;
	uint64_t	hash = key_hash(key);
	PmhResult	result;

	mark[kind] = 1;
	switch (kind)
	{
		case 0:
		case 1:
			result = pmh_lookup(t, hash, values);
			break;
		case 2:
			result = pmh_insert(t, hash, key, false);
			break;
		default:
			result = pmh_delete(t, hash, key);
			break;
	}
	mark[4] = 1;
	must(t, result, traced_name[kind]);
}

void
op_trace(void)
{
	PmhTable   *t = open_table();
	PmhValues	values = {0};

	must(t, pmh_lookup(t, key_hash(0), &values), "look-up");	/* allocates */
	printf("trace file %#llx %zu\n", (unsigned long long) (uintptr_t) t->file.base,
		   t->file.bound);
	printf("trace locks %#llx %zu\n", (unsigned long long) (uintptr_t) t->locks,
		   pmh_locks_size(t->locks->nstripes));
	for (int kind = 0; kind < 5; kind++)
		printf("trace %s %#llx 8\n", kind < 4 ? traced_name[kind] : "end",
			   (unsigned long long) (uintptr_t) &mark[kind]);
	fflush(stdout);
	for (int kind = 0; kind < 4; kind++)
		for (uint64_t i = 0; i < TRACED; i++)
			traced_op(t, kind, i, &values);
	pmh_values_free(&values);
	pmh_close(t);
}
