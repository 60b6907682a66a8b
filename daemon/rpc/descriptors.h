/* Look-ups in a serialized google.protobuf.FileDescriptorSet, as protoc writes it; no descriptor
 * library is needed for that. Bytes are borrowed from the set; whatever they hold, nothing outside
 * them is read. */
#ifndef ZD_RPC_DESCRIPTORS_H
#define ZD_RPC_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    const uint8_t *at;
    size_t len;
};

/* The set that was made from proto/ when this was built. */
struct bytes descriptors_built_in(void);

/* The FileDescriptorProto with that name ("zerod.proto"); false: none, |file| is untouched. */
bool descriptors_file(struct bytes set, const char *name, struct bytes *file);
/* The file that defines a service, method, message, field, oneof or enum by its full name, without
 * a dot in front. */
bool descriptors_symbol(struct bytes set, const char *symbol, struct bytes *file);
/* |file| first, then what it imports, and so on, each once; imports that are not in the set are
 * left out. Returns how many, at most |cap|. */
size_t descriptors_with_imports(struct bytes set, struct bytes file, size_t cap,
                                struct bytes *files);

#endif
