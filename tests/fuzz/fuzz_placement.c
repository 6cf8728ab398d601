/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_placement.c - the placement that a job's steps hand on as text */
#include "config.h"

#include "fuzz/fuzz.h"

#include "placement/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nodes of 4 tasks below two switches. */
static void add(int nodes, int tp, int pp, int dp, uint64_t bytes)
{
    struct merak_placement_plan plan = {.job = 17, .step = 2};
    struct merak_error err = {.text = ""};
    struct merak_placement *placement = NULL;
    char *text = NULL, name[64];

    fuzz_must(merak_site_init(&plan.site, nodes, 4 * nodes, &err) == MERAK_OK,
              "a site is made");
    for (int i = 0; i < nodes; i++) {
        snprintf(name, sizeof(name), "n%02d", i);
        plan.site.node_name[i] = strdup(name);
        snprintf(name, sizeof(name), "root.leaf%d", i % 2);
        plan.site.node_path[i] = strdup(name);
        for (int k = 0; k < 4; k++)
            plan.site.node_of_task[4 * i + k] = i;
    }
    plan.input = (struct merak_placement_input){.site = &plan.site,
                                                .tp = tp,
                                                .pp = pp,
                                                .dp = dp,
                                                .pp_bytes = bytes,
                                                .dp_bytes = bytes / 3};
    fuzz_must(merak_placement_compute(&plan.input, &placement, &err) ==
                  MERAK_OK,
              "a placement is made");
    plan.id = merak_placement_id(placement);
    merak_placement_resolved(placement, &plan.input);
    plan.input.site = NULL;
    merak_placement_destroy(placement);
    fuzz_must(merak_plan_encode(&plan, &text, &err) == MERAK_OK,
              "a placement has a text");
    fuzz_add_text(text);
    free(text);
    merak_plan_fini(&plan);
}

void fuzz_seeds(void)
{
    add(1, 1, 1, 4, 0);
    add(4, 2, 4, 2, 1000);
    add(32, 4, 8, 4, 1ull << 40);
}

/* What is read is written as the same text, and has a map if its id says so. */
static void come_back(const struct merak_placement_plan *plan)
{
    struct merak_placement_plan again = {.job = 0};
    struct merak_placement *placement = NULL;
    struct merak_error err = {.text = ""};
    char *text = NULL, *same = NULL;
    enum merak_status rc = merak_plan_encode(plan, &text, &err);

    fuzz_must(rc == MERAK_OK, "a placement that was read is written");
    rc = merak_plan_decode(text, &again, &err);
    fuzz_must(rc == MERAK_OK, "and read again");
    rc = merak_plan_encode(&again, &same, &err);
    fuzz_must(rc == MERAK_OK && strcmp(text, same) == 0, "as the same text");
    merak_plan_fini(&again);
    free(same);
    free(text);
    if (plan->input.tp == 0 || plan->site.n_tasks > 4096)
        return;
    rc = merak_plan_placement(plan, &placement, &err);
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    for (int i = 0; rc == MERAK_OK && i < plan->site.n_tasks; i++)
        fuzz_must(merak_placement_physical_of(
                      placement, merak_placement_logical_of(placement, i)) == i,
                  "the map goes both ways");
    merak_placement_destroy(placement);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct merak_placement_plan plan = {.job = 0};
    struct merak_error err = {.text = ""};
    char *text = fuzz_text(data, n);
    enum merak_status rc = merak_plan_decode(text, &plan, &err);

    if (rc == MERAK_OK) {
        come_back(&plan);
        merak_plan_fini(&plan);
    } else {
        fuzz_refused(rc, &err);
    }
    free(text);
    return 0;
}
