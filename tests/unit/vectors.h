/* SPDX-License-Identifier: Apache-2.0 */
/* vectors.h - numbers of an independent implementation (tests/vectors/)
 *
 * The format and the meaning of each record are in
 * tests/vectors/gen_gpt2_llama.py.  Anything wrong with a file fails the
 * test that loads it.
 */
#ifndef MERAK_TESTS_VECTORS_H
#define MERAK_TESTS_VECTORS_H

#include "merak/types.h"

struct vectors_record {
    char name[128];
    char kind; /* 'w' and 'f': f; 'd': d; 'i': i */
    struct merak_shape shape;
    size_t n; /* elements */
    union {
        float *f;
        double *d;
        int32_t *i;
        void *any;
    };
};

struct vectors {
    struct vectors_record *record;
    size_t n;
};

/* Read tests/vectors/FILE; weights are made from their formula. */
struct vectors *vectors_load(const char *file);
void vectors_free(struct vectors *v);
/* The record called prefix + name; it must be there, of that kind ('f' takes
 * 'w' too). */
const struct vectors_record *vectors_find(const struct vectors *v,
                                          const char *prefix, const char *name,
                                          char kind);

#endif
