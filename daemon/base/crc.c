#include "base/crc.h"

/* The remainder of each byte, filled in at the first use, by the one thread that writes records. */
static uint32_t table[256];

static void fill_table(void) {
    for (uint32_t byte = 255; byte > 0;
         byte--) { /* entry 1 last: it tells that the table is whole */
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
        }
        table[byte] = crc;
    }
}

uint32_t crc32c(const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    uint32_t crc = 0xFFFFFFFFu;
    if (!table[1]) {
        fill_table();
    }
    for (size_t i = 0; i < n; i++) {
        crc = (crc >> 8) ^ table[(crc ^ p[i]) & 0xFFu];
    }
    return ~crc;
}
