/* SPDX-License-Identifier: Apache-2.0 */
/* execute_load.h - what execute.c loads: a function of step, input and the
 * sample's number */
#ifndef MERAK_TESTS_EXECUTE_LOAD_H
#define MERAK_TESTS_EXECUTE_LOAD_H

#include "base/half.h"
#include "base/rng.h"
#include "partitioner/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#define TOKENS 16 /* of a sequence: planned_build() */

struct loaded {
    void *data;
    uint64_t step, first; /* sample */
    size_t samples, vocab;
};

/* Documents of a few tokens. */
static void put_starts(int32_t *starts, size_t n, uint64_t step, uint64_t first)
{
    for (size_t i = 0; i < n; i++) {
        bool begins =
            i % TOKENS == 0 || merak_rng_mix(step + 77, first + i) % 5 == 0;

        starts[i] = begins ? (int32_t)(i % TOKENS) : starts[i - 1];
    }
}

/* Pairs of the documents that put_starts() makes; the last one of a sequence
 * may have none beside it. */
static void put_pairs(int32_t *pairs, size_t n, uint64_t step, uint64_t first)
{
    int32_t *starts = malloc(n * sizeof(*starts));

    put_starts(starts, n, step, first);
    for (size_t row = 0; row < n; row += TOKENS) {
        size_t begin[TOKENS + 1], documents = 0;

        for (size_t t = 0; t < TOKENS; t++) {
            if (starts[row + t] == (int32_t)t)
                begin[documents++] = t;
            pairs[row + t] = 0;
        }
        begin[documents] = TOKENS;
        for (size_t d = 0; d + 2 <= documents; d += 2)
            for (size_t t = begin[d]; t < begin[d + 2]; t++)
                pairs[row + t] = (int32_t)begin[d + 1];
    }
    free(starts);
}

static void put_reference(float *reference, size_t n, uint64_t step,
                          uint64_t first)
{
    for (size_t i = 0; i < n; i++)
        reference[i] = 4 * merak_rng_uniform(step + 78, first + i);
}

/* Every third token of a model with documents is not to be predicted. */
static void drop_targets(const struct merak_graph *graph, int32_t *ids,
                         size_t n)
{
    bool documents = false;

    for (int v = 0; v < graph->n_values; v++)
        documents |= merak_value_is(graph->value[v], MERAK_INPUT_STARTS);
    for (size_t i = 1; documents && i < n; i += 3)
        ids[i] = MERAK_NO_TARGET;
}

/* 1 to TOKENS keys of each sample. */
static void put_keys(int32_t *keys, uint64_t key, const struct loaded *to)
{
    for (size_t i = 0; i < to->samples; i++)
        keys[i] = 1 + (int32_t)(merak_rng_mix(key, to->first + i) % TOKENS);
}

/* Numbers in -1 .. 1, or labels of three classes, some without. */
static void put_named(const struct merak_input *input, int number,
                      const struct loaded *to)
{
    size_t of_sample = merak_shape_count(&input->shape) / input->shape.dim[0];
    uint64_t key = merak_rng_mix(to->step + 79, (uint64_t)number);

    if (strcmp(input->name, "lengths") == 0 ||
        strcmp(input->name, "prefix") == 0) {
        put_keys(to->data, key, to);
        return;
    }
    for (size_t i = 0; i < to->samples * of_sample; i++) {
        uint64_t at = to->first * of_sample + i;
        bool ids = strcmp(input->name, "source") == 0 ||
                   strcmp(input->name, "decoder") == 0 ||
                   strcmp(input->name, "ids") == 0 ||
                   strcmp(input->name, "types") == 0;
        float x = 2 * merak_rng_uniform(key, at) - 1;

        if (input->dtype == MERAK_I32)
            ((int32_t *)to->data)[i] =
                at % 7 == 3 && !ids ? MERAK_NO_TARGET : (int32_t)(at % 3);
        else if (input->dtype == MERAK_BF16)
            ((uint16_t *)to->data)[i] = merak_f32_to_bf16(x);
        else
            ((float *)to->data)[i] = x;
    }
}

static void put_ids(const struct merak_graph *graph, const struct loaded *to,
                    bool targets)
{
    size_t n = to->samples * TOKENS;
    int32_t *ids = to->data;

    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)(merak_rng_mix(to->step,
                                         to->first * TOKENS + i + targets) %
                           to->vocab);
    if (targets)
        drop_targets(graph, ids, n);
}

static void load_input(const struct merak_graph *graph, int number,
                       const struct loaded *to)
{
    const struct merak_input *input = &graph->input[number];
    size_t n = to->samples * TOKENS;
    uint64_t first = to->first * TOKENS;

    switch (input->class) {
    case MERAK_INPUT_TOKENS:
    case MERAK_INPUT_TARGETS:
        put_ids(graph, to, input->class == MERAK_INPUT_TARGETS);
        break;
    case MERAK_INPUT_STARTS:
        put_starts(to->data, n, to->step, first);
        break;
    case MERAK_INPUT_PAIRS:
        put_pairs(to->data, n, to->step, first);
        break;
    case MERAK_INPUT_REFERENCE:
        put_reference(to->data, n, to->step, first);
        break;
    case MERAK_INPUT_NAMED:
        put_named(input, number, to);
        break;
    }
}

#endif
