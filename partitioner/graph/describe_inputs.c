/* SPDX-License-Identifier: Apache-2.0 */
/* describe_inputs.c - what a model reads of each micro-batch: a row of the
 * graph's table of inputs for each */
#include "config.h"

#include "merak/model.h"

#include "partitioner/graph/describe.h"
#include "partitioner/graph/letters.h"

#include <string.h>

/* Add a row and its value. */
static struct merak_value *add_input(struct merak_model *m,
                                     const struct merak_input *input)
{
    struct merak_graph *graph = m->graph;
    struct merak_value proto = {.kind = MERAK_VALUE_INPUT,
                                .name = input->name,
                                .dtype = input->dtype,
                                .shape = input->shape,
                                .producer = -1,
                                .input = graph->n_inputs,
                                .of = -1};
    struct merak_value *value = NULL;

    for (int i = 0; i < graph->n_inputs; i++) {
        if (strcmp(graph->input[i].name, input->name) == 0)
            merak_model_fail(m, MERAK_ERR_PARAM,
                             "input %s: the name is taken; use the same value "
                             "twice to read it twice",
                             input->name);
    }
    if (graph->n_inputs == MERAK_MAX_INPUTS)
        merak_model_fail(m, MERAK_ERR_UNSUPPORTED,
                         "input %s: the model has %d inputs, which is the most",
                         input->name, MERAK_MAX_INPUTS);
    if (m->status != MERAK_OK)
        return NULL;
    memcpy(proto.letter, input->letter, sizeof(proto.letter));
    merak_model_keep(m, merak_graph_value(graph, &proto, &value, &m->error));
    if (value == NULL)
        return NULL;
    graph->input[graph->n_inputs] = *input;
    graph->input[graph->n_inputs].name = value->name;
    m->input[graph->n_inputs++] = value;
    return value;
}

/* A number for each position; there is one input of each class. */
static struct merak_value *by_position(struct merak_model *m, const char *name,
                                       enum merak_input_class class,
                                       enum merak_dtype dtype)
{
    const struct merak_input input = {
        .name = name,
        .class = class,
        .dtype = dtype,
        .shape = {2, {m->graph->micro_batch, m->graph->seq}},
        .letter = {MERAK_LETTER_SAMPLES, MERAK_LETTER_POSITIONS}};

    if (merak_model_open_for(m, name) == NULL)
        return NULL;
    for (int i = 0; i < m->graph->n_inputs; i++) {
        if (m->graph->input[i].class == class)
            return m->input[i];
    }
    return add_input(m, &input);
}

struct merak_value *merak_tokens(struct merak_model *m)
{
    return by_position(m, "tokens", MERAK_INPUT_TOKENS, MERAK_I32);
}

struct merak_value *merak_targets(struct merak_model *m)
{
    return by_position(m, "targets", MERAK_INPUT_TARGETS, MERAK_I32);
}

int merak_model_add_starts(struct merak_model *m, struct merak_value **in,
                           int n)
{
    if (!m->graph->documents)
        return n;
    in[n] = by_position(m, "starts", MERAK_INPUT_STARTS, MERAK_I32);
    return n + 1;
}

bool merak_model_add_pairs(struct merak_model *m, struct merak_value *in[2])
{
    if (!(m->pair_beta > 0))
        return false;
    in[0] = by_position(m, "pairs", MERAK_INPUT_PAIRS, MERAK_I32);
    in[1] = by_position(m, "reference", MERAK_INPUT_REFERENCE, MERAK_F32);
    return true;
}

/* --- of a program's own ----------------------------------------------------
 */

/* A letter of a declaration: channels and the like have none of their own. */
static bool is_letter(char letter)
{
    return letter == '.' || letter == 'c' || merak_letter_is_known(letter);
}

static void check_letters(struct merak_model *m, const char *name,
                          const char *letters)
{
    size_t n = letters == NULL ? 0 : strlen(letters);

    if (n == 0 || n > MERAK_MAX_DIMS || letters[0] != MERAK_LETTER_SAMPLES ||
        strchr(letters + 1, MERAK_LETTER_SAMPLES) != NULL)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "input %s: letters \"%s\", expected one for each of "
                         "1 to %d dims, the first 'b', samples, and no other",
                         name, letters == NULL ? "" : letters, MERAK_MAX_DIMS);
    for (size_t d = 0; d < n; d++) {
        if (!is_letter(letters[d]))
            merak_model_fail(m, MERAK_ERR_PARAM,
                             "input %s: letter '%c' of dim %zu is not known, "
                             "expected b (samples), t or s (positions), z, y "
                             "or x (space), c or . (anything else)",
                             name, letters[d], d);
    }
}

/* B and T are the model's. */
static void check_extents(struct merak_model *m, const struct merak_input *in)
{
    const struct merak_graph *graph = m->graph;

    for (int d = 0; d < in->shape.ndim && m->status == MERAK_OK; d++) {
        size_t want = in->letter[d] == MERAK_LETTER_SAMPLES ? graph->micro_batch
                      : in->letter[d] == MERAK_LETTER_POSITIONS
                          ? graph->seq
                          : in->shape.dim[d];

        if (in->shape.dim[d] != want)
            merak_model_fail(m, MERAK_ERR_PARAM,
                             "input %s: dim %d, '%c', is %zu, expected the "
                             "model's %zu %s",
                             in->name, d, in->letter[d], in->shape.dim[d], want,
                             in->letter[d] == MERAK_LETTER_SAMPLES
                                 ? "samples of a micro-batch"
                                 : "positions of a sequence");
    }
}

static void check_named(struct merak_model *m, const char *name,
                        enum merak_dtype dtype, const char *letters)
{
    if (!merak_is_name(name))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "input name \"%.60s\": expected 1 to %d printable "
                         "characters, no space and no slash",
                         name == NULL ? "" : name, MERAK_NAME_MOST);
    else if (dtype != MERAK_F32 && dtype != MERAK_BF16 && dtype != MERAK_I32)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "input %s: type %s, expected f32, bf16 or i32", name,
                         merak_dtype_name(dtype));
    else
        check_letters(m, name, letters);
}

struct merak_value *merak_input(struct merak_model *m, const char *name,
                                enum merak_dtype dtype, const char *letters,
                                const size_t *dim)
{
    struct merak_input in = {
        .name = name, .class = MERAK_INPUT_NAMED, .dtype = dtype};

    if (merak_model_open_for(m, "merak_input") == NULL)
        return NULL;
    check_named(m, name, dtype, letters);
    if (m->status == MERAK_OK && dim == NULL)
        merak_model_fail(m, MERAK_ERR_PARAM, "input %s: no dims", name);
    if (m->status != MERAK_OK)
        return NULL;
    in.shape.ndim = (int)strlen(letters);
    memcpy(in.shape.dim, dim, (size_t)in.shape.ndim * sizeof(*dim));
    for (int d = 0; d < in.shape.ndim; d++)
        in.letter[d] = merak_letter_is_known(letters[d]) ? letters[d] : '\0';
    check_extents(m, &in);
    return add_input(m, &in);
}

struct merak_value *merak_labels(struct merak_model *m, const char *name,
                                 const char *letters)
{
    const struct merak_graph *graph = m->graph;
    size_t dim[2] = {graph->micro_batch, graph->seq};

    if (letters != NULL && strcmp(letters, "b") != 0 &&
        strcmp(letters, "bt") != 0)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "labels %s: letters \"%s\", expected \"b\", one for "
                         "each sample, or \"bt\", one for each position; for "
                         "others: merak_input() of type i32",
                         name == NULL ? "" : name, letters);
    return merak_input(m, name, MERAK_I32, letters, dim);
}
