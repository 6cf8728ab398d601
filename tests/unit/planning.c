/* SPDX-License-Identifier: Apache-2.0 */
/* planning.c - how much the planner does to find a plan
 *
 * Counted, not timed: the figures are the same on any machine, under any load
 * and any sanitizer.  20 billion parameters on 64 take 1.6 s, and a trillion on
 * 4096, of which a part is planned here, 30 s (bench/results/planning.md).
 *
 * What changes the planner's choices changes the figures.  They may then be
 * set again, if what it now takes longer for is worth it: say so in the
 * commit.
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/search/search.h"

#define MORE 1.05 /* of what it took when this was written */

struct row {
    const char *name;
    size_t layers, hidden, heads, batch;
    int nodes;
    struct merak_search_pins pin;
    struct merak_search_tally most;
};

static void assert_at_most(const char *name, const char *what, long got,
                           long most)
{
    if (got <= 0 || (double)got > MORE * (double)most)
        fail_msg("%s: %ld %s, more than %ld", name, got, what, most);
}

static void plan_row(const struct row *row)
{
    struct merak_hf_config config =
        gpt2_config(row->layers, row->hidden, row->heads, 50257);
    struct merak_search_result *result = NULL;
    struct merak_device device;
    struct merak_error err;
    struct merak_search_input in = {.describe = merak_hf_describe,
                                    .arg = &config,
                                    .seq = 2048,
                                    .dtype = MERAK_BF16,
                                    .global_batch = row->batch,
                                    .nodes = row->nodes,
                                    .ranks_per_node = 8,
                                    .threads = 1,
                                    .device = &device,
                                    .pin = row->pin};
    struct merak_search_tally tally;

    assert_int_equal(merak_device_find("h200", &device, NULL), MERAK_OK);
    if (merak_search(&in, &result, &err) != MERAK_OK)
        fail_msg("%s: %s", row->name, err.text);
    tally = result->tally;
    merak_search_destroy(result);
    print_message("# %s: %ld rated, %ld actions, %ld parts, %ld "
                  "instructions\n",
                  row->name, tally.rated, tally.actions, tally.parts,
                  tally.instructions);
    assert_at_most(row->name, "plans rated", tally.rated, row->most.rated);
    assert_at_most(row->name, "actions", tally.actions, row->most.actions);
    assert_at_most(row->name, "parts", tally.parts, row->most.parts);
    assert_at_most(row->name, "instructions", tally.instructions,
                   row->most.instructions);
}

static void plans_take_no_more_work(void **state)
{
    static const struct row rows[] = {
        {"20 B on 64",
         44,
         6144,
         64,
         1024,
         8,
         {0},
         {21291, 18750054, 1538399, 80170}},
        {"1 T on 4096, tp 8, one chunk",
         128,
         25600,
         160,
         4096,
         512,
         {.tp = 8, .micro_batch = 1, .chunks = 1},
         {7746, 60767172, 248768, 980737}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        plan_row(&rows[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_take_no_more_work),
    };

    return cmocka_run_group_tests_name("planning", tests, NULL, NULL);
}
