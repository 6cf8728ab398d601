/* SPDX-License-Identifier: Apache-2.0 */
/* letters.c - which index runs along each dim of a value */
#include "config.h"

#include "partitioner/graph/letters.h"

#include "base/error.h"

#include <ctype.h>
#include <string.h>

bool merak_letter_is_sequence(char letter)
{
    return letter == 't' || letter == 's';
}

bool merak_letter_is_space(char letter)
{
    return letter == 'z' || letter == 'y' || letter == 'x';
}

bool merak_letter_is_known(char letter)
{
    return letter != 0 && strchr("btszyx", letter) != NULL;
}

bool merak_value_has_positions(const struct merak_value *value)
{
    return value->shape.ndim >= 2 && value->letter[1] == MERAK_LETTER_POSITIONS;
}

const struct merak_value *
merak_graph_second_sequence(const struct merak_graph *graph)
{
    for (int v = 0; v < graph->n_values; v++) {
        for (int d = 0; d < graph->value[v]->shape.ndim; d++) {
            char letter = graph->value[v]->letter[d];

            if (merak_letter_is_sequence(letter) &&
                letter != MERAK_LETTER_POSITIONS)
                return graph->value[v];
        }
    }
    return NULL;
}

/* The letters of a node's indices, by the dims of operands 0 .. n - 1 that they
 * run along; the first that has one counts. */
static void find_letters(const struct merak_node *node,
                         const struct merak_signature *sig, int n,
                         char letter[MERAK_MAX_INDICES])
{
    memset(letter, 0, MERAK_MAX_INDICES);
    for (int o = 0; o < n; o++) {
        const struct merak_value *v = merak_node_operand(node, o);

        for (int d = 0; d < v->shape.ndim; d++) {
            int i = sig->operand_dim[o][d];

            if (i >= 0 && letter[i] == 0)
                letter[i] = v->letter[d];
        }
    }
}

static bool is_taken(const struct merak_signature *sig, char name)
{
    for (int i = 0; i < sig->n_index; i++) {
        if (sig->index[i].name == name)
            return true;
    }
    return false;
}

/* An index is named by its letter.  What an op gave that name to without being
 * it gets the capital, so that a gradient's index of that kind does, too. */
static void name_indices(struct merak_signature *sig,
                         const char letter[MERAK_MAX_INDICES])
{
    for (int i = 0; i < sig->n_index; i++) {
        struct merak_index *index = &sig->index[i];

        if (letter[i] != index->name && merak_letter_is_known(index->name))
            index->name = (char)toupper((unsigned char)index->name);
    }
    for (int i = 0; i < sig->n_index; i++) {
        if (letter[i] != 0 && !is_taken(sig, letter[i]))
            sig->index[i].name = letter[i];
    }
}

static bool has_letter(const struct merak_graph *graph, char letter)
{
    for (int i = 0; i < graph->n_inputs; i++) {
        if (memchr(graph->input[i].letter, letter,
                   (size_t)graph->input[i].shape.ndim) != NULL)
            return true;
    }
    return false;
}

char merak_graph_space_letter(const struct merak_graph *graph, int k)
{
    for (const char *letter = "zyx"; *letter != '\0'; letter++) {
        if (has_letter(graph, *letter) && k-- == 0)
            return *letter;
    }
    return 0;
}

char merak_graph_sequence_letter(const struct merak_graph *graph)
{
    return has_letter(graph, MERAK_LETTER_POSITIONS)
               ? MERAK_LETTER_POSITIONS
               : merak_graph_space_letter(graph, 0);
}

enum merak_status merak_graph_check_seq(const struct merak_graph *graph,
                                        size_t given, struct merak_error *err)
{
    if (given == 0 ||
        merak_graph_sequence_letter(graph) == MERAK_LETTER_POSITIONS)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--seq %zu is for models of sequences, and this one has "
                      "none: leave it out",
                      given);
}

int merak_graph_input(const struct merak_graph *graph,
                      enum merak_input_class class)
{
    for (int i = 0; i < graph->n_inputs; i++) {
        if (graph->input[i].class == class)
            return i;
    }
    return -1;
}

static void signature_of_op(const struct merak_node *node,
                            struct merak_signature *sig)
{
    struct merak_infer inf;

    merak_node_infer(node, &inf);
    node->op->signature(&inf, sig);
}

void merak_node_signature(const struct merak_node *node,
                          struct merak_signature *sig)
{
    char letter[MERAK_MAX_INDICES];

    signature_of_op(node, sig);
    find_letters(node, sig, node->n_in + node->n_out, letter);
    name_indices(sig, letter);
}

/* The indices that positions run along, of whichever operand. */
static void find_positions(const struct merak_node *node,
                           const struct merak_signature *sig,
                           bool along[MERAK_MAX_INDICES])
{
    memset(along, 0, MERAK_MAX_INDICES * sizeof(*along));
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        const struct merak_value *v = merak_node_operand(node, o);

        for (int d = 0; d < v->shape.ndim; d++) {
            if (sig->operand_dim[o][d] >= 0 &&
                v->letter[d] == MERAK_LETTER_POSITIONS)
                along[sig->operand_dim[o][d]] = true;
        }
    }
}

/* Either all of a sequence is one operand of the op's mathematics, or a dim
 * that no slice is made of (a weight's) runs along with it. */
bool merak_node_mixes_positions(const struct merak_node *node)
{
    bool along[MERAK_MAX_INDICES];
    struct merak_signature sig;

    if ((node->op->back_in | node->op->back_out) != 0)
        return node->op->looks_ahead != NULL &&
               node->op->looks_ahead(&node->attrs);
    signature_of_op(node, &sig);
    find_positions(node, &sig, along);
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        const struct merak_value *v = merak_node_operand(node, o);
        bool sliced = merak_value_has_positions(v);

        for (int d = 0; d < v->shape.ndim; d++) {
            int i = sig.operand_dim[o][d];

            if (i >= 0 && along[i] &&
                (sig.index[i].kind == MERAK_INDEX_WHOLE ||
                 sig.index[i].kind == MERAK_INDEX_WINDOW || !sliced || d != 1))
                return true;
        }
    }
    return false;
}

void merak_node_pass_letters(const struct merak_node *node)
{
    struct merak_signature sig;
    char letter[MERAK_MAX_INDICES];

    if (node->phase == MERAK_PHASE_W)
        return;
    signature_of_op(node, &sig);
    find_letters(node, &sig, node->n_in, letter);
    for (int k = 0; k < node->n_out; k++) {
        struct merak_value *v = node->out[k];

        for (int d = 0; d < v->shape.ndim; d++) {
            int i = sig.operand_dim[node->n_in + k][d];

            v->letter[d] = i < 0 ? 0 : letter[i];
        }
    }
}

/* A round settles at least one recycled value, unless all are settled. */
void merak_graph_letter_recycled(struct merak_graph *graph)
{
    for (int round = 0; round < graph->n_recycling; round++) {
        for (int i = 0; i < graph->n_recycling; i++) {
            const struct merak_recycling *r = &graph->recycling[i];

            if (r->out != NULL)
                memcpy(r->in->letter, r->out->letter, sizeof(r->in->letter));
        }
        for (int n = 0; n < graph->n_forward; n++)
            merak_node_pass_letters(graph->node[n]);
    }
}
