/* SPDX-License-Identifier: Apache-2.0 */
/* test_layer_splits.c - layers whose tensor ranks split samples, others whose
 * weights they split
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/assembly/assembly.h"
#include "partitioner/search/search.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define MIB ((size_t)1 << 20)

/* --- text ----------------------------------------------------------------- */

static const struct {
    const char *told, *text; /* text: of the layers cut by samples; or of the
                                error */
    bool is_good;
} text_rows[] = {
    {"w0-3,b4-27,w28-31", "b4-27", true},
    {"b0-1b30", "b0-1b30", true},
    {"b1,b0", "b0-1", true},
    {"w0-31", "", true},
    {"b255", "b255", true},
    {"b256", "--split: layer 256, expected 0..255", false},
    {"w0-4,b4-5", "--split: layer 4 is named twice; expected each once", false},
    {"", "got \"\"", false},
    {"b", "got \"b\"", false},
    {"b3-1", "got \"b3-1\"", false},
    {"b1,", "got \"b1,\"", false},
    {"4-27",
     "--split: expected layers cut by weights (w) and by samples (b), as in "
     "w0-3,b4-27, got \"4-27\"",
     false},
};

static void layers_are_named_once(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(text_rows); r++) {
        struct merak_layer_split split = {{0}};
        struct merak_error err = {.text = ""};
        char text[MERAK_SPLIT_TEXT];

        assert_int_equal(merak_split_parse(text_rows[r].told, &split, &err),
                         text_rows[r].is_good ? MERAK_OK : MERAK_ERR_CONFIG);
        if (text_rows[r].is_good)
            assert_string_equal(
                merak_split_text(&split, "b", "", text, sizeof(text)),
                text_rows[r].text);
        else if (strstr(err.text, text_rows[r].text) == NULL)
            fail_msg("%s: %s", text_rows[r].told, err.text);
    }
}

/* --- layouts -------------------------------------------------------------- */

enum { LAYERS = 4, TP = 4, ENDS = 420 };

static struct merak_hf_config model(size_t layers)
{
    return gpt2_config(layers, 1024, 16, 1024);
}

static enum merak_status build(const char *split, int percent, int tp,
                               struct merak_planned **p_p,
                               struct merak_error *err)
{
    struct merak_hf_config config = model(LAYERS);
    struct merak_plan plan = {.tp = tp,
                              .pp = 1,
                              .dp = 1,
                              .micro_batch = TP,
                              .microbatches = 2,
                              .tp_batch_percent = percent,
                              .schedule = "1f1b"};

    if (split != NULL)
        assert_int_equal(merak_split_parse(split, &plan.split, err), MERAK_OK);
    return merak_plan_build(&plan, 512, merak_hf_describe, &config,
                            MERAK_PLAN_ALL, NULL, p_p, err);
}

/* Weights are whole in the layers that are named, and nowhere else. */
static void the_layers_named_have_whole_weights(void **state)
{
    static const char *const splits[] = {"b0", "b1-2", "b0b3", "b3"};

    (void)state;
    for (size_t r = 0; r < COUNT(splits); r++) {
        struct merak_planned *p = NULL;
        struct merak_error err = {.text = ""};

        if (build(splits[r], 0, TP, &p, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        for (int v = 0; v < p->sharded->graph->n_values; v++) {
            const struct merak_value *value = p->sharded->graph->value[v];
            int k;

            if (value->kind != MERAK_VALUE_PARAM ||
                sscanf(value->name, "h.%d.mlp.c_fc.weight", &k) != 1 ||
                strstr(value->name, "c_fc.weight") == NULL)
                continue;
            assert_int_equal(p->sharded->layout[v].at[0].kind ==
                                 MERAK_REPLICATED,
                             merak_split_has(&p->plan.split, k));
        }
        merak_planned_destroy(p);
    }
}

/* All layers by name are what the percentage makes of all: the same programs.
 */
static void all_layers_are_the_whole_model(void **state)
{
    struct merak_planned *a = NULL, *b = NULL;
    struct merak_error err = {.text = ""};
    uint64_t id[2];

    (void)state;
    assert_int_equal(build("b0-3", 0, TP, &a, &err), MERAK_OK);
    assert_int_equal(build(NULL, 100, TP, &b, &err), MERAK_OK);
    id[0] = merak_program_id(a->program[1]);
    id[1] = merak_program_id(b->program[1]);
    assert_true(id[0] == id[1]);
    merak_planned_destroy(a);
    merak_planned_destroy(b);
}

static void layers_that_are_not_there_are_refused(void **state)
{
    struct merak_planned *p = NULL;
    struct merak_error err = {.text = ""};

    (void)state;
    assert_int_equal(build("b4", 0, TP, &p, &err), MERAK_ERR_CONFIG);
    assert_string_equal(err.text,
                        "--split: layer 4 of a model of 4, counted from 0");
    assert_int_equal(build("b0", 0, 8, &p, &err), MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "--split needs a --micro-batch that tp "
                                     "divides (nearest: 8)"));
}

/* --- the search ------------------------------------------------------------
 */

/* The best step: its seconds, DBL_MAX if none fits, its memory, and the layers
 * that it cuts by samples. */
struct best {
    double step_s;
    size_t bytes;
    bool all; /* layers are cut by samples, else these */
    struct merak_layer_split split;
};

/* .. with nothing in the host's memory: a search takes that only where nothing
 * else fits.  Over links on which gradients summed once are less than
 * activations of every micro-batch. */
static struct best best_of(size_t layers, size_t memory, const char *split)
{
    struct merak_hf_config config = model(layers);
    struct merak_search_result *result = NULL;
    struct merak_device device;
    struct merak_error err = {0};
    struct merak_search_input in = {
        .describe = merak_hf_describe,
        .arg = &config,
        .seq = 256,
        .dtype = MERAK_BF16,
        .global_batch = 256,
        .nodes = 1,
        .ranks_per_node = TP,
        .threads = 1,
        .device = &device,
        .memory_bytes = memory,
        .pin = {.tp = TP,
                .pp = 1,
                .dp = 1,
                .schedule = "1f1b",
                .micro_batch = TP,
                .zero = 1,
                .given[MERAK_CHOICE_ZERO] = true,
                .given[MERAK_CHOICE_OFFLOAD] = true,
                .given[MERAK_CHOICE_SUB_PIPELINE] = true,
                .given[MERAK_CHOICE_RECOMPUTE] = true}};
    struct best best = {.step_s = DBL_MAX};

    if (split != NULL) {
        in.pin.given[MERAK_CHOICE_SPLIT] = true;
        if (merak_split_parse(split, &in.pin.split, &err) != MERAK_OK)
            fail_msg("%s", err.text);
    }
    assert_int_equal(merak_device_find("a100", &device, &err), MERAK_OK);
    device.links.level[0].bytes_per_s = 6e9;
    if (merak_search(&in, &result, &err) == MERAK_OK) {
        best = (struct best){result->choice[0].step_s,
                             result->choice[0].memory_bytes,
                             result->choice[0].plan.tp_batch_percent == 100,
                             result->choice[0].plan.split};
        merak_search_destroy(result);
    }
    return best;
}

static int n_by_samples(const struct best *best, int layers)
{
    int n = 0;

    for (int k = 0; k < layers; k++)
        n += best->all || merak_split_has(&best->split, k);
    return n;
}

/* The best step with these layers, a bit each, cut by samples, and no others.
 */
static double step_of_set(int layers, size_t memory, unsigned set)
{
    char named[32] = "w0";
    int at = 0;

    for (int k = 0; k < layers; k++)
        at += snprintf(named + at, sizeof(named) - (size_t)at, "%c%d",
                       (set >> k) & 1 ? 'b' : 'w', k);
    return best_of((size_t)layers, memory, named).step_s;
}

/* With memory for some whole layers, no other set of them has a shorter step:
 * neither none nor all, which are the uniform ones.  Of two layers it is those
 * at both ends, as Miao et al. have it (arXiv:2211.13878). */
static void no_set_of_layers_is_faster(void **state)
{
    static const size_t memory[] = {300, 340, 380, ENDS, 460, 500};
    int n_mixed = 0;

    (void)state;
    for (size_t r = 0; r < COUNT(memory); r++) {
        const struct best got = best_of(LAYERS, memory[r] * MIB, NULL);
        double best = DBL_MAX;
        char text[MERAK_SPLIT_TEXT];
        unsigned best_set = 0;

        for (unsigned set = 0; set < 1u << LAYERS; set++) {
            double step_s = step_of_set(LAYERS, memory[r] * MIB, set);

            if (step_s < best) {
                best = step_s;
                best_set = set;
            }
        }
        print_message(
            "# %zu MiB: %g s, best of all sets %g s (%#x): %s\n", memory[r],
            got.step_s, best, best_set,
            merak_split_text(&got.split, "b", "", text, sizeof(text)));
        n_mixed += merak_split_any(&got.split);
        if (memory[r] == ENDS)
            assert_string_equal(text, "b0b3");
        if (got.step_s > best * (1 + 1e-9))
            fail_msg("%zu MiB: %g s, and a set takes %g s", memory[r],
                     got.step_s, best);
    }
    assert_true(n_mixed > 0);
}

/* Six layers, each of which takes 1.00 s and 3 bytes, or 1.20 s and 1 byte: in
 * 18, 13, 9 and 6 bytes 0, 3, 5 and 6 have the second, the fewest that fit, and
 * in 5 bytes nothing fits.  The first is here a cut by samples, and a byte a
 * twelfth of what all six take more with it.  No other set of as many layers
 * has a shorter step. */
static void the_fewest_layers_give_way_to_memory(void **state)
{
    enum { SIX = 6 };
    static const struct {
        double bytes;
        int second; /* -1: nothing fits */
    } budgets[] = {{18, 0}, {13, 3}, {9, 5}, {6, 6}, {5, -1}};
    const size_t most = best_of(SIX, (size_t)1 << 36, "b0-5").bytes;
    const size_t least = best_of(SIX, (size_t)1 << 36, "w0-5").bytes;

    (void)state;
    for (size_t r = 0; r < COUNT(budgets); r++) {
        size_t less =
            (size_t)((18 - budgets[r].bytes) / 12 * (double)(most - least));
        const struct best got = best_of(SIX, most - less, NULL);
        int second = got.step_s == DBL_MAX ? -1 : SIX - n_by_samples(&got, SIX);

        print_message("# %g bytes: %d layers, %g s\n", budgets[r].bytes, second,
                      got.step_s);
        assert_int_equal(second, budgets[r].second);
        for (unsigned set = 0; second >= 0 && set < 1u << SIX; set++) {
            if (__builtin_popcount(set) == SIX - second)
                assert_true(got.step_s <=
                            step_of_set(SIX, most - less, set) * (1 + 1e-9));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_named_once),
        cmocka_unit_test(the_layers_named_have_whole_weights),
        cmocka_unit_test(all_layers_are_the_whole_model),
        cmocka_unit_test(layers_that_are_not_there_are_refused),
        cmocka_unit_test(no_set_of_layers_is_faster),
        cmocka_unit_test(the_fewest_layers_give_way_to_memory),
    };

    return cmocka_run_group_tests_name("layer_splits", tests, NULL, NULL);
}
