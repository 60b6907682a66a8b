/* See sample.h. The whole window is computed again for every byte: simple, and quick enough for a
 * few hundred bytes. */
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "model.h"

static const double temperature = 0.8;

/* Uniform on [0, 1), a function of seed and place. */
static double uniform(uint64_t seed, uint64_t place) {
    const uint64_t h = mix64(mix64(seed ^ UINT64_C(0x73616D706C65)) ^ place); /* "sample" */
    return (double)(h >> 11) * 0x1p-53;
}

static uint8_t draw(size_t n, const float *logits, double where) {
    double weight[GPT_VOCABULARY], top = (double)logits[0], sum = 0;
    for (size_t i = 1; i < n; i++) {
        top = (double)logits[i] > top ? (double)logits[i] : top;
    }
    for (size_t i = 0; i < n; i++) {
        weight[i] = exp(((double)logits[i] - top) / temperature);
        sum += weight[i];
    }
    double left = where * sum;
    size_t chosen = 0;
    while (chosen + 1 < n && left >= weight[chosen]) {
        left -= weight[chosen++];
    }
    return (uint8_t)chosen;
}

static void print_byte(uint8_t c, FILE *out) {
    if (c == '\n' || (c >= 0x20 && c < 0x7F)) {
        fputc(c, out);
    } else {
        fprintf(out, "\\x%02x", c);
    }
}

/* The window holds the last |length| bytes; what lies behind them is not seen (causal). */
static uint8_t next_byte(struct gpt *g, const struct units *u, const struct copy *c, size_t length,
                         double where) {
    const size_t head = u->count - 1;
    for (size_t unit = 0; unit < head; unit++) {
        gpt_forward(g, unit, c->params[unit], u->offset[unit].at[STORE_PARAMS]);
    }
    g->tied = c->params[0] + u->offset[0].at[STORE_PARAMS][EMBED_WTE];
    gpt_forward_logits(g, c->params[head], u->offset[head].at[STORE_PARAMS]);
    return draw(g->shape.vocab, g->logits + (length - 1) * g->shape.vocab, where);
}

static size_t push(struct gpt *g, size_t length, uint8_t byte) {
    const size_t last = g->shape.seq - 1;
    if (length > last) {
        for (size_t i = 0; i < last; i++) {
            g->tokens[i] = g->tokens[i + 1];
        }
        length = last;
    }
    g->tokens[length] = byte;
    return length + 1;
}

int sample_print(const struct units *u, const struct copy *c, const struct rows *rows,
                 const char *prompt, uint64_t count, uint64_t seed, FILE *out, struct err *e) {
    struct gpt g;
    struct gpt_shape shape = *u->shape;
    shape.batch = 1;
    const int rc = gpt_init(&g, &shape, rows, e);
    if (rc < 0) {
        return rc;
    }
    size_t length = 0;
    for (const char *p = prompt; *p; p++) {
        length = push(&g, length, (uint8_t)*p);
        print_byte((uint8_t)*p, out);
    }
    if (length == 0) {
        length = push(&g, length, '\n'); /* as if a line had just ended */
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t byte = next_byte(&g, u, c, length, uniform(seed, i));
        print_byte(byte, out);
        length = push(&g, length, byte);
    }
    fputc('\n', out);
    gpt_free(&g);
    return 0;
}
