/* SPDX-License-Identifier: Apache-2.0 */
/* single.c - the boot of a lone process */
#include "config.h"

#include "runtime/boot/boot_impl.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum merak_status single_allgather(struct merak_boot *boot,
                                          const void *card, size_t bytes,
                                          void *cards, struct merak_error *err)
{
    (void)boot;
    (void)err;
    memcpy(cards, card, bytes);
    return MERAK_OK;
}

static enum merak_status single_broadcast(struct merak_boot *boot, void *data,
                                          size_t bytes, struct merak_error *err)
{
    (void)boot;
    (void)data;
    (void)bytes;
    (void)err;
    return MERAK_OK;
}

static enum merak_status single_barrier(struct merak_boot *boot,
                                        struct merak_error *err)
{
    (void)boot;
    (void)err;
    return MERAK_OK;
}

static void single_abort(struct merak_boot *boot, int code, const char *why)
{
    (void)boot;
    (void)why; /* the program has printed it; there is nobody to notify */
    _exit(code);
}

static void single_close(struct merak_boot *boot)
{
    merak_boot_clear_nodes(boot);
    free(boot);
}

static const struct merak_boot_ops single_ops = {
    .name = "single",
    .allgather = single_allgather,
    .broadcast = single_broadcast,
    .barrier = single_barrier,
    .abort = single_abort,
    .close = single_close,
};

enum merak_status merak_boot_single_open(struct merak_boot **boot_p,
                                         struct merak_error *err)
{
    struct merak_boot *boot = calloc(1, sizeof(*boot));
    char name[256] = "";
    const char *host = name;
    enum merak_status rc;

    if (boot == NULL)
        return merak_fail_nomem(err, sizeof(*boot));
    if (gethostname(name, sizeof(name) - 1) != 0)
        snprintf(name, sizeof(name), "localhost");
    boot->ops = &single_ops;
    boot->size = 1;
    rc = merak_boot_set_nodes(boot, &host, err);
    if (rc != MERAK_OK) {
        free(boot);
        return rc;
    }
    *boot_p = boot;
    return MERAK_OK;
}
