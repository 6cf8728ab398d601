/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_calibrate.c - `merak calibrate`: measure this cluster into a device file
 *
 * The data for predicting a step's time (partitioner/device/device.h): rates
 * that each rank measures alone (calibrate_alone.c); kernels and, with several
 * ranks on a node, exchanges as in training steps (calibrate_kernels.c); and
 * communication between nodes (calibrate_net.c).
 *
 * All nodes measure at the same time.  A plan's steps wait for the slowest of
 * them, so the file has its values.
 */
#include "config.h"

#include "cmd/calibrate.h"
#include "cmd/cmd.h"

#include "base/error.h"
#include "base/options.h"
#include "base/output.h"
#include "kernels/kernels.h"
#include "partitioner/device/device.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 3
#define STEPS 12

struct calibrate {
    const char *out, *backend_name;
    const char *from, *base, *between;
    int threads, rounds;
    double memory_gib;
    bool quick;
    bool net; /* measure nothing else */
    bool help;
    struct calibrate_tune tune;
    struct calibrate_world world;
    struct merak_device device;
};

/* --- several nodes -------------------------------------------------------- */

/* A rank's share of its node's memory, as much as can be allocated. */
static double find_memory(int ranks)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) * 7 /
           8 / ranks;
}

/* What each rank measured alone: that of a node's first rank counts. */
struct card {
    double flops_per_s[MERAK_DTYPE_COUNT], peak_flops_per_s[MERAK_DTYPE_COUNT];
    double attention_flops_per_s[MERAK_DTYPE_COUNT];
    double bytes_per_s, memory_bytes, kernel_s;
    struct merak_level link; /* inside the node */
    struct merak_host host;  /* of an accelerator */
};

static struct card make_card(const struct calibrate *c)
{
    const struct merak_device *d = &c->device;
    double own = calibrate_accel_memory(&c->world);
    struct card card = {.bytes_per_s = d->bytes_per_s,
                        .memory_bytes =
                            own > 0 ? own * 7 / 8
                                    : find_memory(d->links.level[0].ranks),
                        .kernel_s = d->kernel_s,
                        .link = d->links.level[0],
                        .host = d->host};

    if (card.host.bytes_per_s > 0)
        card.host.bytes = (size_t)find_memory(d->links.level[0].ranks);
    memcpy(card.flops_per_s, d->flops_per_s, sizeof(card.flops_per_s));
    memcpy(card.peak_flops_per_s, d->peak_flops_per_s,
           sizeof(card.peak_flops_per_s));
    memcpy(card.attention_flops_per_s, d->attention_flops_per_s,
           sizeof(card.attention_flops_per_s));
    return card;
}

static void take_card(struct merak_device *d, const struct card *card)
{
    memcpy(d->flops_per_s, card->flops_per_s, sizeof(d->flops_per_s));
    memcpy(d->peak_flops_per_s, card->peak_flops_per_s,
           sizeof(d->peak_flops_per_s));
    memcpy(d->attention_flops_per_s, card->attention_flops_per_s,
           sizeof(d->attention_flops_per_s));
    d->bytes_per_s = card->bytes_per_s;
    d->memory_bytes = (size_t)card->memory_bytes;
    d->kernel_s = card->kernel_s;
    d->links.level[0].bytes_per_s = card->link.bytes_per_s;
    d->links.level[0].latency_s = card->link.latency_s;
    d->host = card->host;
}

static void take_worse(struct card *worst, const struct card *card)
{
    for (int i = 0; i < MERAK_DTYPE_COUNT; i++) {
        worst->flops_per_s[i] =
            fmin(worst->flops_per_s[i], card->flops_per_s[i]);
        worst->peak_flops_per_s[i] =
            fmin(worst->peak_flops_per_s[i], card->peak_flops_per_s[i]);
        worst->attention_flops_per_s[i] = fmin(worst->attention_flops_per_s[i],
                                               card->attention_flops_per_s[i]);
    }
    worst->bytes_per_s = fmin(worst->bytes_per_s, card->bytes_per_s);
    worst->link.bytes_per_s =
        fmin(worst->link.bytes_per_s, card->link.bytes_per_s);
    worst->memory_bytes = fmin(worst->memory_bytes, card->memory_bytes);
    worst->kernel_s = fmax(worst->kernel_s, card->kernel_s);
    worst->link.latency_s = fmax(worst->link.latency_s, card->link.latency_s);
    worst->host.bytes_per_s =
        fmin(worst->host.bytes_per_s, card->host.bytes_per_s);
    worst->host.latency_s =
        fmax(worst->host.latency_s, card->host.latency_s);
    if (card->host.bytes < worst->host.bytes)
        worst->host.bytes = card->host.bytes;
}

/* Take the worst value of all nodes, the same on all ranks. */
static enum merak_status take_worst(struct calibrate *c,
                                    struct merak_error *err)
{
    struct merak_boot *boot = c->world.boot;
    size_t size = (size_t)boot->size;
    struct card mine = make_card(c);
    struct card *cards = calloc(size, sizeof(*cards));
    enum merak_status rc =
        cards == NULL ? merak_fail_nomem(err, size * sizeof(*cards)) : MERAK_OK;

    rc = merak_boot_agree(boot, rc, err);
    if (rc == MERAK_OK)
        rc = boot->ops->allgather(boot, &mine, sizeof(mine), cards, err);
    for (int r = 1, nodes = 1; r < boot->size && rc == MERAK_OK; r++) {
        if (boot->node_of[r] < nodes)
            continue;
        take_worse(&cards[0], &cards[r]);
        nodes++;
    }
    if (rc == MERAK_OK)
        take_card(&c->device, &cards[0]);
    free(cards);
    return rc;
}

/* What each rank measures alone, all at the same time. */
static enum merak_status measure_rank(struct calibrate *c,
                                      struct merak_error *err)
{
    enum merak_status rc;

    if (c->world.accel == NULL)
        return calibrate_alone(c->world.backend, c->threads, &c->device, err);
    rc = calibrate_wake(&c->device, err);
    return rc == MERAK_OK ? calibrate_accel(&c->world, &c->device, err) : rc;
}

/* Is NCCL what plans have by default: where it was measured, or, by one rank,
 * where several would use it? */
static bool is_direct(const struct calibrate *c)
{
    const struct calibrate_world *w = &c->world;

    if (w->boot->size > 1)
        return w->link_ops != NULL;
    return merak_link_is_wanted(w->backend, 2, w->transport == CALIBRATE_AUTO,
                                w->transport == CALIBRATE_NCCL);
}

/* Until links between nodes are measured, those within a node are used. */
static void describe(struct calibrate *c)
{
    c->device.direct = is_direct(c);
    c->device.links.level[1].bytes_per_s = c->device.links.level[0].bytes_per_s;
    c->device.links.level[1].latency_s = c->device.links.level[0].latency_s;
    if (c->memory_gib > 0)
        c->device.memory_bytes = (size_t)(c->memory_gib * 0x1p30);
    snprintf(c->device.name, sizeof(c->device.name), "%s, %d thread%s",
             c->backend_name, c->threads, c->threads > 1 ? "s" : "");
}

/* The choices for --model take minutes: they are saved before kernels are
 * timed, so that an interrupted calibration keeps them. */
static enum merak_status tune(struct calibrate *c, struct merak_error *err)
{
    enum merak_status rc = calibrate_tune(&c->world, &c->tune, &c->device, err);

    describe(c);
    if (rc == MERAK_OK && c->world.boot->rank == 0)
        rc = merak_device_save(&c->device, c->out, err);
    return rc;
}

static enum merak_status measure_node(struct calibrate *c,
                                      struct merak_error *err)
{
    enum merak_status rc = measure_rank(c, err);

    rc = merak_boot_agree(c->world.boot, rc, err);
    if (rc == MERAK_OK)
        rc = take_worst(c, err);
    if (rc == MERAK_OK && c->tune.model != NULL)
        rc = tune(c, err);
    rc = merak_boot_agree(c->world.boot, rc, err);
    if (rc == MERAK_OK)
        rc = calibrate_net(&c->world, true, c->rounds, &c->device, err);
    if (rc == MERAK_OK)
        rc = calibrate_kernels(&c->world, c->threads, c->rounds, c->quick,
                               &c->device, err);
    describe(c);
    return rc;
}

/* Only rank 0 loads the device that the network is measured for. */
static enum merak_status load_device(struct calibrate *c,
                                     struct merak_error *err)
{
    int ranks = c->device.links.level[0].ranks;
    enum merak_status rc = MERAK_OK;

    if (c->world.boot->rank == 0)
        rc = merak_device_find(c->base, &c->device, err);
    if (rc == MERAK_ERR_NOT_FOUND || rc == MERAK_ERR_FORMAT)
        rc = MERAK_ERR_CONFIG; /* the option is wrong */
    c->device.links.level[0].ranks = ranks;
    return rc;
}

static enum merak_status open_devices(struct calibrate *c,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (c->world.backend->accel != NULL)
        rc = calibrate_accel_open(&c->world, c->threads, err);
    rc = merak_boot_agree(c->world.boot, rc, err);
    return rc == MERAK_OK ? calibrate_world_choose(&c->world, err) : rc;
}

static enum merak_status measure(struct calibrate *c, struct merak_error *err)
{
    enum merak_status rc = open_devices(c, err);

    if (rc == MERAK_OK)
        rc = c->net ? load_device(c, err) : measure_node(c, err);
    rc = merak_boot_agree(c->world.boot, rc, err);
    if (rc == MERAK_OK && c->world.boot->n_nodes > 1)
        rc = calibrate_net(&c->world, false, c->rounds, &c->device, err);
    if (rc == MERAK_OK && c->world.accel != NULL)
        c->device.direct = is_direct(c);
    return rc;
}

/* --- the command ---------------------------------------------------------- */

#define AT(field) offsetof(struct calibrate, field)

static const struct merak_option rows[] = {
    {"out", MERAK_OPTION_TEXT, AT(out),
     .about = "output file; ends in .json (required)", .arg = "FILE"},
    {"threads", MERAK_OPTION_INT, AT(threads), .about = "per rank (1)",
     .least = 1, .most = 4096},
    {"rounds", MERAK_OPTION_INT, AT(rounds),
     .about = "over all models and links that are timed (3)", .least = 1,
     .most = 100},
    {"steps", MERAK_OPTION_INT, AT(world.most_steps),
     .about = "of each model in a round, at most (12)", .least = 1,
     .most = 1000},
    {"quick", MERAK_OPTION_YES, AT(quick),
     .about = "a third of the models, once: for a first plan"},
    {"net", MERAK_OPTION_YES, AT(net),
     .about = "measure only the links between nodes; the rest is from "
              "--device"},
    {"between", MERAK_OPTION_TEXT, AT(between),
     .about = "measure only the links between the islands of this file, by the "
              "names of their nodes, into one for `merak plan`",
     .arg = "FILE"},
    {"ranks-per-node", MERAK_OPTION_INT, AT(device.links.level[0].ranks),
     .about = "recorded in the file (as many as were started)", .least = 1,
     .most = 4096},
    {"memory-gib", MERAK_OPTION_REAL, AT(memory_gib),
     .about = "that a rank may use (7/8 of this machine's, divided among its "
              "ranks)",
     .positive = true, .most = 1e6},
    {"backend", MERAK_OPTION_TEXT, AT(backend_name), .about = "kernels (cpu)",
     .arg = "NAME"},
    {"transport", MERAK_OPTION_WORD, AT(world.transport),
     .about = "what moves data between ranks; ucx: through host memory; nccl: "
              "GPU to GPU (auto: nccl where usable)",
     .words = "auto|ucx|nccl"},
    {"model", MERAK_OPTION_TEXT, AT(tune.model),
     .about = "config.json of a model whose GEMMs and attention are tuned",
     .arg = "FILE"},
    {"seq", MERAK_OPTION_INT, AT(tune.seq),
     .about = "of --model: tokens of a sequence (the model's positions, at "
              "most 1024)",
     .least = 1, .most = 1 << 24},
    {"micro-batch", MERAK_OPTION_INT, AT(tune.micro_batch),
     .about = "of --model: sequences of a micro-batch (1)", .least = 1,
     .most = 1 << 20},
    {"tp", MERAK_OPTION_INT, AT(tune.tp),
     .about = "of --model: tensor-parallel degree (1)", .least = 1,
     .most = 4096},
    {"from", MERAK_OPTION_TEXT, AT(from),
     .about = "measure nothing: take the times of a run from its trace",
     .arg = "DIR"},
    {"device", MERAK_OPTION_TEXT, AT(base),
     .about = "device that --from or --net corrects: a name or a file (cpu)",
     .arg = "WORD"},
};

static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static void print_help(void)
{
    puts("usage: merak calibrate --out FILE [OPTION]...\n"
         "\n"
         "Measure this cluster's kernels, memory, copies and links into a "
         "device\n"
         "file, for `merak plan`.  Start it as a run will be, with the same "
         "ranks per\n"
         "node and cores per rank:\n"
         "\n"
         "  srun -N 2 -n 16 -c 4 merak calibrate --threads 4 "
         "..\n"
         "\n"
         "With --between measure the links between islands, into a file of "
         "them.\n"
         "With --from, in one process, correct a device by the times of a "
         "traced run\n"
         "instead.\n");
    merak_options_help(&table, stdout);
}

static enum merak_status parse(int argc, char **argv, struct calibrate *c,
                               struct merak_error *err)
{
    enum merak_status rc =
        merak_options_parse(&table, argc, argv, c, &c->help, err);
    size_t n = c->out == NULL ? 0 : strlen(c->out);

    if (rc != MERAK_OK || c->help)
        return rc;
    if (n < 6 || strcmp(c->out + n - 5, ".json") != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --out FILE.json, where the device file goes");
    if (c->tune.model == NULL &&
        (c->tune.seq > 0 || c->tune.micro_batch > 0 || c->tune.tp > 0))
        return merak_fail(
            err, MERAK_ERR_CONFIG,
            "--seq, --micro-batch and --tp describe the model that "
            "kernels are tuned for: give --model FILE, too");
    if (c->tune.model != NULL && (c->net || c->from != NULL))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--model tunes kernels, and --net and --from measure "
                          "none: leave one out");
    if (c->from == NULL && c->base != NULL && !c->net)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--device %.100s is only for corrections: give "
                          "--from DIR or --net, too",
                          c->base);
    if (c->between != NULL &&
        (c->net || c->from != NULL || c->tune.model != NULL || c->quick ||
         c->threads > 0 || c->memory_gib > 0 || c->world.most_steps > 0 ||
         c->device.links.level[0].ranks > 0 ||
         c->world.transport == CALIBRATE_NCCL))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--between measures only ways between islands, "
                          "through host memory: of the other options it takes "
                          "--out and --rounds");
    if (c->net && (c->from != NULL || c->threads > 0 || c->memory_gib > 0))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--net measures only links: leave out --from, "
                          "--threads and --memory-gib, which are the device's "
                          "that it corrects");
    if (c->from != NULL &&
        (c->threads > 0 || c->rounds > 0 || c->world.most_steps > 0 ||
         c->quick || c->memory_gib > 0 || c->device.links.level[0].ranks > 0 ||
         c->world.transport != CALIBRATE_AUTO))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--from measures nothing: leave out --threads, "
                          "--rounds, --steps, --quick, --ranks-per-node, "
                          "--transport and --memory-gib, which are the "
                          "device's that it corrects");
    return MERAK_OK;
}

static int ranks_on(const struct merak_boot *boot, int node)
{
    int n = 0;

    for (int r = 0; r < boot->size; r++)
        n += boot->node_of[r] == node;
    return n;
}

static enum merak_status check_ranks(struct calibrate *c,
                                     struct merak_error *err)
{
    const struct merak_boot *boot = c->world.boot;
    int first = ranks_on(boot, 0);

    if (c->net && boot->n_nodes == 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--net measures links between nodes, and there is "
                          "only %s: start the same number of ranks on each of "
                          "several nodes (srun -N 2 --ntasks-per-node=%d)",
                          boot->host, first);
    for (int i = 1; i < boot->n_nodes; i++) {
        int n = ranks_on(boot, i);

        if (n != first)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "%d ranks on %.40s, %d on %.40s: plans have the "
                              "same number on each node: start that many (srun "
                              "-N %d --ntasks-per-node=%d)",
                              first, boot->hosts[0], n, boot->hosts[i],
                              boot->n_nodes, first > n ? first : n);
    }
    if (c->device.links.level[0].ranks == 0)
        c->device.links.level[0].ranks = first;
    return MERAK_OK;
}

/* Only rank 0 prints and writes the result, which is the same on all ranks. */
static int run(struct calibrate *c)
{
    struct merak_error err = {0};
    const struct merak_boot *boot = c->world.boot;
    enum merak_status rc = check_ranks(c, &err);

    if (rc == MERAK_OK && boot->rank == 0)
        rc = merak_output_check("--out", c->out, &err);
    if (rc == MERAK_OK && boot->rank > 0 &&
        (stdout = fopen("/dev/null", "we")) == NULL)
        rc = merak_fail(&err, MERAK_ERR_SYSTEM, "/dev/null: %m");
    rc = merak_boot_agree(c->world.boot, rc, &err);
    if (rc == MERAK_OK)
        rc = measure(c, &err);
    if (rc == MERAK_OK && boot->rank == 0)
        rc = merak_device_save(&c->device, c->out, &err);
    rc = merak_boot_agree(c->world.boot, rc, &err);
    if (rc == MERAK_OK)
        return MERAK_EXIT_DONE;
    if (boot->rank == 0)
        fprintf(stderr, "merak calibrate: %s\n", err.text);
    return rc == MERAK_ERR_CONFIG || rc == MERAK_ERR_UNSUPPORTED
               ? MERAK_EXIT_CONFIG
               : MERAK_EXIT_RESOURCE;
}

int merak_cmd_calibrate(int argc, char **argv)
{
    struct calibrate c = {.backend_name = "cpu"};
    struct merak_error err = {0};
    enum merak_status rc = parse(argc, argv, &c, &err);
    int code;

    if (rc == MERAK_OK && c.help) {
        print_help();
        return MERAK_EXIT_DONE;
    }
    if (rc == MERAK_OK)
        rc = merak_backend_find(c.backend_name, &c.world.backend, &err);
    if (rc == MERAK_OK && c.from == NULL && c.world.backend->emulated)
        rc = merak_fail(&err, MERAK_ERR_CONFIG,
                        "--backend %s has no kernels to time; use cpu or ref",
                        c.backend_name);
    c.tune.micro_batch = c.tune.micro_batch > 0 ? c.tune.micro_batch : 1;
    c.tune.tp = c.tune.tp > 0 ? c.tune.tp : 1;
    if (rc == MERAK_OK && c.tune.model != NULL)
        rc = calibrate_tune_check(c.world.backend, &c.tune, &err);
    if (rc == MERAK_OK && c.from != NULL)
        rc = merak_output_check("--out", c.out, &err);
    if (rc != MERAK_OK) {
        fprintf(stderr, "merak calibrate: %s\n", err.text);
        return rc == MERAK_ERR_NOSPACE ? MERAK_EXIT_RESOURCE
                                       : MERAK_EXIT_CONFIG;
    }
    c.base = c.base != NULL ? c.base : "cpu";
    if (c.from != NULL)
        return calibrate_from_trace(
            &(struct calibrate_from){c.from, c.base, c.backend_name, c.out});
    c.threads = c.threads > 0 ? c.threads : 1;
    if (c.rounds == 0)
        c.rounds = c.quick ? 1 : ROUNDS;
    if (c.world.most_steps == 0)
        c.world.most_steps = STEPS;
    rc = merak_boot_open(&c.world.boot, &err);
    if (rc != MERAK_OK) {
        fprintf(stderr, "merak calibrate: %s\n", err.text);
        return MERAK_EXIT_LAUNCH;
    }
    code = c.between != NULL
               ? calibrate_between(
                     &(struct calibrate_ways){c.between, c.out, c.rounds},
                     c.world.boot)
               : run(&c);
    calibrate_accel_close(&c.world);
    merak_device_fini(&c.device);
    merak_boot_close(c.world.boot);
    return code;
}
