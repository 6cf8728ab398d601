/* SPDX-License-Identifier: Apache-2.0 */
/* plan_auto.c - `merak plan --nodes N --device NAME`: options, the search */
#include "config.h"

#include "cmd/plan_auto.h"

#include "base/error.h"
#include "cmd/plan_options.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB 0x1p30

static bool is_option(const char *arg, const char *name)
{
    size_t n = strlen(name);

    return strncmp(arg, name, n) == 0 && (arg[n] == '\0' || arg[n] == '=');
}

bool plan_auto_wanted(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (is_option(argv[i], "--nodes") || is_option(argv[i], "--device") ||
            is_option(argv[i], "--what-if"))
            return true;
    }
    return false;
}

/* --- values --------------------------------------------------------------- */

static enum merak_status bad_value(const char *name, const char *text,
                                   const char *expected,
                                   struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG, "%s: expected %s, got \"%.60s\"",
                      name, expected, text);
}

static enum merak_status parse_count(const char *name, const char *text,
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

static enum merak_status parse_int(const char *name, const char *text,
                                   int *value_p, struct merak_error *err)
{
    size_t v = 0;
    enum merak_status rc = parse_count(name, text, 65535, &v, err);

    if (rc == MERAK_OK)
        *value_p = (int)v;
    return rc;
}

static enum merak_status parse_memory(const char *text, size_t *bytes_p,
                                      struct merak_error *err)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(v) || v <= 0 || v > 1e6)
        return bad_value("--memory", text, "GiB, a positive number", err);
    *bytes_p = (size_t)(v * GIB);
    return MERAK_OK;
}

static enum merak_status parse_dtype(const char *text, enum merak_dtype *dtype,
                                     struct merak_error *err)
{
    if (strcmp(text, "bf16") == 0)
        *dtype = MERAK_BF16;
    else if (strcmp(text, "fp32") == 0)
        *dtype = MERAK_F32;
    else
        return bad_value("--dtype", text, "fp32 or bf16", err);
    return MERAK_OK;
}

/* --- choices that are fixed ----------------------------------------------- */

static enum merak_status pin_flag(const char *name, const char *text,
                                  const char *no, const char *yes,
                                  enum merak_pin *pin, struct merak_error *err)
{
    char expected[48];

    if (strcmp(text, yes) == 0) {
        *pin = MERAK_PIN_YES;
        return MERAK_OK;
    }
    if (strcmp(text, no) == 0) {
        *pin = MERAK_PIN_NO;
        return MERAK_OK;
    }
    snprintf(expected, sizeof(expected), "%s or %s", no, yes);
    return bad_value(name, text, expected, err);
}

static enum merak_status pin_sp(const char *text, struct merak_search_pins *pin,
                                struct merak_error *err)
{
    static const char *const words[] = {"auto", "off", "on"};

    for (int i = 0; i < 3; i++) {
        if (strcmp(text, words[i]) == 0) {
            pin->fix_sp = true;
            pin->sp = (enum merak_seq_parallel)i;
            return MERAK_OK;
        }
    }
    return bad_value("sp", text, "auto, off or on", err);
}

static enum merak_status pin_one(const char *name, const char *text,
                                 struct merak_search_pins *pin,
                                 struct merak_error *err)
{
    if (strcmp(name, "tp") == 0)
        return parse_int(name, text, &pin->tp, err);
    if (strcmp(name, "pp") == 0)
        return parse_int(name, text, &pin->pp, err);
    if (strcmp(name, "dp") == 0)
        return parse_int(name, text, &pin->dp, err);
    if (strcmp(name, "micro-batch") == 0)
        return parse_count(name, text, INT_MAX, &pin->micro_batch, err);
    if (strcmp(name, "zero1") == 0)
        return pin_flag(name, text, "no", "yes", &pin->zero1, err);
    if (strcmp(name, "order") == 0)
        return pin_flag(name, text, "tp-dp-pp", "tp-pp-dp",
                        &pin->order_tp_pp_dp, err);
    if (strcmp(name, "sp") == 0)
        return pin_sp(text, pin, err);
    if (strcmp(name, "schedule") != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--what-if: no choice \"%.40s\"; there are tp, pp, "
                          "dp, micro-batch, schedule, zero1, order and sp",
                          name);
    pin->schedule = text;
    return MERAK_OK;
}

/* "tp=4,schedule=gpipe"; the text is cut at its commas and equals signs and
 * must outlive the pins. */
static enum merak_status pin_all(char *text, struct merak_search_pins *pin,
                                 struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    while (text != NULL && rc == MERAK_OK) {
        char *next = strchr(text, ','), *value = strchr(text, '=');

        if (next != NULL)
            *next++ = '\0';
        if (value == NULL || (next != NULL && value >= next))
            return bad_value("--what-if", text, "NAME=VALUE,..", err);
        *value++ = '\0';
        rc = pin_one(text, value, pin, err);
        text = next;
    }
    return rc;
}

/* --- options -------------------------------------------------------------- */

static enum merak_status parse_value(const char *name, char *text,
                                     struct plan_auto *opt,
                                     struct merak_error *err)
{
    struct merak_search_input *in = &opt->in;

    if (strcmp(name, "--model") == 0)
        opt->model = text;
    else if (strcmp(name, "--json") == 0)
        opt->json = text;
    else if (strcmp(name, "--device") == 0)
        return merak_device_find(text, &opt->device, err);
    else if (strcmp(name, "--nodes") == 0)
        return parse_int(name, text, &in->nodes, err);
    else if (strcmp(name, "--gpus-per-node") == 0 ||
             strcmp(name, "--ranks-per-node") == 0)
        return parse_int(name, text, &in->ranks_per_node, err);
    else if (strcmp(name, "--global-batch") == 0)
        return parse_count(name, text, INT_MAX, &in->global_batch, err);
    else if (strcmp(name, "--seq") == 0)
        return parse_count(name, text, INT_MAX, &in->seq, err);
    else if (strcmp(name, "--memory") == 0 || strcmp(name, "--memory-gib") == 0)
        return parse_memory(text, &in->memory_bytes, err);
    else if (strcmp(name, "--dtype") == 0)
        return parse_dtype(text, &in->dtype, err);
    else if (strcmp(name, "--what-if") == 0)
        return pin_all(text, &in->pin, err);
    else
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "no option %.40s beside --nodes, --device and "
                          "--what-if; `merak plan --help` lists those there "
                          "are",
                          name);
    return MERAK_OK;
}

static enum merak_status parse_options(int argc, char **argv,
                                       struct plan_auto *opt,
                                       struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 1; i < argc && rc == MERAK_OK; i++) {
        char *value = strchr(argv[i], '=');
        char name[32];

        if (strcmp(argv[i], "--help") == 0) {
            opt->help = true;
            return MERAK_OK;
        }
        if (value == NULL && i + 1 == argc)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "%.40s: a value is missing", argv[i]);
        snprintf(name, sizeof(name), "%.*s",
                 value != NULL ? (int)(value - argv[i]) : 31, argv[i]);
        rc = parse_value(name, value != NULL ? value + 1 : argv[++i], opt, err);
    }
    return rc;
}

static enum merak_status complete(struct plan_auto *opt,
                                  struct merak_error *err)
{
    enum merak_status rc;

    if (opt->model == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --model config.json (Hugging Face, gpt2 or "
                          "llama family)");
    if (opt->device.name[0] == '\0')
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --device: a100, h100, h200, rtx3090, cpu, or "
                          "a file that `merak calibrate` wrote");
    if (opt->in.global_batch == 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --global-batch: sequences in a step, over all "
                          "ranks");
    rc = merak_hf_config_load(opt->model, &opt->config, err);
    if (rc != MERAK_OK)
        return rc;
    if (opt->in.seq == 0)
        opt->in.seq = opt->config.positions;
    if (opt->in.ranks_per_node == 0)
        opt->in.ranks_per_node = opt->device.ranks_per_node;
    opt->in.describe = merak_hf_describe;
    opt->in.arg = &opt->config;
    opt->in.device = &opt->device;
    return MERAK_OK;
}

/* --- the command ---------------------------------------------------------- */

static int exit_code(enum merak_status rc)
{
    if (rc == MERAK_OK)
        return MERAK_EXIT_DONE;
    return rc == MERAK_ERR_NOMEM || rc == MERAK_ERR_IO ||
                   rc == MERAK_ERR_NOSPACE
               ? MERAK_EXIT_RESOURCE
               : MERAK_EXIT_CONFIG;
}

int merak_cmd_plan_auto(int argc, char **argv)
{
    struct plan_auto opt = {
        .in = {.nodes = 1, .dtype = MERAK_BF16, .threads = 1}};
    struct merak_search_result *result = NULL;
    struct merak_error err;
    enum merak_status rc = parse_options(argc, argv, &opt, &err);

    if (rc == MERAK_OK && opt.help) {
        plan_options_help();
        return MERAK_EXIT_DONE;
    }
    if (rc == MERAK_OK)
        rc = complete(&opt, &err);
    if (rc == MERAK_OK)
        rc = merak_search(&opt.in, &result, &err);
    if (rc == MERAK_OK && opt.json != NULL)
        rc = plan_report_save(&opt, result, &err);
    if (rc == MERAK_OK)
        plan_report_print(&opt, result);
    else
        fprintf(stderr, "merak plan: %s\n", err.text);
    merak_search_destroy(result);
    return exit_code(rc);
}
