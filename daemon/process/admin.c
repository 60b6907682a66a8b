#include "process/admin.h"

#include "zerod.pb-c.h"

static struct grpc_method method(const char *path, enum grpc_role role, enum grpc_kind kind,
                                 const ProtobufCMessageDescriptor *request,
                                 const struct admin_answer *answer) {
    return (struct grpc_method){.path = path,
                                .role = role,
                                .kind = kind,
                                .request = request,
                                .on_request = answer->on_request,
                                .on_done = answer->on_done};
}

struct grpc_service admin_service_of(const struct admin_answers *answers,
                                     struct grpc_method methods[ADMIN_METHODS], void *context) {
    methods[0] = method("/zerod.v1.Admin/Status", GRPC_OBSERVE, GRPC_UNARY,
                        &zerod__v1__status_request__descriptor, &answers->status);
    methods[1] = method("/zerod.v1.Admin/Describe", GRPC_OBSERVE, GRPC_UNARY,
                        &zerod__v1__describe_request__descriptor, &answers->describe);
    methods[2] = method("/zerod.v1.Admin/Hash", GRPC_ADMIN, GRPC_UNARY,
                        &zerod__v1__hash_request__descriptor, &answers->hash);
    methods[3] = method("/zerod.v1.Admin/Watch", GRPC_OBSERVE, GRPC_SERVER_STREAM,
                        &zerod__v1__watch_request__descriptor, &answers->watch);
    return (struct grpc_service){
        .methods = methods, .method_count = ADMIN_METHODS, .context = context};
}
