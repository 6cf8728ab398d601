/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.c - what a model computes besides its shapes, as text */
#include "config.h"

#include "partitioner/graph/graph.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"
#include "base/rng.h"
#include "base/text_writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Characters of a value before it is cut off. */
enum { MOST_TEXT = 96 };

static void list_text(const struct merak_attrs *a, char *text, size_t size)
{
    uint64_t sum = 0;

    snprintf(text, size, "0");
    if (a->list == NULL)
        return;
    for (int64_t i = 0; i < a->i[2]; i++) {
        uint64_t bits;

        memcpy(&bits, &a->list[i], sizeof(bits));
        sum = merak_rng_mix(sum, bits);
    }
    snprintf(text, size, "%" PRId64 " factors, %016" PRIx64, a->i[2], sum);
}

/* The shortest text that gives the number; of floats, the float. */
static void real_text(double value, char *text, size_t size)
{
    bool is_float = (double)(float)value == value;

    for (int digits = 6; digits <= 17; digits++) {
        double back;

        snprintf(text, size, "%.*g", digits, value);
        back = strtod(text, NULL);
        if (back == value || (is_float && (float)back == (float)value))
            return;
    }
}

static void value_text(const struct merak_node *node, char kind, int at,
                       char *text, size_t size)
{
    if (kind == 'i')
        snprintf(text, size, "%" PRId64, node->attrs.i[at]);
    else if (kind == 'f')
        real_text(node->attrs.f[at], text, size);
    else
        list_text(&node->attrs, text, size);
}

/* A sequence of values, equal ones counted. */
struct sequence {
    FILE *out;
    char last[80], text[MOST_TEXT + 256];
    size_t used;
    int same; /* how many of the last one; 0: there is none */
    bool any; /* one is not 0 */
    uint64_t sum;
};

static void end_run(struct sequence *s)
{
    char run[sizeof(s->last) + 32];

    if (s->same == 0)
        return;
    snprintf(run, sizeof(run), s->same > 1 ? "%s%s x %d" : "%s%s",
             s->used > 0 ? ", " : "", s->last, s->same);
    s->sum = merak_rng_mix(s->sum, merak_rng_key(0, run));
    if (s->used < MOST_TEXT)
        s->used += (size_t)snprintf(s->text + s->used,
                                    sizeof(s->text) - s->used, "%s", run);
    else if (s->text[s->used] != '.')
        strcpy(s->text + s->used, "..");
    s->same = 0;
}

static void add_value(struct sequence *s, const char *value)
{
    s->any = s->any || strcmp(value, "0") != 0;
    if (s->same > 0 && strcmp(s->last, value) == 0) {
        s->same++;
        return;
    }
    end_run(s);
    snprintf(s->last, sizeof(s->last), "%s", value);
    s->same = 1;
}

static void print_entry(FILE *out, struct sequence *s, const char *key)
{
    end_run(s);
    if (!s->any)
        return;
    fprintf(out, "%s=%s", key, s->text);
    if (s->text[s->used] == '.')
        fprintf(out, " %016" PRIx64, s->sum);
    fputs("; ", out);
}

/* Have their attributes the same meaning? */
static bool is_alike(const struct merak_op *a, const struct merak_op *b)
{
    return a == b || (a->numbers != NULL && a->numbers == b->numbers);
}

static bool is_first(const struct merak_graph *graph, int node)
{
    for (int n = 0; n < node; n++) {
        if (is_alike(graph->node[n]->op, graph->node[node]->op))
            return false;
    }
    return true;
}

/* One attribute of all nodes of an op. */
static void print_number(FILE *out, const struct merak_graph *graph,
                         const struct merak_op *op,
                         const struct merak_number *number)
{
    struct sequence s = {.text = ""};
    char value[80];

    for (int n = 0; n < graph->n_forward; n++) {
        if (!is_alike(graph->node[n]->op, op))
            continue;
        value_text(graph->node[n], number->kind, number->at, value,
                   sizeof(value));
        add_value(&s, value);
    }
    print_entry(out, &s, number->key);
}

/* All attributes of an op that has no list of them. */
static void print_all(FILE *out, const struct merak_graph *graph,
                      const struct merak_op *op)
{
    static const struct {
        char kind;
        int n;
        const char *format;
    } row[] = {{'i', 5, "%.100s i[%d]"},
               {'f', 6, "%.100s f[%d]"},
               {'l', 1, "%.100s list"}};
    char key[128];

    for (size_t k = 0; k < sizeof(row) / sizeof(*row); k++) {
        for (int at = 0; at < row[k].n; at++) {
            snprintf(key, sizeof(key), row[k].format, op->name, at);
            print_number(out, graph, op,
                         &(struct merak_number){key, row[k].kind, at});
        }
    }
}

static void print_op(FILE *out, const struct merak_graph *graph,
                     const struct merak_op *op)
{
    if (op->numbers == NULL)
        print_all(out, graph, op);
    for (const struct merak_number *n = op->numbers;
         n != NULL && n->key != NULL; n++)
        print_number(out, graph, op, n);
}

bool merak_number_follows_seq(const char *key)
{
    const struct merak_op *op;

    for (size_t i = 0; (op = merak_op_at(i)) != NULL; i++) {
        for (const struct merak_number *n = op->numbers;
             n != NULL && n->key != NULL; n++) {
            if (n->kind == 's' && strcmp(n->key, key) == 0)
                return true;
        }
    }
    return false;
}

/* Is the model the same if its input is read in its place? */
static bool is_passed(const struct merak_node *node)
{
    return node->op->role == MERAK_ROLE_WIDEN ||
           node->op->role == MERAK_ROLE_DROP ||
           node->op->role == MERAK_ROLE_PACK ||
           node->op->role == MERAK_ROLE_UNPACK;
}

/* Does it do nothing but tell what is reported, change a type, leave rows out,
 * pack what crosses stages, or a part of what another form of experts does at
 * once?  Layouts, dtypes, capacities or hops differ in these. */
static bool is_left_out(const struct merak_node *node)
{
    return is_passed(node) || node->op->role == MERAK_ROLE_ROWS ||
           (node->op->grad == NULL && node->n_out == 1 &&
            node->out[0]->reported);
}

/* The value before it was widened, or rows left out. */
static const struct merak_value *source(const struct merak_graph *graph,
                                        const struct merak_value *v)
{
    while (v->producer >= 0 && is_passed(graph->node[v->producer]))
        v = graph->node[v->producer]->in[0];
    return v;
}

/* What stands for a node: of rows that travel, the sum for experts. */
static const char *name_of(const struct merak_node *node)
{
    return node->op->role == MERAK_ROLE_ROWS_END ? "experts" : node->op->name;
}

static int inputs_of(const struct merak_node *node)
{
    return node->op->role == MERAK_ROLE_ROWS_END ? 6 : node->n_in;
}

static const struct merak_value *input_of(const struct merak_graph *graph,
                                          const struct merak_node *node, int i)
{
    static const int of_rows[] = {5, 6, -1, 2, 3, 4};

    if (node->op->role != MERAK_ROLE_ROWS_END)
        return node->in[i];
    return i == 2 ? node->in[1]
                  : graph->node[node->in[0]->producer]->in[of_rows[i]];
}

/* Ops and what they read: parameters and inputs by kind, else the node, by how
 * many lie between.  *n_p is the number of ops. */
static uint64_t structure(const struct merak_graph *graph, int *n_p)
{
    uint64_t sum = 0;
    int left_out = 0;

    for (int n = 0; n < graph->n_forward; n++) {
        const struct merak_node *node = graph->node[n];

        if (is_left_out(node)) {
            left_out++;
            continue;
        }
        sum = merak_rng_mix(sum, merak_rng_key(0, name_of(node)));
        for (int i = 0; i < inputs_of(node); i++) {
            const struct merak_value *v =
                source(graph, input_of(graph, node, i));
            int between = 0;

            if (merak_value_is(v, MERAK_INPUT_STARTS))
                continue;
            for (int k = v->producer + 1; v->producer >= 0 && k <= n; k++)
                between += !is_left_out(graph->node[k]);
            sum = merak_rng_mix(sum, (uint64_t)v->kind);
            sum = merak_rng_mix(sum, (uint64_t)between);
            sum = merak_rng_mix(sum, (uint64_t)v->out);
        }
    }
    *n_p = graph->n_forward - left_out;
    return sum;
}

enum merak_status merak_graph_numbers(const struct merak_graph *graph,
                                      char **text_p, struct merak_error *err)
{
    struct merak_text_writer writer;
    FILE *out = merak_text_open(&writer);

    for (int n = 0; out != NULL && n < graph->n_forward; n++) {
        if (is_first(graph, n))
            print_op(out, graph, graph->node[n]->op);
    }
    if (out != NULL && graph->passes > 1)
        fprintf(out, "passes=%d; ", graph->passes);
    if (out != NULL) {
        int n_ops = 0;
        uint64_t ops = structure(graph, &n_ops);

        fprintf(out, "operations=%d, %016" PRIx64, n_ops, ops);
    }
    return merak_text_close(&writer, text_p, err);
}
