#include "network.h"

#include <string.h>

#include "base/hash.h"

/* On [-1, 1), multiples of 2^-12. */
static double noise(uint64_t what, uint64_t step, uint64_t rank, uint64_t i) {
    const uint64_t h = mix64(mix64(what << 48 ^ step << 24 ^ rank) ^ i);
    return (double)(h >> 51) * 0x1p-12 - 1;
}

void make_batch(uint64_t step, unsigned rank, struct batch *b) {
    for (unsigned s = 0; s < BATCH; s++) {
        for (unsigned i = 0; i < IN; i++) {
            b->x[s][i] = noise(1, step, rank, s * IN + i);
        }
        for (unsigned i = 0; i < OUT; i++) {
            b->target[s][i] = noise(2, step, rank, s * OUT + i);
        }
    }
}

static const struct { unsigned rows, columns; } shapes[UNITS] = {{HIDDEN, IN}, {OUT, HIDDEN}};

void read_layer(uint32_t unit, const float *w, const float *b, struct layer *l) {
    for (unsigned r = 0; r < shapes[unit].rows; r++) {
        l->bias[r] = (double)b[r];
        for (unsigned c = 0; c < shapes[unit].columns; c++) {
            l->weight[r][c] = (double)w[r * shapes[unit].columns + c];
        }
    }
}

void write_layer(uint32_t unit, const struct layer *l, float *w, float *b) {
    for (unsigned r = 0; r < shapes[unit].rows; r++) {
        b[r] = (float)l->bias[r];
        for (unsigned c = 0; c < shapes[unit].columns; c++) {
            w[r * shapes[unit].columns + c] = (float)l->weight[r][c];
        }
    }
}

/* out = W in + b, columns in order. */
static void apply(uint32_t unit, const struct layer *l, const double *in, double *out) {
    for (unsigned r = 0; r < shapes[unit].rows; r++) {
        out[r] = l->bias[r];
        for (unsigned c = 0; c < shapes[unit].columns; c++) {
            out[r] += l->weight[r][c] * in[c];
        }
    }
}

static void add_outer(uint32_t unit, const double *d, const double *in, struct layer *gradient) {
    for (unsigned r = 0; r < shapes[unit].rows; r++) {
        gradient->bias[r] += d[r];
        for (unsigned c = 0; c < shapes[unit].columns; c++) {
            gradient->weight[r][c] += d[r] * in[c];
        }
    }
}

/* Adds one sample's gradients; returns its loss. */
static double sample(const struct layer l[UNITS], const double *x, const double *target,
                     struct layer gradient[UNITS]) {
    double z[HIDDEN], h[HIDDEN], y[HIDDEN], dh[HIDDEN] = {0}, loss = 0;
    apply(FIRST, &l[FIRST], x, z);
    for (unsigned i = 0; i < HIDDEN; i++) {
        h[i] = z[i] > 0 ? z[i] : 0;
    }
    apply(SECOND, &l[SECOND], h, y);
    for (unsigned i = 0; i < OUT; i++) {
        y[i] -= target[i];
        loss += y[i] * y[i];
        for (unsigned k = 0; k < HIDDEN; k++) {
            dh[k] += y[i] * l[SECOND].weight[i][k];
        }
    }
    for (unsigned i = 0; i < HIDDEN; i++) {
        dh[i] = z[i] > 0 ? dh[i] : 0;
    }
    add_outer(SECOND, y, h, &gradient[SECOND]);
    add_outer(FIRST, dh, x, &gradient[FIRST]);
    return loss;
}

double network(const struct layer l[UNITS], const struct batch *b, struct layer gradient[UNITS]) {
    double loss = 0;
    memset(gradient, 0, UNITS * sizeof gradient[0]);
    for (unsigned s = 0; s < BATCH; s++) {
        loss += sample(l, b->x[s], b->target[s], gradient);
    }
    return loss;
}

void make_layer(uint32_t unit, struct layer *l) {
    memset(l, 0, sizeof *l);
    for (unsigned r = 0; r < shapes[unit].rows; r++) {
        for (unsigned c = 0; c < shapes[unit].columns; c++) {
            l->weight[r][c] = noise(3, unit, 0, r * shapes[unit].columns + c);
        }
    }
}
