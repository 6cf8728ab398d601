/* SPDX-License-Identifier: Apache-2.0 */
/* choice.c - the table of a plan's choices */
#include "config.h"

#include "partitioner/plan/choice.h"

#include "base/error.h"
#include "base/factors.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- options that are not a single value ---------------------------------- */

static enum merak_status set_schedule(void *target, const char *text,
                                      struct merak_error *err)
{
    struct merak_choices *choices = target;

    if (*text == '\0' || strlen(text) >= MERAK_OPTION_NAME_BYTES)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--schedule: expected a short name, got \"%.60s\"",
                          text);
    choices->schedule = text;
    return MERAK_OK;
}

static enum merak_status set_recompute(void *target, const char *text,
                                       struct merak_error *err)
{
    struct merak_choices *choices = target;

    return merak_given_set_recompute(text, &choices->list, &choices->recompute,
                                     err);
}

enum merak_status merak_choices_check_zero1(const struct merak_choices *choices,
                                            int level, struct merak_error *err)
{
    if (choices->zero == level)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--zero1 %s is --zero %d, and another level is given, "
                      "too: give one of them",
                      level > 0 ? "yes" : "no", level);
}

static enum merak_status set_zero1(void *target, const char *text,
                                   struct merak_error *err)
{
    struct merak_choices *choices = target;
    int level = 0;
    enum merak_status rc = merak_zero1_parse(text, &level, err);

    if (rc == MERAK_OK && choices->given[MERAK_CHOICE_ZERO])
        rc = merak_choices_check_zero1(choices, level, err);
    if (rc == MERAK_OK) {
        choices->has_zero1 = true;
        choices->zero = choices->zero1 = level;
    }
    return rc;
}

static enum merak_status set_cut(void *target, const char *text,
                                 struct merak_error *err)
{
    struct merak_choices *choices = target;

    return merak_given_set_cut(text, &choices->list, err);
}

static enum merak_status set_split(void *target, const char *text,
                                   struct merak_error *err)
{
    struct merak_choices *choices = target;

    return merak_split_parse(text, &choices->split, err);
}

static enum merak_status set_tp_plan(void *target, const char *text,
                                     struct merak_error *err)
{
    struct merak_choices *choices = target;

    return merak_tp_plan_parse(text, &choices->tp_plan, err);
}

static enum merak_status set_lossy(void *target, const char *text,
                                   struct merak_error *err)
{
    struct merak_choices *choices = target;

    return merak_lossy_parse(text, &choices->lossy, err);
}

static enum merak_status set_stages(void *target, const char *text,
                                    struct merak_error *err)
{
    struct merak_choices *choices = target;

    return merak_given_set_stages(text, &choices->list, err);
}

/* --- values that are structs ---------------------------------------------- */

static enum merak_status parse_split(const char *text, void *value,
                                     struct merak_error *err)
{
    return merak_split_parse(text, value, err);
}

static const char *split_text(const void *value, const char *between,
                              char *text, size_t bytes)
{
    return merak_split_text(value, "b", between, text, bytes);
}

static enum merak_status parse_tp_plan(const char *text, void *value,
                                       struct merak_error *err)
{
    return merak_tp_plan_parse(text, value, err);
}

static const char *tp_plan_text(const void *value, const char *between,
                                char *text, size_t bytes)
{
    const struct merak_tp_plan *plan = value;

    (void)between; /* it has a plus everywhere */
    snprintf(text, bytes, "%s", plan->text);
    return text;
}

static enum merak_status parse_lossy(const char *text, void *value,
                                     struct merak_error *err)
{
    return merak_lossy_parse(text, value, err);
}

static const char *lossy_text(const void *value, const char *between,
                              char *text, size_t bytes)
{
    return merak_lossy_text(value, between, text, bytes);
}

#define STRUCT(name, field, ...)                                          \
    static const struct merak_choice_struct name##_struct = {             \
        .bytes = sizeof(((struct merak_choices *)NULL)->field),           \
        .at = offsetof(struct merak_choices, field),                      \
        .plan_at = offsetof(struct merak_plan, field),                    \
        .parse = parse_##name, .text = name##_text, __VA_ARGS__}

STRUCT(split, split, .key = "split", .between = "",
       .expected = "layers, as in \"b4-27\"");
STRUCT(tp_plan, tp_plan, .key = "tp_plan",
       .expected = "patterns, as in \"*.up.weight:colwise\"");
STRUCT(lossy, lossy, .key = "lossy_hops", .between = "-",
       .expected = "ratios behind stages, as in \"1:8,2:4\"");

/* --- the table ------------------------------------------------------------ */

#define AT(field) offsetof(struct merak_choices, field)
#define GIVEN(ID) .given = AT(given[MERAK_CHOICE_##ID])
#define OPTION(ID, name, KIND, field, text, ...)                        \
    {                                                                   \
        name, MERAK_OPTION_##KIND, AT(field), GIVEN(ID), .about = text, \
                                                         __VA_ARGS__    \
    }
/* Options of `merak plan` and of a run that differ only in the help text. */
#define BOTH(ID, name, KIND, field, text, run_text, ...)         \
    .option = OPTION(ID, name, KIND, field, text, __VA_ARGS__),  \
    .run = OPTION(ID, name, KIND, field, run_text, __VA_ARGS__), \
    .kind = MERAK_OPTION_##KIND
#define CALL(ID, name, function, argument, text)                              \
    {                                                                         \
        name, MERAK_OPTION_CALL, .set = function, GIVEN(ID), .arg = argument, \
                                 .about = text                                \
    }
#define IN_PLAN(field) \
    .in_plan = true, .plan_at = offsetof(struct merak_plan, field)
#define NEAR(function, memory, numbers)                   \
    .near = merak_near_##function, .near_memory = memory, \
    .near_numbers = numbers
#define BY_DEGREES MERAK_DIFFERS_BY_DEGREES
#define BY_SCHEDULE MERAK_DIFFERS_BY_SCHEDULE
#define DEGREE .least = 1, .most = 65535
#define DP_IN_TEXT                                                            \
    "replicas that are summed first, such as those of a node, then what they " \
    "have with the others; or auto: of a node, if degrees are auto (1: all at " \
    "once)"
#define CP_TEXT                                                              \
    "context parallelism: ranks that each sequence is cut over, with whole " \
    "weights, or auto (1)"
#define CP_FORM_TEXT                                                         \
    "what ranks of a sequence do for attention: gather keys and values, or " \
    "exchange heads (auto: whichever is faster, each for itself)"
#define CP_AXES_TEXT                                                        \
    "cp as a grid over dims of space: its factors, the first for the first " \
    "dim (those with the fewest points to exchange)"
#define CP_ORDER_TEXT                                                         \
    "positions of a rank of cp: a piece of the head and one of the tail, or " \
    "all in a row (auto: whichever is less attention for the rank with most)"
#define TP_AXES_TEXT                                                        \
    "tp as a grid: its factors, the first outermost, or auto: several are " \
    "tried (kv heads by queries of each, where there are fewer than tp)"
#define STAGES_TEXT                                                           \
    "replicas x tensor ranks of each stage, 2x4,8x1, in place of tp, pp and " \
    "dp; a micro-batch is then that of all replicas together; or auto"
#define TP_PLAN_TEXT                                                       \
    "how tensor ranks cut parameters, PATTERN:colwise, :rowwise, "         \
    ":replicate or a dim, :0, commas between (whatever is cheapest)"
#define SPLIT_TEXT                                                          \
    "layers whose weights (w) or samples (b) are split over the tp group, " \
    "w0-3,b4-27 (w)"
#define TP_BATCH_TEXT                                                    \
    "percent of the model, from its end, that may use data parallelism " \
    "inside the tp group instead of split weights (0)"

#define LOSSY_TEXT                                                            \
    "ratios at which hops between stages are sent as their largest elements, " \
    "for all, 8, for those behind stages, 1:8,2:4, or auto:8 by what hops "    \
    "take; another model than with whole ones (none)"

#define ROOM_TEXT                                                           \
    "rows that experts of a rank keep for gradients if --ep cuts them, in " \
    "percent of an even share; what is more is computed again (125)"

#define EP_FORM_TEXT                                                      \
    "how tokens meet the experts of --ep: gather those of all ranks, or " \
    "exchange rows for experts; or auto: of both, if degrees are auto "   \
    "(gather; or auto, if --ep is auto)"

#define PIECES_TEXT                                                    \
    "pieces of rows in which logits and their gradients are made, so " \
    "that they are never whole: chunked cross-entropy; or auto, if "   \
    "degrees are auto: where it saves time (1)"

#define ZERO_TEXT                                                      \
    "what replicas share out: 0: nothing, 1: optimizer state, 2: and " \
    "gradients, 3: and parameters, fetched for each use; or auto: of " \
    "all, if degrees are auto (1; or 0, if degrees are auto)"

#define FETCH_TEXT                                                     \
    "first blocks of each part whose parameters are fetched for each " \
    "use, with --zero 3; the others are whole (all; of a search with " \
    "a memory limit: the fewest that fit, if that is faster)"

#define GRAD_SUM_TEXT                                                    \
    "when gradients of matrices are summed over replicas with --zero 2 " \
    "or 3: each micro-batch, or once a step, whole until then (micro; "  \
    "of a search: whichever is faster with 3)"

#define GRAD_DTYPE_TEXT \
    "what gradients of bf16 parameters are accumulated and summed in (fp32)"

#define ZERO_HOME_TEXT                                                        \
    "which replicas share out matrices and their gradients with --zero 2 and " \
    "3: all, or those of --dp-in; optimizer state all; or auto, if degrees " \
    "are auto (all)"

#define OFFLOAD_TEXT                                                        \
    "what the host's memory keeps while it is not used: none, state: "      \
    "moments and master copies, brought for updates in pieces, acts: what " \
    "--recompute drops, brought back instead, all, or, if degrees are "     \
    "auto, auto: of that as much as saves time (none; of a search: state "  \
    "if nothing fits otherwise)"

/* A row is read line by line, not in columns. */
/* clang-format off */
const struct merak_choice merak_choice[MERAK_CHOICE_COUNT] = {
    [MERAK_CHOICE_TP] = {
        BOTH(TP, "tp", INT, tp, "tensor-parallel degree (1)",
             "tensor-parallel degree, or auto (MERAK_TP, or 1)",
             DEGREE, .words = "auto"),
        .key = "tp", IN_PLAN(tp), .usual = 1, .differs = BY_DEGREES,
        .tie = 2},
    [MERAK_CHOICE_EP] = {
        BOTH(EP, "ep", INT, ep,
             "ranks that have a part of the experts each, and samples of all "
             "else (1)",
             "tasks that have a part of the experts each, and samples of all "
             "else, or auto (MERAK_EP, or 1)", DEGREE, .words = "auto"),
        .key = "ep", IN_PLAN(ep), .usual = 1, .is_implied = true,
        .is_settled = true, .differs = BY_DEGREES},
    [MERAK_CHOICE_PP] = {
        BOTH(PP, "pp", INT, pp, "pipeline stages (1)",
             "pipeline stages, or auto (MERAK_PP, or 1)",
             DEGREE, .words = "auto"),
        .key = "pp", IN_PLAN(pp), .usual = 1, .differs = BY_DEGREES,
        .tie = 1},
    [MERAK_CHOICE_DP] = {
        BOTH(DP, "dp", INT, dp, "replicas (1)",
             "replicas (what the tasks leave)", DEGREE, .words = "auto"),
        .key = "dp", IN_PLAN(dp), .usual = 1, .differs = BY_DEGREES},
    [MERAK_CHOICE_DP_IN] = {
        BOTH(DP_IN, "dp-in", INT, dp_in, DP_IN_TEXT, DP_IN_TEXT,
             DEGREE, .words = "auto"),
        .key = "dp_in", IN_PLAN(dp_in), .usual = 1, .is_implied = true,
        .is_settled = true, .is_told = true, NEAR(usual, 0, 16)},
    [MERAK_CHOICE_CP] = {
        BOTH(CP, "cp", INT, cp, CP_TEXT, CP_TEXT, DEGREE, .words = "auto"),
        .key = "cp", IN_PLAN(cp), .usual = 1, .is_implied = true,
        .is_told = true, NEAR(usual, 0, 12)},
    [MERAK_CHOICE_CP_AXES] = {
        BOTH(CP_AXES, "cp-axes", GRID, cp_axes, CP_AXES_TEXT, CP_AXES_TEXT),
        .key = "cp_axes", IN_PLAN(cp_axes), .is_implied = true,
        .is_settled = true, .is_told = true, NEAR(usual, 0, 21)},
    [MERAK_CHOICE_CP_FORM] = {
        BOTH(CP_FORM, "cp-form", WORD, cp_form, CP_FORM_TEXT, CP_FORM_TEXT,
             .words = "auto|gather|heads"),
        .key = "cp_form", IN_PLAN(cp_form), .is_implied = true,
        .is_told = true, NEAR(usual, 0, 11)},
    [MERAK_CHOICE_CP_ORDER] = {
        BOTH(CP_ORDER, "cp-order", WORD, cp_order, CP_ORDER_TEXT,
             CP_ORDER_TEXT, .words = "auto|head-tail|contiguous"),
        .key = "cp_order", IN_PLAN(cp_order), .is_implied = true,
        .is_told = true, NEAR(usual, 0, 15)},
    [MERAK_CHOICE_TP_AXES] = {
        BOTH(TP_AXES, "tp-axes", GRID, tp_axes, TP_AXES_TEXT, TP_AXES_TEXT,
             .words = "auto"),
        .key = "tp_axes", IN_PLAN(tp_axes), .is_implied = true,
        .is_settled = true, .is_told = true, NEAR(usual, 0, 14)},
    [MERAK_CHOICE_STAGES] = {
        .option = CALL(STAGES, "stages", set_stages, "LIST", STAGES_TEXT),
        .run = CALL(STAGES, "stages", set_stages, "LIST", STAGES_TEXT),
        .kind = MERAK_OPTION_CALL},
    [MERAK_CHOICE_MICRO_BATCH] = {
        BOTH(MICRO_BATCH, "micro-batch", SIZE, micro_batch,
             "sequences in a micro-batch (1, or ep)",
             "sequences in a micro-batch (1, or ep)", .least = 1, .most = INT_MAX),
        .key = "micro_batch", IN_PLAN(micro_batch), .usual = 1,
        .differs = BY_DEGREES, .tie = 3, NEAR(size, 8, 3)},
    [MERAK_CHOICE_SCHEDULE] = {
        .option = CALL(SCHEDULE, "schedule", set_schedule, "NAME",
                       "order of forwards and backwards, or auto; a wrong "
                       "name lists them (1f1b)"),
        .run = CALL(SCHEDULE, "schedule", set_schedule, "NAME",
                    "pipeline schedule, or auto; a wrong name lists them "
                    "(1f1b; 3f1b for models of several passes)"),
        .kind = MERAK_OPTION_TEXT, .key = "schedule", .differs = BY_SCHEDULE,
        NEAR(schedule, 9, 6)},
    [MERAK_CHOICE_CHUNKS] = {
        BOTH(CHUNKS, "chunks", INT, chunks,
             "model parts per rank, for interleaved schedules (1); 2 or 3 of "
             "interlaced (3)",
             "model parts per task, for interleaved schedules (1); 2 or 3 of "
             "interlaced (3)", .least = 1, .most = MERAK_MAX_CHUNKS),
        .key = "chunks", IN_PLAN(chunks), .differs = BY_SCHEDULE,
        NEAR(chunks, 10, 7)},
    [MERAK_CHOICE_SUB_PIPELINE] = {
        BOTH(SUB_PIPELINE, "sub-pipeline", BOOL, sub_pipeline,
             "micro-batches in two halves, communication of one overlapped "
             "with compute of the other (no)",
             "micro-batches in two halves, communication of one overlapped "
             "with compute of the other (no)", .words = "no|yes"),
        .key = "sub_pipeline", IN_PLAN(sub_pipeline), .differs = BY_SCHEDULE,
        .tie = 8, .is_narrowed = true, NEAR(usual, 12, 9)},
    [MERAK_CHOICE_ZERO] = {
        BOTH(ZERO, "zero", INT, zero, ZERO_TEXT, ZERO_TEXT,
             .most = MERAK_MAX_ZERO, .words = "auto"),
        .alias = CALL(ZERO, "zero1", set_zero1, "no|yes", "as zero 0 or 1"),
        .key = "zero", .flag_key = "zero1", IN_PLAN(zero), .usual = 1,
        .is_told = true, .tie = 4, .is_narrowed = true, NEAR(zero, 5, 0)},
    [MERAK_CHOICE_FETCH] = {
        BOTH(FETCH, "fetch", INT, fetch, FETCH_TEXT, FETCH_TEXT,
             DEGREE, .words = "all"),
        .key = "fetch", IN_PLAN(fetch), .is_implied = true,
        .is_settled = true, .is_told = true,
        .least_zero = {MERAK_ZERO_PARAMS, MERAK_ZERO_PARAMS},
        .is_narrowed = true, NEAR(usual, 13, 13)},
    [MERAK_CHOICE_GRAD_SUM] = {
        BOTH(GRAD_SUM, "grad-sum", WORD, grad_sum, GRAD_SUM_TEXT,
             GRAD_SUM_TEXT, .words = "micro|step"),
        .key = "grad_sum", IN_PLAN(grad_sum), .is_implied = true,
        .is_settled = true, .is_told = true,
        .least_zero = {0, MERAK_ZERO_PARAMS},
        .is_narrowed = true, NEAR(usual, 15, 18)},
    [MERAK_CHOICE_GRAD_DTYPE] = {
        BOTH(GRAD_DTYPE, "grad-dtype", WORD, grad_dtype, GRAD_DTYPE_TEXT,
             GRAD_DTYPE_TEXT, .words = "fp32|bf16"),
        .key = "grad_dtype", IN_PLAN(grad_dtype), .is_implied = true,
        .is_settled = true, .is_told = true, .is_narrowed = true},
    [MERAK_CHOICE_ZERO_HOME] = {
        BOTH(ZERO_HOME, "zero-home", WORD, zero_home,
             ZERO_HOME_TEXT, ZERO_HOME_TEXT, .words = "all|in|auto"),
        .key = "zero_home", IN_PLAN(zero_home), .n_words = 2,
        .is_implied = true, .is_settled = true, .is_told = true,
        .least_zero = {0, MERAK_ZERO_GRADS}, NEAR(usual, 14, 17)},
    [MERAK_CHOICE_OFFLOAD] = {
        BOTH(OFFLOAD, "offload", WORD, offload, OFFLOAD_TEXT, OFFLOAD_TEXT,
             .words = "none|state|acts|all|auto"),
        .key = "offload", IN_PLAN(offload), .n_words = 4, .is_implied = true,
        .is_settled = true, .is_told = true, .is_narrowed = true,
        NEAR(offload, 6, 0)},
    [MERAK_CHOICE_ORDER] = {
        .option = OPTION(ORDER, "order", BOOL, order_tp_pp_dp,
                         "tp-dp-pp or tp-pp-dp: how ranks are numbered "
                         "(tp-dp-pp)", .words = "tp-dp-pp|tp-pp-dp"),
        .kind = MERAK_OPTION_BOOL,
        .key = "order", IN_PLAN(order_tp_pp_dp), .is_told = true,
        .tie = 5, .is_narrowed = true},
    [MERAK_CHOICE_SP] = {
        BOTH(SP, "sp", WORD, sp,
             "sequence parallelism: auto, off or on (auto)",
             "sequence parallelism (auto)", .words = "auto|off|on"),
        .key = "sp", IN_PLAN(sp), .is_told = true, .tie = 6,
        NEAR(usual, 11, 10)},
    [MERAK_CHOICE_RECOMPUTE] = {
        .option = CALL(RECOMPUTE, "recompute", set_recompute, "WORD",
                       "none, full, selective (attention) or auto: per stage "
                       "the least that fits; or for each part a (attention) "
                       "or how many of its first blocks: a-2-0 (none)"),
        .run = OPTION(RECOMPUTE, "recompute", WORD, recompute,
                      "drop activations and recompute them: all, "
                      "attention's, or per stage the least that fits (none)",
                      .words = "none|full|selective|auto"),
        .kind = MERAK_OPTION_WORD,
        .key = "recompute", IN_PLAN(recompute), .tie = -1,
        NEAR(recompute, 4, 2)},
    [MERAK_CHOICE_CUT] = {
        .option = CALL(CUT, "cut", set_cut, "POINTS",
                       "cut points where all parts except the first begin, "
                       "1-3-5, or auto (even work)"),
        .kind = MERAK_OPTION_CALL, NEAR(cut, 1, 1)},
    [MERAK_CHOICE_TP_BATCH] = {
        BOTH(TP_BATCH, "tp-batch", INT, tp_batch_percent,
             TP_BATCH_TEXT, TP_BATCH_TEXT, .most = 100),
        .key = "tp_batch", IN_PLAN(tp_batch_percent), .is_implied = true,
        .tie = 7, .is_narrowed = true, NEAR(usual, 0, 8)},
    [MERAK_CHOICE_SPLIT] = {
        .option = CALL(SPLIT, "split", set_split, "LIST", SPLIT_TEXT),
        .run = CALL(SPLIT, "split", set_split, "LIST", SPLIT_TEXT),
        .kind = MERAK_OPTION_CALL, .is_told = true, .is = &split_struct},
    [MERAK_CHOICE_TP_PLAN] = {
        .option = CALL(TP_PLAN, "tp-plan", set_tp_plan, "LIST", TP_PLAN_TEXT),
        .run = CALL(TP_PLAN, "tp-plan", set_tp_plan, "LIST", TP_PLAN_TEXT),
        .kind = MERAK_OPTION_CALL, .is_told = true, .is = &tp_plan_struct},
    [MERAK_CHOICE_EXPERT_ROOM] = {
        BOTH(EXPERT_ROOM, "expert-room", INT, expert_room,
             ROOM_TEXT, ROOM_TEXT, .least = 1, .most = 100000,
             .of = "percent of an even share"),
        .key = "expert_room", IN_PLAN(expert_room),
        .usual = MERAK_EXPERT_ROOM, .is_implied = true, .is_settled = true},
    [MERAK_CHOICE_EP_FORM] = {
        BOTH(EP_FORM, "ep-form", WORD, ep_form, EP_FORM_TEXT, EP_FORM_TEXT,
             .words = "gather|exchange|auto"),
        .key = "ep_form", IN_PLAN(ep_form), .n_words = 2,
        .is_implied = true, .is_settled = true, .is_told = true},
    [MERAK_CHOICE_LOSS_PIECES] = {
        BOTH(LOSS_PIECES, "loss-pieces", INT, loss_pieces, PIECES_TEXT,
             PIECES_TEXT, .least = 1, .most = MERAK_MAX_LOSS_PIECES,
             .words = "auto"),
        .key = "loss_pieces", IN_PLAN(loss_pieces), .usual = 1,
        .is_implied = true, .is_settled = true, .is_told = true,
        .is_narrowed = true, NEAR(usual, 0, 19)},
    [MERAK_CHOICE_BOUNDARY] = {
        BOTH(BOUNDARY, "boundary", WORD, boundary,
             "activations replicated across tp, sent to the next stage: auto, "
             "whole or scatter (auto)",
             "activations replicated across tp, sent to the next stage: whole "
             "by each rank, or scattered and gathered there (auto: by links)",
             .words = "auto|whole|scatter")},
    [MERAK_CHOICE_LOSSY_HOPS] = {
        .option = CALL(LOSSY_HOPS, "lossy-hops", set_lossy, "LIST", LOSSY_TEXT),
        .run = CALL(LOSSY_HOPS, "lossy-hops", set_lossy, "LIST", LOSSY_TEXT),
        .kind = MERAK_OPTION_CALL, .is_told = true, .is = &lossy_struct},
    [MERAK_CHOICE_BRANCHES] = {
        BOTH(BRANCHES, "branches", WORD, branches,
             "order of nodes, where the model is not a chain: described, "
             "gathered, blocks or auto (described)",
             "order of nodes that the model is cut in, where it is not a "
             "chain: as described, gathered (few bytes alive) or blocks of "
             "even time (auto: the fastest, as predicted)",
             .words = "described|gathered|blocks|auto"),
        .key = "branches", IN_PLAN(branches), .n_words = 3,
        .is_implied = true},
};
/* clang-format on */

static const struct merak_option all[] = {
    MERAK_CHOICE_ROWS(option, TP, COUNT - 1, 0),
    MERAK_CHOICE_ROWS(alias, ZERO, ZERO, 0)};

enum { N_ALL = sizeof(all) / sizeof(*all) };

const struct merak_option_table merak_choice_table = {all, N_ALL};
