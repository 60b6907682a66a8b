#include "base/crc.h"

static uint32_t step(uint32_t crc, uint8_t byte) {
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) {
        crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
    }
    return crc;
}

uint32_t crc32c(const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < n; i++) {
        crc = step(crc, p[i]);
    }
    return ~crc;
}
