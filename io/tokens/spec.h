/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/spec.h - how users write a data set: "PATH", or a blend
 * "WEIGHT1 PATH1 WEIGHT2 PATH2 .." */
#ifndef MERAK_IO_TOKENS_SPEC_H
#define MERAK_IO_TOKENS_SPEC_H

#include <stddef.h>

#include "merak/status.h"

struct merak_data_spec {
    size_t n;
    double *weight; /* [n]; 1 for a single path */
    char **path;    /* [n], into text */
    char *text;
};

/*
 * A single word, or a text that does not start with a number, is one path.
 * MERAK_ERR_CONFIG quotes the text and names what is missing.
 */
enum merak_status merak_data_spec_parse(const char *text,
                                        struct merak_data_spec *spec,
                                        struct merak_error *err) MERAK_CHECKED;
void merak_data_spec_fini(struct merak_data_spec *spec);

#endif
