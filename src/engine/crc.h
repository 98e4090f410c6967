/*-------------------------------------------------------------------------
 *
 * crc.h
 *	  CRC-32C (crc.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CRC_H
#define PMH_CRC_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (crc.c). */
extern uint32_t pmh_crc32c(const void *data, size_t len);

#endif							/* PMH_CRC_H */
