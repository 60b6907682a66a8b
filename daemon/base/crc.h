/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) of records in adopted memory. */
#ifndef ZD_BASE_CRC_H
#define ZD_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *bytes, size_t n);

#endif
