/* Any protobuf message as JSON, by one walk over its descriptor.
 *
 * Keys are the field names of the .proto file. Differences from protobuf's own JSON: 64-bit numbers
 * are numbers where a double holds them exactly (to 2^53) and strings beyond; bytes are lower-case
 * hex; fields without presence are always there. Fields of a oneof and messages appear when set. */
#ifndef ZD_ZEROCTL_MESSAGE_JSON_H
#define ZD_ZEROCTL_MESSAGE_JSON_H

#include <cjson/cJSON.h>
#include <protobuf-c/protobuf-c.h>

/* The caller's, to be freed with cJSON_Delete. NULL: out of memory. */
cJSON *message_json(const ProtobufCMessage *m);

#endif
