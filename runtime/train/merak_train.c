/* SPDX-License-Identifier: Apache-2.0 */
/* merak_train.c - merak_train(): main() of a training program
 *
 * Set-up has phases.  After each, the ranks agree: all return the first
 * failure in rank order, rank 0 prints it once, and all exit with the same
 * code.  Only a failure inside a step ends the run through the launcher.
 */
#include "config.h"

#include "runtime/train/fingerprint.h"
#include "runtime/train/metrics.h"
#include "runtime/train/loads.h"
#include "runtime/train/pace.h"
#include "runtime/train/trainer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "io/h5_built_in.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HEAP_ROOM ((size_t)2 << 20)
#define GRACE_NS INT64_C(7000000000)
#define TURN_NS INT64_C(50000000)

/* The exit code for a failure in a phase whose default code is `phase`. */
static int exit_code(enum merak_status rc, int phase)
{
    switch (rc) {
    case MERAK_OK:
        return MERAK_EXIT_DONE;
    case MERAK_ERR_NOMEM:
    case MERAK_ERR_NOSPACE:
        return MERAK_EXIT_RESOURCE;
    case MERAK_ERR_CONFIG:
        return MERAK_EXIT_CONFIG;
    case MERAK_ERR_CORRUPT:
    case MERAK_ERR_MISMATCH:
    case MERAK_ERR_FORMAT:
        return MERAK_EXIT_DATA;
    case MERAK_ERR_PEER:
    case MERAK_ERR_TIMEOUT:
    case MERAK_ERR_FABRIC:
    case MERAK_ERR_LOST:
        return MERAK_EXIT_CRASH;
    default:
        return phase;
    }
}

static int fail_alone(const struct merak_error *err, int code)
{
    if (merak_boot_is_first())
        fprintf(stderr, "merak: error: %s\n", err->text);
    return code;
}

/* Plan and recomputation depend on the available memory, and all ranks must
 * choose the same: all use the least of any rank. */
static enum merak_status share_memory(struct merak_trainer *t,
                                      struct merak_error *err)
{
    bool asked =
        t->ranks.automatic || t->opt.choice.recompute == MERAK_RECOMPUTE_AUTO;

    if (t->opt.memory_gib > 0 && !asked)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--memory-gib is the limit for --recompute auto or a "
                          "degree that is auto; it needs one of these");
    t->memory_bytes = (size_t)(t->opt.memory_gib * 0x1p30);
    if (t->memory_bytes > 0 || !asked)
        return MERAK_OK;
    return merak_memory_least(t->boot, merak_task_memory(t), &t->memory_bytes,
                              err);
}

/* Ranks that hold the same weights must compute the same bits: if machines
 * differ, all use the smallest instruction set.  Collective; rc is this rank's
 * status so far. */
static enum merak_status share_isa(struct merak_boot *boot,
                                   enum merak_status rc,
                                   struct merak_error *err)
{
    int mine = merak_cpu_isa(), least = 0, most = 0;
    int *all = calloc((size_t)boot->size, sizeof(*all));

    if (rc == MERAK_OK && all == NULL)
        rc = merak_fail_nomem(err, (size_t)boot->size * sizeof(*all));
    rc = merak_boot_allgather(boot, rc, &mine, sizeof(mine), all, err);
    for (int r = 1; rc == MERAK_OK && r < boot->size; r++) {
        least = all[r] < all[least] ? r : least;
        most = all[r] > all[most] ? r : most;
    }
    if (rc == MERAK_OK && all[least] < all[most]) {
        merak_cpu_isa_limit(all[least]);
        if (boot->rank == 0)
            merak_info("train",
                       "processors differ, %s on %s and %s on %s: all ranks "
                       "use %s",
                       merak_cpu_isa_name(all[most]),
                       boot->hosts[boot->node_of[most]],
                       merak_cpu_isa_name(all[least]),
                       boot->hosts[boot->node_of[least]],
                       merak_cpu_isa_name(all[least]));
    }
    free(all);
    return rc;
}

/* Degrees and the rank map. */
static enum merak_status set_up_ranks(struct merak_trainer *t,
                                      struct merak_error *err)
{
    enum merak_status rc = merak_ranks_wish(t->boot, &t->opt, &t->ranks, err);

    if (rc == MERAK_OK)
        rc = merak_trainer_threads(t, err);
    rc = share_isa(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = merak_accel_choose(t, err);
    if (rc == MERAK_OK)
        rc = share_memory(t, err);
    if (rc == MERAK_OK)
        rc = merak_choose(t, err);
    if (rc == MERAK_OK)
        rc = merak_node_kinds_find(t, err);
    if (rc == MERAK_OK)
        rc = merak_ranks_place(t->boot, t->chosen, &t->ranks, err);
    if (rc != MERAK_OK)
        return rc;
    merak_log_rank(t->ranks.logical);
    t->world = (struct merak_team){t->boot->size, t->ranks.logical,
                                   t->ranks.transport_rank};
    return MERAK_OK;
}

/* The id of all ranks' programs, if all were built; it must be the one that a
 * chosen plan records. id[size] is scratch; collective. */
static enum merak_status identify(struct merak_trainer *t, enum merak_status rc,
                                  uint64_t *id, struct merak_error *err)
{
    uint64_t mine = rc == MERAK_OK ? merak_program_id(t->program) : 0;

    rc = merak_boot_allgather(t->boot, rc, &mine, sizeof(mine), id, err);
    if (rc != MERAK_OK)
        return rc;
    mine = (uint64_t)t->plan.pp;
    for (int s = 0; s < t->plan.pp; s++) {
        int rank = merak_plan_rank(&t->plan, 0, 0, s);

        mine = merak_program_ids(mine, id[t->ranks.transport_rank[rank]]);
    }
    t->program_id = mine;
    if (t->chosen == NULL || t->chosen->program == mine)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "the plan has program id %016" PRIx64
                      " here and had %016" PRIx64
                      " when it was saved: another Merak or another model "
                      "made it; plan again",
                      mine, t->chosen->program);
}

/*
 * Heap that libraries need in steps: workspaces of matrix products, which
 * rarely fit where the last one was, and HDF5's buffers.  It is touched once
 * and freed, so that its pages are neither faulted in during a step nor added
 * to the peak later.
 */
static void make_room_on_heap(void)
{
    volatile char *room = malloc(HEAP_ROOM);

    for (size_t i = 0; room != NULL && i < HEAP_ROOM; i += 1024)
        room[i] = 1;
    free((void *)room);
}

/* One-time memory that belongs to no tensor: kernels' first calls, message
 * queues, HDF5's caches, heap.  All else that counts in the baseline is set up
 * before. */
static enum merak_status warm_up(struct merak_trainer *t,
                                 struct merak_error *err)
{
    enum merak_status rc = merak_engine_warm_up(t->engine, err);

    if (rc == MERAK_OK)
        rc = merak_engine_warm_up(t->eval_engine, err);
    if (rc == MERAK_OK)
        rc = merak_slots_clear(t, err);
    if (t->opt.ckpt.dir != NULL || t->opt.output.trace != NULL)
        merak_h5_warm_up();
    make_room_on_heap();
    rc = merak_agree(t->tr, &t->world, rc, err);
    return rc == MERAK_OK ? merak_transport_warm_up(t->tr, &t->world, err) : rc;
}

/* Make the programs, if rc is MERAK_OK; id[size] is scratch; collective. */
static enum merak_status make_programs(struct merak_trainer *t,
                                       enum merak_status rc, uint64_t *id,
                                       struct merak_error *err)
{
    const uint64_t none = 0;

    if (rc == MERAK_OK)
        rc = merak_trainer_describe(t, err);
    if (rc == MERAK_OK && merak_node_order_is_open(t)) {
        /* Ranks that failed are in identify() already, whose allgather matches
         * this one. */
        rc = merak_boot_allgather(t->boot, rc, &none, sizeof(none), id, err);
        if (rc != MERAK_OK)
            return rc;
        rc = merak_node_order_choose(t, err);
    }
    if (rc == MERAK_OK)
        rc = merak_trainer_plan(t, err);
    if (rc == MERAK_OK && t->opt.output.phases != 0 && t->ranks.logical == 0)
        rc = merak_report_phases(t, err);
    return identify(t, rc, id, err);
}

/* Only when all else is set up: a run that does not begin leaves no files. What
 * they take, such as the records of a trace, belongs to no tensor either. */
static enum merak_status open_outputs(struct merak_trainer *t,
                                      struct merak_error *err)
{
    size_t before = merak_resident_kib("VmRSS:");
    enum merak_status rc = merak_outputs_open(t, err);
    size_t after = merak_resident_kib("VmRSS:");

    if (after > before)
        t->start.baseline_kib += after - before;
    return rc;
}

/* Set up everything; *phase_p is the exit code of the phase that failed. */
static enum merak_status set_up(struct merak_trainer *t, int *phase_p,
                                struct merak_error *err)
{
    uint64_t *id;
    enum merak_status rc;

    *phase_p = MERAK_EXIT_DATA;
    rc = merak_boot_agree(t->boot, merak_paths_check(t, err), err);
    if (rc != MERAK_OK)
        return rc;
    *phase_p = MERAK_EXIT_CONFIG;
    rc = set_up_ranks(t, err);
    id = calloc((size_t)t->boot->size, sizeof(*id));
    if (rc == MERAK_OK && id == NULL)
        rc = merak_fail_nomem(err, (size_t)t->boot->size * sizeof(*id));
    rc = make_programs(t, rc, id, err);
    free(id);
    if (rc != MERAK_OK)
        return rc;
    *phase_p = MERAK_EXIT_DATA;
    rc = merak_trainer_open_data(t, err);
    if (rc == MERAK_OK)
        rc = merak_fingerprint_make(t, err);
    rc = merak_boot_agree(t->boot, rc, err);
    if (rc != MERAK_OK)
        return rc;
    *phase_p = MERAK_EXIT_CONFIG;
    rc = merak_trainer_connect(t, err);
    /* After waiting for a peer in vain, do not wait for it again here. */
    if (rc != MERAK_ERR_TIMEOUT && rc != MERAK_ERR_LOST)
        rc = merak_boot_agree(t->boot, rc, err);
    if (rc != MERAK_OK)
        return rc;
    merak_report_plan(t);
    *phase_p = MERAK_EXIT_RESOURCE;
    rc = merak_run_dir_open(t, err);
    if (rc == MERAK_OK)
        rc = merak_saving_open(t, err);
    if (rc != MERAK_OK)
        return rc;
    rc = merak_pace_open(t, err);
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc == MERAK_OK)
        rc = merak_loads_open(t, err);
    if (rc != MERAK_OK)
        return rc;
    *phase_p = MERAK_EXIT_CONFIG;
    rc = warm_up(t, err); /* last, so that steps can use what it frees */
    if (rc != MERAK_OK)
        return rc;
    *phase_p = MERAK_EXIT_DATA;
    t->start.baseline_kib = merak_resident_kib("VmRSS:");
    merak_saving_begin(t);
    rc = merak_weights_start(t, err);
    if (rc == MERAK_OK)
        rc = merak_run_dir_room(t, err);
    if (rc != MERAK_OK)
        return rc;
    *phase_p = MERAK_EXIT_RESOURCE;
    rc = merak_agree(t->tr, &t->world, open_outputs(t, err), err);
    return rc == MERAK_OK ? merak_run_files_start(t, err) : rc;
}

static void tear_down(struct merak_trainer *t, bool orderly)
{
    merak_metrics_close(t);
    merak_pace_close(t);
    merak_loads_close(t);
    merak_saving_close(t);
    merak_run_dir_close(t);
    merak_engine_destroy(t->eval_engine);
    merak_engine_destroy(t->engine);
    /* peers may have given up on moves that closing would wait for */
    if (!orderly && t->linked.link != NULL)
        merak_link_abort(t->linked.link);
    merak_link_close(t->linked.link);
    merak_transport_close(t->tr);
    merak_slots_close(t);
    merak_inputs_close(t);
    merak_trainer_close_data(t);
    merak_program_destroy(t->eval);
    merak_program_destroy(t->program);
    merak_stages_destroy(t->stages);
    free(t->cut);
    free(t->lineage.numbers);
    merak_sharded_destroy(t->sharded);
    merak_models_fini(&t->models);
    merak_ranks_fini(&t->ranks);
    merak_plan_file_destroy(t->chosen);
    merak_device_fini(&t->device);
    free(t->opt.own_device);
    merak_lora_from_close(t);
}

/*
 * How long to wait for others to print the error first.  A rank that was only
 * notified leaves it to the rank that failed; a peer that is gone is noticed
 * by all of its node at once, and the first of them prints it.
 */
static int64_t grace_ns(const struct merak_trainer *t, enum merak_status rc)
{
    int64_t turn = (int64_t)t->boot->local_rank * TURN_NS;

    if (rc == MERAK_ERR_LOST)
        return turn < GRACE_NS ? turn : GRACE_NS;
    return rc == MERAK_ERR_PEER ? GRACE_NS : 0;
}

/* A failure inside a step or a wait: peers may be anywhere; only the launcher
 * can end them. */
static void fail_in_step(struct merak_trainer *t, const struct merak_error *err,
                         int code)
{
    /* before the rank map is known there is only the launcher's number */
    bool named = t->ranks.logical_rank != NULL;
    char culprit[MERAK_CULPRIT_BYTES] = "";
    bool ours =
        err->status != MERAK_ERR_TIMEOUT || merak_hang_report(t, err, culprit);
    int64_t ns = ours ? grace_ns(t, err->status) : GRACE_NS;
    char why[sizeof(culprit) + sizeof(err->text)];

    if (t->tr != NULL) /* the rank that reports also asks this one */
        merak_transport_linger(t->tr, ns);
    snprintf(why, sizeof(why), "%s%s%s", culprit,
             culprit[0] != '\0' ? "; " : "", err->text);
    fprintf(stderr, "merak: [%s%d] error: %s\n", named ? "" : "task ",
            named ? t->ranks.logical : t->boot->rank, why);
    fflush(NULL);
    merak_run_dir_close(t);
    t->boot->ops->abort(t->boot, code, why);
    exit(code);
}

static int run(struct merak_trainer *t)
{
    struct merak_error err = {.status = MERAK_OK};
    int code, phase;
    enum merak_status rc = set_up(t, &phase, &err);

    if (rc != MERAK_OK) {
        code = exit_code(rc, phase);
        /* rank 0 may itself be stuck or gone */
        if (rc == MERAK_ERR_TIMEOUT || rc == MERAK_ERR_LOST)
            fail_in_step(t, &err, code);
        if (t->boot->rank == 0)
            fprintf(stderr, "merak: error: %s\n", err.text);
        return code;
    }
    rc = merak_trainer_loop(t, &code, &err);
    if (rc != MERAK_OK) {
        code = exit_code(rc, MERAK_EXIT_CRASH);
        if (t->failure.broken || rc == MERAK_ERR_PEER ||
            rc == MERAK_ERR_TIMEOUT || rc == MERAK_ERR_FABRIC ||
            rc == MERAK_ERR_LOST)
            fail_in_step(t, &err, code);
        if (t->program->rank == 0)
            fprintf(stderr, "merak: error: %s\n", err.text);
        return code;
    }
    merak_outputs_close_trace(t);
    merak_report_memory(t);
    return code;
}

static void print_help(const char *program)
{
    printf("usage: %s --data PREFIX [OPTION VALUE]...\n"
           "       %s plan [OPTION]...     what that would look like; no task "
           "is started\n\n",
           program, program);
    merak_train_options_help();
}

int merak_trainer_main(int argc, char **argv, merak_describe_fn describe,
                       void *arg, const char *model, size_t positions)
{
    struct merak_trainer t = {.failure.doing = "set-up",
                              .source.describe = merak_ruled_describe,
                              .source.model_path = model,
                              .cost = *merak_cost_default()};
    const struct merak_option_table *table = merak_train_options_table();
    struct merak_error err = {.status = MERAK_OK};
    char *from_file = NULL;
    enum merak_status rc;
    int code;

    t.source.ruled = (struct merak_ruled_model){.describe = describe,
                                                .arg = arg,
                                                .rules = &t.opt.optimizer.rules,
                                                .lora = &t.opt.lora};
    t.source.describe_arg = &t.source.ruled;
    t.start.ns = merak_clock_ns();
    merak_heap_keep();
    rc = merak_options_expand(&table, 1, &argc, &argv, &from_file, &err);
    if (rc == MERAK_OK)
        rc = merak_train_options_parse(argc, argv, positions, &t.opt, &err);
    if (rc == MERAK_OK && !t.opt.help)
        rc = merak_lora_from_open(&t, &err);
    if (rc != MERAK_OK) {
        merak_lora_from_close(&t);
        free(from_file);
        return fail_alone(&err, MERAK_EXIT_CONFIG);
    }
    if (t.opt.help) {
        print_help(argv[0]);
        free(from_file);
        return MERAK_EXIT_DONE;
    }
    rc = merak_boot_open(&t.boot, &err);
    if (rc != MERAK_OK) {
        merak_lora_from_close(&t);
        free(from_file);
        return fail_alone(&err, MERAK_EXIT_LAUNCH);
    }
    t.source.ruled.documents = t.opt.data.doc_mask;
    t.source.ruled.objective = t.opt.optimizer.objective;
    t.source.ruled.balance = &t.opt.optimizer.objective.balance;
    t.boot->deadline_s = t.opt.deadline_s;
    code = run(&t);
    tear_down(&t, code == MERAK_EXIT_DONE || code == MERAK_EXIT_AGAIN);
    merak_boot_close(t.boot);
    free(from_file);
    return code;
}
