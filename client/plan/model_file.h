/* What the readers of model files share: one for each kind of file. Their errors do not name the
 * file; plan_model_read puts its name in front. */
#ifndef ZD_PLAN_MODEL_FILE_H
#define ZD_PLAN_MODEL_FILE_H

#include "json.h"
#include "plan.h"

enum { CONFIG_LAYERS_MAX = 10000, CONFIG_EXPERTS_MAX = 1024 };

/* Adds the units of a config.json's architecture. UNIMPLEMENTED: one that is not known. */
int config_read(const cJSON *config, struct model *m, struct plan_lines *notes, struct err *e);
int config_gpt2(const cJSON *config, struct model *m, struct err *e);
int config_llama(const cJSON *config, const char *type, struct model *m, struct err *e);

/* One tensor of |dims| sizes, its name |prefix| + |name|, in the last unit. */
int config_tensor(struct model *m, const char *prefix, const char *name, size_t dims,
                  const uint64_t *shape, struct err *e);
/* The output layer: a unit of its own, with memory of its own or |embedding|'s. */
int config_head(struct model *m, const char *embedding, bool tied, const uint64_t shape[2],
                struct err *e);

/* A tensor as a safetensors header has it. */
struct entry {
    char name[MODEL_NAME];
    char dtype[12];
    uint32_t dims;
    uint64_t shape[MODEL_DIMS];
    uint64_t begin, end; /* bytes from the start of the file's data */
    unsigned file;       /* which file of an index */
};
struct entries {
    size_t count, cap;
    struct entry *list; /* owned */
};
void entries_free(struct entries *x);

/* Adds a safetensors file's tensors; checks all that can be: dtypes, sizes, overlaps, holes. */
int safetensors_entries(const char *path, unsigned file, struct entries *x, struct err *e);
/* |from|: the first entry of this file. |data|: bytes of the file behind its header. */
int safetensors_check(const struct entries *x, size_t from, uint64_t data, struct err *e);
/* Bits of an element; 0: not known. */
unsigned safetensors_bits(const char *dtype);

/* Adds the tensors of all files that an index names, which lie beside it at |path|. */
int index_entries(const cJSON *index, const char *path, struct entries *x, struct plan_lines *notes,
                  struct err *e);

/* Adds units by the usual patterns of names: all of model.layers.7.* is one unit. */
int entries_units(struct entries *x, struct model *m, struct plan_lines *notes, struct err *e);

#endif
