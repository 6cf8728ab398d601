/* SPDX-License-Identifier: Apache-2.0 */
/* test_atoms.c - a graph's nodes as atoms: whose they are, and that they stand
 * in an order that can be run
 */
#include "config.h"

#include "unit/near.h"

#include "partitioner/graph/graph.h"
#include "partitioner/order/atoms.h"
#include "partitioner/order/shard_order.h"

#include <stdlib.h>
#include <string.h>

#define WIDTH 16
#define VOCAB 32
#define MAX_ATOMS 6000 /* as in order/gather.c */

static struct merak_value *weight(struct merak_model *m, const char *name,
                                  size_t out)
{
    return MERAK_PARAM(m, name, MERAK_NORMAL(0.1f), out, WIDTH);
}

static struct merak_value *embed(struct merak_model *m, const char *name)
{
    return merak_embedding(m, merak_tokens(m), weight(m, name, VOCAB));
}

/* Two towers of so many layers that meet, a layer of each in turn. */
static struct merak_value *towers(struct merak_model *m, int layers)
{
    struct merak_value *a = embed(m, "wte.a"), *b = embed(m, "wte.b");

    for (int l = 0; l < layers; l++) {
        a = merak_linear(m, a, weight(m, merak_name(m, "a.%d", l), WIDTH), NULL,
                         1);
        b = merak_linear(m, b, weight(m, merak_name(m, "b.%d", l), WIDTH), NULL,
                         1);
    }
    return merak_add(m, a, b);
}

static struct merak_value *head(struct merak_model *m, struct merak_value *x)
{
    return merak_linear(m, x, weight(m, "head", VOCAB), NULL, 1);
}

static void plain(struct merak_model *m)
{
    merak_cross_entropy(m, head(m, towers(m, 12)), merak_targets(m));
}

/* Logits are read once more between the steps of a loss that is only
 * watched: were these one atom, it would come before and after that use. */
static void watched(struct merak_model *m)
{
    struct merak_value *logits = head(m, towers(m, 12));
    struct merak_value *max = NULL, *sum[2], *y;

    if (merak_apply(m, "xent_max", NULL, 1, &logits, &max) != MERAK_OK)
        return;
    y = merak_gelu(m, logits, true);
    if (merak_apply(m, "xent_sum", NULL, 3,
                    (struct merak_value *[]){logits, max, merak_targets(m)},
                    sum) != MERAK_OK)
        return;
    merak_cross_entropy(m, y, merak_targets(m));
}

/* As many atoms as are not gathered any more. */
static void long_towers(struct merak_model *m)
{
    merak_cross_entropy(m, head(m, towers(m, MAX_ATOMS / 2)), merak_targets(m));
}

typedef void (*describe_fn)(struct merak_model *m);

struct made {
    struct merak_model *model;
    struct merak_sharded *sharded;
};

static struct made make(describe_fn describe, enum merak_branches order)
{
    const struct merak_model_options mo = {
        .micro_batch = 1, .seq = 8, .dtype = MERAK_F32};
    const struct merak_shard_options so = {.tp = 1, .branches = order};
    struct merak_graph *graph = NULL;
    struct made made = {.model = NULL};
    struct merak_error err;

    assert_int_equal(merak_model_create(&mo, &made.model, &err), MERAK_OK);
    describe(made.model);
    if (merak_model_graph(made.model, &graph, &err) != MERAK_OK ||
        merak_shard(graph, &so, &made.sharded, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return made;
}

static void done(struct made *made)
{
    merak_sharded_destroy(made->sharded);
    merak_model_destroy(made->model);
}

static int atom_of(const struct merak_atoms *atoms,
                   const struct merak_graph *graph, const char *op)
{
    for (int n = 0; n < graph->n_forward; n++) {
        if (strcmp(graph->node[n]->op->name, op) == 0)
            return atoms->of_node[n];
    }
    fail_msg("no %s", op);
    return -1;
}

/* Every forward node is in one, their edges lead up, and whether the steps of
 * the first loss are one is as it should be. */
static void atoms_stand_in_order(void **state)
{
    static const struct {
        describe_fn describe;
        bool loss_is_one;
    } rows[] = {{plain, true}, {watched, false}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct made made = make(rows[i].describe, MERAK_BRANCHES_DESCRIBED);
        const struct merak_graph *graph = made.sharded->graph;
        struct merak_atoms atoms;
        struct merak_error err;

        assert_int_equal(merak_atoms_init(&atoms, made.sharded, &err),
                         MERAK_OK);
        for (int e = 0; e < atoms.dag.n_edges; e++)
            assert_true(atoms.dag.edge[e].from < atoms.dag.edge[e].to);
        for (int n = 0; n < graph->n_forward; n++)
            assert_in_range(atoms.of_node[n], 0, atoms.dag.n - 1);
        assert_int_equal(atom_of(&atoms, graph, "xent_max") ==
                             atom_of(&atoms, graph, "xent_sum"),
                         rows[i].loss_is_one);
        merak_atoms_fini(&atoms);
        done(&made);
    }
}

/* So that there are other orders of these models, too. */
static void branching_models_have_every_node_order(void **state)
{
    static const describe_fn model[] = {plain, watched};

    (void)state;
    for (size_t i = 0; i < sizeof(model) / sizeof(*model); i++) {
        for (int order = 1; order < MERAK_BRANCHES_AUTO; order++) {
            struct made made = make(model[i], (enum merak_branches)order);

            assert_true(made.sharded->branches);
            if (made.sharded->order != (enum merak_branches)order)
                fail_msg("model %zu, order %d: %d", i, order,
                         made.sharded->order);
            done(&made);
        }
    }
}

/* Blocks have no bound: of very many atoms they are all there is. */
static void many_atoms_are_put_in_blocks(void **state)
{
    struct made gathered = make(long_towers, MERAK_BRANCHES_GATHERED);
    struct made blocks = make(long_towers, MERAK_BRANCHES_BLOCKS);
    const struct merak_sharded *s = blocks.sharded;
    int most = 0;

    (void)state;
    assert_int_equal(gathered.sharded->order, MERAK_BRANCHES_DESCRIBED);
    assert_int_equal(s->order, MERAK_BRANCHES_BLOCKS);
    for (int n = 0; n < s->graph->n_forward; n++) {
        assert_true(s->block[n] == most || s->block[n] == most + 1);
        most = s->block[n];
    }
    print_message("# %d nodes, %d blocks\n", s->graph->n_forward, most + 1);
    assert_in_range(most + 1, 100, 200);
    done(&gathered);
    done(&blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(atoms_stand_in_order),
        cmocka_unit_test(branching_models_have_every_node_order),
        cmocka_unit_test(many_atoms_are_put_in_blocks),
    };

    return cmocka_run_group_tests_name("atoms", tests, NULL, NULL);
}
