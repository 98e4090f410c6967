/*-------------------------------------------------------------------------
 *
 * workload.c
 *	  Keys and their distributions.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>

#include "bench.h"

/* SplitMix64. */
uint64_t
next_random(uint64_t *state)
{
	uint64_t	x = *state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static double
zeta(uint64_t n, double theta)
{
	double		sum = 0;

	for (uint64_t i = 1; i <= n; i++)
		sum += pow((double) i, -theta);
	return sum;
}

/*
 * J. Gray et al.: Quickly generating billion-record synthetic databases,
 * SIGMOD 1994 (the generator of YCSB too).
 */
void
zipf_init(Zipf *zipf, uint64_t n, double theta)
{
	zipf->n = n;
	zipf->theta = theta;
	zipf->zetan = zeta(n, theta);
	zipf->alpha = 1 / (1 - theta);
	zipf->eta = (1 - pow(2.0 / (double) n, 1 - theta)) /
		(1 - zeta(2, theta) / zipf->zetan);
}

uint64_t
zipf_next(const Zipf *zipf, uint64_t *state)
{
	double		u = (double) (next_random(state) >> 11) / 9007199254740992.0;
	double		uz = u * zipf->zetan;
	uint64_t	rank;

	if (uz < 1)
		return 0;
	if (uz < 1 + pow(0.5, zipf->theta))
		return 1;
	rank = (uint64_t) ((double) zipf->n *
					   pow(zipf->eta * u - zipf->eta + 1, zipf->alpha));
	return rank < zipf->n ? rank : zipf->n - 1;
}
