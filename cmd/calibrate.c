/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.c - `merak calibrate`: measure this machine into a device file
 *
 * What a step's time is predicted from (partitioner/search/device.h): rates
 * that each rank measures by itself (calibrate_alone.c), then kernels and, where
 * several ranks were started, exchanges as training steps have them
 * (calibrate_kernels.c).
 */
#include "config.h"

#include "cmd/calibrate.h"
#include "cmd/cmd.h"

#include "base/error.h"
#include "base/options.h"
#include "kernels/kernels.h"
#include "partitioner/search/device.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 3

struct calibrate {
    const char *out, *backend_name;
    const char *from, *base;
    int threads, rounds;
    double memory_gib;
    bool help;
    struct calibrate_world world;
    struct merak_device device;
};

static enum merak_status measure(struct calibrate *c, struct merak_error *err)
{
    enum merak_status rc =
        calibrate_alone(c->world.backend, c->threads, &c->device, err);

    rc = merak_boot_agree(c->world.boot, rc, err);
    if (rc == MERAK_OK)
        rc = calibrate_kernels(&c->world, c->threads, c->rounds, &c->device,
                               err);
    /* Between nodes nothing was measured: as far as is known, the same. */
    c->device.net_bytes_per_s = c->device.link_bytes_per_s;
    c->device.net_latency_s = c->device.link_latency_s;
    return rc;
}

/* --- the command ---------------------------------------------------------- */

#define AT(field) offsetof(struct calibrate, field)

static const struct merak_option rows[] = {
    {"out", MERAK_OPTION_TEXT, AT(out),
     .about = "where to; ends in .json (required)", .arg = "FILE"},
    {"threads", MERAK_OPTION_INT, AT(threads), .about = "of a rank (1)",
     .least = 1, .most = 4096},
    {"rounds", MERAK_OPTION_INT, AT(rounds),
     .about = "over all models that are timed (3)", .least = 1, .most = 100},
    {"ranks-per-node", MERAK_OPTION_INT, AT(device.ranks_per_node),
     .about = "to be noted in the file (as many as were started)", .least = 1,
     .most = 4096},
    {"memory-gib", MERAK_OPTION_REAL, AT(memory_gib),
     .about = "that a rank may take (7/8 of this machine's, shared out)",
     .positive = true, .most = 1e6},
    {"backend", MERAK_OPTION_TEXT, AT(backend_name), .about = "kernels (cpu)",
     .arg = "NAME"},
    {"from", MERAK_OPTION_TEXT, AT(from),
     .about = "measure nothing: take the times of a run from its trace",
     .arg = "DIR"},
    {"device", MERAK_OPTION_TEXT, AT(base),
     .about = "what --from corrects: a name or a file (cpu)", .arg = "WORD"},
};

static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static void print_help(void)
{
    puts("usage: merak calibrate --out FILE [OPTION]...\n"
         "\n"
         "Measure this machine's kernels, memory and copies into a device "
         "file,\n"
         "for `merak plan`.  Start it as ranks will be, as many on a node, on "
         "as\n"
         "many cores each: srun -N 1 -n 8 -c 4 merak calibrate --threads 4 "
         "..\n"
         "\n"
         "With --from, in one process, correct a device by what a traced run "
         "took\n"
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
    if (c->from == NULL && c->base != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--device %.100s is what a trace corrects: give "
                          "--from DIR, too",
                          c->base);
    if (c->from != NULL &&
        (c->threads > 0 || c->rounds > 0 || c->memory_gib > 0 ||
         c->device.ranks_per_node > 0))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--from measures nothing: --threads, --rounds, "
                          "--ranks-per-node and --memory-gib are the "
                          "device's that it corrects");
    return MERAK_OK;
}

static enum merak_status check_ranks(struct calibrate *c,
                                     struct merak_error *err)
{
    const struct merak_boot *boot = c->world.boot;

    if (boot->n_nodes > 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d ranks on %d nodes: start those of one node "
                          "(srun -N 1 -n %d)",
                          boot->size, boot->n_nodes, boot->local_size);
    if (c->device.ranks_per_node == 0)
        c->device.ranks_per_node = boot->size;
    return MERAK_OK;
}

static void fill_device(struct calibrate *c)
{
    double bytes = (double)sysconf(_SC_PHYS_PAGES) *
                   (double)sysconf(_SC_PAGESIZE) * 7 / 8 /
                   c->device.ranks_per_node;

    if (c->memory_gib > 0)
        bytes = c->memory_gib * 0x1p30;
    c->device.memory_bytes = (size_t)bytes;
    snprintf(c->device.name, sizeof(c->device.name), "%s, %d thread%s",
             c->backend_name, c->threads, c->threads > 1 ? "s" : "");
}

/* What all ranks found alike is rank 0's to print and to write. */
static int run(struct calibrate *c)
{
    struct merak_error err = {0};
    const struct merak_boot *boot = c->world.boot;
    enum merak_status rc = check_ranks(c, &err);

    if (rc == MERAK_OK && boot->rank > 0 &&
        freopen("/dev/null", "w", stdout) == NULL)
        rc = merak_fail(&err, MERAK_ERR_SYSTEM, "/dev/null: %m");
    rc = merak_boot_agree(c->world.boot, rc, &err);
    if (rc == MERAK_OK)
        rc = measure(c, &err);
    if (rc == MERAK_OK && boot->rank == 0) {
        fill_device(c);
        rc = merak_device_save(&c->device, c->out, &err);
    }
    rc = merak_boot_agree(c->world.boot, rc, &err);
    if (rc == MERAK_OK)
        return MERAK_EXIT_DONE;
    if (boot->rank == 0)
        fprintf(stderr, "merak calibrate: %s\n", err.text);
    return rc == MERAK_ERR_CONFIG ? MERAK_EXIT_CONFIG : MERAK_EXIT_RESOURCE;
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
    if (rc != MERAK_OK) {
        fprintf(stderr, "merak calibrate: %s\n", err.text);
        return MERAK_EXIT_CONFIG;
    }
    if (c.from != NULL)
        return calibrate_from_trace(&(struct calibrate_from){
            c.from, c.base != NULL ? c.base : "cpu", c.backend_name, c.out});
    c.threads = c.threads > 0 ? c.threads : 1;
    c.rounds = c.rounds > 0 ? c.rounds : ROUNDS;
    rc = merak_boot_open(&c.world.boot, &err);
    if (rc != MERAK_OK) {
        fprintf(stderr, "merak calibrate: %s\n", err.text);
        return MERAK_EXIT_LAUNCH;
    }
    code = run(&c);
    merak_device_fini(&c.device);
    merak_boot_close(c.world.boot);
    return code;
}
