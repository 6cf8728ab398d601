/* SPDX-License-Identifier: Apache-2.0 */
/* plan_saved.c - `merak plan --plan FILE`: a saved plan, as if its choices had
 * been given as options
 *
 * Where its device is known, that is a search in which nothing is left to be
 * searched for; else it is built as it is, for speeds that are given.
 */
#include "config.h"

#include "runtime/plan/node_kinds.h"
#include "runtime/plan/planned_model.h"
#include "runtime/plan/plan_saved.h"

#include "base/error.h"
#include "base/size.h"
#include "partitioner/device/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct merak_plan_file *taken(const struct plan_options *opt)
{
    return opt->saved.file[opt->saved.at];
}

/* --- what a plan has, options cannot give --------------------------------- */

static enum merak_status check_alone(const struct plan_options *opt,
                                     struct merak_error *err)
{
    const char *name = NULL;

    for (int i = 0; i < MERAK_CHOICE_COUNT && name == NULL; i++) {
        if (opt->choice.given[i])
            name = merak_choice[i].option.name;
    }
    if (opt->what_if != NULL)
        name = "what-if";
    else if (opt->seq > 0)
        name = "seq";
    else if (opt->global_batch > 0)
        name = "global-batch";
    else if (opt->given.dtype)
        name = "dtype";
    if (name == NULL)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--%s beside --plan %.80s: a saved plan has all of its "
                      "choices; leave the option out, or plan again without "
                      "--plan",
                      name, opt->saved.path[0]);
}

/* A table shows plans beside each other, not one plan. */
static enum merak_status check_several(const struct plan_options *opt,
                                       struct merak_error *err)
{
    if (opt->saved.n < 2)
        return MERAK_OK;
    if (opt->given.cost || opt->device == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --device: several saved plans are compared on "
                          "one machine, and that of %.80s, \"%.31s\", is not "
                          "built in",
                          opt->saved.path[0], taken(opt)->device);
    if (opt->several.n_nodes < 2 && opt->several.n_devices < 2)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--%s and several --plan: give one of them once",
                      opt->several.n_nodes > 1 ? "nodes with several counts"
                                               : "device with several names");
}

/* --- taking --------------------------------------------------------------- */

/* A device that it was made for, if that is built in; the costs of one that is
 * a file are not in the plan. */
static const char *built_in(const char *name)
{
    struct merak_device device = {0};

    if (strchr(name, '/') != NULL || strstr(name, ".json") != NULL ||
        merak_device_find(name, &device, NULL) != MERAK_OK)
        return NULL;
    merak_device_fini(&device);
    return name;
}

/* The word of --device for nodes of this kind. */
static const char *word_of(const struct plan_options *opt,
                           const struct merak_plan_kind *kind)
{
    const char *word = NULL;

    if (opt->device == NULL)
        return built_in(kind->device);
    for (int i = 0; i < opt->several.n_devices && word == NULL; i++) {
        struct merak_device device = {0};

        if (merak_device_find(opt->several.device[i], &device, NULL) ==
                MERAK_OK &&
            strcmp(device.name, kind->device) == 0)
            word = opt->several.device[i];
        merak_device_fini(&device);
    }
    return word;
}

/* The kinds of nodes that its stages are on, as if --nodes had named them;
 * another machine may be asked for. */
static enum merak_status take_kinds(struct plan_options *opt,
                                    const struct merak_plan_file *file,
                                    struct merak_error *err)
{
    char *text, *at;
    enum merak_status rc = MERAK_OK;
    size_t room = 1;

    if (file->n_kinds < 2 || opt->several.kinds.n > 0 || opt->given.nodes ||
        opt->given.cost || opt->saved.n > 1 ||
        (opt->device != NULL && opt->several.n_devices < 2))
        return MERAK_OK;
    for (int k = 0; k < file->n_kinds; k++) {
        const char *word = word_of(opt, &file->kind[k]);

        if (word == NULL)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "plan %.80s has stages on nodes of \"%s\", which "
                              "%s: give --device all of its kinds, with commas "
                              "between",
                              opt->saved.path[0], file->kind[k].device,
                              opt->device == NULL ? "is not built in"
                                                  : "--device does not have");
        room += strlen(word) + sizeof("65535:,");
    }
    text = at = malloc(room);
    if (text == NULL)
        return merak_fail_nomem(err, room);
    for (int k = 0; k < file->n_kinds; k++)
        at += sprintf(at, "%s%d:%s", k > 0 ? "," : "", file->kind[k].nodes,
                      word_of(opt, &file->kind[k]));
    rc = plan_kinds_set(opt, text, err);
    free(text);
    opt->given.nodes = true;
    opt->several.n_devices = 1;
    opt->device = opt->several.kinds.name[0];
    return rc;
}

/* The machine that was asked for, or else nodes of the device as full as the
 * ranks make them. */
static void take_machine(struct plan_options *opt,
                         const struct merak_plan_file *file)
{
    int ranks = merak_plan_ranks(&file->plan);
    int each = file->ranks_per_node;
    struct merak_device device = {0};

    if (opt->saved.ranks_per_node > 0)
        each = opt->saved.ranks_per_node;
    else if (each == 0 &&
             merak_device_find(opt->device, &device, NULL) == MERAK_OK)
        each = device.links.level[0].ranks;
    merak_device_fini(&device);
    if (each <= 0 || each > ranks)
        each = ranks;
    while (opt->saved.ranks_per_node == 0 && ranks % each != 0)
        each--;
    opt->ranks_per_node = each;
    if (opt->machine.rack_nodes == 0 && opt->machine.levels == NULL) {
        if (file->levels[0] != '\0')
            opt->machine.levels = file->levels;
        else
            opt->machine.rack_nodes = file->rack_nodes;
    }
    if (!opt->given.nodes)
        opt->nodes = (ranks + each - 1) / each;
}

void plan_saved_take(struct plan_options *opt, int i)
{
    const struct merak_plan_file *file = opt->saved.file[i];

    opt->saved.at = i;
    merak_choices_of(&file->plan, &opt->choice);
    opt->seq = file->seq;
    opt->global_batch = file->global_batch;
    opt->plan.dtype = file->plan.dtype;
    opt->given.dtype = true;
    if (opt->device == NULL && !opt->given.cost)
        opt->device = built_in(file->device);
    if (opt->device != NULL)
        take_machine(opt, file);
    else if (opt->memory_bytes <= 0)
        opt->memory_bytes = (double)file->plan.memory_bytes;
}

enum merak_status plan_saved_open(struct plan_options *opt,
                                  struct merak_error *err)
{
    enum merak_status rc;

    if (opt->saved.n == 0) /* a saved plan says what goes together */
        return merak_choices_check_cp(&opt->choice, opt->choice.cp, err);
    rc = check_alone(opt, err);
    for (int i = 0; i < opt->saved.n && rc == MERAK_OK; i++)
        rc = merak_plan_file_load(opt->saved.path[i], &opt->saved.file[i], err);
    for (int i = 0; i < opt->saved.n && rc == MERAK_OK; i++) {
        if (opt->saved.file[i]->has_islands && opt->machine.islands == NULL)
            rc = merak_fail(err, MERAK_ERR_CONFIG,
                            "plan %.80s is for islands, whose links are not in "
                            "it: give --links the file that it was made with",
                            opt->saved.path[i]);
    }
    if (rc == MERAK_OK)
        rc = take_kinds(opt, opt->saved.file[0], err);
    if (rc != MERAK_OK)
        return rc;
    opt->saved.ranks_per_node = opt->ranks_per_node;
    plan_saved_take(opt, 0);
    return check_several(opt, err);
}

enum merak_status plan_saved_check(const struct plan_options *opt,
                                   const struct plan_model *model, size_t seq,
                                   struct merak_error *err)
{
    char id[MERAK_FINGERPRINT_TEXT];
    enum merak_status rc;

    if (opt->saved.n == 0)
        return MERAK_OK;
    rc = plan_model_fingerprint(model, seq, id, err);
    if (rc != MERAK_OK || strcmp(id, taken(opt)->model) == 0)
        return rc;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "plan %.80s is for another model than %.80s: its "
                      "parameters have fingerprint %s, this model's %s",
                      opt->saved.path[opt->saved.at], model->source,
                      taken(opt)->model, id);
}

void plan_saved_print(const struct plan_options *opt, uint64_t program)
{
    const struct merak_plan_file *file;
    char step[MERAK_SECONDS_TEXT];

    if (opt->saved.n == 0)
        return;
    file = taken(opt);
    printf("saved as %s, id %s", opt->saved.path[opt->saved.at], file->id);
    if (file->step_s > 0)
        printf(", with a predicted step of %s and %.1f MiB of a rank, for %s",
               merak_seconds_text(file->step_s, step),
               (double)file->memory_bytes / 0x1p20, file->device);
    if (program != file->program)
        printf("; its program id was %016" PRIx64 ": a run on this machine "
               "needs a plan for it",
               file->program);
    putchar('\n');
}

void plan_saved_fini(struct plan_options *opt)
{
    for (int i = 0; i < opt->saved.n; i++) {
        if (opt->saved.file[i] != NULL) /* the lists are a file's */
            opt->choice.list = (struct merak_given_lists){.cut = NULL};
        merak_plan_file_destroy(opt->saved.file[i]);
        opt->saved.file[i] = NULL;
    }
}
