/* Sums of squares of this rank's pieces of the summed gradients (design §14): the same bits for any
 * number of threads, since blocks are added in order whoever summed them. */
#include "engine/inner.h"

struct norm {
    struct engine *e;
    const uint8_t *x; /* of the kept dtype */
    uint64_t n, blocks;
};

static double sum_block(const struct norm *w, uint64_t at, uint64_t n, unsigned thread) {
    const struct kernels *k = w->e->o.kernels;
    if (!w->e->mem.wide) {
        return k->sum_squares(n, (const float *)(const void *)w->x + at);
    }
    float *wide = w->e->mem.wide + (size_t)thread * NORM_BLOCK;
    k->from_bf16(n, (const uint16_t *)(const void *)w->x + at, wide);
    return k->sum_squares(n, wide);
}

static void norm_share(void *ctx, unsigned thread, unsigned threads) {
    const struct norm *w = ctx;
    uint64_t from = w->blocks * thread / threads, to = w->blocks * (thread + 1) / threads;
    for (uint64_t b = from; b < to; b++) {
        uint64_t at = b * NORM_BLOCK, left = w->n - at;
        w->e->blocks[b] = sum_block(w, at, left < NORM_BLOCK ? left : NORM_BLOCK, thread);
    }
}

void norm_pieces(struct engine *e, size_t unit) {
    const struct unit_place *u = &e->l->units[unit];
    for (size_t i = u->first; i < u->first + u->trainable; i++) {
        const struct place *p = &e->places.ranges[i];
        uint64_t from = p->piece.from - p->kept.from;
        struct norm w = {.e = e,
                         .x = memory_kept(e, i) + from * dtype_bytes(e->model->kept_dtype),
                         .n = p->piece.count,
                         .blocks = (p->piece.count + NORM_BLOCK - 1) / NORM_BLOCK};
        worker_launch(e, w.n, norm_share, &w);
        e->sums[i] = 0;
        for (uint64_t b = 0; b < w.blocks; b++) {
            e->sums[i] += e->blocks[b];
        }
    }
}
