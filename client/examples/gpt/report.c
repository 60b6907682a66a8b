/* See report.h. */
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static double now(void) {
    return (double)clock_ns() * 1e-9;
}

int report_init(struct report *r, uint64_t steps, bool quiet, struct err *e) {
    *r = (struct report){.quiet = quiet, .cap = steps};
    r->losses = calloc(steps + 1, sizeof *r->losses);
    r->grad_norms = calloc(steps + 1, sizeof *r->grad_norms);
    if (!r->losses || !r->grad_norms) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the losses of %" PRIu64 " steps",
                       steps);
    }
    return 0;
}

void report_free(struct report *r) {
    free(r->losses);
    free(r->grad_norms);
    *r = (struct report){0};
}

void report_begin(struct report *r) {
    if (r->start <= 0) {
        r->start = r->end = now();
    }
}

static double tokens_per_second(const struct report *r) {
    const double seconds = r->end - r->start;
    return seconds > 0 ? r->tokens_per_step * (double)r->count / seconds : 0;
}

void report_step(struct report *r, uint64_t step, double loss, double grad_norm, bool skipped) {
    if (r->count == 0) {
        r->first_step = step;
    }
    if (step != r->first_step + r->count || r->count == r->cap) {
        return;
    }
    r->losses[r->count] = loss;
    r->grad_norms[r->count] = grad_norm;
    r->count++;
    r->skipped += skipped;
    r->end = now();
    if (!r->quiet) {
        printf("step %" PRIu64 "  loss %.4f  norm %.4f  %.0f tokens/s%s\n", step, loss, grad_norm,
               tokens_per_second(r), skipped ? "  skipped: a gradient is not finite" : "");
    }
}

static void write_numbers(FILE *out, const char *key, const double *x, uint64_t n) {
    fprintf(out, "  \"%s\": [", key);
    for (uint64_t i = 0; i < n; i++) {
        if (isfinite(x[i])) {
            fprintf(out, "%s%.17g", i ? ", " : "", x[i]);
        } else {
            fprintf(out, "%snull", i ? ", " : "");
        }
    }
    fprintf(out, "],\n");
}

static void write_all(FILE *out, const struct report *r, uint64_t steps) {
    fprintf(out, "{\n  \"steps\": %" PRIu64 ",\n  \"first_step\": %" PRIu64 ",\n", steps,
            r->first_step);
    write_numbers(out, "losses", r->losses, r->count);
    write_numbers(out, "grad_norms", r->grad_norms, r->count);
    fprintf(out, "  \"skipped\": %" PRIu64 ",\n  \"parameters\": %" PRIu64 ",\n", r->skipped,
            r->parameters);
    fprintf(out, "  \"activation_bytes\": %" PRIu64 ",\n  \"loss_scale\": %.17g,\n",
            r->activation_bytes, r->loss_scale);
    if (r->hash_known) {
        fprintf(out, "  \"param_hash\": \"%016" PRIx64 "\",\n", r->hash);
    } else {
        fprintf(out, "  \"param_hash\": null,\n");
    }
    fprintf(out, "  \"tokens_per_second\": %.1f,\n  \"seconds\": %.6f\n}\n", tokens_per_second(r),
            r->end - r->start);
}

int report_write(const struct report *r, const char *path, uint64_t steps, struct err *e) {
    FILE *out = fopen(path, "we");
    if (!out) {
        return err_set(e, ST_UNAVAILABLE, "writing %s: %s", path, strerror(errno));
    }
    write_all(out, r, steps);
    const bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) {
        return err_set(e, ST_UNAVAILABLE, "writing %s: %s", path, strerror(errno));
    }
    return 0;
}
