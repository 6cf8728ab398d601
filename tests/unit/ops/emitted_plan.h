/* SPDX-License-Identifier: Apache-2.0 */
/* emitted_plan.h - a plan and a model, and the plan in another trainer's words
 */
#ifndef MERAK_TESTS_EMITTED_PLAN_H
#define MERAK_TESTS_EMITTED_PLAN_H

#include "unit/near.h"

#include "runtime/plan/trainers.h"

#include <stdio.h>

static const struct merak_plan plain = {
    .tp = 4,
    .pp = 2,
    .dp = 8,
    .chunks = 1,
    .microbatches = 16,
    .micro_batch = 2,
    .schedule = "1f1b",
    .zero = 1,
    .dtype = MERAK_BF16,
};

static const struct merak_hf_config small_llama = {.family = MERAK_LLAMA,
                                                   .layers = 32,
                                                   .hidden = 1024,
                                                   .heads = 8,
                                                   .kv_heads = 8,
                                                   .head_dim = 128,
                                                   .ffn = 2816,
                                                   .vocab = 32000,
                                                   .positions = 8192,
                                                   .rope.theta = 1e4f};

/* What is written, and what is noted; the caller's to free. */
static int emit_as(enum plan_emit what, const struct plan_emitted *e,
                   char **out_p, char **notes_p)
{
    size_t bytes;
    FILE *out = open_memstream(out_p, &bytes);
    FILE *notes = open_memstream(notes_p, &bytes);
    int lost = -1;
    enum merak_status rc = plan_emit(what, e, out, notes, &lost, NULL);

    assert_int_equal(rc, MERAK_OK);
    fclose(out);
    fclose(notes);
    return lost;
}

#endif
