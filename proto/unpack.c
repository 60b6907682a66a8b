#include "proto/unpack.h"

#include <stdlib.h>

/* Counts what unpacking takes; what it hands out is plain malloc memory, so that the result can be
 * freed without it. */
static void *take(void *data, size_t size) {
    size_t *left = data;
    if (size > *left) {
        return NULL;
    }
    *left -= size;
    return malloc(size);
}

static void give(void *data, void *memory) {
    (void)data;
    free(memory);
}

ProtobufCMessage *unpack_message(const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                                 size_t len) {
    static const uint8_t nothing[1];
    size_t left = UNPACK_MEMORY_MAX;
    ProtobufCAllocator allocator = {.alloc = take, .free = give, .allocator_data = &left};
    return protobuf_c_message_unpack(type, &allocator, len, len ? bytes : nothing);
}
