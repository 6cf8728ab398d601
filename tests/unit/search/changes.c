/* SPDX-License-Identifier: Apache-2.0 */
/* changes.c - reads "; nearest: --tp 4 --pp 2, or --micro-batch 1" */
#include "config.h"

#include "unit/search/changes.h"

#include "unit/near.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NEAREST "; nearest: "

/* To "1-3-5", of as many places as before. */
static void move_cut(const char *places, struct merak_choices *pin)
{
    static int cut[8];
    int at = 0;

    assert_true(pin->list.n_cut <= 8);
    for (int i = 0; i < pin->list.n_cut; i++) {
        int n = 0;

        assert_int_equal(sscanf(places + at, "%d%n", &cut[i], &n), 1);
        at += n + 1; /* and a dash */
    }
    pin->list.cut = cut;
}

static void free_recompute(struct merak_choices *pin)
{
    pin->recompute = MERAK_RECOMPUTE_AUTO;
    pin->list.drop = NULL;
}

/* Do what a text says to one choice: "--tp 4", "--nodes 2". */
static void change_one(const char *text, struct merak_search_input *in)
{
    struct merak_choices *pin = &in->pin;
    static char schedule[32], places[64];
    double gib;

    if (sscanf(text, "--memory-gib %lf", &gib) == 1)
        in->memory_bytes = (size_t)ceil(gib * 0x1p30);
    else if (sscanf(text, "--schedule %31[^,]", schedule) == 1)
        pin->schedule = schedule;
    else if (strncmp(text, "--recompute auto", 16) == 0)
        free_recompute(pin);
    else if (strncmp(text, "--cut auto", 10) == 0)
        pin->list.cut = NULL;
    else if (sscanf(text, "--cut %63[0-9-]", places) == 1)
        move_cut(places, pin);
    else if (sscanf(text, "--zero %d", &pin->zero) == 1)
        pin->given[MERAK_CHOICE_ZERO] = true;
    else if (strncmp(text, "--offload state", 15) == 0)
        pin->offload = MERAK_OFFLOAD_STATE;
    else if (strncmp(text, "--sub-pipeline no", 17) == 0)
        pin->sub_pipeline = false;
    else if (strncmp(text, "--sp auto", 9) == 0)
        pin->sp = MERAK_SP_AUTO;
    else if (sscanf(text, "--nodes %d", &in->nodes) != 1 &&
             sscanf(text, "--global-batch %zu", &in->global_batch) != 1 &&
             sscanf(text, "--micro-batch %zu", &pin->micro_batch) != 1 &&
             sscanf(text, "--tp-batch %d", &pin->tp_batch_percent) != 1 &&
             sscanf(text, "--chunks %d", &pin->chunks) != 1 &&
             sscanf(text, "--cp %d", &pin->cp) != 1 &&
             sscanf(text, "--tp %d", &pin->tp) != 1 &&
             sscanf(text, "--pp %d", &pin->pp) != 1 &&
             sscanf(text, "--dp %d", &pin->dp) != 1)
        fail_msg("\"%s\" is no change", text);
}

const char *changes_first(const char *refusal)
{
    const char *at = strstr(refusal, NEAREST);

    return at == NULL ? NULL : at + strlen(NEAREST);
}

const char *changes_make(const char *change,
                         const struct merak_search_input *in,
                         struct merak_search_input *changed)
{
    const char *next = strstr(change, ", or ");

    *changed = *in;
    /* several belong together: --tp 4 --pp 2 */
    for (; change != NULL && (next == NULL || change < next);
         change = strstr(change + 2, "--"))
        change_one(change, changed);
    return next == NULL ? NULL : next + strlen(", or ");
}
