/* SPDX-License-Identifier: Apache-2.0 */
/* io/plan_lists.h - fields of a plan file, for plan_file.c and plan_lists.c */
#ifndef MERAK_IO_PLAN_LISTS_H
#define MERAK_IO_PLAN_LISTS_H

#include "io/plan_file.h"

/* A plan's lists; null if it has none. */
json_t *merak_plan_cut_json(const int *list, int n);
json_t *merak_plan_drop_json(const struct merak_drop *drop, int n);
json_t *merak_plan_meshes_json(const struct merak_plan *p);
/* Kinds of nodes; NULL: all are alike. */
json_t *merak_plan_kinds_json(const struct merak_plan_file *file);
/* Likewise; what makes no sense is left out. */
void merak_plan_read_kinds(const json_t *array, struct merak_plan_file *file);

/* Reads fields until the first wrong one; then every call is a no-op. */
struct merak_plan_reader {
    const char *name; /* of the file */
    enum merak_status rc;
    struct merak_error *err;
};

void merak_plan_fail_field(struct merak_plan_reader *r, const char *key,
                           const json_t *value, const char *expected);
json_int_t merak_plan_read_integer(struct merak_plan_reader *r,
                                   const json_t *in, const char *key,
                                   json_int_t least, json_int_t most);
bool merak_plan_read_bool(struct merak_plan_reader *r, const json_t *in,
                          const char *key);
/* Cut points, ascending, one fewer than there are parts, without
 * vocabulary-parallel layers. */
void merak_plan_read_cut(struct merak_plan_reader *r, const json_t *in,
                         struct merak_plan_file *file);
void merak_plan_read_drop(struct merak_plan_reader *r, const json_t *in,
                          struct merak_plan_file *file);
/* The degrees of unlike stages; before all that depends on them. */
void merak_plan_read_meshes(struct merak_plan_reader *r, const json_t *in,
                            struct merak_plan_file *file);

#endif
