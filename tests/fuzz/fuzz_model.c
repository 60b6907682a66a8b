/* libFuzzer: a registered model as a peer sends it, through unpacking, conversion and checks to the
 * layout. Byte 0: the world size, byte 1 what the daemon was started with. What passes must have a
 * layout in which everything lies where it may. */
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"
#include "process/convert.h"
#include "proto/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok) {
    if (!ok) {
        abort();
    }
}

static void check_range(const struct layout *l, size_t range) {
    const struct range *r = &l->ranges[range];
    struct segment some[4];
    uint64_t pieces = 0;
    must(r->padded >= r->elements && r->padded % (LAYOUT_ALIGN * (uint64_t)l->world) == 0);
    for (unsigned rank = 0; rank < l->world; rank++) {
        struct stretch piece = layout_piece(l, range, rank), held = layout_held(l, range, rank);
        must(piece.from + piece.count <= r->padded && held.from + held.count <= r->padded);
        pieces += piece.count;
    }
    must(pieces == r->padded);
    size_t n = layout_segments(l, range, (struct stretch){0, r->padded}, some, 4);
    for (size_t i = 0; i < n && i < 4; i++) {
        must(some[i].tensor < l->model->tensor_count &&
             some[i].range_offset + some[i].count <= r->padded);
    }
}

static void check_layout(const struct model *m, unsigned world) {
    struct layout l;
    struct err e;
    const struct slots slots = {2, 2};
    if (layout_init(&l, m, world, &e)) {
        must(e.code != 0 && e.text[0]);
        return;
    }
    must(l.inner * l.outer == world && l.padded >= l.elements && l.elements >= l.trainable);
    for (size_t i = 0; i < l.range_count; i++) {
        check_range(&l, i);
    }
    struct memory first = layout_memory(&l, 0, &slots), last = layout_memory(&l, world - 1, &slots);
    must(first.gather_slots == last.gather_slots && first.grad_slots == last.grad_slots);
    struct traffic t = layout_traffic(&l), ddp = layout_traffic_ddp(&l);
    must(world > 1 || (t.all_gather_bytes == 0 && t.all_reduce_bytes == 0));
    must(world > 1 || ddp.all_reduce_bytes == 0);
    char text[256];
    (void)layout_lopsided(&l, &slots, text, sizeof text);
    layout_free(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) {
        return 0;
    }
    const struct model_defaults defaults = {.strategy = (enum strategy)(1 + data[1] % 6)};
    struct model m;
    struct err e = {0};
    ProtobufCMessage *message = unpack_message(&zerod__v1__model__descriptor, data + 2, size - 2);
    if (!message) {
        return 0;
    }
    Zerod__V1__Model *from = (Zerod__V1__Model *)message;
    int rv = model_from_message(from, data[1] & 0x80 ? NULL : &defaults, &m, &e);
    must((rv == 0) == (e.code == 0) && (rv == 0 || e.text[0]));
    if (rv == 0) {
        check_layout(&m, 1 + data[0] % LAYOUT_MAX_RANKS);
        must(model_difference(&m, 0, &m, 1, &e) == 0);
    }
    model_free(&m);
    protobuf_c_message_free_unpacked(message, NULL);
    return 0;
}
