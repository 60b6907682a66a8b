/* Mapping a memfd where huge pages can be used. Internal to device/. */
#ifndef ZD_DEVICE_MAP_H
#define ZD_DEVICE_MAP_H

#include <stdint.h>

/* Maps |bytes| of |fd| shared, at a huge page's boundary if that many fit. NULL and errno. */
void *map_shared(int fd, uint64_t bytes, int protection);

#endif
