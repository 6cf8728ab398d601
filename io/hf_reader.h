/* SPDX-License-Identifier: Apache-2.0 */
/* io/hf_reader.h - fields of a JSON object, each asked for by name and type
 *
 * A reader stops at the first wrong field: later calls do nothing and return
 * the default.  It records which fields were asked for, so that the remaining
 * ones can be listed.
 */
#ifndef MERAK_IO_HF_READER_H
#define MERAK_IO_HF_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

enum { MERAK_HF_ASKED = 128 };

/* Names of fields, separated by commas: as many as fit. */
struct merak_hf_names {
    char text[128];
    int n, left_out; /* n: with those left out */
};

struct merak_hf_reader {
    const json_t *root;
    const char *family; /* for messages */
    enum merak_status rc;
    struct merak_error *err;
    const char *asked[MERAK_HF_ASKED]; /* names that live longer */
    int n_asked;
    struct merak_hf_names unread; /* filled by merak_hf_list_unread() */
};

/* A field, or NULL if it is absent or null, which mean the same. */
const json_t *merak_hf_field(struct merak_hf_reader *r, const char *name);
/* A count from 1 to `most`; or_else 0: the field is required. */
size_t merak_hf_size(struct merak_hf_reader *r, const char *name, size_t most,
                     size_t or_else);
double merak_hf_real(struct merak_hf_reader *r, const char *name,
                     double or_else);
/* A finite number above 0. */
float merak_hf_positive(struct merak_hf_reader *r, const char *name,
                        double or_else);
float merak_hf_dropout(struct merak_hf_reader *r, const char *name,
                       double or_else);
bool merak_hf_bool(struct merak_hf_reader *r, const char *name, bool or_else);
const char *merak_hf_word(struct merak_hf_reader *r, const char *name,
                          const char *or_else);

/* Refuse a field whose value is not supported; `want`: what would work. */
void merak_hf_refuse(struct merak_hf_reader *r, const char *name,
                     const char *want);
void merak_hf_missing(struct merak_hf_reader *r, const char *name);
/* The field must be absent, or have the expected value. */
void merak_hf_require_bool(struct merak_hf_reader *r, const char *name,
                           bool want);
void merak_hf_require_absent(struct merak_hf_reader *r, const char *name);

/* Add to `names`, in the file's order, the fields of r that are not null, were
 * not asked for, are in neither list (which end with NULL; `more` may be NULL),
 * and do not begin
 * with "_"; `before` is put before each name. */
void merak_hf_list_unread(const struct merak_hf_reader *r,
                          const char *const *known, const char *const *more,
                          const char *before, struct merak_hf_names *names);

#endif
