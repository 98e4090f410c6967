/*-------------------------------------------------------------------------
 *
 * crc.c
 *	  The checksum: the value that standards name, and every length and
 *	  alignment against the definition, bit by bit.
 *
 *-------------------------------------------------------------------------
 */
#include "layout.h"
#include "unit.h"

#define MAX_LENGTH	300

static uint32_t
by_bits(const uint8_t *byte, size_t len)
{
	uint32_t	crc = UINT32_C(0xffffffff);

	for (size_t i = 0; i < 8 * len; i++)
	{
		uint32_t	bit = (crc ^ (uint32_t) byte[i / 8] >> i % 8) & 1;

		crc = crc >> 1 ^ (bit != 0 ? UINT32_C(0x82f63b78) : 0);
	}
	return ~crc;
}

int
main(void)
{
	uint8_t		data[MAX_LENGTH + 8];

	CHECK(pmh_crc32c("123456789", 9) == UINT32_C(0xe3069283));
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t) (i * 37 ^ i >> 3);
	for (size_t len = 0; len <= MAX_LENGTH; len++)
	{
		for (size_t from = 0; from < 8; from++)
			CHECK(pmh_crc32c(data + from, len) == by_bits(data + from, len));
	}
	return unit_done("crc");
}
