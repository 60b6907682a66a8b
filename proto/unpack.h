/* Unpacking what a peer sent. protobuf-c turns two bytes of an empty repeated message into some
 * hundred bytes of memory, so the memory of one message is bounded beside its wire size. */
#ifndef ZD_PROTO_UNPACK_H
#define ZD_PROTO_UNPACK_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

enum { UNPACK_MEMORY_MAX = 32 * 1024 * 1024 };

/* The message, to be freed with protobuf_c_message_free_unpacked(m, NULL), or NULL: not a message
 * of that type, or it would take more than UNPACK_MEMORY_MAX bytes. |bytes| may be NULL if 0. */
ProtobufCMessage *unpack_message(const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                                 size_t len);

#endif
