/* SPDX-License-Identifier: Apache-2.0 */
/* next_command.c - what to type after a plan was printed: to save it, to run
 * it, to plan by measured rates
 */
#include "config.h"

#include "runtime/plan/advice.h"

#include "base/error.h"
#include "base/shell_word.h"
#include "base/text_writer.h"
#include "placement/placement.h"

#include <stdlib.h>
#include <string.h>

#define SAVED "plan.json" /* where a plan goes that has no file yet */

/* Options that describe the model: a run needs them, too. */
static const char *const of_model[] = {
    "model",      "config-unknown",   "freeze",         "lora-rank",
    "lora-alpha", "lora-scale",       "lora-dropout",   "lora-targets",
    "objective",  "dpo-beta",         "doc-mask",       "router-aux",
    "router-z",   "router-bias-rate", "expert-capacity", "encoder-seq"};

static bool is_of_model(const char *word)
{
    for (size_t i = 0; i < sizeof(of_model) / sizeof(*of_model); i++) {
        size_t n = strlen(of_model[i]);

        if (strncmp(word, "--", 2) == 0 &&
            strncmp(word + 2, of_model[i], n) == 0 &&
            (word[2 + n] == '\0' || word[2 + n] == '='))
            return true;
    }
    return false;
}

/* The options as they were given: all, or those of the model. */
static void put_given(FILE *out, const struct plan_options *opt, bool all)
{
    bool taken = all;

    for (int i = 1; i < opt->given.argc; i++) {
        const char *word = opt->given.argv[i];

        if (word[0] == '-' && word[1] == '-')
            taken = all || is_of_model(word);
        if (!taken)
            continue;
        fputc(' ', out);
        merak_put_shell_word(out, word);
    }
}

/* "merak", or the program as it was started. */
static void put_program(FILE *out, const struct plan_options *opt)
{
    if (opt->own != NULL)
        merak_put_shell_word(out, opt->own->name);
    else
        fputs("merak", out);
}

static bool is_gpu(const struct plan_auto *plan)
{
    return plan->device.direct || plan->in.direct;
}

static void put_tasks(FILE *out, const struct plan_auto *plan, int nodes)
{
    int each = plan->in.ranks_per_node;

    fprintf(out, "srun -N%d --ntasks-per-node=%d", nodes, each);
    if (is_gpu(plan))
        fprintf(out, " --gpus-per-node=%d --gpu-bind=none", each);
}

/* --- commands ------------------------------------------------------------- */

static void put_save(FILE *out, const struct plan_auto *plan,
                     const struct merak_plan *chosen)
{
    (void)chosen;
    put_program(out, plan->opt);
    fputs(" plan", out);
    put_given(out, plan->opt, true);
    fputs(" --json " SAVED, out);
}

static const char *saved_as(const struct plan_options *opt)
{
    if (opt->saved.n > 0)
        return opt->saved.path[opt->saved.at];
    return opt->json != NULL ? opt->json : SAVED;
}

/* Files, as far as there are any. */
static void put_device(FILE *out, const struct plan_options *opt)
{
    bool file = opt->several.kinds.n == 0 && merak_device_is_file(opt->device);

    for (int k = 0; k < opt->several.kinds.n; k++)
        file = file || merak_device_is_file(opt->several.kinds.name[k]);
    if (!file)
        return;
    fputs(" --device ", out);
    if (opt->several.kinds.n == 0)
        merak_put_shell_word(out, opt->device);
    for (int k = 0; k < opt->several.kinds.n; k++) {
        fprintf(out, "%s%d:", k > 0 ? "," : "", opt->several.kinds.nodes[k]);
        merak_put_shell_word(out, opt->several.kinds.name[k]);
    }
}

/* Do tensor groups leave their nodes, so that srun has to be told? */
static bool leaves_nodes(const struct plan_auto *plan,
                         const struct merak_plan *chosen)
{
    int group = merak_plan_tensor_ranks(chosen), each = plan->in.ranks_per_node;

    return chosen->stage == NULL && each % group != 0 &&
           !merak_tensor_group_is_nodes(group, chosen->cp, chosen->ep, each);
}

static void put_run(FILE *out, const struct plan_auto *plan,
                    const struct merak_plan *chosen)
{
    put_tasks(out, plan, plan->in.nodes);
    if (leaves_nodes(plan, chosen))
        fputs(" --merak-tp-domain=leaf", out);
    fputs(" --merak-plan=", out);
    merak_put_shell_word(out, saved_as(plan->opt));
    fputc(' ', out);
    put_program(out, plan->opt);
    if (plan->opt->own == NULL)
        fputs(" train", out);
    if (is_gpu(plan))
        fputs(" --backend cuda", out);
    if (plan->in.fast_sums)
        fputs(" --reduce fast", out);
    put_given(out, plan->opt, false);
    put_device(out, plan->opt);
    fputs(plan->model.arrays ? " --data FILE.json" : " --data PREFIX", out);
}

/* With links between nodes if there are several; of several kinds of nodes, the
 * first. */
static void put_calibrate(FILE *out, const struct plan_auto *plan,
                          const struct merak_plan *chosen)
{
    const struct plan_options *opt = plan->opt;
    bool kinds = opt->several.kinds.n > 1;
    int nodes = kinds ? opt->several.kinds.nodes[0] : plan->in.nodes;

    (void)chosen;
    put_tasks(out, plan, nodes < 2 ? 1 : 2);
    fprintf(out, " merak calibrate%s --out %s.json",
            is_gpu(plan) ? " --backend cuda" : "",
            kinds ? opt->several.kinds.name[0] : "gpu");
}

static bool is_unsaved(const struct plan_options *opt)
{
    return opt->json == NULL && opt->saved.n == 0;
}

typedef void (*put_fn)(FILE *out, const struct plan_auto *plan,
                       const struct merak_plan *chosen);

static enum merak_status add(struct plan_lines *lines, const char *about,
                             const struct plan_auto *plan,
                             const struct merak_plan *chosen, put_fn put,
                             struct merak_error *err)
{
    struct merak_text_writer writer;
    FILE *out = merak_text_open(&writer);
    char *text = NULL;
    enum merak_status rc;

    if (out != NULL)
        put(out, plan, chosen);
    rc = merak_text_close(&writer, &text, err);
    if (rc == MERAK_OK)
        rc = plan_lines_add(lines, err, "# %s", about);
    if (rc == MERAK_OK)
        rc = plan_lines_add(lines, err, "%s", text);
    free(text);
    return rc;
}

enum merak_status plan_commands_make(const struct plan_auto *plan,
                                     const struct merak_plan *chosen,
                                     struct plan_lines *lines,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (is_unsaved(plan->opt))
        rc = add(lines, "to save the plan", plan, chosen, put_save, err);
    if (rc == MERAK_OK)
        rc = add(lines, "to run it", plan, chosen, put_run, err);
    if (rc == MERAK_OK && !merak_device_is_file(plan->opt->device))
        rc = add(lines,
                 plan->opt->several.kinds.n > 1
                     ? "to measure nodes of one kind, likewise the others, and "
                       "plan again with the files of all"
                     : "to measure these nodes, and plan again with --device "
                       "gpu.json",
                 plan, chosen, put_calibrate, err);
    return rc;
}
