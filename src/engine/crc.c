/*-------------------------------------------------------------------------
 *
 * crc.c
 *	  CRC-32C (Castagnoli), a nibble at a time: it guards a few dozen bytes.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"

#define CRC32C_REFLECTED	UINT32_C(0x82f63b78)

/* The register after one more nibble of value 'index' has gone through. */
static uint32_t
nibble(uint32_t index)
{
	for (int bit = 0; bit < 4; bit++)
		index = (index >> 1) ^ ((index & 1) ? CRC32C_REFLECTED : 0);
	return index;
}

uint32_t
pmh_crc32c(const void *data, size_t len)
{
	const uint8_t *byte = data;
	uint32_t	table[16];
	uint32_t	crc = UINT32_C(0xffffffff);

	for (uint32_t i = 0; i < 16; i++)
		table[i] = nibble(i);
	for (size_t i = 0; i < len; i++)
	{
		crc = table[(crc ^ byte[i]) & 15] ^ (crc >> 4);
		crc = table[(crc ^ (byte[i] >> 4)) & 15] ^ (crc >> 4);
	}
	return ~crc;
}
