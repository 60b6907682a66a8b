#include "rpc/reflection.h"

#include <stdio.h>
#include <string.h>

#include "proto/framing.h"
#include "proto/unpack.h"
#include "reflection.pb-c.h"
#include "rpc/descriptors.h"

enum {
    LISTED = 32,     /* services of a server */
    FILES = 32,      /* of one answer */
    NAME_ROOM = 128, /* bytes of a service's name, with the NUL */
};

/* protobuf-c makes these typedefs; shorter names for two of them and their tags. */
typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;
#define ASKS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define SAYS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

static void send_response(struct grpc_call *call, const request_t *request, response_t *response) {
    response->valid_host = request->host;
    response->original_request = (request_t *)request;
    /* Clients may ask much before they read: 16 KiB each time, so the usual mark is soon reached.
     */
    if (grpc_call_queued(call) >= GRPC_MESSAGE_MAX || grpc_call_send(call, &response->base)) {
        grpc_call_finish(call, ST_RESOURCE_EXHAUSTED, "the answers so far are not read");
    }
}

static void say_not_found(struct grpc_call *call, const request_t *request, const char *what,
                          const char *name) {
    char text[160];
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    response_t response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    (void)snprintf(text, sizeof text, "no %s %.100s here", what, name);
    error.error_code = ST_NOT_FOUND;
    error.error_message = text;
    response.message_response_case = SAYS(ERROR_RESPONSE);
    response.error_response = &error;
    send_response(call, request, &response);
}

static void say_file(struct grpc_call *call, const request_t *request, struct bytes file) {
    struct bytes files[FILES];
    ProtobufCBinaryData data[FILES];
    size_t n = descriptors_with_imports(descriptors_built_in(), file, FILES, files);
    for (size_t i = 0; i < n; i++) { /* the cast: protobuf-c has no const members */
        data[i] = (ProtobufCBinaryData){.len = files[i].len, .data = (uint8_t *)files[i].at};
    }
    Grpc__Reflection__V1__FileDescriptorResponse m =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    response_t response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    m.n_file_descriptor_proto = n;
    m.file_descriptor_proto = data;
    response.message_response_case = SAYS(FILE_DESCRIPTOR_RESPONSE);
    response.file_descriptor_response = &m;
    send_response(call, request, &response);
}

/* ---- the list ---- */

struct list {
    size_t n;
    char names[LISTED][NAME_ROOM];
};

/* "/zerod.v1.Admin/Status" is a method of zerod.v1.Admin. */
static void add_service_of(struct list *l, const char *path) {
    const char *name = path + 1, *end = strchr(name, '/');
    size_t len = end ? (size_t)(end - name) : 0;
    if (len == 0 || len >= NAME_ROOM || l->n == LISTED) {
        return;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (strlen(l->names[i]) == len && memcmp(l->names[i], name, len) == 0) {
            return;
        }
    }
    memcpy(l->names[l->n], name, len);
    l->names[l->n++][len] = 0;
}

static void say_list(struct grpc_call *call, const request_t *request) {
    const struct rpc_reflection *r = grpc_call_context(call);
    struct list list = {0};
    Grpc__Reflection__V1__ServiceResponse services[LISTED], *pointers[LISTED];
    for (size_t i = 0; i < r->service_count; i++) {
        for (size_t k = 0; k < r->services[i].method_count; k++) {
            add_service_of(&list, r->services[i].methods[k].path);
        }
    }
    for (size_t i = 0; i < list.n; i++) {
        grpc__reflection__v1__service_response__init(&services[i]);
        services[i].name = list.names[i];
        pointers[i] = &services[i];
    }
    Grpc__Reflection__V1__ListServiceResponse m = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    response_t response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    m.n_service = list.n;
    m.service = pointers;
    response.message_response_case = SAYS(LIST_SERVICES_RESPONSE);
    response.list_services_response = &m;
    send_response(call, request, &response);
}

/* ---- requests ---- */

static void answer(struct grpc_call *call, const request_t *m) {
    struct bytes file;
    switch (m->message_request_case) {
    case ASKS(LIST_SERVICES):
        say_list(call, m);
        break;
    case ASKS(FILE_BY_FILENAME):
        if (descriptors_file(descriptors_built_in(), m->file_by_filename, &file)) {
            say_file(call, m, file);
        } else {
            say_not_found(call, m, "file", m->file_by_filename);
        }
        break;
    case ASKS(FILE_CONTAINING_SYMBOL):
        if (descriptors_symbol(descriptors_built_in(), m->file_containing_symbol, &file)) {
            say_file(call, m, file);
        } else {
            say_not_found(call, m, "symbol", m->file_containing_symbol);
        }
        break;
    case ASKS(FILE_CONTAINING_EXTENSION):
        say_not_found(call, m, "extension of", m->file_containing_extension->containing_type);
        break;
    case ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE):
        say_not_found(call, m, "extension of", m->all_extension_numbers_of_type);
        break;
    default:
        grpc_call_finish(call, ST_INVALID_ARGUMENT, "a reflection request that asks for nothing");
    }
}

static void on_message(struct grpc_call *call, const uint8_t *bytes, size_t len) {
    ProtobufCMessage *m =
        unpack_message(&grpc__reflection__v1__server_reflection_request__descriptor, bytes, len);
    if (!m) {
        grpc_call_finish(call, ST_INVALID_ARGUMENT, "not a ServerReflectionRequest");
        return;
    }
    answer(call, (const request_t *)m);
    protobuf_c_message_free_unpacked(m, NULL);
}

static const struct grpc_method methods[] = {
    {.path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
     .role = GRPC_OBSERVE,
     .kind = GRPC_BIDI,
     .on_message = on_message},
    {.path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
     .role = GRPC_OBSERVE,
     .kind = GRPC_BIDI,
     .on_message = on_message},
};

struct grpc_service rpc_reflection_service(struct rpc_reflection *r) {
    return (struct grpc_service){
        .methods = methods, .method_count = sizeof methods / sizeof methods[0], .context = r};
}
