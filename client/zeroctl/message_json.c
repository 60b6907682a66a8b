#include "message_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t exact_limit = UINT64_C(1) << 53;

/* cJSON prints 15 digits of a double where it thinks they do; these print all. */
static cJSON *unsigned_json(uint64_t n) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, n);
    return n <= exact_limit ? cJSON_CreateRaw(text) : cJSON_CreateString(text);
}

static cJSON *signed_json(int64_t n) {
    char text[24];
    uint64_t size = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    (void)snprintf(text, sizeof text, "%" PRId64, n);
    return size <= exact_limit ? cJSON_CreateRaw(text) : cJSON_CreateString(text);
}

static cJSON *real_json(double x) {
    char text[32];
    if (isnan(x)) {
        return cJSON_CreateString("NaN");
    }
    if (isinf(x)) {
        return cJSON_CreateString(x > 0 ? "Infinity" : "-Infinity");
    }
    (void)snprintf(text, sizeof text, "%.17g", x);
    return cJSON_CreateRaw(text);
}

static cJSON *bytes_json(const ProtobufCBinaryData *b) {
    char *text = calloc(2 * b->len + 1, 1);
    if (!text) {
        return NULL;
    }
    for (size_t i = 0; i < b->len; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", b->data[i]);
    }
    cJSON *json = cJSON_CreateString(text);
    free(text);
    return json;
}

static cJSON *enum_json(const ProtobufCEnumDescriptor *type, int value) {
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);
    return v ? cJSON_CreateString(v->name) : cJSON_CreateNumber(value);
}

static const char *text_of(const void *at) {
    const char *text;
    memcpy(&text, at, sizeof text);
    return text ? text : "";
}

static const ProtobufCMessage *message_at(const void *at) {
    const ProtobufCMessage *m;
    memcpy(&m, at, sizeof m);
    return m;
}

/* |at| is where the value lies, aligned as its C type. */
static cJSON *value_json(const ProtobufCFieldDescriptor *f, const void *at) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return signed_json(*(const int32_t *)at);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return signed_json(*(const int64_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return unsigned_json(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return unsigned_json(*(const uint64_t *)at);
    case PROTOBUF_C_TYPE_FLOAT:
        return real_json((double)*(const float *)at);
    case PROTOBUF_C_TYPE_DOUBLE:
        return real_json(*(const double *)at);
    case PROTOBUF_C_TYPE_BOOL:
        return cJSON_CreateBool(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        return enum_json(f->descriptor, *(const int *)at);
    case PROTOBUF_C_TYPE_STRING:
        return cJSON_CreateString(text_of(at));
    case PROTOBUF_C_TYPE_BYTES:
        return bytes_json(at);
    case PROTOBUF_C_TYPE_MESSAGE:
        return message_json(message_at(at));
    }
    return NULL;
}

static size_t size_of(ProtobufCType type) {
    switch (type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return sizeof(uint32_t);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_FLOAT:
        return sizeof(float);
    case PROTOBUF_C_TYPE_DOUBLE:
        return sizeof(double);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(int);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    }
    return 0;
}

static cJSON *list_json(const ProtobufCFieldDescriptor *f, const void *at, size_t count) {
    cJSON *list = cJSON_CreateArray();
    const char *items; /* the array that the field points to */
    memcpy(&items, at, sizeof items);
    for (size_t i = 0; items && i < count; i++) {
        cJSON_AddItemToArray(list, value_json(f, items + i * size_of(f->type)));
    }
    return list;
}

/* Of a oneof: is |f| the member that is set? Of a message: is it there? */
static bool is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f) {
    const char *base = (const char *)m;
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        uint32_t which;
        memcpy(&which, base + f->quantifier_offset, sizeof which);
        return which == f->id;
    }
    return f->type != PROTOBUF_C_TYPE_MESSAGE || message_at(base + f->offset) != NULL;
}

cJSON *message_json(const ProtobufCMessage *m) {
    const ProtobufCMessageDescriptor *type = m->descriptor;
    const char *base = (const char *)m;
    cJSON *object = cJSON_CreateObject();
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t count;
            memcpy(&count, base + f->quantifier_offset, sizeof count);
            cJSON_AddItemToObject(object, f->name, list_json(f, base + f->offset, count));
        } else if (is_set(m, f)) {
            cJSON_AddItemToObject(object, f->name, value_json(f, base + f->offset));
        }
    }
    return object;
}
