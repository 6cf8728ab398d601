/* SPDX-License-Identifier: Apache-2.0 */
/* test_families.c - Hugging Face models compute the same on any number of ranks
 *
 * Two steps of each model of tests/vectors/hf, on one rank and on several:
 * fewer kv heads than tensor ranks, norms of queries and keys, a padding
 * token, and pipeline stages.
 */
#include "config.h"

#include "unit/execute.h"
#include "unit/near.h"

#include "io/hf_config.h"
#include "partitioner/plan/plan.h"

#include <stdio.h>

#define STEPS 2
#define BATCHES 4 /* micro-batches of a step over all replicas */

/* What a run was like. */
struct result {
    double loss[STEPS];
    float norm;
};

static struct result run(struct merak_hf_config *config, int tp, int pp, int dp)
{
    struct merak_plan plan =
        planned_plan(tp, pp, dp, BATCHES / dp, "1f1b", dp > 1);
    struct merak_planned *planned = NULL;
    struct merak_error err = {.text = ""};
    struct executed *ex;
    struct result r;

    plan.micro_batch = 2;
    if (merak_plan_build(&plan, 16, merak_hf_describe, config, MERAK_PLAN_ALL,
                         NULL, &planned, &err) != MERAK_OK)
        fail_msg("%s: tp %d, pp %d, dp %d: %s",
                 merak_hf_family_name(config->family), tp, pp, dp, err.text);
    planned_assert_sound(planned);
    ex = executed_create(planned);
    for (int s = 0; s < STEPS; s++) {
        executed_step(ex, (uint64_t)(tp * 100 + pp * 10 + dp + s));
        r.loss[s] = executed_loss(ex);
    }
    r.norm = executed_norm(ex, 0);
    executed_destroy(ex);
    return r;
}

static void ranks_do_not_matter(void **state)
{
    static const int degrees[][3] = {{2, 1, 1}, {4, 2, 1}, {1, 2, 2}};
    struct merak_hf_config config;
    struct merak_error err;
    struct result one;
    char path[1024];

    snprintf(path, sizeof(path), "%s/vectors/hf/%s.json", TEST_SRCDIR,
             (const char *)*state);
    if (merak_hf_config_load(path, &config, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    one = run(&config, 1, 1, 1);
    for (size_t i = 0; i < sizeof(degrees) / sizeof(degrees[0]); i++) {
        const int *d = degrees[i];
        struct result r = run(&config, d[0], d[1], d[2]);

        /* sums over ranks are rounded in another order, as in test_parity.c */
        assert_near(r.loss, one.loss, STEPS, 1e-5, 0);
        assert_near(&r.norm, &one.norm, 1, 1e-5, 0);
    }
}

int main(void)
{
    static const char *const names[] = {"llama3", "linear", "qwen2",
                                        "qwen3",  "phi3",   "olmo2"};
    struct CMUnitTest tests[sizeof(names) / sizeof(names[0])];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        tests[i] = (struct CMUnitTest){names[i], ranks_do_not_matter, NULL,
                                       NULL, (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}
