/*-------------------------------------------------------------------------
 *
 * crc.c
 *	  CRC-32C (Castagnoli), eight nibbles at a time: it guards a few dozen
 *	  bytes, so the tables had better be small.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "layout.h"

/* A linear function of a nibble, from its values for 1, 2, 4 and 8. */
#define ROW2(a, b, x)	(x), (a) ^ (x), (b) ^ (x), (a) ^ (b) ^ (x)
#define ROW(a, b, c, d) \
	{ROW2(a, b, 0), ROW2(a, b, c), ROW2(a, b, d), ROW2(a, b, (c) ^ (d))}

/*
 * Row i: what the i-th nibble of the register, the lowest first, has become
 * when all eight have gone through.  The polynomial is 0x82f63b78, the lowest
 * bit first.
 */
static const uint32_t table[8][16] = {
	ROW(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6),
	ROW(0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
	ROW(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5),
	ROW(0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
	ROW(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8),
	ROW(0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
	ROW(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf),
	ROW(0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78)
};

uint32_t
pmh_crc32c(const void *data, size_t len)
{
	const uint8_t *byte = data;
	uint32_t	crc = UINT32_C(0xffffffff);

	for (; len >= sizeof(uint32_t); len -= sizeof(uint32_t), byte += sizeof(uint32_t))
	{
		uint32_t	word;

		memcpy(&word, byte, sizeof(word));
		word ^= crc;
		crc = 0;
		for (unsigned i = 0; i < 8; i++)
			crc ^= table[i][word >> (4 * i) & 15];
	}
	for (; len > 0; len--, byte++)
		crc = crc >> 8 ^ table[6][(crc ^ *byte) & 15] ^
			table[7][(crc >> 4 ^ *byte >> 4) & 15];
	return ~crc;
}
