/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_trace.c - `merak calibrate --from`: correct a device by a run */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/error.h"
#include "base/size.h"
#include "io/trace/samples.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_change(const struct merak_change *c)
{
    const char *unit = c->unit == MERAK_CHANGE_SECONDS   ? "ms a step"
                       : c->unit == MERAK_CHANGE_LATENCY ? "us"
                                                         : "G/s";
    double scale = c->unit == MERAK_CHANGE_SECONDS   ? 1e3
                   : c->unit == MERAK_CHANGE_LATENCY ? 1e6
                                                     : 1e-9;

    printf("%-28s %12.4f %12.4f %-9s %7.3f %6d %8ld\n", c->what,
           c->before * scale, c->after * scale, unit,
           c->before > 0 ? c->after / c->before : 0, c->classes, c->samples);
}

static void print_changes(const struct merak_trace_rank *rank, const char *dir,
                          const struct merak_trace_samples *samples,
                          const struct merak_change *changes, int n)
{
    const struct merak_trace_info *info = &rank->info;
    char degrees[MERAK_TRACE_DEGREES];

    printf("%s: %d rank%s, %s, %s, %s, %d thread%s; %d step%s of %.3f ms\n\n",
           dir, info->ranks, merak_plural(info->ranks),
           merak_trace_degrees(info, degrees), info->schedule, info->dtype,
           info->threads, merak_plural(info->threads), samples->steps,
           merak_plural(samples->steps), samples->step_s * 1e3);
    printf("%-28s %12s %12s %-9s %7s %6s %8s\n", "WHAT", "BEFORE", "AFTER", "",
           "FACTOR", "SIZES", "RECORDS");
    for (int i = 0; i < n; i++)
        print_change(&changes[i]);
}

/* Append ", refined" to the name, once. */
static void name_refined(struct merak_device *device)
{
    static const char suffix[] = ", refined";
    size_t most = sizeof(device->name) - sizeof(suffix);
    size_t n = strlen(device->name);

    if (n >= sizeof(suffix) - 1 &&
        strcmp(device->name + n - (sizeof(suffix) - 1), suffix) == 0)
        return;
    n = n < most ? n : most;
    while (n > 0 && ((unsigned char)device->name[n] & 0xc0) == 0x80)
        n--; /* do not split a character */
    strcpy(device->name + n, suffix);
}

static enum merak_status refine(const struct calibrate_from *from,
                                const struct merak_trace_rank *ranks, int n,
                                struct merak_device *device,
                                struct merak_error *err)
{
    struct merak_trace_samples samples = {.refine = NULL};
    struct merak_change *changes = NULL;
    int n_changes = 0;
    enum merak_status rc = merak_trace_samples(
        ranks, n, from->dir, from->backend,
        merak_backend_is_emulated(ranks[0].info.backend), &samples, err);

    if (rc == MERAK_OK)
        rc = merak_refine_device(samples.refine, samples.dtype, n,
                                 !merak_backend_is_emulated(from->backend),
                                 device, &changes, &n_changes, err);
    if (rc == MERAK_OK) {
        name_refined(device);
        rc = merak_device_save(device, from->out, err);
    }
    if (rc == MERAK_OK)
        print_changes(&ranks[0], from->dir, &samples, changes, n_changes);
    free(changes);
    merak_refine_destroy(samples.refine);
    return rc;
}

/* Several tasks would read and write the same files. */
static enum merak_status check_alone(const struct calibrate_from *from,
                                     struct merak_error *err)
{
    const char *by;
    int tasks = merak_boot_launched(&by);

    if (tasks == 1)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%d tasks were started (%s), and all would write %s: "
                      "with --from start one, by itself or with srun -n 1",
                      tasks, by, from->out);
}

int calibrate_from_trace(const struct calibrate_from *from)
{
    struct merak_trace_rank *ranks = NULL;
    struct merak_device device = {.n_tuned = 0};
    struct merak_error err = {.status = MERAK_OK};
    int n = 0;
    enum merak_status rc = check_alone(from, &err);

    if (rc == MERAK_OK)
        rc = merak_device_find(from->device, &device, &err);
    if (rc != MERAK_OK) {
        if (merak_boot_is_first())
            fprintf(stderr, "merak calibrate: %s\n", err.text);
        return MERAK_EXIT_CONFIG;
    }
    rc = merak_trace_load(from->dir, &ranks, &n, &err);
    if (rc == MERAK_ERR_IO)
        rc = MERAK_ERR_CORRUPT; /* do not write it */
    if (rc == MERAK_OK)
        rc = refine(from, ranks, n, &device, &err);
    merak_trace_unload(ranks, n);
    merak_device_fini(&device);
    if (rc == MERAK_OK)
        return MERAK_EXIT_DONE;
    fprintf(stderr, "merak calibrate: %s\n", err.text);
    if (rc == MERAK_ERR_CONFIG || rc == MERAK_ERR_PARAM)
        return MERAK_EXIT_CONFIG;
    return rc == MERAK_ERR_NOMEM || rc == MERAK_ERR_NOSPACE ||
                   rc == MERAK_ERR_IO
               ? MERAK_EXIT_RESOURCE
               : MERAK_EXIT_DATA;
}
