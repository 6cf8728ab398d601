/* SPDX-License-Identifier: Apache-2.0 */
/* plan_options.c - options of `merak plan`; named as `merak train` names
 * them */
#include "config.h"

#include "cmd/plan_options.h"

#include "base/error.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum merak_status bad_value(const char *name, const char *text,
                                   const char *expected,
                                   struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG, "--%s: expected %s, got \"%.60s\"",
                      name, expected, text);
}

static enum merak_status parse_size(const char *name, const char *text,
                                    size_t most, size_t *value_p,
                                    struct merak_error *err)
{
    unsigned long long v;
    char *end;

    errno = 0;
    v = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || v < 1 ||
        v > most)
        return bad_value(name, text, "a positive integer", err);
    *value_p = (size_t)v;
    return MERAK_OK;
}

static enum merak_status parse_degree(const char *name, const char *text,
                                      int *value_p, struct merak_error *err)
{
    size_t v;
    enum merak_status rc;

    if (strcmp(text, "auto") == 0)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--%s=auto: give a number, or --device and "
                          "--nodes and no degrees",
                          name);
    rc = parse_size(name, text, 65535, &v, err);
    if (rc == MERAK_OK)
        *value_p = (int)v;
    return rc;
}

/* A positive number, times `unit`. */
static enum merak_status parse_real(const char *name, const char *text,
                                    double unit, double *value_p,
                                    struct merak_error *err)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(v) || v <= 0)
        return bad_value(name, text, "a positive number", err);
    *value_p = v * unit;
    return MERAK_OK;
}

static enum merak_status parse_giga(const char *name, const char *text,
                                    double *value_p, struct merak_error *err)
{
    return parse_real(name, text, 1e9, value_p, err);
}

static enum merak_status parse_memory(const char *text, size_t *bytes_p,
                                      struct merak_error *err)
{
    double bytes;
    enum merak_status rc = parse_real("memory-gib", text, 0x1p30, &bytes, err);

    if (rc == MERAK_OK)
        *bytes_p = (size_t)bytes;
    return rc;
}

static enum merak_status parse_word(const char *name, const char *text,
                                    const char *const *words, int *value_p,
                                    struct merak_error *err)
{
    char list[64] = "one of";

    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], text) == 0) {
            *value_p = i;
            return MERAK_OK;
        }
        snprintf(list + strlen(list), sizeof(list) - strlen(list), " %s",
                 words[i]);
    }
    return bad_value(name, text, list, err);
}

static enum merak_status parse_choice(const char *name, const char *text,
                                      struct plan_options *opt, bool *mine_p,
                                      struct merak_error *err)
{
    static const char *const sp[] = {"auto", "off", "on", NULL};
    static const char *const dtype[] = {"fp32", "bf16", NULL};
    static const char *const yes[] = {"no", "yes", NULL};
    static const char *const order[] = {"tp-dp-pp", "tp-pp-dp", NULL};
    static const char *const recompute[] = {"none", "full", "selective", "auto",
                                            NULL};
    struct merak_plan *plan = &opt->plan;
    enum merak_status rc = MERAK_OK;
    int v = 0;

    *mine_p = true;
    if (strcmp(name, "sp") == 0) {
        rc = parse_word(name, text, sp, &v, err);
        plan->sp = (enum merak_seq_parallel)v;
    } else if (strcmp(name, "dtype") == 0) {
        rc = parse_word(name, text, dtype, &v, err);
        plan->dtype = v == 0 ? MERAK_F32 : MERAK_BF16;
    } else if (strcmp(name, "zero1") == 0) {
        rc = parse_word(name, text, yes, &v, err);
        plan->zero1 = v == 1;
    } else if (strcmp(name, "sub-pipeline") == 0) {
        rc = parse_word(name, text, yes, &v, err);
        plan->sub_pipeline = v == 1;
    } else if (strcmp(name, "recompute") == 0) {
        rc = parse_word(name, text, recompute, &v, err);
        plan->recompute = (enum merak_recompute)v;
    } else if (strcmp(name, "order") == 0) {
        rc = parse_word(name, text, order, &v, err);
        plan->order_tp_pp_dp = v == 1;
    } else {
        *mine_p = false;
    }
    return rc;
}

static enum merak_status parse_schedule(const char *text,
                                        struct plan_options *opt,
                                        struct merak_error *err)
{
    const struct merak_schedule *schedule;
    enum merak_status rc = merak_schedule_find(text, &schedule, err);

    if (rc == MERAK_OK)
        snprintf(opt->plan.schedule, sizeof(opt->plan.schedule), "%s", text);
    return rc;
}

static enum merak_status parse_value(const char *name, const char *text,
                                     struct plan_options *opt,
                                     struct merak_error *err)
{
    enum merak_status rc;
    bool mine;

    rc = parse_choice(name, text, opt, &mine, err);
    if (mine)
        return rc;
    if (strcmp(name, "model") == 0)
        opt->model = text;
    else if (strcmp(name, "svg") == 0)
        opt->svg = text;
    else if (strcmp(name, "backend") == 0)
        opt->backend = text;
    else if (strcmp(name, "tp") == 0)
        return parse_degree(name, text, &opt->plan.tp, err);
    else if (strcmp(name, "pp") == 0)
        return parse_degree(name, text, &opt->plan.pp, err);
    else if (strcmp(name, "dp") == 0)
        return parse_degree(name, text, &opt->plan.dp, err);
    else if (strcmp(name, "chunks") == 0)
        return parse_degree(name, text, &opt->plan.chunks, err);
    else if (strcmp(name, "memory-gib") == 0)
        return parse_memory(text, &opt->plan.memory_bytes, err);
    else if (strcmp(name, "unit-ms") == 0)
        return parse_real(name, text, 1, &opt->unit_ms, err);
    else if (strcmp(name, "micro-batch") == 0)
        return parse_size(name, text, INT_MAX, &opt->plan.micro_batch, err);
    else if (strcmp(name, "global-batch") == 0)
        return parse_size(name, text, INT_MAX, &opt->global_batch, err);
    else if (strcmp(name, "seq") == 0)
        return parse_size(name, text, INT_MAX, &opt->seq, err);
    else if (strcmp(name, "schedule") == 0)
        return parse_schedule(text, opt, err);
    else if (strcmp(name, "gflops") == 0)
        return parse_giga(name, text, &opt->cost.flops_per_s, err);
    else if (strcmp(name, "memory-gbs") == 0)
        return parse_giga(name, text, &opt->cost.bytes_per_s, err);
    else if (strcmp(name, "link-gbs") == 0)
        return parse_giga(name, text, &opt->cost.link_bytes_per_s, err);
    else
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "no option --%s; `merak plan --help` lists them",
                          name);
    return MERAK_OK;
}

/* Options without a value. */
static bool parse_flag(const char *name, struct plan_options *opt)
{
    if (strcmp(name, "help") == 0)
        opt->help = true;
    else if (strcmp(name, "json") == 0)
        opt->json = true;
    else if (strcmp(name, "program") == 0)
        opt->program = true;
    else if (strcmp(name, "no-zero1") == 0)
        opt->plan.zero1 = false;
    else
        return false;
    return true;
}

static enum merak_status parse_option(int argc, char **argv, int *at,
                                      struct plan_options *opt,
                                      struct merak_error *err)
{
    const char *arg = argv[*at], *value = strchr(arg, '=');
    char name[32];

    if (strncmp(arg, "--", 2) != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "\"%.60s\": expected an option, --NAME VALUE", arg);
    snprintf(name, sizeof(name), "%.*s",
             value != NULL ? (int)(value - arg - 2) : (int)strlen(arg + 2),
             arg + 2);
    if (value == NULL && parse_flag(name, opt))
        return MERAK_OK;
    if (value == NULL && *at + 1 == argc)
        return merak_fail(err, MERAK_ERR_CONFIG, "--%s: a value is missing",
                          name);
    value = value != NULL ? value + 1 : argv[++*at];
    return parse_value(name, value, opt, err);
}

static enum merak_status count_microbatches(struct plan_options *opt,
                                            struct merak_error *err)
{
    size_t pass = opt->plan.micro_batch * (size_t)opt->plan.dp;

    if (opt->global_batch == 0) /* enough to fill the pipeline */
        opt->global_batch = pass * 4 * (size_t)opt->plan.pp;
    if (opt->global_batch % pass != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--global-batch %zu is no multiple of --micro-batch "
                          "%zu x dp %d; nearest: %zu",
                          opt->global_batch, opt->plan.micro_batch,
                          opt->plan.dp, (opt->global_batch / pass + 1) * pass);
    opt->plan.microbatches = (int)(opt->global_batch / pass);
    if (!opt->plan.sub_pipeline)
        return MERAK_OK;
    if (opt->plan.micro_batch % 2 != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--sub-pipeline halves --micro-batch %zu: expected "
                          "an even number",
                          opt->plan.micro_batch);
    opt->plan.microbatches *= 2;
    opt->plan.micro_batch /= 2;
    return MERAK_OK;
}

enum merak_status plan_options_parse(int argc, char **argv,
                                     struct plan_options *opt,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    *opt = (struct plan_options){.backend = "cpu",
                                 .seq = 256,
                                 .plan = {.tp = 1,
                                          .pp = 1,
                                          .dp = 1,
                                          .micro_batch = 1,
                                          .zero1 = true,
                                          .dtype = MERAK_F32,
                                          .threads = 1,
                                          .schedule = "1f1b"},
                                 .cost = *merak_cost_default()};
    for (int i = 1; i < argc && rc == MERAK_OK; i++)
        rc = parse_option(argc, argv, &i, opt, err);
    if (rc != MERAK_OK || opt->help)
        return rc;
    if (opt->model == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --model config.json (Hugging Face, gpt2 or "
                          "llama family)");
    return count_microbatches(opt, err);
}

void plan_options_help(void)
{
    fputs("usage: merak plan --model config.json [OPTION]...\n"
          "\n"
          "What a training run would look like, without running it: stages, "
          "memory per\n"
          "rank, step time, idle time, and a picture of the step.\n"
          "\n"
          "  --model FILE        Hugging Face config.json, gpt2 or llama "
          "family (required)\n"
          "  --tp N --pp N --dp N  degrees (1 each)\n"
          "  --order WORD        tp-dp-pp or tp-pp-dp: how ranks are "
          "numbered (tp-dp-pp)\n"
          "  --micro-batch N     sequences in a micro-batch (1)\n"
          "  --global-batch N    sequences in a step (4 pp micro-batches a "
          "replica)\n"
          "  --seq N             tokens of a sequence (256)\n"
          "  --schedule NAME     order of forwards and backwards; a wrong "
          "name lists\n"
          "                      them (1f1b)\n"
          "  --chunks N          model parts per rank, for interleaved "
          "schedules (1)\n"
          "  --sub-pipeline yes|no  micro-batches in two halves, exchanges "
          "of one behind\n"
          "                      compute of the other (no)\n"
          "  --recompute WORD    none, full, selective (attention) or auto: "
          "per stage the\n"
          "                      least that fits --memory-gib (none)\n"
          "  --memory-gib N      what a rank may use (no bound)\n"
          "  --dtype WORD        fp32 or bf16 (fp32)\n"
          "  --zero1 yes|no      optimizer state split over replicas (yes); "
          "--no-zero1\n"
          "  --sp WORD           sequence parallelism: auto, off or on "
          "(auto)\n"
          "  --backend NAME      kernels whose scratch memory is counted "
          "(cpu)\n"
          "  --gflops N          of one rank (150)\n"
          "  --memory-gbs N      GB/s of one rank's memory (10)\n"
          "  --link-gbs N        GB/s between ranks (5)\n"
          "  --unit-ms N         stages alike: a forward takes N ms, a "
          "backward twice\n"
          "  --svg FILE          write the picture there\n"
          "  --json              print one JSON object instead\n"
          "  --program           print each stage's instructions, too\n"
          "\n"
          "The degrees, cuts, schedule and micro-batch size with the shortest "
          "step on a\n"
          "machine are searched for with these, of which one has to be "
          "there:\n"
          "\n"
          "  --device NAME       a100, h100, h200, rtx3090, cpu, or a device "
          "file\n"
          "  --nodes N           of the machine (1)\n"
          "  --what-if LIST      choices that are fixed: tp=4,pp=2,dp=8,"
          "micro-batch=1,\n"
          "                      schedule=gpipe,zero1=no,order=tp-pp-dp,"
          "sp=on\n"
          "\n"
          "and beside them, of those above, --model, --global-batch "
          "(required), --seq\n"
          "(the model's most), --dtype (bf16), and\n"
          "\n"
          "  --gpus-per-node N   ranks of a node, too: --ranks-per-node (the "
          "device's)\n"
          "  --memory N          as --memory-gib (the device's)\n"
          "  --json FILE         save the plan there\n",
          stdout);
}
