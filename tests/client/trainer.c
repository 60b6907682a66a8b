/* A trainer of the tests' model. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "fake.h"

struct zerod *trainer_attach(const struct fake *f) {
    struct zerod *z = NULL;
    struct zerod_error e;
    int rc = zerod_attach(f->path, fake_model(), &z, &e);
    assert(rc == 0);
    return z;
}

static int borrow(struct zerod *z, uint32_t unit) {
    const void *p;
    int rc = zerod_gather(z, unit, &p);
    assert(rc || *(const float *)p == fake_param(unit));
    return rc;
}

static int fill(struct zerod *z, uint32_t unit, float value) {
    void *g;
    int rc = zerod_grad(z, unit, true, &g);
    if (!rc) {
        *(float *)g = value;
    }
    return rc;
}

int trainer_load(struct zerod *z) {
    int rc = 0;
    for (uint32_t unit = 0; !rc && unit < 3; unit++) {
        float *values;
        rc = zerod_initial(z, unit, &values);
        if (!rc) {
            memset(values, 0, zerod_initial_bytes(z, unit));
            values[0] = fake_param(unit);
            rc = zerod_load(z, unit);
        }
    }
    return rc;
}

int trainer_micro_batch(struct zerod *z) {
    int rc = borrow(z, 0);
    rc = rc ? rc : zerod_release(z, 0);
    rc = rc ? rc : borrow(z, 1);
    rc = rc ? rc : zerod_release(z, 1);
    rc = rc ? rc : borrow(z, 2);
    rc = rc ? rc : fill(z, 2, 1);
    rc = rc ? rc : zerod_release(z, 2);
    rc = rc ? rc : zerod_reduce(z, 2);
    rc = rc ? rc : borrow(z, 1);
    rc = rc ? rc : fill(z, 1, 2);
    rc = rc ? rc : fill(z, 0, 3); /* two slots open */
    rc = rc ? rc : zerod_reduce(z, 1);
    rc = rc ? rc : zerod_release(z, 1);
    return rc ? rc : zerod_reduce(z, 0);
}

int trainer_try(struct zerod *z) {
    int rc = trainer_micro_batch(z);
    return rc ? rc : trainer_micro_batch(z);
}
