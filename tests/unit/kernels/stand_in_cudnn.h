/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_cudnn.h - descriptors of what plays cuDNN, for tests */
#ifndef MERAK_TESTS_STAND_IN_CUDNN_H
#define MERAK_TESTS_STAND_IN_CUDNN_H

#include "kernels/cuda/cuda_cudnn_api.h"

#include <stdbool.h>

#define STAND_IN_ATTRIBUTES 12 /* of a descriptor, at most */
#define STAND_IN_OPS 32
#define STAND_IN_POINTERS 64 /* of a call */

/* An attribute as it was set. */
struct si_attribute {
    int name, type;
    int64_t n;
    void *element;
};

struct si_desc {
    unsigned magic; /* of one that lives */
    int type;
    bool is_final;
    struct si_attribute attribute[STAND_IN_ATTRIBUTES];
    int n;
    /* of an answer, and what is read from it: what was answered */
    int64_t workspace, engine, knob_type, knob_value;
    bool is_inexact;
};

/* --- stand_in_cudnn_run.c --------------------------------------------------
 */

/* Bytes of an element. */
size_t si_bytes_of(int type);
/* Element i of an attribute that is there; the descriptor's own memory. */
const void *si_element(const struct si_desc *d, int name, int64_t i);
bool si_has(const struct si_desc *d, int name);
int64_t si_count(const struct si_desc *d, int name);
struct si_desc *si_desc(const struct si_desc *d, int name, int64_t i);
int64_t si_int64(const struct si_desc *d, int name, int64_t i);
int si_int(const struct si_desc *d, int name);
bool si_bool(const struct si_desc *d, int name);

/* What an op reads, at most three, and writes; NULL: not so many. */
struct si_ends {
    struct si_desc *in[3], *out;
};
struct si_ends si_ends_of(const struct si_desc *op);

/* Do an op's shapes go together?  NULL, or what does not. */
const char *si_check_op(const struct si_desc *op);

/* What a run needs, also after the pack is gone. */
struct si_call {
    const struct si_desc *graph;
    unsigned char *workspace; /* all of it is overwritten */
    size_t workspace_bytes;
    unsigned char *jitter_at; /* a byte that gets other bits, or NULL */
    int n;
    int64_t uid[STAND_IN_POINTERS];
    void *pointer[STAND_IN_POINTERS];
};
/* Run a graph on the host's memory, at once; where MERAK_STAND_IN_STREAMS is
 * defined, in a stream of stand_in_cuda.h.  0, or it was not queued. */
int si_put(const struct si_call *call, void *stream);

#endif
