/* See model.h. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "layers.h"

enum { ALIGN = 64 / sizeof(real), MAX_ROWS = 1 << 24 };

static size_t gpt_rows(const struct gpt *g) {
    return g->shape.batch * g->shape.seq;
}

/* Hands out the arena's pieces. The first walk has no arena and only counts. */
struct carve {
    real *base;
    size_t used; /* elements */
    bool overflow;
};

static real *take(struct carve *c, size_t rows, size_t columns) {
    size_t n = 0, end = 0;
    if (__builtin_mul_overflow(rows, columns, &n) || n > SIZE_MAX - ALIGN) {
        c->overflow = true;
        return NULL;
    }
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    if (__builtin_add_overflow(c->used, n, &end) || end > SIZE_MAX / sizeof(real) - ALIGN) {
        c->overflow = true;
        return NULL;
    }
    real *at = c->base ? c->base + c->used : NULL;
    c->used = end;
    return at;
}

static void carve_block(struct gpt_block *b, const struct gpt_shape *s, struct carve *a) {
    const size_t n = s->batch * s->seq, c = s->channels;
    b->mean1 = take(a, n, 1);
    b->rstd1 = take(a, n, 1);
    b->ln1 = take(a, n, c);
    b->qkv = take(a, n, 3 * c);
    b->prob = take(a, n * s->heads, s->seq);
    b->att = take(a, n, c);
    b->mid = take(a, n, c);
    b->mean2 = take(a, n, 1);
    b->rstd2 = take(a, n, 1);
    b->ln2 = take(a, n, c);
    b->pre = take(a, n, 4 * c);
    b->act = take(a, n, 4 * c);
}

static void carve_all(struct gpt *g, struct carve *a) {
    const size_t n = gpt_rows(g), c = g->shape.channels;
    for (size_t i = 0; i <= g->shape.layers; i++) {
        g->residual[i] = take(a, n, c);
    }
    for (size_t i = 0; i < g->shape.layers; i++) {
        if (i && g->shape.recompute) {
            g->blocks[i] = g->blocks[0];
        } else {
            carve_block(&g->blocks[i], &g->shape, a);
        }
    }
    g->mean = take(a, n, 1);
    g->rstd = take(a, n, 1);
    g->ln = take(a, n, c);
    g->logits = take(a, n, g->shape.vocab);
    g->d_residual = take(a, n, c);
    g->d_channels = take(a, n, c);
    g->d_wide = take(a, n, 4 * c);
    g->d_qkv = take(a, n, 3 * c);
    g->d_tile = take(a, g->shape.seq, g->shape.seq);
}

static int check_shape(const struct gpt_shape *s, struct err *e) {
    if (s->layers == 0 || s->heads == 0 || s->channels == 0 || s->seq == 0 || s->batch == 0 ||
        s->vocab == 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "a dimension of the model is 0");
    }
    if (s->layers > GPT_MAX_LAYERS || s->vocab > GPT_VOCABULARY || s->channels > 1 << 20) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "%zu layers, %zu channels, vocabulary %zu: over the limits %d, %d, %d",
                       s->layers, s->channels, s->vocab, GPT_MAX_LAYERS, 1 << 20, GPT_VOCABULARY);
    }
    if (s->channels % s->heads != 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "%zu channels are no multiple of %zu heads",
                       s->channels, s->heads);
    }
    if (s->batch > MAX_ROWS || s->seq > MAX_ROWS || s->batch * s->seq > MAX_ROWS) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "%zu sequences of %zu tokens: over the limit of %d tokens", s->batch, s->seq,
                       MAX_ROWS);
    }
    return 0;
}

int gpt_init(struct gpt *g, const struct gpt_shape *s, const struct rows *rows, struct err *e) {
    const int rc = check_shape(s, e);
    if (rc < 0) {
        return rc;
    }
    *g = (struct gpt){.shape = *s, .rows = rows, .gradient_scale = 1};
    const size_t n = gpt_rows(g);
    g->residual = calloc(s->layers + 1, sizeof *g->residual);
    g->blocks = calloc(s->layers, sizeof *g->blocks);
    g->tokens = calloc(n, 1);
    g->targets = calloc(n, 1);
    struct carve count = {NULL, 0, false};
    if (g->residual && g->blocks && g->tokens && g->targets) {
        carve_all(g, &count);
        g->arena_elements = count.used;
        if (!count.overflow) {
            g->arena = aligned_alloc(64, (count.used + ALIGN) / ALIGN * ALIGN * sizeof(real));
        }
    }
    if (!g->arena) {
        gpt_free(g);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for activations: %zu bytes%s",
                       count.used * sizeof(real), count.overflow ? " and more" : "");
    }
    memset(g->arena, 0, count.used * sizeof(real));
    struct carve carve = {g->arena, 0, false};
    carve_all(g, &carve);
    return 0;
}

void gpt_free(struct gpt *g) {
    free(g->residual);
    free(g->blocks);
    free(g->tokens);
    free(g->targets);
    free(g->arena);
    *g = (struct gpt){.loss = 0};
}

static struct attention_shape attention_shape(const struct gpt *g) {
    const struct gpt_shape *s = &g->shape;
    return (struct attention_shape){s->batch, s->seq, s->heads, s->channels};
}

static void block_forward(struct gpt *g, size_t i, const real *p, const uint64_t *at) {
    const struct rows *k = g->rows;
    const struct gpt_block *b = &g->blocks[i];
    const size_t n = gpt_rows(g), c = g->shape.channels;
    const struct attention_shape shape = attention_shape(g);
    const real *in = g->residual[i];
    k->layernorm(n, c, in, p + at[LN1_W], p + at[LN1_B], b->ln1, b->mean1, b->rstd1);
    linear(k, n, c, 3 * c, b->ln1, p + at[QKV_W], p + at[QKV_B], NULL, b->qkv);
    attention(k, &shape, b->qkv, b->prob, b->att);
    linear(k, n, c, c, b->att, p + at[PROJ_W], p + at[PROJ_B], in, b->mid);
    k->layernorm(n, c, b->mid, p + at[LN2_W], p + at[LN2_B], b->ln2, b->mean2, b->rstd2);
    linear(k, n, c, 4 * c, b->ln2, p + at[UP_W], p + at[UP_B], NULL, b->pre);
    k->gelu(n * 4 * c, b->pre, b->act);
    linear(k, n, 4 * c, c, b->act, p + at[DOWN_W], p + at[DOWN_B], b->mid, g->residual[i + 1]);
}

/* d_residual: in, the gradient of the block's output; out, of its input. Both branches read it and
 * add to it, so the residual connection itself costs nothing. */
static void block_backward(struct gpt *g, size_t i, const real *p, const uint64_t *at, real *d,
                           const uint64_t *to) {
    const struct rows *k = g->rows;
    const struct gpt_block *b = &g->blocks[i];
    const size_t n = gpt_rows(g), c = g->shape.channels;
    const struct attention_shape shape = attention_shape(g);
    linear_back(k, n, 4 * c, c, g->d_residual, b->act, p + at[DOWN_W], g->d_wide, d + to[DOWN_W],
                d + to[DOWN_B]);
    k->gelu_back(n * 4 * c, b->pre, g->d_wide);
    linear_back(k, n, c, 4 * c, g->d_wide, b->ln2, p + at[UP_W], g->d_channels, d + to[UP_W],
                d + to[UP_B]);
    k->layernorm_back(n, c, g->d_channels, b->mid, p + at[LN2_W], b->mean2, b->rstd2, g->d_residual,
                      d + to[LN2_W], d + to[LN2_B]);
    linear_back(k, n, c, c, g->d_residual, b->att, p + at[PROJ_W], g->d_channels, d + to[PROJ_W],
                d + to[PROJ_B]);
    attention_back(k, &shape, g->d_channels, b->qkv, b->prob, g->d_qkv, g->d_tile);
    linear_back(k, n, c, 3 * c, g->d_qkv, b->ln1, p + at[QKV_W], g->d_channels, d + to[QKV_W],
                d + to[QKV_B]);
    k->layernorm_back(n, c, g->d_channels, g->residual[i], p + at[LN1_W], b->mean1, b->rstd1,
                      g->d_residual, d + to[LN1_W], d + to[LN1_B]);
}

static const real *head_matrix(const struct gpt *g, const real *p, const uint64_t *at) {
    return g->shape.tied ? g->tied : p + at[HEAD_W];
}

void gpt_forward_logits(struct gpt *g, const real *p, const uint64_t *at) {
    const size_t n = gpt_rows(g), c = g->shape.channels;
    g->rows->layernorm(n, c, g->residual[g->shape.layers], p + at[HEAD_LN_W], p + at[HEAD_LN_B],
                       g->ln, g->mean, g->rstd);
    linear(g->rows, n, c, g->shape.vocab, g->ln, head_matrix(g, p, at), NULL, NULL, g->logits);
}

static void head_forward(struct gpt *g, const real *p, const uint64_t *at) {
    const size_t n = gpt_rows(g);
    gpt_forward_logits(g, p, at);
    g->loss = g->rows->cross_entropy(n, g->shape.vocab, g->targets, g->gradient_scale / (real)n,
                                     g->logits) /
              (double)n;
}

static void head_backward(struct gpt *g, const real *p, const uint64_t *at, real *d,
                          const uint64_t *to) {
    const size_t n = gpt_rows(g), c = g->shape.channels;
    linear_back(g->rows, n, c, g->shape.vocab, g->logits, g->ln, head_matrix(g, p, at),
                g->d_channels, g->shape.tied ? g->d_tied : d + to[HEAD_W], NULL);
    memset(g->d_residual, 0, n * c * sizeof(real));
    g->rows->layernorm_back(n, c, g->d_channels, g->residual[g->shape.layers], p + at[HEAD_LN_W],
                            g->mean, g->rstd, g->d_residual, d + to[HEAD_LN_W], d + to[HEAD_LN_B]);
}

void gpt_forward(struct gpt *g, size_t unit, const real *params, const uint64_t *offset) {
    const struct gpt_shape *s = &g->shape;
    if (unit == 0) {
        embed(s->batch, s->seq, s->channels, g->tokens, params + offset[EMBED_WTE],
              params + offset[EMBED_WPE], g->residual[0]);
    } else if (unit <= s->layers) {
        block_forward(g, unit - 1, params, offset);
    } else {
        head_forward(g, params, offset);
    }
}

void gpt_backward(struct gpt *g, size_t unit, const real *params, const uint64_t *offset,
                  real *grad, const uint64_t *to) {
    const struct gpt_shape *s = &g->shape;
    if (unit == 0) {
        embed_back(s->batch, s->seq, s->channels, s->vocab, g->tokens, g->d_residual,
                   grad + to[EMBED_WTE], grad + to[EMBED_WPE]);
    } else if (unit <= s->layers) {
        if (s->recompute) {
            block_forward(g, unit - 1, params, offset);
        }
        block_backward(g, unit - 1, params, offset, grad, to);
    } else {
        head_backward(g, params, offset, grad, to);
    }
}
