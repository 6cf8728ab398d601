/* SPDX-License-Identifier: Apache-2.0 */
/* train_report.c - text printed about a run: the plan, the steps, the memory
 */
#include "config.h"

#include "runtime/train/phases.h"
#include "runtime/train/metrics.h"
#include "runtime/train/losses.h"
#include "runtime/train/trainer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "io/tokens/reference.h"
#include "base/size.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024.0 * 1024.0)
/* Of smaller arenas, libraries' own memory is a large part of the peak, which
 * thus says nothing about the prediction. */
#define SMALL_ARENA ((size_t)64 << 20)

size_t merak_resident_kib(const char *field)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[128];
    size_t kib = 0, n = strlen(field);

    if (f == NULL)
        return 0;
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, field, n) == 0)
            kib = strtoul(line + n, NULL, 10);
    }
    fclose(f);
    return kib;
}

void merak_resident_bytes(size_t *now_p, size_t *peak_p)
{
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    char text[128] = "";
    struct rusage used;
    size_t pages = 0;

    if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 &&
        sscanf(text, "%*s %zu", &pages) != 1)
        pages = 0;
    if (fd >= 0)
        close(fd);
    *now_p = pages * (size_t)sysconf(_SC_PAGESIZE);
    *peak_p =
        getrusage(RUSAGE_SELF, &used) == 0 ? (size_t)used.ru_maxrss * 1024 : 0;
}

/* `gap` is before the unit. */
static const char *human_count(double n, const char *gap, char *buf,
                               size_t size)
{
    static const char unit[] = " kMGT";
    int u = 0;

    while (n >= 1000 && u < 4) {
        n /= 1000;
        u++;
    }
    snprintf(buf, size, u == 0 ? "%.0f%s" : "%.4g%s%c", n, gap, unit[u]);
    return buf;
}

static void report_stages(const struct merak_trainer *t)
{
    double total = 0;

    for (int s = 0; s < t->stages->n; s++)
        total += t->stages->flops[s];
    for (int s = 0; t->stages->n > 1 && s < t->stages->n; s++) {
        char params[16], name[24];

        human_count((double)t->stages->params[s], "", params, sizeof(params));
        if (s < t->stages->n - t->sharded->n_shared)
            snprintf(name, sizeof(name), "stage %d", s);
        else
            snprintf(name, sizeof(name), "all stages together");
        merak_info("train", "  %s: %s parameters, %.1f %% of the flops", name,
                   params, 100 * t->stages->flops[s] / total);
    }
}

void merak_report_categories(const struct merak_trainer *t, char *text,
                             size_t bytes)
{
    size_t n = 0;

    text[0] = '\0';
    for (int c = 0; c < MERAK_CAT_COUNT; c++) {
        if (t->program->category_bytes[c] > 0 && n + 48 < bytes)
            n += (size_t)snprintf(text + n, bytes - n, "%s%s %.1f",
                                  n > 0 ? ", " : "", merak_category_name(c),
                                  (double)t->program->category_bytes[c] / MIB);
    }
}

/* Bytes in use of the device's memory, or of the arena; -1: not known. */
static long long reserved_bytes(const struct merak_trainer *t)
{
    struct stat st;

    if (t->compute.accel != NULL)
        return (long long)t->compute.accel->allocated;
    if (t->memory.arena.fd < 0)
        return (long long)t->memory.arena.bytes;
    return fstat(t->memory.arena.fd, &st) == 0 ? st.st_size : -1;
}

static void report_arena(const struct merak_trainer *t)
{
    char text[256];

    merak_report_categories(t, text, sizeof(text));
    merak_info("train",
               "memory of rank %d: predicted %zu bytes, %.1f MiB (%s), "
               "reserved %lld",
               t->ranks.logical, t->memory.arena_bytes,
               (double)t->memory.arena_bytes / MIB, text, reserved_bytes(t));
    if (t->program->host_bytes > 0)
        merak_info("train",
                   "memory of rank %d: predicted %zu bytes of the host, %.1f "
                   "MiB, reserved %zu",
                   t->ranks.logical, t->program->host_bytes,
                   (double)t->program->host_bytes / MIB, t->memory.host.bytes);
    if (t->linked.link != NULL && t->linked.bytes > 0)
        merak_info("train",
                   "memory of rank %d: beside it about %.1f MiB for NCCL's %d "
                   "communicator%s",
                   t->ranks.logical, (double)t->linked.bytes / MIB,
                   t->linked.comms, t->linked.comms == 1 ? "" : "s");
}

/* Emulated kernels have nothing to report. */
static void report_backend(const struct merak_trainer *t)
{
    char text[512];

    if (t->compute.accel != NULL && t->compute.accel->ops->describe != NULL)
        t->compute.accel->ops->describe(t->compute.accel, text, sizeof(text));
    else
        merak_backend_describe(t->compute.backend, t->plan.dtype, text,
                               sizeof(text));
    if (*text != '\0')
        merak_info("train", "backend %s: %s", t->compute.backend->name, text);
    if (t->compute.why[0] != '\0')
        merak_info("train", "backend %s: %s", t->compute.backend->name,
                   t->compute.why);
}

/* The transport between accelerators. */
static void report_link(const struct merak_trainer *t)
{
    char text[256];

    if (t->linked.link != NULL) {
        merak_link_describe(t->linked.link, text, sizeof(text));
        merak_info("train", "transport nccl: %s", text);
    } else if (t->linked.why[0] != '\0') {
        merak_info("train",
                   "transport %s, through host memory, although there are "
                   "GPUs: %s",
                   t->tr->ops->name, t->linked.why);
    }
}

/* ", 1.2M frozen", or "". */
static const char *frozen_text(const struct merak_trainer *t, char *text,
                               size_t bytes)
{
    const struct merak_graph *graph = t->sharded->graph;
    char count[16];
    double n = 0;

    for (int i = 0; i < graph->n_values; i++) {
        if (graph->value[i]->kind == MERAK_VALUE_PARAM &&
            graph->value[i]->frozen)
            n += (double)merak_shape_count(&graph->value[i]->shape);
    }
    text[0] = '\0';
    if (n > 0)
        snprintf(text, bytes, ", %s frozen",
                 human_count(n, "", count, sizeof(count)));
    return text;
}

static void report_packing(const struct merak_trainer *t)
{
    struct merak_data_packed p;

    if (!merak_data_is_packed(t->data, &p))
        return;
    if (t->opt.optimizer.objective.kind == MERAK_DPO) {
        merak_info("train",
                   "training samples are of %" PRIu64
                   " pairs of answers, %.1f %% full",
                   p.pieces, 100.0 * (double)p.filled / (double)p.places);
        if (p.too_long > 0)
            merak_warn("train",
                       "%" PRIu64
                       " pairs are left out: they are longer than a sequence "
                       "of %zu tokens, the longest takes --seq %" PRIu64,
                       p.too_long, t->opt.seq, p.longest);
        return;
    }
    merak_info("train",
               "training samples are of %" PRIu64
               " documents or parts of them, %.1f %% full, %.1f %% of their "
               "tokens to be predicted",
               p.pieces, 100.0 * (double)p.filled / (double)p.places,
               100.0 * (double)p.counted / (double)p.filled);
}

static void report_corrupt(const struct merak_trainer *t)
{
    const struct merak_corrupt *corrupt = &t->opt.data.corrupt;
    char text[MERAK_CORRUPT_TEXT];

    if (corrupt->kind != MERAK_CORRUPT_NONE)
        merak_info("train",
                   "--corrupt %s: %" PRIu64
                   " tokens of a sample are to be predicted",
                   merak_corrupt_text(corrupt, text),
                   merak_inputs_counted(t, 0, MERAK_TRAIN, 0, 1));
}

/* A warm-up in samples or tokens, by a mistake, is a run at nearly no rate. */
static void report_warmup(const struct merak_trainer *t)
{
    const struct merak_train_optimizer *opt = &t->opt.optimizer;

    if (opt->warmup > t->opt.steps && t->program->rank == 0)
        merak_warn(
            "train",
            "--warmup %" PRIu64 " is longer than --steps %" PRIu64
            ": the last step has a learning rate of %.3g, not --lr %.3g",
            opt->warmup, t->opt.steps,
            (double)merak_learning_rate(opt, t->opt.steps, t->opt.steps - 1),
            (double)opt->lr);
}

void merak_report_plan(const struct merak_trainer *t)
{
    char params[16], flops[16], frozen[32], degrees[MERAK_DEGREES_TEXT];
    char each[32] = " samples", tokens[32] = "", lossy[256];
    size_t n = merak_graph_param_count(t->sharded->graph);

    if (merak_trainer_positions(t) > 0)
        snprintf(each, sizeof(each), " x %zu tokens", t->opt.seq);
    if (t->data != NULL)
        snprintf(tokens, sizeof(tokens), "%" PRIu64 " tokens, ",
                 merak_data_tokens(t->data));
    human_count((double)n, "", params, sizeof(params));
    human_count(merak_graph_flops(t->sharded->graph) *
                    (double)t->plan.microbatches *
                    merak_plan_mesh(&t->plan, 0).dp,
                " ", flops, sizeof(flops));
    merak_info("train", "%s parameters%s, %sFLOP a step, %s, backend %s",
               params, frozen_text(t, frozen, sizeof(frozen)), flops,
               merak_plan_dtype_text(&t->plan), t->opt.backend);
    report_backend(t);
    report_link(t);
    merak_info("train",
               "%s on %d node%s (placement: %s), schedule "
               "%s%s, %d micro-batches of %zu%s, %d thread%s a task",
               merak_plan_degrees_text(&t->plan, " x ", degrees),
               t->boot->n_nodes, t->boot->n_nodes == 1 ? "" : "s",
               t->ranks.source, t->plan.schedule,
               merak_plan_branches_text(&t->plan), t->plan.microbatches,
               t->plan.micro_batch, each, t->plan.threads,
               t->plan.threads == 1 ? "" : "s");
    if (t->plan.passes > 1)
        merak_info("train",
                   "%d forward passes of each micro-batch, the last with "
                   "gradients",
                   t->plan.passes);
    if (merak_lossy_any(&t->plan.lossy))
        merak_info("train", "%s",
                   merak_lossy_describe(&t->plan.lossy, t->plan.pp, lossy,
                                        sizeof(lossy)));
    merak_info("train", "program id %016" PRIx64, t->program_id);
    report_stages(t);
    report_arena(t);
    merak_info("train",
               "data: %s%" PRIu64 " training and %" PRIu64 " held-out samples",
               tokens, merak_samples_count(t->load.samples, MERAK_TRAIN),
               merak_samples_count(t->load.samples, MERAK_VALID));
    report_packing(t);
    report_corrupt(t);
    report_warmup(t);
}

enum merak_status merak_report_phases(struct merak_trainer *t,
                                      struct merak_error *err)
{
    struct merak_planned planned = {.plan = t->plan,
                                    .sharded = t->sharded,
                                    .stages = t->stages,
                                    .n_programs = merak_plan_players(&t->plan)};
    enum merak_status rc = merak_model_graph(t->model, &planned.graph, err);

    if (rc != MERAK_OK)
        return rc;
    planned.program =
        calloc((size_t)planned.n_programs, sizeof(*planned.program));
    if (planned.program == NULL)
        return merak_fail_nomem(err,
                                (size_t)planned.n_programs * sizeof(void *));
    rc = merak_trainer_pipeline(t, planned.program, err);
    if (rc == MERAK_OK)
        rc = merak_phases_print(&planned, t->opt.output.phases, err);
    for (int k = 0; k < planned.n_programs; k++)
        merak_program_destroy(planned.program[k]);
    free(planned.program);
    if (rc == MERAK_OK && fflush(stdout) != 0)
        rc = merak_fail(err, MERAK_ERR_IO, "cannot write the output: %m");
    return rc;
}

static double elapsed_s(const struct merak_trainer *t)
{
    return merak_clock_since_s(t->start.loop_ns);
}

double merak_step_tokens(const struct merak_trainer *t)
{
    return (double)t->opt.global_batch * (double)t->opt.seq;
}

/* The margin and the accuracy of pairs, or "". */
static const char *rewards_text(const struct merak_rewards *r, char text[64])
{
    text[0] = '\0';
    if (!isnan(r->margin))
        snprintf(text, 64, "  margin %.4f  accuracy %.3f", r->margin,
                 r->accuracy);
    return text;
}

/* Of tokens, where a model has them. */
static const char *rate_text(const struct merak_trainer *t, double step_s,
                             char text[48])
{
    bool tokens = merak_trainer_positions(t) > 0;

    snprintf(text, 48, tokens ? "%.0f tokens/s" : "%.1f samples/s",
             (tokens ? merak_step_tokens(t) : (double)t->opt.global_batch) /
                 step_s);
    return text;
}

void merak_report_step(const struct merak_trainer *t,
                       const struct merak_step_values *v)
{
    uint64_t done = t->step - t->start.step;
    double eta = elapsed_s(t) / (double)done * (double)(t->opt.steps - t->step);
    int percent = merak_saving_percent(t);
    char saving[32] = "", loss[32] = "no token to predict", margin[64];
    char load[96] = "", rate[48], parts[256];

    if (t->step % t->opt.output.log_every != 0 && done != 1 &&
        t->step != t->opt.steps)
        return;
    if (percent >= 0)
        snprintf(saving, sizeof(saving), "  saving %d %%", percent);
    if (!isnan(v->loss))
        snprintf(loss, sizeof(loss), "loss %.4f", v->loss);
    if (!isnan(v->load_max))
        snprintf(load, sizeof(load), "  load %.2f", v->load_max);
    if (v->overflow_rows > 0)
        snprintf(load + strlen(load), sizeof(load) - strlen(load),
                 "  overflow %.0f", v->overflow_rows);
    if (v->dropped_rows > 0)
        snprintf(load + strlen(load), sizeof(load) - strlen(load),
                 "  dropped %.0f", v->dropped_rows);
    merak_info("train",
               "step %" PRIu64 "/%" PRIu64
               "  %s%s%s%s  |g| %.3f  lr %.2e  %s  eta %d:%02d%s",
               t->step, t->opt.steps, loss,
               merak_losses_text(t, v->part, parts, sizeof(parts)),
               rewards_text(&v->reward, margin), load, v->grad_norm, v->lr,
               rate_text(t, v->step_s, rate), (int)eta / 60, (int)eta % 60,
               saving);
}

void merak_report_valid(const struct merak_trainer *t,
                        const struct merak_step_values *v)
{
    char margin[64], parts[256];

    if (!isnan(v->valid_loss))
        merak_info("train", "step %" PRIu64 "  held-out loss %.4f%s%s", t->step,
                   v->valid_loss,
                   merak_losses_text(t, v->valid_part, parts, sizeof(parts)),
                   rewards_text(&v->valid_reward, margin));
}

void merak_report_reference(const struct merak_trainer *t, double loss)
{
    const struct merak_reference *r = merak_data_reference(t->data, 0);

    if (r == NULL || merak_reference_model(r) != NULL || t->step != 1 ||
        t->program->rank != 0 || t->compute.backend->emulated ||
        t->opt.ckpt.lora_from != NULL || fabs(loss - log(2)) < 0.1)
        return;
    merak_warn("train",
               "the first loss is %.4f, expected about log 2 = 0.6931: the "
               "reference beside --data seems to be of another model than "
               "--init-from; `merak eval --ckpt %.100s --data DATA "
               "--reference` makes it again",
               loss, t->opt.ckpt.init_from);
}

void merak_report_save(struct merak_trainer *t,
                       const struct merak_ckpt_times *times)
{
    double seconds = (double)(times->committed_ns - times->start_ns) * 1e-9;
    double waited = (double)(times->resumed_ns - times->start_ns) * 1e-9;
    char bytes[MERAK_BYTES_TEXT], wait[48] = "";

    merak_bytes_text(t->save.save_bytes, bytes);
    if (t->program->rank != 0)
        return;
    t->lineage.saved_step = times->step;
    t->lineage.saved_at =
        merak_clock_wall_s() - merak_clock_since_s(times->committed_ns);
    if (times->resumed_ns < times->committed_ns)
        snprintf(wait, sizeof(wait), "; training waited %.3f s", waited);
    merak_info("train", "step %" PRIu64 " saved: %s in %.2f s, %.2f GB/s%s",
               times->step, bytes, seconds, t->save.save_bytes / seconds * 1e-9,
               wait);
}

/* Resident KiB of mapped arenas of node peers, which this rank read in place.
 * They are the peers' memory, yet count in VmHWM. */
static size_t peers_resident_kib(const struct merak_trainer *t)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[512];
    bool counts = false;
    size_t kib = 0;

    if (f == NULL)
        return 0;
    while (fgets(line, sizeof(line), f) != NULL) {
        unsigned long from, to;

        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            counts = strstr(line, "/memfd:merak") != NULL &&
                     from != (unsigned long)(uintptr_t)t->memory.arena.base;
        else if (counts && strncmp(line, "Rss:", 4) == 0)
            kib += strtoul(line + 4, NULL, 10);
    }
    fclose(f);
    return kib;
}

/* Percent of the arena's pages that were ever touched. */
static double touched_percent(const struct merak_trainer *t)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages = (t->memory.arena.bytes + page - 1) / page, touched = 0;
    unsigned char *in_core = malloc(pages);

    if (in_core != NULL &&
        mincore(t->memory.arena.base, t->memory.arena.bytes, in_core) == 0) {
        for (size_t i = 0; i < pages; i++)
            touched += in_core[i] & 1;
    }
    free(in_core);
    return 100.0 * (double)touched / (double)pages;
}

/* What other processes have of the device is in use, too. */
static void report_device_memory(const struct merak_trainer *t)
{
    const struct merak_accel_ops *ops = t->compute.accel->ops;
    double mib = (double)t->compute.accel->allocated / MIB;
    double predicted = (double)t->memory.arena_bytes / MIB;
    size_t left = 0, all = 0;
    char use[96] = "";

    if (ops->memory != NULL &&
        ops->memory(t->compute.accel, &left, &all, NULL) == MERAK_OK)
        snprintf(use, sizeof(use), "; %.2f of its %.2f GiB are in use",
                 (double)(all - left) / 0x1p30, (double)all / 0x1p30);
    merak_info("train",
               "memory of rank %d: %.1f MiB of the device, %+.1f %% of the "
               "predicted %.1f%s; of the host, peak resident %.1f MiB",
               t->ranks.logical, mib, 100 * (mib - predicted) / predicted,
               predicted, use, (double)merak_resident_kib("VmHWM:") / 1024);
}

void merak_report_memory(const struct merak_trainer *t)
{
    double peak = (double)merak_resident_kib("VmHWM:") / 1024;
    double base = (double)t->start.baseline_kib / 1024;
    double peers = (double)peers_resident_kib(t) / 1024;
    double arena = (double)(t->memory.arena_bytes + t->program->host_bytes +
                            t->save.copy_bytes) /
                   MIB;
    double own = peak - base - peers;

    if (t->compute.accel != NULL) {
        report_device_memory(t);
        return;
    }
    merak_log(t->memory.arena_bytes < SMALL_ARENA ? MERAK_LOG_DEBUG
                                                  : MERAK_LOG_INFO,
              "train",
              "memory of rank %d: peak resident %.1f MiB; without %.1f of the "
              "program itself and %.1f that other ranks share it is %.1f MiB, "
              "%+.1f %% of the predicted %.1f; %.1f %% of that was used",
              t->ranks.logical, peak, base, peers, own,
              100 * (own - arena) / arena, arena, touched_percent(t));
}
