/* SPDX-License-Identifier: Apache-2.0 */
/* plan_text.c - a plan as a line of text */
#include "config.h"

#include "io/plan_file.h"

#include "base/factors.h"
#include "partitioner/plan/choice.h"

#include <stdio.h>
#include <string.h>

const char *merak_plan_state_text(const struct merak_plan *p)
{
    static const char *const text[][4] = {
        {"", ", optimizer state sharded over dp",
         ", optimizer state sharded over tp for weights replicated across tp",
         (", optimizer state sharded over dp, and over tp for weights "
          "replicated across tp")},
        {"", ", gradients and optimizer state sharded over dp",
         (", gradients and optimizer state sharded over tp for weights "
          "replicated across tp"),
         (", gradients and optimizer state sharded over dp, and over tp for "
          "weights replicated across tp")},
        {"", ", parameters, gradients and optimizer state sharded over dp",
         (", parameters, gradients and optimizer state sharded over tp for "
          "weights replicated across tp"),
         (", parameters, gradients and optimizer state sharded over dp, and "
          "over tp for weights replicated across tp")},
    };
    static const char *const with_cp[][2] = {
        {", optimizer state sharded over cp",
         ", optimizer state sharded over dp and cp"},
        {", gradients and optimizer state sharded over cp",
         ", gradients and optimizer state sharded over dp and cp"},
        {", parameters, gradients and optimizer state sharded over cp",
         (", parameters, gradients and optimizer state sharded over dp and "
          "cp")},
    };
    static const char *const inside[][2] = {
        {", gradients sharded over dp-in, optimizer state over dp",
         (", gradients sharded over dp-in and cp, optimizer state over dp and "
          "cp")},
        {(", parameters and gradients sharded over dp-in, optimizer state over "
          "dp"),
         (", parameters and gradients sharded over dp-in and cp, optimizer "
          "state over dp and cp")},
        {(", parameters sharded over dp-in, gradients and optimizer state "
          "over dp"),
         (", parameters sharded over dp-in and cp, gradients and optimizer "
          "state over dp and cp")},
    };
    static const char *const experts[3][2] = {
        {", optimizer state sharded over ep for weights replicated across it",
         (", optimizer state sharded over dp, and over ep for weights "
          "replicated across it")},
        {(", gradients and optimizer state sharded over ep for weights "
          "replicated across it"),
         (", gradients and optimizer state sharded over dp, and over ep "
          "for weights replicated across it")},
        {(", parameters, gradients and optimizer state sharded over ep for "
          "weights replicated across it"),
         (", parameters, gradients and optimizer state sharded over dp, "
          "and over ep for weights replicated across it")},
    };
    bool alike =
        p->tp > 1 && (p->tp_batch_percent > 0 ||
                      merak_split_any(&p->split)); /* ranks hold whole layers */

    int level = p->zero > MERAK_ZERO_STATE ? p->zero - MERAK_ZERO_STATE : 0;

    if (merak_plan_is_home_in(p))
        return inside[p->grad_sum == MERAK_SUM_STEP ? 2 : level - 1][p->cp > 1];
    if (p->cp > 1 && p->zero > 0)
        return with_cp[level][p->dp > 1];
    if (p->ep > 1 && p->zero > 0)
        return experts[level][p->dp > 1];
    return text[level][p->zero > 0 ? (p->dp > 1) + 2 * alike : 0];
}

const char *merak_plan_dtype_text(const struct merak_plan *p)
{
    if (p->dtype == MERAK_F32)
        return "fp32";
    return p->grad_dtype == MERAK_BF16 ? "bf16 with gradients in bf16" : "bf16";
}

const char *merak_plan_branches_text(const struct merak_plan *p)
{
    switch (p->branches) {
    case MERAK_BRANCHES_GATHERED:
        return ", branches gathered";
    case MERAK_BRANCHES_BLOCKS:
        return ", branches in blocks";
    default:
        return "";
    }
}

/* " (18 blocks in 2 of 4 stages, attention in 1)": what is recomputed, if the
 * plan specifies it; else "". */
static void describe_drops(const struct merak_plan *p, char *text, size_t size)
{
    int parts = merak_plan_parts(p), some = 0, attention = 0;
    long long blocks = 0; /* wide: a file may have any numbers */
    const char *of = parts > p->pp ? "parts" : parts > 1 ? "stages" : "stage";
    int n;

    text[0] = '\0';
    if (p->drop == NULL || p->recompute != MERAK_RECOMPUTE_AUTO)
        return;
    for (int k = 0; k < parts; k++) {
        blocks += p->drop[k].blocks;
        some += p->drop[k].blocks > 0;
        attention += p->drop[k].attention;
    }
    n = snprintf(text, size, " (");
    if (some > 0)
        n += snprintf(text + n, size - (size_t)n, "%lld block%s in %d of %d %s",
                      blocks, blocks == 1 ? "" : "s", some, parts, of);
    if (attention > 0)
        n += snprintf(text + n, size - (size_t)n, "%sattention in %d of %d %s",
                      some > 0 ? ", " : "", attention, parts, of);
    if (some + attention == 0)
        n += snprintf(text + n, size - (size_t)n, "nothing");
    snprintf(text + n, size - (size_t)n, ")");
}

/* "1f1b of 2 chunks a rank, "; "" if there is only one stage and micro-batches
 * run one after the other. */
static void describe_schedule(const struct merak_plan *p, char *text,
                              size_t size)
{
    char chunks[32] = "";

    text[0] = '\0';
    if (p->pp == 1 && p->chunks <= 1 && strcmp(p->schedule, "1f1b") == 0)
        return;
    if (p->chunks > 1)
        snprintf(chunks, sizeof(chunks), " of %d chunks a rank", p->chunks);
    snprintf(text, size, "%s%s, ", p->schedule, chunks);
}

/* " (gradients once a step, parameters of the first 5 blocks of each part)"; ""
 * if these are all, or none, and those are each micro-batch's. */
static void describe_shares(const struct merak_plan *p, char *text, size_t size)
{
    char blocks[64] = "";
    bool once = p->grad_sum == MERAK_SUM_STEP;

    if (p->fetch > 0)
        snprintf(blocks, sizeof(blocks), "parameters of the first %d block%s%s",
                 p->fetch, p->fetch == 1 ? "" : "s",
                 merak_plan_parts(p) > 1 ? " of each part" : "");
    text[0] = '\0';
    if (once || p->fetch > 0)
        snprintf(text, size, " (%s%s%s)", once ? "gradients once a step" : "",
                 once && p->fetch > 0 ? ", " : "", blocks);
}

/* ", room for 125 % of an even share of rows"; "" if experts are not cut. */
static void describe_experts(const struct merak_plan *p, char *text,
                             size_t size)
{
    text[0] = '\0';
    if (p->ep > 1)
        snprintf(text, size,
                 ", experts over ep%s with room for %d %% of an even share",
                 p->ep_form == MERAK_EP_EXCHANGE ? ", rows exchanged" : "",
                 p->expert_room > 0 ? p->expert_room : MERAK_EXPERT_ROOM);
}

/* ", logits in 8 pieces"; "" if they are whole. */
static void describe_pieces(const struct merak_plan *p, char *text, size_t size)
{
    text[0] = '\0';
    if (merak_plan_loss_pieces(p) > 1)
        snprintf(text, size, ", logits in %d pieces", p->loss_pieces);
}

/* ", replicas summed over 8 at a time, then over 4"; "" if over all at once. */
static void describe_sums(const struct merak_plan *p, char *text, size_t size)
{
    text[0] = '\0';
    if (merak_plan_dp_axes(p, 0) > 1)
        snprintf(text, size, ", replicas summed %d at a time, then over %d",
                 p->dp_in, p->dp / p->dp_in);
}

void merak_plan_describe(const struct merak_plan *p, char *text, size_t bytes)
{
    static const char *const offloaded[] = {
        [MERAK_OFFLOAD_NONE] = "",
        [MERAK_OFFLOAD_STATE] = ", optimizer state in the host's memory",
        [MERAK_OFFLOAD_ACTS] = ", dropped activations in the host's memory",
        [MERAK_OFFLOAD_ALL] = (", optimizer state and dropped activations in "
                               "the host's memory")};
    char schedule[64], samples[128] = "", layers[88], sp[48] = "", drops[80];
    char pieces[40], experts[80], shares[112], sums[80], grid[40] = "";
    char factors[MERAK_FACTORS_TEXT], lossy[128] = ", ", styles[MERAK_TP_PLAN_TEXT + 16] = "";
    char order[MERAK_CHOICE_WORD + 8], recompute[MERAK_CHOICE_WORD];
    char word[MERAK_CHOICE_WORD], degrees[MERAK_DEGREES_TEXT];
    int width = p->sub_pipeline ? 2 : 1; /* micro-batches that run as one */
    int m = p->microbatches / width;

    describe_schedule(p, schedule, sizeof(schedule));
    describe_drops(p, drops, sizeof(drops));
    describe_experts(p, experts, sizeof(experts));
    describe_pieces(p, pieces, sizeof(pieces));
    describe_shares(p, shares, sizeof(shares));
    describe_sums(p, sums, sizeof(sums));
    merak_lossy_describe(&p->lossy, p->pp, lossy + 2, sizeof(lossy) - 2);
    snprintf(order, sizeof(order), "ranks %s",
             merak_choice_word(&merak_choice[MERAK_CHOICE_ORDER],
                               p->order_tp_pp_dp, word));
    if (p->tp > 1 || p->stage != NULL)
        snprintf(sp, sizeof(sp), ", sequence parallelism %s",
                 merak_choice_word(&merak_choice[MERAK_CHOICE_SP], (long)p->sp,
                                   word));
    if (p->tp_axes > 0)
        snprintf(grid, sizeof(grid), ", tp as %s",
                 merak_factors_text(p->tp_axes, " x ", factors));
    if (merak_split_any(&p->split))
        snprintf(samples, sizeof(samples), ", samples cut over tp in layers %s",
                 merak_split_text(&p->split, "", ", ", layers, sizeof(layers)));
    if (merak_tp_plan_any(&p->tp_plan) && (p->tp > 1 || p->stage != NULL))
        snprintf(styles, sizeof(styles), ", tp plan %s", p->tp_plan.text);
    if (p->tp_batch_percent > 0)
        snprintf(samples, sizeof(samples),
                 ", data parallelism over tp in %d %% of the model",
                 p->tp_batch_percent);
    snprintf(text, bytes,
             "%s; %s%d micro-batch%s of %zu%s; %s%s%s%s%s, "
             "%s%s%s%s%s%s%s%s%s, recomputation %s%s%s",
             merak_plan_degrees_text(p, ", ", degrees), schedule, m,
             m == 1 ? "" : "es", p->micro_batch * (size_t)width,
             p->sub_pipeline ? " in halves that overlap each other's "
                               "communication"
                             : "",
             merak_plan_dtype_text(p), merak_plan_state_text(p), shares,
             offloaded[p->offload], sums,
             p->stage != NULL ? "ranks by stage" : order,
             p->scatter > 0 ? ", stage boundaries scattered over tp" : "", grid,
             sp, samples, styles, experts, pieces,
             lossy[2] != '\0' ? lossy : "",
             merak_choice_word(&merak_choice[MERAK_CHOICE_RECOMPUTE],
                               (long)p->recompute, recompute),
             drops, merak_plan_branches_text(p));
}
