#include "device/map.h"

#include <sys/mman.h>

#include "device/arena.h"

void *map_shared(int fd, uint64_t bytes, int protection) {
    if (bytes < ARENA_HUGE) {
        void *p = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    /* Left to itself the kernel chooses any page, and then no huge page can be mapped: reserve so
     * much that a boundary lies within, map there, give the rest back. */
    uint8_t *room = mmap(NULL, bytes + ARENA_HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) {
        return NULL;
    }
    uint64_t head = (ARENA_HUGE - (uintptr_t)room % ARENA_HUGE) % ARENA_HUGE;
    uint64_t tail = ARENA_HUGE - head;
    void *p = mmap(room + head, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
    if (p == MAP_FAILED) {
        munmap(room, bytes + ARENA_HUGE);
        return NULL;
    }
    if (head) {
        munmap(room, head);
    }
    if (tail) {
        uint64_t page = ARENA_PAGE; /* |bytes| of a peer's file need not be whole pages */
        uint64_t end = (head + bytes + page - 1) / page * page;
        munmap(room + end, bytes + ARENA_HUGE - end);
    }
    return p;
}
